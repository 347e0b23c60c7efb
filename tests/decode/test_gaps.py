"""Filling gaps: prompts, completed texts, their scores, and a model that learned corruption."""

import numpy as np
import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.span.corruption import corrupt
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.decode.gaps.completion import FillSettings
from sublayer.decode.gaps.fill import fill_gaps, go_on
from sublayer.decode.gaps.prompt import prompt_with_gaps
from sublayer.decode.gaps.written import complete, find_fills, find_unplaced
from sublayer.decode.sample import GREEDY, Sampling
from sublayer.errors import ConfigError
from sublayer.model.build import build
from sublayer.model.encoder_decoder import EncoderDecoder

TEXT = (
    "The cat sat on the mat, and the dog ran over the field. A man and a woman saw it all.\n"
    "It rained on the town; the cat, the dog and the man were wet and unable to run.\n"
    "The dog ran over the field, and slept. Then a man came to the door. A woman saw the cat.\n"
) * 20
TOKENIZER = train_tokenizer("unigram", [TEXT.encode()], vocab_size=80, sentinels=4)
A, B, C, D = TOKENIZER.sentinel_ids
PAD, END = 0, 1
PROMPT = "The <extra_id_0> sat on the <extra_id_1>."
FIRST = "<extra_id_0> sat on the <extra_id_1>."
WORD = "cat"
"""One token, with the space before it."""


def make_model(**fields):
    sizes = {"n_layers": 1, "d_model": 12, "n_heads": 2, "init": "normal", "init_std": 0.4}
    config = ModelConfig(kind="encoder-decoder", **{**sizes, "decoder_start": "pad", **fields})
    resolved = resolve_model(config, vocab_size=TOKENIZER.vocab_size, context=24)
    model = build(resolved, seed=3).double().eval()
    assert isinstance(model, EncoderDecoder)
    model.tokenizer = TOKENIZER
    return model


def pieces(ids):
    assert isinstance(TOKENIZER, UnigramTokenizer)
    return [TOKENIZER.names[id_] for id_ in ids]


def ids_of(text):
    return TOKENIZER.encode(text.encode()).tolist()


def prompt_of(text):
    return prompt_with_gaps(TOKENIZER, text)


def test_an_encoder_reads_a_sentinel_for_each_gap_and_no_added_space():
    prompt = prompt_of(PROMPT)
    assert prompt.texts == ["The ", " sat on the ", "."]
    assert prompt.source == [*ids_of("The"), A, *ids_of("sat on the"), B, *ids_of("x.")[-1:]]
    assert pieces(prompt.source)[-2:] == ["<extra_id_1>", "."]
    with_space = prompt_of("The <extra_id_0> .").source
    assert pieces(with_space)[-3:] == ["<extra_id_0>", "▁", "."]


@pytest.mark.parametrize(
    ("text", "written", "fills", "unplaced"),
    [
        (PROMPT, [A, 20, A], [[20], None], []),
        (PROMPT, [B, 20, A, 21], [[21], [20]], []),
        (PROMPT, [A, 20, B, 21, A, 22], [[20], [21]], [22]),
        (PROMPT, [30, A, 20, B, 21], [[20], [21]], [30]),
        # A gap that begins a text may be filled before the first sentinel.
        (FIRST, [30, 31, A, 20, B, 21], [[30, 31], [20]], [21]),
        (FIRST, [A, 20, B, 21], [[20], [21]], []),
    ],
)
def test_tokens_behind_a_sentinel_fill_its_gap(text, written, fills, unplaced):
    prompt = prompt_of(text)
    found = find_fills(written, prompt)
    assert [None if place is None else written[place] for place in found] == fills
    assert find_unplaced(written, prompt, found) == unplaced


@pytest.mark.parametrize(
    ("text", "fills", "completed"),
    [
        (PROMPT, ["cat", "mat"], "The cat sat on the mat."),
        ("The \n <extra_id_0>\n\tsat", ["cat"], "The \n cat\n\tsat"),
        ("The<extra_id_0>at sat", ["c"], "The cat sat"),
        ("<extra_id_0> sat<extra_id_1>", ["The cat", "on"], "The cat sat on"),
        (PROMPT, ["", "mat"], "The sat on the mat."),
        ("<extra_id_0> sat", [""], "sat"),
    ],
)
def test_a_completed_text_keeps_the_prompt_as_it_is(text, fills, completed):
    filled = complete(TOKENIZER, prompt_of(text), [ids_of(fill) for fill in fills])
    assert filled.text == completed
    assert [filled.text[place] for place in filled.places] == fills


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("The cat", "no gap"),
        ("<extra_id_0> a <extra_id_0>", "gap 2 is <extra_id_0>"),
        (" a ".join(f"<extra_id_{k}>" for k in range(5)), "5 gaps, .* 4 sentinels"),
        ("cat " * 20 + PROMPT, "tokens, .* 24"),
    ],
)
def test_a_prompt_that_cannot_be_filled_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        fill_gaps(make_model(), text)


def test_a_prompt_may_be_as_long_as_the_model_reads():
    assert len(go_on(make_model(), "cat " * 23, FillSettings(most_tokens=1))) == 1
    with pytest.raises(ConfigError, match="25 tokens"):
        go_on(make_model(), "cat " * 24)


def test_contradictory_settings_and_unfit_tokenizers_are_refused():
    with pytest.raises(ConfigError, match="leave out one"):
        FillSettings(beam=2, sampling=Sampling())
    with pytest.raises(ConfigError, match="all be the same"):
        FillSettings(n_drawn=2)
    model = make_model()
    model.tokenizer = train_tokenizer("unigram", [TEXT.encode()], vocab_size=70)
    with pytest.raises(ConfigError, match="no sentinels"):
        fill_gaps(model, PROMPT)
    model.tokenizer = train_tokenizer("characters", [TEXT.encode()], vocab_size=None)
    with pytest.raises(ConfigError, match="no end"):
        go_on(model, PROMPT)
    model.tokenizer = None
    with pytest.raises(ConfigError, match="no tokenizer"):
        go_on(model, PROMPT)


def test_greedy_filling_is_the_most_probable_token_each_time():
    model = make_model(decoder_start="end")
    (best,) = fill_gaps(model, PROMPT, FillSettings(most_tokens=6))
    source = torch.tensor([[*prompt_of(PROMPT).source, END]])
    ends = [END, C, D]
    written = []
    total = 0.0
    for n_left in range(6, -1, -1):
        with torch.no_grad():
            logits = model(source, target=torch.tensor([[END, *written]])).logits
        log_p = logits[0, -1].log_softmax(-1)
        p_end = log_p[ends].logsumexp(-1).item()
        log_p[[PAD, *ends]] = -torch.inf
        chosen = int(log_p.argmax())
        if n_left == 0 or (written and p_end > log_p[chosen]):
            total += p_end
            break
        written.append(chosen)
        total += log_p[chosen].item()
    assert best.n_tokens == len(written)
    assert best.score == pytest.approx(total, abs=1e-10)
    assert best.text == complete(TOKENIZER, prompt_of(PROMPT), fills_of(written)).text


def fills_of(written):
    found = find_fills(written, prompt_of(PROMPT))
    return [[] if place is None else written[place] for place in found]


@torch.no_grad()
def constant_model(shares):
    """A model that predicts the same shares of tokens whatever it reads."""
    model = make_model(head_bias=True)
    matrix, bias = model.output_projection()
    assert bias is not None
    matrix.zero_()
    bias.fill_(-200.0)
    for id_, share in shares.items():
        bias[id_] = np.log(share)
    return model


def test_the_score_of_a_gap_is_the_log_probability_of_its_tokens():
    (word,) = ids_of(WORD)
    shares = {A: 0.2, B: 0.3, word: 0.4, END: 0.04, C: 0.06}
    model = constant_model(shares)
    settings = FillSettings(sampling=Sampling(), n_drawn=40, most_tokens=9)
    found = fill_gaps(model, PROMPT, settings)
    assert {gap.n_tokens for each in found for gap in each.gaps} >= {0, 1, 2}
    assert any(gap.score is None for each in found for gap in each.gaps)
    for gap in (gap for each in found for gap in each.gaps):
        assert gap.text == " ".join([WORD] * gap.n_tokens)
        if gap.score is None:
            assert gap.n_tokens == 0
        else:
            assert gap.score == pytest.approx(gap.n_tokens * np.log(0.4), abs=1e-10)


def test_the_best_of_a_beam_comes_first_by_its_probability():
    (word,) = ids_of(WORD)
    model = constant_model({A: 0.5, B: 0.1, word: 0.1, END: 0.2, C: 0.1})
    found = fill_gaps(model, PROMPT, FillSettings(beam=3, most_tokens=4))
    # A, then the end, 0.2 or 0.1; A twice; B and the word alone are as probable as each other.
    assert [each.score for each in found] == pytest.approx(
        np.log([0.5 * 0.3, 0.5 * 0.5 * 0.3, 0.5 * 0.5 * 0.5 * 0.3]), abs=1e-10
    )
    assert [each.n_tokens for each in found] == [1, 2, 3]


def test_drawing_the_most_probable_token_alone_is_greedy():
    model = make_model()
    (greedy,) = fill_gaps(model, PROMPT, FillSettings(most_tokens=8))
    found = fill_gaps(model, PROMPT, FillSettings(sampling=GREEDY, n_drawn=2, most_tokens=8))
    assert [each.text for each in found] == [greedy.text] * 2
    assert [each.score for each in found] == pytest.approx([greedy.score] * 2, abs=1e-10)
    first, again, other = (
        fill_gaps(model, PROMPT, FillSettings(sampling=Sampling(), seed=seed)) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_a_text_is_continued_until_any_end():
    (word,) = ids_of(WORD)
    model = constant_model({word: 0.5, END: 0.1, A: 0.4})
    (found,) = go_on(model, "The cat ", FillSettings(most_tokens=3))
    # The end has all that sentinels have, 0.5 in all: as much as the word, which may be chosen.
    assert found.text in ("The cat cat", "The cat cat cat", "The cat cat cat cat")
    (gap,) = found.gaps
    assert found.text[gap.place] == gap.text
    assert gap.score == pytest.approx(gap.n_tokens * np.log(0.5), abs=1e-10)
    assert found.score == pytest.approx((gap.n_tokens + 1) * np.log(0.5), abs=1e-10)


@pytest.mark.parametrize(
    ("prompt", "fills"),
    [(PROMPT, ["cat", "mat"]), ("<extra_id_0> a man came to <extra_id_1> door", ["Then", "the"])],
)
def test_prompts_and_completions_have_the_format_of_corruption(prompt, fills):
    read, text = prompt_of(prompt), prompt
    ids = list(read.ids[0])
    is_noise = [False] * len(ids)
    for number, (fill, after) in enumerate(zip(fills, read.ids[1:], strict=True)):
        cut_out = ids_of(fill)
        ids += [*cut_out, *after]
        is_noise += [True] * len(cut_out) + [False] * len(after)
        text = text.replace(f"<extra_id_{number}>", fill)
    assert ids == ids_of(text)
    corrupted = corrupt(np.array([ids]), np.array([is_noise]), TOKENIZER.sentinel_ids)
    assert read.source == corrupted.inputs.ids.tolist()
    # The sentinel behind the last ends what is written.
    ends = TOKENIZER.sentinel_ids[len(fills) :]
    written = [id_ for id_ in corrupted.targets.ids.tolist() if id_ not in ends]
    found = [written[place] for place in find_fills(written, read) if place is not None]
    filled = complete(TOKENIZER, read, found)
    assert filled.text == text
    assert [filled.text[place] for place in filled.places] == fills
