"""Position schemes by hand, against references in loops and against a softmax of autograd."""

import math
from contextlib import nullcontext
from itertools import pairwise, product

import pytest
import torch

from sublayer.config.model import POSITIONS, ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.config.stacks import stacks
from sublayer.errors import ConfigError
from sublayer.model.context import Layout, rotation
from sublayer.model.estimates import count_parameters
from sublayer.model.kernels import attention
from sublayer.model.layers import load_class
from sublayer.model.positions import (
    bucket_starts,
    build_positions,
    sinusoids,
    slopes,
)
from sublayer.model.transformer import EncoderDecoder

from .conftest import VOCAB_SIZE, check_gradients, random_model

N_TOKENS = 11
SMALL = {"relative": {"relative_buckets": 8, "relative_distance": 7}}
"""So few buckets that distances share them, on either side."""
LOCAL = {"attention_window": 4, "window_pattern": "LG"}
TWO_SIDED = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91)
CAUSAL = (*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113)
"""The least distance of each bucket of T5, as released."""


def make_model(scheme, kind="decoder", **fields):
    return random_model(kind=kind, positions=scheme, d_model=12, **SMALL.get(scheme, {}), **fields)


def make_positions(scheme, kind="decoder", context=5, **fields):
    sizes = {"n_layers": 3, "d_model": 4, "n_heads": 2, **fields}
    config = ModelConfig(kind=kind, positions=scheme, **sizes)
    resolved = resolve_model(config, vocab_size=11, context=context)
    return build_positions(resolved, stacks(resolved)[0])


def draw_tokens(n_rows, n=N_TOKENS):
    return torch.randint(VOCAB_SIZE, (n_rows, n), generator=torch.Generator().manual_seed(1))


def logits_of(model, tokens, mask=None):
    if isinstance(model, EncoderDecoder):
        return model(tokens.flip(1), mask, target=tokens).logits
    return model(tokens, mask).logits


def test_rotary_by_hand():
    # Width 4, base 100: frequencies 1 and 1/10; features 0 and 2 turn by 2, features 1 and 3 by 0.2
    # at position 2.
    turn = rotation(torch.tensor([0, 2]), d_head=4, base=100.0, dtype=torch.float64)
    x = torch.tensor([[[[3.0, 5.0, 0.0, 0.0]] * 2]], dtype=torch.float64)
    turned = turn(x)[0, 0]
    assert turned[0].tolist() == [3.0, 5.0, 0.0, 0.0]
    # 3 cos 2, 5 cos 0.2, 3 sin 2, 5 sin 0.2.
    assert turned[1].tolist() == pytest.approx([-1.2484405, 4.9003329, 2.7278923, 0.9933467])
    far = rotation(torch.tensor([100_003]), d_head=2, base=1e4, dtype=torch.float64)
    assert far.cos[0, 0].item() == pytest.approx(math.cos(100_003), abs=1e-15)
    places = torch.tensor([[0, 1, 2], [5, 7, 11]])
    turn = rotation(places, d_head=4, base=100.0, dtype=torch.float64)
    assert torch.autograd.gradcheck(turn, torch.randn(2, 5, 3, 4).double().requires_grad_())


LAYOUTS = ("halves", "halves-clockwise", "interleaved", "interleaved-clockwise")


@pytest.mark.parametrize(("layout", "width"), [*product(LAYOUTS, (6, 4, 2))])
def test_pairs_of_rotated_features_are_complex_numbers_times_a_unit(layout, width):
    places, x = torch.tensor([0, 2, 11]), torch.randn(2, 5, 3, 6, dtype=torch.float64)
    rules = {"d_head": 6, "base": 100.0, "dtype": torch.float64, "layout": layout}
    turn = rotation(places, n_rotated=width, **rules)
    order = torch.arange(width)
    if layout.startswith("halves"):
        order = order.view(2, -1).T.flatten()  # of pairs, one after another
    pairs = torch.view_as_complex(x[..., order].unflatten(-1, (-1, 2)))
    sign = -1 if layout.endswith("clockwise") else 1
    angles = sign * places[:, None] * 100.0 ** (-torch.arange(0, width, 2).double() / width)
    turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
    expected = x.clone()
    expected[..., order] = turned
    torch.testing.assert_close(turn(x), expected, rtol=0, atol=1e-14)
    assert torch.autograd.gradcheck(turn, x[:1, :2].clone().requires_grad_())


def test_sinusoids_by_hand():
    # Width 4: frequencies 1 and 1/10000; sines first, cosines second.
    by_hand = [math.sin(3), math.sin(3e-4), math.cos(3), math.cos(3e-4)]
    vectors = sinusoids(torch.tensor([0, 3]), d_model=4, dtype=torch.float64)
    assert vectors[0].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert vectors[1].tolist() == pytest.approx(by_hand, abs=1e-15)
    # Interleaved, the pairs have the frequencies 1 and 10000 ** -(2 / 4) = 1 / 100.
    pairs = sinusoids(torch.tensor([0, 3]), d_model=4, dtype=torch.float64, form="interleaved")
    assert pairs[0].tolist() == [0.0, 1.0, 0.0, 1.0]
    by_hand = [math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)]
    assert pairs[1].tolist() == pytest.approx(by_hand)
    places, rules = torch.arange(11), {"d_model": 6, "dtype": torch.float32}
    halves, pairs = (sinusoids(places, **rules, form=form) for form in ("marian", "interleaved"))
    torch.testing.assert_close(torch.cat([pairs[:, 0::2], pairs[:, 1::2]], dim=1), halves)


def causal(n_tokens, padding=0):
    mask = torch.arange(n_tokens)[None] >= padding
    return Layout.causal(torch.zeros(1, n_tokens, dtype=torch.long), mask if padding else None)


@pytest.mark.parametrize("scheme", POSITIONS)
def test_a_row_describes_its_class(scheme):
    row, positions, places = POSITIONS[scheme], make_positions(scheme), torch.arange(5)
    for number, table in enumerate(getattr(positions, "tables", ())):
        torch.nn.init.constant_(table.weight, 10.0 + number)
    before = {"none": [], "first": [0], "every": [0, 1, 2]}[row.adds_before]
    x = torch.zeros(1, 5, 4)
    for layer in range(3):
        added = positions.add(x, layer, places)
        is_added = positions.vectors(layer, places, torch.float32) is not None
        assert is_added == (layer in before) == (added is not x)
        if hasattr(positions, "tables") and is_added:
            assert added.mean() == 10.0 + layer
    turns = positions.rotations(places, torch.float32) is not None
    assert turns == (row.in_attention == "rotation")
    assert row.has_end == (row.adds_before != "none")
    positions.check(causal(5))
    # Padding does not count against a table.
    positions.check(causal(6, padding=1))
    longer = pytest.raises(ConfigError, match=r"6 tokens exceeds model.max_len = 5")
    with longer if row.has_end else nullcontext():
        positions.check(causal(6))
    classes = {name: load_class(row.implementation) for name, row in POSITIONS.items()}
    assert [name for name in POSITIONS if classes[name] is classes[scheme]] == [scheme]


def test_alibi_slopes_by_hand():
    assert slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert slopes(1) == [1 / 256]
    assert slopes(2) == [1 / 16, 1 / 256]
    assert slopes(16)[:2] == [math.sqrt(0.5), 0.5]
    # Of 12 heads: those of 8, then the 1st, 3rd, 5th and 7th of 16.
    assert slopes(12) == [*slopes(8), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    # Of 3 heads: those of 2, then the 1st of 4.
    assert slopes(3) == [1 / 16, 1 / 256, 1 / 4]


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_attention_with_alibi_and_its_gradients_are_the_papers(kind):
    model = make_model("alibi", kind, block=["attention"])
    attention = model.stack.block(0)[0].function
    x = torch.randn(1, 7, 12, dtype=torch.float64, requires_grad=True)
    lay_out = Layout.causal if kind == "decoder" else Layout.bidirectional
    context = model.context(lay_out(torch.zeros(1, 7, dtype=torch.long)), torch.float64)
    # As the paper writes it: a query and a key have their distance, a head its slope.
    at, weight, bias = torch.arange(7), attention.projection.weight, attention.projection.bias
    q, k, v = ((x[0] @ weight[part].T + bias[part]).view(7, 3, 4) for part in range(3))
    steep, apart = torch.tensor([2**-4, 2**-8, 2**-2]), at[:, None] - at
    scores = torch.einsum("ihk,jhk->hij", q, k) / 2 - steep[:, None, None] * apart.abs()
    if kind == "decoder":
        scores = scores.masked_fill(at > at[:, None], -math.inf)
    mixed = torch.einsum("hij,jhk->ihk", scores.softmax(-1), v).flatten(1)
    expected = mixed @ attention.output.weight.T + attention.output.bias
    check_gradients(attention(x, context)[0], expected, [x, *attention.parameters()])


def test_the_buckets_of_t5_begin_where_they_were_released_to():
    assert bucket_starts(16, 128) == TWO_SIDED
    assert bucket_starts(32, 128) == CAUSAL
    encoder, decoder = (make_positions("relative", kind) for kind in ("encoder", "decoder"))
    for starts, positions in ((TWO_SIDED, encoder), (CAUSAL, decoder)):
        for bucket, (start, end) in enumerate(pairwise((*starts, 500))):
            assert (positions.buckets(-torch.arange(start, end)) == bucket).all()
    # What is behind a token has the other half, and is not seen by a decoder.
    behind = [*(16 + bucket for bucket in (1, 2, 8, 8, 9, 14, 15, 15))]
    assert encoder.buckets(torch.tensor([1, 2, 8, 11, 12, 90, 91, 999])).tolist() == behind
    assert decoder.buckets(torch.tensor([1, 128])).tolist() == [0, 0]
    # (30 / 18) ** 18 is (50 / 18) ** 9: of 18 logarithmic buckets the tenth begins at 30 exactly.
    assert bucket_starts(36, 50)[27] == 30


def attend_plainly(q, k, v, keys, bias=None, *, scale, **_):
    """Attend by a softmax that autograd differentiates."""
    scores = scale * q @ k.mT + (0.0 if bias is None else bias)
    seen = keys.mask
    if seen is None:
        n_queries, n_keys = scores.shape[2:]
        behind = torch.arange(n_keys - n_queries, n_keys)[:, None] - torch.arange(n_keys)
        seen = behind >= (0 if keys.is_causal else -n_keys)
        seen &= behind.abs() <= (n_keys if keys.reach is None else keys.reach)
    return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v


@pytest.mark.parametrize("scheme, kind, kernel, is_padded, fields", [
    ("relative", "encoder-decoder", "eager", True, {}), ("rotary", "decoder", "fused", True, {}),
    ("relative", "decoder", "recomputed", False, {}), ("alibi", "decoder", "eager", True, {}),
    ("relative", "encoder", "recomputed", True, {}),
    ("rotary", "decoder", "eager", False, {**LOCAL, "rotary_local_base": 7.0}),
    ("relative", "encoder-decoder", "recomputed", False, LOCAL),
    ("alibi", "encoder", "eager", True, LOCAL), ("rotary", "encoder", "fused", True, LOCAL),
    ("relative", "decoder", "fused", False, {**LOCAL, "position_pattern": "PN"}),
])  # fmt: skip
def test_gradients_are_those_of_a_plain_softmax(
    monkeypatch, scheme, kernel, kind, is_padded, fields
):
    model, tokens = make_model(scheme, kind, **fields), draw_tokens(3)
    mask = torch.arange(N_TOKENS) >= torch.tensor([[0], [2], [5]]) if is_padded else None
    found = []
    for is_plain in (False, True):
        with monkeypatch.context() as patched:
            for stack in model.stacks:
                stack.recomputes = kernel == "recomputed" and not is_plain
            if is_plain:
                patched.setattr("sublayer.model.blocks.attend", attend_plainly)
            elif kernel == "fused":
                patched.setattr(attention, "is_eager_cpu", lambda x: False)
                patched.setattr("sublayer.model.transformer.is_eager_cpu", lambda x: False)
            model.zero_grad()
            logits = logits_of(model, tokens, mask)
            if mask is not None:
                logits = logits * mask[..., None]
            logits.square().sum().backward()
        found.append([logits, *(parameter.grad for parameter in model.parameters())])
    for own, expected in zip(*found, strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-9)
    tables = [value for name, value in model.named_parameters() if "positions" in name]
    assert len(tables) == (0 if scheme in ("alibi", "rotary") else len(model.stacks))
    assert all(table.grad.abs().max() > 1e-3 for table in tables)
    n_parameters = sum(each.numel() for each in model.parameters())
    assert n_parameters == count_parameters(model.config).total
    # Schemes of attention have no end.
    assert logits_of(model, draw_tokens(1, 30)).shape == (1, 30, VOCAB_SIZE)
