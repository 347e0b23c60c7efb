"""Cached steps equal forward passes; beams find the best hypotheses; gaps are filled."""

from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sublayer.api.run import Pretrained
from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.data.span import corrupt
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.decode.beam import BeamSettings, search
from sublayer.decode.beam_step import DrawnContinuations, top
from sublayer.decode.gaps import FillSettings, fill_gaps, go_on, prompt_with_gaps
from sublayer.decode.sample import GREEDY, Sampling, generate
from sublayer.decode.step import FixedStepper, Stepper, pack_linear, takes_vectors
from sublayer.errors import ConfigError
from sublayer.model.cache import Cache, cache_bytes
from sublayer.model.transformer import build
from tests.breadth import rows
from tests.encoders import random_model
from tests.gpu.kinds import NothingWaits

VOCAB_SIZE, CONTEXT = 13, 10
ROTARY = {"positions": "rotary", "norm": "rms", "ffn": "swiglu", "bias": False}
CAPPED = {"score_cap": 1.5, "sinks": True, "logit_cap": 2.0, "attention_scale": 0.7}
PER_LAYER = {"positions": "learned-per-layer", "tie_embeddings": False, "final_norm": "plain"}
SHARED = {"positions": "sinusoidal", "norm_order": "post", "share": "all", "block": "macaron"}
RELATIVE = {"positions": "relative", "relative_buckets": 4, "relative_distance": 5}
ALIBI = {"positions": "alibi", "n_heads": 3}
LOCAL = {"attention_window": 3, "window_pattern": "LG"}
END, PAD, LONGEST = 2, 1, 4
MODELS = [
    {}, {**ROTARY, "positions": "sinusoidal", "block": "macaron"},
    {"ffn": "swiglu", "swish_beta": "learned"},
    {"positions": "rotary", "norm_order": "post", "share": "all", "d_embed": 6},
    {"positions": "learned-per-layer", "tie_embeddings": False, "head_bias": True},
    {"decoder_block": ["cross", "ffn", "attention*0.5", "cross*0.5"], "positions": "none"},
    CAPPED,
    {"attention_gate": "head", "value_residual": "learned", "positions": "rotary",
     "rotary_fraction": 0.5, "rotary_layout": "interleaved-clockwise", "d_head": 8},
]  # fmt: skip
RULES = [("fairseq", 1.0), ("gnmt", 0.6), ("fairseq", 0.0)]
SOURCE = [5, 6, 3]
TEXT = (
    "The cat sat on the mat, and the dog ran over the field. A man and a woman saw it all.\n"
    "It rained on the town; the cat, the dog and the man were wet and unable to run.\n"
    "The dog ran over the field, and slept. Then a man came to the door. A woman saw the cat.\n"
) * 20
TOKENIZER = train_tokenizer("unigram", [TEXT.encode()], vocab_size=80, sentinels=4)
A, B, C, D = TOKENIZER.sentinel_ids
PAD_ID, END_ID = 0, 1
PROMPT = "The <extra_id_0> sat on the <extra_id_1>."
FIRST = "<extra_id_0> sat on the <extra_id_1>."


def make_model(context=CONTEXT, **fields):
    sizes = {"n_layers": 2, "d_model": 12, **fields}
    if fields.get("kind") == "lstm":
        return random_model(sizes, VOCAB_SIZE, context, std=0.5)
    config = ModelConfig(**{"n_heads": 2, "init_std": 0.5, **sizes})
    model = build(resolve_model(config, vocab_size=VOCAB_SIZE, context=context), seed=4)
    return model.double().eval()


def draw_tokens(n_rows, n_tokens, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCAB_SIZE, (n_rows, n_tokens), generator=generator)


def generated(model, prompt, n, sampling=GREEDY, **more):
    return torch.stack(list(generate(model, prompt, n, sampling, **more)), dim=1).tolist()


def recomputed(model, prompt, n, window):
    tokens, seen = prompt, prompt.shape[1]
    is_endless = model.config.kind == "lstm"
    for _ in range(n):
        with torch.no_grad():
            read = tokens if is_endless else tokens[:, -seen:]
            chosen = model(read).logits[:, -1].argmax(-1)
        tokens = torch.cat([tokens, chosen[:, None]], dim=1)
        seen += 1
        if seen > CONTEXT:
            seen = CONTEXT if window == "exact" else CONTEXT // 2 + 1
    return tokens[:, prompt.shape[1] :].tolist()


@pytest.mark.parametrize("n_prompt, fields, window", [
    (4, ROTARY, "rolling"), (CONTEXT, PER_LAYER, "exact"), (4, SHARED, "rolling"),
    (CONTEXT, RELATIVE, "rolling"), (1, ALIBI, "exact"), (2 * CONTEXT, {"kind": "lstm"}, "exact"),
    (4, {**ROTARY, **LOCAL, "rotary_local_base": 50.0}, "rolling"),
    (CONTEXT, {**RELATIVE, **LOCAL, "position_pattern": "PN"}, "exact"),
], ids=str)  # fmt: skip
def test_cached_tokens_are_those_of_forward_passes(fields, window, n_prompt):
    model, prompt = make_model(**fields), draw_tokens(3, n_prompt)
    assert generated(model, prompt, 17, window=window) == recomputed(model, prompt, 17, window)


def test_sampled_tokens_are_a_function_of_the_seed_and_rows_do_not_depend_on_others():
    model, prompt = make_model(init_std=0.05), torch.tensor([[1, 2]])
    first, again, other = (generated(model, prompt, 30, Sampling(), seed=n) for n in (5, 5, 6))
    assert first == again != other
    both = torch.tensor([[3, 4], [1, 2]])
    assert generated(model, both, 20)[1] == generated(model, prompt, 20)[0]


@pytest.mark.parametrize("sampling, expected", [
    (GREEDY, [1.0, 0.0, 0.0, 0.0]), (Sampling(top_k=2), [4 / 7, 0.0, 3 / 7, 0.0]),
    (Sampling(top_p=0.65), [4 / 7, 0.0, 3 / 7, 0.0]),
    (Sampling(top_p=0.75), [4 / 9, 0.0, 3 / 9, 2 / 9]),
    (Sampling(temperature=0.5, top_k=3, top_p=0.8), [16 / 25, 0.0, 9 / 25, 0.0]),
], ids=str)  # fmt: skip
def test_tokens_are_sampled_with_their_probabilities(sampling, expected):
    n = 40_000
    logits = torch.tensor([0.4, 0.1, 0.3, 0.2], dtype=torch.float64).log().expand(n, -1)
    chosen = sampling.choose(logits, torch.Generator().manual_seed(0))
    shares = (torch.bincount(chosen, minlength=4) / n).tolist()
    # Five standard deviations of 40,000 draws at a probability of one half.
    assert shares == pytest.approx(expected, abs=5 * 0.5 / 200)
    assert [share > 0 for share in shares] == [share > 0 for share in expected]


@pytest.mark.parametrize("n_prompt, is_training, message", [
    (0, False, "empty"), (CONTEXT + 1, False, "11 tokens"), (1, True, "training"),
])  # fmt: skip
def test_an_unreadable_prompt_and_a_model_with_dropout_are_refused(n_prompt, is_training, message):
    model = make_model().train(is_training)
    with pytest.raises(ConfigError, match=message):
        next(generate(model, torch.zeros(1, n_prompt, dtype=torch.long), 1, GREEDY))


def as_recorded(compute):
    """Record as a CUDA graph does: one computation, whose result is written in its place."""
    result = compute().clone()
    return lambda: result.copy_(compute())


@pytest.mark.parametrize("length, n_kept", [(2, 4 * 2), (100, 3 * 3 + 100)])
def test_a_local_attention_keeps_its_window(length, n_kept):
    model = make_model(4096, n_layers=4, attention_window=3, window_pattern="LLG", n_heads=2)
    # Two rows of keys and values of 12 features.
    assert cache_bytes(model.config, 2, length, torch.float32) == 2 * n_kept * 2 * 12 * 4
    cache = Cache(model.config, 2, length)
    kept = [cache.key_values(layer, 0).room for layer in range(4)]
    assert sum(kept) == n_kept


def test_an_lstm_keeps_a_state_of_constant_size():
    model, tokens = make_model(kind="lstm", d_embed=5), draw_tokens(3, 15)
    n_bytes = 3 * 2 * 2 * 12 * 4  # rows, layers, output and cell, units, bytes
    for length in (10, 10**7):
        assert cache_bytes(model.config, 3, length, torch.float32) == n_bytes
    assert len(list(generate(model.bfloat16(), tokens, 4, Sampling(top_k=3)))) == 4


@pytest.fixture
def fixed(monkeypatch):
    """Take fixed steps, replayed by hand instead of by a graph; their rooms are noted."""
    rooms = []

    def switch(is_fixed):
        monkeypatch.setattr("sublayer.decode.sample.pays", lambda *_: is_fixed)
        return rooms

    record = lambda compute: rooms.append(compute) or as_recorded(compute)  # noqa: E731
    monkeypatch.setattr("sublayer.decode.sample.record", record)
    monkeypatch.setattr("sublayer.decode.step._FIRST_ROOM", 8)
    return switch


@pytest.mark.parametrize("fields, n_rows, sampling, window", [
    (MODELS[6], 1, Sampling(temperature=0.8, top_k=6), "exact"), (RELATIVE, 3, GREEDY, "rolling"),
], ids=str)  # fmt: skip
def test_fixed_steps_generate_the_same_tokens(fields, n_rows, sampling, window, fixed):
    model, prompt = make_model(64, **fields), draw_tokens(n_rows, 5)
    # Past the context of 40, which no room of twice the one before divides.
    more, found = {"seed": 2, "window": window, "context": 40}, []
    for is_fixed in (False, True):
        rooms = fixed(is_fixed)
        found.append(generated(model, prompt, 60, sampling, **more))
    assert found[1] == found[0]
    assert len(rooms) == 4, "8, 16, 32 and 40 keys"


# Longer than the bias of relative positions that a step looks up at first.
@pytest.mark.parametrize("fields", [
    PER_LAYER, ALIBI, RELATIVE, {**ALIBI, **LOCAL, "position_pattern": "PN"},
    {**RELATIVE, "attention_window": 66}, {**ROTARY, **LOCAL, **CAPPED, "rotary_local_base": 50.0},
], ids=str)  # fmt: skip
def test_step_logits_fixed_or_not_are_those_of_a_forward_pass(fields):
    model, tokens = make_model(70, **fields), draw_tokens(3, 70)
    caches = [Cache(model.config, 3, 70, torch.float64) for _ in range(2)]
    with torch.inference_mode():
        expected = model(tokens).logits
        for cache in caches:
            model.last_logits(tokens[:, :5], cache)
        steps = Stepper(model, 3), FixedStepper(model, 3, caches[1], as_recorded)
        for step, cache in zip(steps, caches, strict=True):
            # The result of a fixed step stands where the next one is written.
            found = [step(tokens[:, place], cache).clone() for place in range(5, 70)]
            torch.testing.assert_close(torch.stack(found, 1), expected[:, 5:], rtol=0, atol=1e-11)
            with pytest.raises(ConfigError, match="do not fit into a cache"):
                step(tokens[:, 0], cache)
            assert cache.length == 70


@pytest.mark.parametrize("is_fixed", [False, True])
def test_no_step_waits_for_a_gpu(fixed, monkeypatch, is_fixed):
    model, rooms = make_model(64, **RELATIVE), fixed(is_fixed)
    # By the operators that a GPU takes.
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with NothingWaits():
        list(generate(model, torch.ones(3, 5, dtype=torch.long), 30, GREEDY))
    assert bool(rooms) == is_fixed


@pytest.mark.parametrize("dtype, n_rows, maker", [
    (torch.float64, 1, "AMD"), (torch.float32, 64, "Intel"), (torch.float32, 65, "AMD"),
    (torch.bfloat16, 1, "Intel"), (torch.bfloat16, 16, "AMD"),
], ids=str)  # fmt: skip
def test_packed_products_are_those_of_a_linear_map(monkeypatch, dtype, n_rows, maker):
    monkeypatch.setattr("sublayer.decode.step.processor", lambda: maker)
    generator, shapes = torch.Generator().manual_seed(4), [(37, 24), (n_rows, 24), (37,)]
    matrix, x, bias = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    limit = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    for added in (bias, None):
        expected = F.linear(x.double(), matrix.double(), None if added is None else bias.double())
        with torch.inference_mode():
            multiply = pack_linear(matrix, added, n_rows)
            found = multiply(x[0])[None] if takes_vectors(matrix, n_rows) else multiply(x)
        assert found.dtype == dtype
        atol = limit * expected.abs().max().item()
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=atol)
        monkeypatch.setattr("sublayer.decode.step._packs", lambda matrix: False)


def make_translator(vocab_size, **fields):
    sizes = {"n_layers": 2, "d_model": 12, "n_heads": 2, "init": "normal", "init_std": 0.5}
    config = ModelConfig(kind="encoder-decoder", **{**sizes, **fields})
    return build(resolve_model(config, vocab_size=vocab_size, context=24), seed=3).double().eval()


def translated(model, sources, settings, **rest):
    arrays = [np.array(source) for source in sources]
    found = dict(search(model, arrays, settings, **{"end_id": END, "pad_id": PAD, **rest}))
    return [found[number] for number in range(len(sources))]


def log_p_of(model, source, texts):
    """Compute the log-probabilities of all tokens, behind the start and each token of texts."""
    sources = torch.tensor([[*source, END]] * len(texts))
    with torch.no_grad():
        output = model(sources, target=torch.tensor([[END, *ids] for ids in texts]))
    return output.logits.log_softmax(-1)


def all_hypotheses(model, source, settings):
    words = [word for word in range(model.embedding.weight.shape[0]) if word not in (END, PAD)]
    scores = {}
    for length in range(1, LONGEST + 1):
        texts = [list(ids) for ids in product(words, repeat=length)]
        for ids, log_p in zip(texts, log_p_of(model, source, texts), strict=True):
            total = log_p[range(length + 1), [*ids, END]].sum().item()
            scores[tuple(ids)] = settings.score(total, length + 1)
    return scores


@pytest.mark.parametrize(("rule", "fields"), rows(product(RULES, MODELS), 4), ids=str)
def test_a_wide_beam_finds_the_best_of_all_hypotheses(rule, fields):
    model = make_translator(5, **fields)
    settings = BeamSettings(130, *rule, max_length_offset=LONGEST)
    for source in ([3, 4, 0], [4]):
        known = all_hypotheses(model, source, settings)
        (found,) = translated(model, [source], settings)
        assert {tuple(each.ids): pytest.approx(each.score, abs=1e-12) for each in found} == known
        assert tuple(found[0].ids) == max(known, key=lambda ids: known[ids])


@pytest.mark.parametrize(("fields", "beam"), [(MODELS[4], 1), (MODELS[5], 3), (RELATIVE, 3)])
def test_a_translation_does_not_depend_on_those_beside_it(monkeypatch, fields, beam):
    model, rng = make_translator(30, **fields), np.random.default_rng(1)
    # Longer ones join shorter ones, whose memories become wider.
    sources = [rng.integers(3, 30, length).tolist() for length in (2, 1, 3, 11, 4, 9)]
    settings = BeamSettings(beam=beam, max_length_ratio=1.5, max_length_offset=2)
    alone = [translated(model, [source], settings)[0] for source in sources]
    # Translations outgrow the room that they begin with.
    monkeypatch.setattr("sublayer.decode.beam_step.FIRST_LENGTH", 4)
    for sentences in (3, 64):
        together = translated(model, sources, settings, sentences=sentences)
        for one, other in zip(alone, together, strict=True):
            assert [each.ids.tolist() for each in one] == [each.ids.tolist() for each in other]
            scores = [each.score for each in other]
            assert [each.score for each in one] == pytest.approx(scores, abs=1e-10)


@torch.no_grad()
def greedy(model, source, longest, *, pad=PAD, ends=(END,)):
    """Write the most probable token each time, until any end is more probable."""
    ids, total, read = [], 0.0, torch.tensor([[*source, ends[0]]])
    while True:
        logits = model(read, target=torch.tensor([[ends[0], *ids]])).logits[0, -1]
        log_p = logits.log_softmax(-1)
        p_end = log_p[[*ends]].logsumexp(-1).item()
        log_p[[pad, *ends]] = -torch.inf
        chosen = int(log_p.argmax())
        if len(ids) == longest or (ids and p_end > log_p[chosen]):
            return ids, total + p_end
        ids.append(chosen)
        total += log_p[chosen].item()


@pytest.mark.parametrize(("ratio", "offset"), [(0.0, 3.0), (2.0, 1.0)])
def test_no_translation_is_longer_than_allowed(ratio, offset):
    settings = BeamSettings(2, max_length_ratio=ratio, max_length_offset=offset)
    translations = translated(make_translator(30), [[4] * n for n in (1, 3, 9)], settings)
    for n, found in zip((1, 3, 9), translations, strict=True):
        longest = int(ratio * (n + 1) + offset)
        assert all(1 <= len(each.ids) <= longest for each in found)
        assert max(len(each.ids) for each in found) == longest or ratio > 0


def test_scores_follow_their_rule_and_dropout_and_too_many_rows_are_refused():
    rules = (BeamSettings(penalty=0.5), BeamSettings(rule="gnmt", penalty=1.0))
    assert [rule.score(-6.0, n) for rule, n in zip(rules, (4, 7), strict=True)] == [-3.0, -3.0]
    assert BeamSettings(penalty=0.0).score(-6.0, 9) == -6.0
    with pytest.raises(ConfigError, match="training mode"):
        translated(make_translator(9).train(), [[4]], BeamSettings())
    with pytest.raises(ConfigError, match="--batch"):
        translated(make_translator(9), [[4]], BeamSettings(), sentences=10**12)


@pytest.mark.parametrize(("n_tokens", "count"), [(40, 10), (2000, 1), (2063, 10)])
def test_the_best_of_pieces_are_the_best_of_all(n_tokens, count):
    scores = torch.randn(7, n_tokens, generator=torch.Generator().manual_seed(count))
    scores[2] = -torch.inf
    scores[2, -1] = 0.0  # behind the last whole piece, alone
    scores[3, : n_tokens // 2] = 5.0  # equal ones
    values, indices = top(scores, count)
    assert torch.equal(values, scores.topk(count, -1).values)
    assert torch.equal(scores.gather(1, indices), values)
    assert all(len(set(row.tolist())) == count for row in indices)


def drawn(model, n, sampling, *, seed=0, longest=9):
    settings = BeamSettings(beam=1, penalty=0.0, max_length_offset=longest)
    continuations = DrawnContinuations(sampling, seed, torch.device("cpu"))
    more = {"continuations": continuations, "sentences": n}
    return [found[0] for found in translated(model, [SOURCE] * n, settings, **more)]


def test_drawn_hypotheses_have_the_probability_of_the_model_at_any_temperature():
    model = make_translator(9)
    ids, log_p = greedy(model, SOURCE, 9)
    for hypothesis in drawn(model, 2, GREEDY):
        assert hypothesis.ids.tolist() == ids
        assert hypothesis.log_p == pytest.approx(log_p, abs=1e-12)
    warm = Sampling(temperature=3.0, top_k=5)
    written, again, others = (drawn(model, 20, warm, seed=seed) for seed in (1, 1, 2))
    texts = [[tuple(each.ids) for each in hypotheses] for hypotheses in (written, again, others)]
    assert texts[0] == texts[1] != texts[2] and len(set(texts[0])) > 10
    assert all(text and PAD not in text for text in texts[0])
    for hypothesis in written:
        ids = hypothesis.ids.tolist()
        total = log_p_of(model, SOURCE, [ids])[0, range(len(ids) + 1), [*ids, END]].sum().item()
        assert hypothesis.log_p == pytest.approx(total, abs=1e-10)


def test_all_ends_of_a_text_count_as_its_end():
    model, other_ends = make_translator(9), [7, 8]
    settings = BeamSettings(beam=50, penalty=0.0, max_length_offset=2)
    (found,) = translated(model, [SOURCE], settings, other_ends=other_ends)
    words = {0, 3, 4, 5, 6}
    assert len(found) == len(words) + len(words) ** 2
    for each in found:
        ids = each.ids.tolist()
        assert set(ids) <= words
        (log_p,) = log_p_of(model, SOURCE, [ids])
        ends = log_p[-1, [END, *other_ends]].logsumexp(-1)
        total = log_p[range(len(ids)), ids].sum() + ends
        assert each.log_p == pytest.approx(total.item(), abs=1e-10)


def make_filler(**fields):
    model = make_translator(TOKENIZER.vocab_size, **{"decoder_start": "pad", **fields})
    return Pretrained(model, TOKENIZER)


def ids_of(text):
    return TOKENIZER.encode(text.encode()).tolist()


def test_an_encoder_reads_a_sentinel_for_each_gap_and_no_added_space():
    prompt = prompt_with_gaps(TOKENIZER, PROMPT)
    assert prompt.texts == ["The ", " sat on the ", "."]
    assert prompt.source == [*ids_of("The"), A, *ids_of("sat on the"), B, *ids_of("x.")[-1:]]
    for text, last in ((PROMPT, ["<extra_id_1>", "."]), ("The <extra_id_0> .", ["▁", "."])):
        source = prompt_with_gaps(TOKENIZER, text).source
        assert [TOKENIZER.names[id_] for id_ in source[-2:]] == last


def test_text_behind_a_gap_inside_a_word_begins_no_word():
    corpus, sizes = [b"the mother and her other cat; there"], {"vocab_size": 60, "sentinels": 3}
    words = train_tokenizer("unigram", corpus, **sizes)
    for text, pieces in (
        ("be<extra_id_0>her", "her"), ("a<extra_id_0>the cat", "the▁cat"),
        ("<extra_id_0>Ж her", "<unk>▁her"), ("a <extra_id_0> her", "▁her"),
    ):  # fmt: skip
        _, after = prompt_with_gaps(words, text).ids
        assert "".join(words.names[id_] for id_ in after) == pieces, text


@pytest.mark.parametrize("text, written, fills, unplaced", [
    (PROMPT, [A, 20, A], [[20], None], []), (PROMPT, [B, 20, A, 21], [[21], [20]], []),
    (PROMPT, [A, 20, B, 21, A, 22], [[20], [21]], [22]),
    (PROMPT, [30, A, 20, B, 21], [[20], [21]], [30]),
    # A gap that begins a text may be filled before the first sentinel.
    (FIRST, [30, 31, A, 20, B, 21], [[30, 31], [20]], [21]),
    (FIRST, [A, 20, B, 21], [[20], [21]], []),
])  # fmt: skip
def test_tokens_behind_a_sentinel_fill_its_gap(text, written, fills, unplaced):
    prompt = prompt_with_gaps(TOKENIZER, text)
    found = prompt.fills(written)
    assert [None if place is None else written[place] for place in found] == fills
    assert prompt.unplaced(written, found) == unplaced


@pytest.mark.parametrize("text, fills, completed", [
    (PROMPT, ["cat", "mat"], "The cat sat on the mat."),
    ("The \n <extra_id_0>\n\tsat", ["cat"], "The \n cat\n\tsat"),
    ("The<extra_id_0>at sat", ["c"], "The cat sat"),
    ("<extra_id_0> sat<extra_id_1>", ["The cat", "on"], "The cat sat on"),
    (PROMPT, ["", "mat"], "The sat on the mat."), ("<extra_id_0> sat", [""], "sat"),
])  # fmt: skip
def test_a_completed_text_keeps_the_prompt_as_it_is(text, fills, completed):
    prompt = prompt_with_gaps(TOKENIZER, text)
    filled, places = prompt.complete(TOKENIZER, [ids_of(fill) for fill in fills])
    assert filled == completed
    assert [filled[place] for place in places] == fills


def test_greedy_filling_is_the_most_probable_token_each_time():
    model, prompt = make_filler(decoder_start="end"), prompt_with_gaps(TOKENIZER, PROMPT)
    (best,) = fill_gaps(model, PROMPT, FillSettings(most_tokens=6))
    written, total = greedy(model, prompt.source, 6, pad=PAD_ID, ends=(END_ID, C, D))
    fills = [[] if at is None else written[at] for at in prompt.fills(written)]
    assert (best.n_tokens, best.score) == (len(written), pytest.approx(total, abs=1e-10))
    assert best.text == prompt.complete(TOKENIZER, fills)[0]


@torch.no_grad()
def constant_model(shares):
    """A model that predicts the same shares of tokens whatever it reads."""
    model = make_filler(head_bias=True)
    matrix, bias, _ = model.output_projection()
    matrix.zero_()
    bias.fill_(-200.0)
    for id_, share in shares.items():
        bias[id_] = np.log(share)
    return model


def test_the_score_of_a_gap_is_the_log_probability_of_its_tokens():
    # "cat" is one token, with the space before it.
    (word,) = ids_of("cat")
    model = constant_model({A: 0.2, B: 0.3, word: 0.4, END_ID: 0.04, C: 0.06})
    rules = {"sampling": Sampling(), "n_drawn": 40, "most_tokens": 9}
    drawing = (FillSettings(seed=seed, **rules) for seed in (0, 0, 1))
    first, again, other = (fill_gaps(model, PROMPT, each) for each in drawing)
    assert first == again != other
    gaps = [gap for each in first for gap in each.gaps]
    assert {gap.n_tokens for gap in gaps} >= {0, 1, 2}
    assert any(gap.score is None for gap in gaps)
    for gap in gaps:
        assert gap.text == " ".join(["cat"] * gap.n_tokens)
        expected = pytest.approx(gap.n_tokens * np.log(0.4), abs=1e-10)
        assert gap.score == expected or (gap.score is None and gap.n_tokens == 0)


def test_the_best_of_a_beam_comes_first_by_its_probability():
    (word,) = ids_of("cat")
    model = constant_model({A: 0.5, B: 0.1, word: 0.1, END_ID: 0.2, C: 0.1})
    found = fill_gaps(model, PROMPT, FillSettings(beam=3, most_tokens=4))
    # A, then the end, 0.2 or 0.1; A twice; B and the word alone are as probable as each other.
    expected = np.log([0.5 * 0.3, 0.5 * 0.5 * 0.3, 0.5 * 0.5 * 0.5 * 0.3])
    assert [each.score for each in found] == pytest.approx(expected, abs=1e-10)
    assert [each.n_tokens for each in found] == [1, 2, 3]


def test_a_text_is_continued_until_any_end():
    (word,) = ids_of("cat")
    model = constant_model({word: 0.5, END_ID: 0.1, A: 0.4})
    (found,) = go_on(model, "The cat ", FillSettings(most_tokens=3))
    # The end has all that sentinels have, 0.5 in all: as much as the word, which may be chosen.
    assert found.text in ("The cat cat", "The cat cat cat", "The cat cat cat cat")
    (gap,) = found.gaps
    assert found.text[gap.place] == gap.text
    assert gap.score == pytest.approx(gap.n_tokens * np.log(0.5), abs=1e-10)
    assert found.score == pytest.approx((gap.n_tokens + 1) * np.log(0.5), abs=1e-10)
    assert len(go_on(model, "cat " * 23, FillSettings(most_tokens=1))) == 1
    with pytest.raises(ConfigError, match="25 tokens"):
        go_on(model, "cat " * 24)


@pytest.mark.parametrize("prompt, fills", [
    (PROMPT, ["cat", "mat"]), ("<extra_id_0> a man came to <extra_id_1> door", ["Then", "the"]),
])  # fmt: skip
def test_prompts_and_completions_have_the_format_of_corruption(prompt, fills):
    read, text = prompt_with_gaps(TOKENIZER, prompt), prompt
    ids = list(read.ids[0])
    is_noise = [False] * len(ids)
    for number, (fill, after) in enumerate(zip(fills, read.ids[1:], strict=True)):
        cut_out = ids_of(fill)
        ids += [*cut_out, *after]
        is_noise += [True] * len(cut_out) + [False] * len(after)
        text = text.replace(f"<extra_id_{number}>", fill)
    assert ids == ids_of(text)
    [source], [target] = corrupt(np.array([ids]), np.array([is_noise]), TOKENIZER.sentinel_ids)
    assert read.source == source.tolist()
    # The sentinel behind the last ends what is written.
    ends = TOKENIZER.sentinel_ids[len(fills) :]
    written = [id_ for id_ in target.tolist() if id_ not in ends]
    found = [written[place] for place in read.fills(written) if place is not None]
    filled, places = read.complete(TOKENIZER, found)
    assert filled == text
    assert [filled[place] for place in places] == fills
