"""Properties of the whole model."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.model.build import build
from sublayer.model.context.layout import Layout
from sublayer.model.transformer import Transformer

MODELS: list[dict[str, Any]] = [
    {"positions": "learned"},
    {"positions": "learned-per-layer", "norm_order": "post"},
    {"positions": "sinusoidal", "block": "macaron"},
    {"positions": "rotary", "norm": "rms", "ffn": "geglu", "share": "all"},
    {"positions": "none", "norm": "none", "attention_scale": "none"},
]


def random_tokens(n_rows: int, n_tokens: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 17, (n_rows, n_tokens), generator=torch.Generator().manual_seed(seed))


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@pytest.fixture(params=MODELS, ids=lambda fields: fields["positions"])
def model(request: pytest.FixtureRequest, random_model: Callable[..., Transformer]) -> Transformer:
    return random_model(**request.param)


def test_a_future_token_changes_no_earlier_logit(model: Transformer) -> None:
    tokens = random_tokens(2, 11)
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 17
    before, after = model(tokens).logits, model(changed).logits
    close(after[:, :7], before[:, :7])
    assert (after[:, 7:] != before[:, 7:]).any(-1).all()


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(model: Transformer, side: str) -> None:
    tokens, padding = random_tokens(2, 7), random_tokens(2, 4, seed=1)
    is_real = torch.ones(2, 7, dtype=torch.bool)
    parts = [(tokens, is_real), (padding, torch.zeros(2, 4, dtype=torch.bool))]
    if side == "left":
        parts.reverse()
    padded, mask = (torch.cat(both, dim=1) for both in zip(*parts, strict=True))
    close(model(padded, mask).logits[mask].view(2, 7, 17), model(tokens).logits)


def test_a_mask_that_masks_nothing_changes_nothing(model: Transformer) -> None:
    tokens = random_tokens(2, 7)
    close(model(tokens, torch.ones_like(tokens, dtype=torch.bool)).logits, model(tokens).logits)


def test_documents_in_one_row_are_as_if_alone(model: Transformer) -> None:
    first, second = random_tokens(1, 5), random_tokens(1, 6, seed=1)
    together = torch.cat([first, second], dim=1)
    document_ids = torch.tensor([[4] * 5 + [9] * 6])
    hidden = model.hidden(together, Layout.causal(together, document_ids=document_ids)).final
    close(model.logits(hidden), torch.cat([model(first).logits, model(second).logits], dim=1))


def test_rows_do_not_see_each_other(model: Transformer) -> None:
    tokens = random_tokens(3, 5)
    alone = [model(row[None]).logits for row in tokens]
    close(model(tokens).logits, torch.cat(alone))


def test_without_positions_the_order_of_earlier_tokens_does_not_matter(
    random_model: Callable[..., Transformer],
) -> None:
    tokens = random_tokens(1, 6)
    swapped = tokens[:, [1, 0, 2, 3, 4, 5]]
    single = {"n_layers": 1}
    close(
        random_model(positions="none", **single)(tokens).logits[:, -1],
        random_model(positions="none", **single)(swapped).logits[:, -1],
    )
    for positions in ("learned", "sinusoidal", "rotary", "learned-per-layer"):
        placed = random_model(positions=positions, **single)
        assert (placed(tokens).logits[:, -1] - placed(swapped).logits[:, -1]).abs().max() > 1e-6


def test_captured_states_are_the_residual_stream(random_model: Callable[..., Transformer]) -> None:
    model = random_model(n_layers=3)
    tokens = random_tokens(2, 5)
    layout = Layout.causal(tokens)
    hidden = model.hidden(tokens, layout, capture=(0, 2, 3))
    assert sorted(hidden.captured) == [0, 2, 3]
    close(hidden.captured[0], model.positions.add(model.embedding(tokens), 0, layout.positions))
    close(model.final_norm(hidden.captured[3]), hidden.final)
    close(model.logits(hidden.final), model(tokens).logits)


def test_bfloat16_autocast_is_close_to_float32(small_config: Callable[..., ModelConfig]) -> None:
    model = build(small_config(d_model=32, n_heads=4, dropout=0.0), seed=0)
    tokens = random_tokens(2, 13)
    exact = model(tokens).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layout = Layout.causal(tokens)
        hidden = model.hidden(tokens, layout).final
        narrow = model.logits(hidden)
    assert hidden.dtype == torch.float32  # the residual stream is not narrowed
    assert (narrow - exact).abs().max() < 0.02 * exact.abs().max()


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("final_norm", ["affine", "plain", "none"])
def test_the_final_norm_is_as_asked(
    random_model: Callable[..., Transformer], norm: str, final_norm: str
) -> None:
    model = random_model(norm=norm, final_norm=final_norm)
    n_parameters = len(list(model.final_norm.parameters()))
    assert n_parameters == (0 if final_norm != "affine" else 2 if norm == "layer" else 1)
    tokens = random_tokens(1, 3)
    hidden = model.hidden(tokens, Layout.causal(tokens), capture=(2,))
    is_unchanged = torch.equal(hidden.final, hidden.captured[2])
    assert is_unchanged == (final_norm == "none")


def test_attention_without_scale_equals_queries_scaled_by_the_root(
    random_model: Callable[..., Transformer],
) -> None:
    plain, scaled = random_model(attention_scale="none"), random_model()
    with torch.no_grad():
        for attention in (sublayer.function for sublayer in scaled.decoder.sublayers[0]):
            attention.projection.weight[0] *= 2**0.5  # d_head is 2
            attention.projection.bias[0] *= 2**0.5
    tokens = random_tokens(2, 5)
    close(scaled(tokens).logits, plain(tokens).logits)
