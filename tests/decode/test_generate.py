"""Generating with a cache: each step equals a forward pass over all tokens before it."""

import pytest
import torch
import torch.nn.functional as F

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.decode import packed_linear
from sublayer.decode.fixed_step import FixedStepper
from sublayer.decode.lstm_step import LstmStepper
from sublayer.decode.packed_linear import pack_linear, takes_vectors
from sublayer.decode.sample import GREEDY, Sampling, generate
from sublayer.decode.step import Stepper
from sublayer.errors import ConfigError
from sublayer.model.build import build
from sublayer.model.context.cache import Cache, cache_bytes
from tests.gpu.kinds import NothingWaits

VOCAB_SIZE, CONTEXT = 13, 10
ROTARY = {"positions": "rotary", "norm": "rms", "ffn": "swiglu", "bias": False}
PER_LAYER = {"positions": "learned-per-layer", "tie_embeddings": False, "final_norm": "plain"}
SHARED = {"positions": "sinusoidal", "norm_order": "post", "share": "all", "block": "macaron"}
RELATIVE = {"positions": "relative", "relative_buckets": 4, "relative_distance": 5}
ALIBI = {"positions": "alibi", "n_heads": 3}
ODD_BLOCK = ("ffn:relu*0.5", "attention*2", "ffn:geglu")


def make_model(context=CONTEXT, **fields):
    heads = {} if fields.get("kind") == "lstm" else {"n_heads": 2, "init_std": 0.5}
    config = ModelConfig(**{"n_layers": 2, "d_model": 12, **heads, **fields})
    model = build(resolve_model(config, vocab_size=VOCAB_SIZE, context=context), seed=4)
    if fields.get("kind") == "lstm":
        generator = torch.Generator().manual_seed(1)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, 0.0, 0.5, generator)
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


@pytest.mark.parametrize(
    ("n_prompt", "fields", "window"),
    [
        (4, ROTARY, "rolling"),
        (CONTEXT, PER_LAYER, "exact"),
        (4, SHARED, "rolling"),
        (CONTEXT, RELATIVE, "rolling"),
        (1, ALIBI, "exact"),
        (2 * CONTEXT, {"kind": "lstm"}, "exact"),
    ],
    ids=str,
)
def test_cached_tokens_are_those_of_forward_passes(fields, window, n_prompt):
    model, prompt = make_model(**fields), draw_tokens(3, n_prompt)
    assert generated(model, prompt, 17, window=window) == recomputed(model, prompt, 17, window)


def test_sampled_tokens_are_a_function_of_the_seed_and_rows_do_not_depend_on_others():
    model, prompt = make_model(init_std=0.05), torch.tensor([[1, 2]])
    first, again, other = (
        generated(model, prompt, 30, Sampling(), seed=seed) for seed in (5, 5, 6)
    )
    assert first == again != other
    both = torch.tensor([[3, 4], [1, 2]])
    assert generated(model, both, 20)[1] == generated(model, prompt, 20)[0]


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (GREEDY, [1.0, 0.0, 0.0, 0.0]),
        (Sampling(top_k=2), [4 / 7, 0.0, 3 / 7, 0.0]),
        (Sampling(top_p=0.65), [4 / 7, 0.0, 3 / 7, 0.0]),
        (Sampling(top_p=0.75), [4 / 9, 0.0, 3 / 9, 2 / 9]),
        (Sampling(temperature=0.5, top_k=3, top_p=0.8), [16 / 25, 0.0, 9 / 25, 0.0]),
    ],
    ids=str,
)
def test_tokens_are_sampled_with_their_probabilities(sampling, expected):
    n = 40_000
    logits = torch.tensor([0.4, 0.1, 0.3, 0.2], dtype=torch.float64).log().expand(n, -1)
    chosen = sampling.choose(logits, torch.Generator().manual_seed(0))
    shares = (torch.bincount(chosen, minlength=4) / n).tolist()
    # Five standard deviations of 40,000 draws at a probability of one half.
    assert shares == pytest.approx(expected, abs=5 * 0.5 / 200)
    assert [share > 0 for share in shares] == [share > 0 for share in expected]


@pytest.mark.parametrize(
    ("n_prompt", "is_training", "message"),
    [(0, False, "empty"), (CONTEXT + 1, False, "11 tokens"), (1, True, "training")],
)
def test_an_unreadable_prompt_and_a_model_with_dropout_are_refused(n_prompt, is_training, message):
    model = make_model().train(is_training)
    with pytest.raises(ConfigError, match=message):
        next(generate(model, torch.zeros(1, n_prompt, dtype=torch.long), 1, GREEDY))


@pytest.mark.parametrize(
    ("fields", "n_rows"),
    [
        (ROTARY, 3),
        (PER_LAYER, 1),
        (SHARED, 3),
        (ALIBI, 3),
        # Longer than the bias that a step looks up at first.
        ({**RELATIVE, "context": 70}, 1),
        ({"block": ODD_BLOCK, "share": "attention", "norm": "rms", "norm_order": "post"}, 3),
        ({"d_embed": 5, "embedding_scale": "sqrt", "output_scale": "sqrt", "head_bias": True}, 1),
        ({"d_head": 7, "attention_scale": "none", "norm_affine": False, "norm_order": "post"}, 1),
        ({"norm": "none", "positions": "none", "ffn": "glu", "bias": False, "gelu": "exact"}, 3),
    ],
    ids=str,
)
def test_step_logits_are_those_of_a_forward_pass(fields, n_rows):
    model = make_model(**fields)
    length = fields.get("context", CONTEXT)
    tokens = draw_tokens(n_rows, length)
    with torch.inference_mode():
        expected = model(tokens).logits
        cache, step = Cache(model.config, n_rows, length, torch.float64), Stepper(model, n_rows)
        found = [step(tokens[:, place], cache) for place in range(length)]
        torch.testing.assert_close(torch.stack(found, 1), expected, rtol=1e-10, atol=1e-12)
        with pytest.raises(ConfigError, match="do not fit a cache"):
            step(tokens[:, 0], cache)
        # A step continues behind a forward pass as well as behind other steps.
        behind = Cache(model.config, n_rows, length, torch.float64)
        model.last_logits(tokens[:, :6], behind)
        torch.testing.assert_close(step(tokens[:, 6], behind), found[6], rtol=1e-10, atol=1e-12)


def test_steps_keep_the_type_of_the_weights():
    model, tokens = make_model(**ROTARY), draw_tokens(3, CONTEXT)
    with torch.inference_mode():
        exact = model(tokens).logits
        step, cache = Stepper(model.to(torch.bfloat16), 3), Cache(model.config, 3, CONTEXT)
        for place in range(CONTEXT):
            found = step(tokens[:, place], cache)
            assert found.dtype == torch.bfloat16
            assert (found.double() - exact[:, place]).norm() < 0.05 * exact[:, place].norm()


def as_recorded(compute):
    """Record as a CUDA graph does: one computation, whose result is written in its place."""
    result = compute().clone()
    return lambda: result.copy_(compute())


@pytest.mark.parametrize("fields", [{"d_embed": 5, "head_bias": True}, {"head": "transform"}])
def test_lstm_steps_equal_a_forward_pass_and_keep_a_state_of_constant_size(fields):
    model, tokens = make_model(kind="lstm", **fields), draw_tokens(3, 15)
    cache, step = Cache(model.config, 3, CONTEXT, torch.float64), LstmStepper(model, 3)
    with torch.inference_mode():
        expected = model(tokens).logits
        first = model.last_logits(tokens[:, :4], cache)
        found = [first, *(step(tokens[:, place], cache) for place in range(4, 15))]
    torch.testing.assert_close(torch.stack(found, dim=1), expected[:, 3:], rtol=0, atol=1e-9)
    n_bytes = 3 * 2 * 2 * 12 * 4  # rows, layers, output and cell, units, bytes
    for length in (10, 10**7):
        assert cache_bytes(model.config, 3, length, torch.float32) == n_bytes
    assert len(list(generate(model.bfloat16(), tokens, 4, Sampling(top_k=3)))) == 4


@pytest.fixture
def fixed(monkeypatch):
    """Take fixed steps, replayed by hand instead of by a graph; their rooms are noted."""
    rooms = []

    def noted(compute):
        rooms.append(compute)
        return as_recorded(compute)

    def switch(is_fixed):
        monkeypatch.setattr("sublayer.decode.sample.pays", lambda *_: is_fixed)
        return rooms

    monkeypatch.setattr("sublayer.decode.sample.record", noted)
    monkeypatch.setattr("sublayer.decode.fixed_step._FIRST_ROOM", 8)
    return switch


@pytest.mark.parametrize(
    ("fields", "n_rows", "sampling", "window"),
    [({}, 1, Sampling(temperature=0.8, top_k=6), "exact"), (RELATIVE, 3, GREEDY, "rolling")],
    ids=str,
)
def test_fixed_steps_generate_the_same_tokens(fields, n_rows, sampling, window, fixed):
    model, prompt = make_model(64, **fields), draw_tokens(n_rows, 5)
    # Past the context of 40, which no room of twice the one before divides.
    more, found = {"seed": 2, "window": window, "context": 40}, []
    for is_fixed in (False, True):
        rooms = fixed(is_fixed)
        found.append(generated(model, prompt, 60, sampling, **more))
    assert found[1] == found[0]
    assert len(rooms) == 4, "8, 16, 32 and 40 keys"


@pytest.mark.parametrize("fields", [PER_LAYER, ALIBI])
def test_fixed_step_logits_are_those_of_other_steps(fields):
    model, tokens = make_model(70, **fields), draw_tokens(3, 70)
    caches = [Cache(model.config, 3, 70, torch.float64) for _ in range(2)]
    with torch.inference_mode():
        for cache in caches:
            model.last_logits(tokens[:, :5], cache)
        fixed, moving = FixedStepper(model, 3, caches[1], as_recorded), Stepper(model, 3)
        for place in range(5, 70):
            expected = moving(tokens[:, place], caches[0])
            found = fixed(tokens[:, place], caches[1])
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        with pytest.raises(ConfigError, match="do not fit a cache"):
            fixed(tokens[:, 0], caches[1])
    assert caches[1].length == 70


def test_no_fixed_step_waits_for_a_gpu(fixed, monkeypatch):
    model, rooms = make_model(64, **RELATIVE), fixed(True)
    # By the operators that a GPU takes.
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with NothingWaits():
        list(generate(model, torch.ones(3, 5, dtype=torch.long), 30, GREEDY))
    assert rooms


@pytest.mark.parametrize(
    ("dtype", "n_rows", "maker"),
    [
        (torch.float64, 1, "AMD"),
        (torch.float32, 64, "Intel"),
        (torch.float32, 65, "AMD"),
        (torch.bfloat16, 1, "Intel"),
        (torch.bfloat16, 16, "AMD"),
    ],
    ids=str,
)
def test_packed_products_are_those_of_a_linear_map(monkeypatch, dtype, n_rows, maker):
    monkeypatch.setattr(packed_linear, "processor", lambda: maker)
    generator = torch.Generator().manual_seed(4)
    shapes = [(37, 24), (n_rows, 24), (37,)]
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
        monkeypatch.setattr(packed_linear, "_packs", lambda matrix: False)
