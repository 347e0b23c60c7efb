"""Schemes that bias scores, one of them learned and of this file alone: cached, by beam, padded."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.config.architecture.positions import POSITIONS, PositionScheme
from sublayer.config.architecture.stacks import StackShape
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.decode.beam import search
from sublayer.decode.beam_settings import BeamSettings
from sublayer.decode.step import Stepper
from sublayer.estimate.cost import count_parameters
from sublayer.model.build import build
from sublayer.model.context.cache import Cache
from sublayer.model.context.keys import Keys
from sublayer.model.context.layout import Layout
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.kernels import attention
from sublayer.model.positions.base import Positions, distances
from sublayer.model.positions.learned_table import PositionTable
from sublayer.model.transformer import Transformer
from tests.choices import allow_choices

N_TOKENS, VOCAB_SIZE, FARTHEST = 11, 13, 3
SCHEMES = ("clipped", *(name for name, row in POSITIONS.items() if row.in_attention == "bias"))
SETTINGS: dict[str, dict[str, int]] = {
    # So few that distances share them, on either side.
    "relative": {"relative_buckets": 8, "relative_distance": 7},
}


class ClippedDistance(Positions):
    """Add to scores a learned number for each head and distance, those beyond a limit as at it."""

    def __init__(self, config: ModelConfig, shape: StackShape) -> None:
        super().__init__(config, shape)
        self.table = PositionTable(2 * FARTHEST + 1, config.n_heads)

    def score_bias(
        self, queries: Int[Tensor, "... T"], keys: Int[Tensor, "... S"], dtype: torch.dtype
    ) -> Float[Tensor, "N H T S"]:
        numbers = distances(queries, keys).clamp(-FARTHEST, FARTHEST) + FARTHEST
        return self.table.vectors(numbers).permute(0, 3, 1, 2).to(dtype)


@pytest.fixture(autouse=True)
def clipped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    known = tuple(POSITIONS)
    row = PositionScheme(
        f"{__name__}:ClippedDistance",
        in_attention="bias",
        n_parameters=lambda model, n_layers, width: (2 * FARTHEST + 1) * model.n_heads,
    )
    monkeypatch.setitem(POSITIONS, "clipped", row)
    allow_choices("positions", *known, "clipped")
    yield
    allow_choices("positions", *known)


each_scheme = pytest.mark.parametrize("scheme", SCHEMES)


def make_model(scheme: str, **fields: Any) -> Transformer:
    given = {"n_layers": 2, "d_model": 12, "n_heads": 3, **SETTINGS.get(scheme, {}), **fields}
    config = ModelConfig(positions=scheme, init="normal", init_std=0.5, **given)
    resolved = resolve_model(config, vocab_size=VOCAB_SIZE, context=N_TOKENS)
    return build(resolved, seed=3).double().eval()


def make_tokens(n_rows: int, n: int = N_TOKENS) -> Tensor:
    return torch.randint(VOCAB_SIZE, (n_rows, n), generator=torch.Generator().manual_seed(1))


def equal(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def attend_plainly(
    q: Tensor, k: Tensor, v: Tensor, keys: Keys, bias: Tensor | None, *, scale: float, **_: Any
) -> Tensor:
    """Attend by a softmax that autograd differentiates."""
    scores = scale * q @ k.mT + (0.0 if bias is None else bias)
    seen = keys.mask
    if seen is None:
        n_queries, n_keys = scores.shape[2:]
        seen = torch.ones(n_queries, n_keys, dtype=torch.bool)
        seen = seen.tril(n_keys - n_queries) if keys.is_causal else seen
    return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v


def run(model: Transformer, tokens: Tensor, mask: Tensor | None) -> Tensor:
    if isinstance(model, EncoderDecoder):
        return model(tokens.flip(1), mask, target=tokens).logits
    return model(tokens, mask).logits


@each_scheme
@pytest.mark.parametrize("kernel", ["blockwise", "fused"])
@pytest.mark.parametrize("kind", ["decoder", "encoder", "encoder-decoder"])
@pytest.mark.parametrize("is_padded", [False, True])
def test_gradients_are_those_of_a_plain_softmax(
    monkeypatch: pytest.MonkeyPatch, scheme: str, kernel: str, kind: str, is_padded: bool
) -> None:
    model, tokens = make_model(scheme, kind=kind), make_tokens(3)
    mask = torch.arange(N_TOKENS) >= torch.tensor([[0], [2], [5]]) if is_padded else None
    found = []
    for is_plain in (False, True):
        with monkeypatch.context() as patched:
            if is_plain:
                patched.setattr("sublayer.model.layers.attention.attend", attend_plainly)
            elif kernel == "fused":
                patched.setattr(attention, "is_eager_cpu", lambda x: False)
                patched.setattr("sublayer.model.body.is_eager_cpu", lambda x: False)
            model.zero_grad()
            logits = run(model, tokens, mask)
            if mask is not None:
                logits = logits * mask[..., None]
            logits.square().sum().backward()
        found.append([logits, *(parameter.grad for parameter in model.parameters())])
    for own, expected in zip(*found, strict=True):
        assert own is not None and expected is not None
        torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-9)


def test_a_learned_bias_has_one_table_a_stack_that_learns() -> None:
    model = make_model("clipped", kind="encoder-decoder", n_layers=3)
    tables = {name: each for name, each in model.named_parameters() if "positions" in name}
    assert tables.keys() == {"positions.table.weight", "source.positions.table.weight"}
    assert sum(each.numel() for each in model.parameters()) == count_parameters(model.config).total
    run(model, make_tokens(2), None).square().sum().backward()
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in tables.values())


@each_scheme
def test_blocks_that_run_again_give_the_same_gradients(scheme: str) -> None:
    model, tokens = make_model(scheme), make_tokens(2)
    found = []
    for recomputes in (False, True):
        model.stack.recomputes = recomputes
        model.zero_grad()
        run(model, tokens, None).square().sum().backward()
        found.append([each.grad for each in model.parameters()])
    for one, other in zip(*found, strict=True):
        assert one is not None and other is not None
        equal(one, other)


@each_scheme
@torch.no_grad()
def test_pieces_behind_a_cache_are_the_whole(scheme: str) -> None:
    model, tokens = make_model(scheme), make_tokens(3)
    cache = Cache(model.config, 3, N_TOKENS, torch.float64)
    pieces = [model(piece, cache=cache).logits for piece in tokens.split([4, 1, 1, 5], dim=1)]
    equal(torch.cat(pieces, dim=1), model(tokens).logits)


@each_scheme
@pytest.mark.parametrize("n_rows", [1, 3])
@torch.no_grad()
def test_steps_are_the_whole(scheme: str, n_rows: int) -> None:
    model, tokens = make_model(scheme), make_tokens(n_rows)
    cache = Cache(model.config, n_rows, N_TOKENS, torch.float64)
    step, whole = Stepper(model, n_rows), model(tokens).logits  # type: ignore[arg-type]
    for place in range(N_TOKENS):
        equal(step(tokens[:, place], cache), whole[:, place])


@each_scheme
@torch.no_grad()
def test_rows_padded_anywhere_decode_as_they_would_alone(scheme: str) -> None:
    model, tokens = make_model(scheme), make_tokens(3)
    # Padding on either side of the first piece: behind it, tokens continue from the real ones.
    real = [[True] * 5, [False, False, True, True, True], [True, True, True, False, False]]
    mask, cache = torch.tensor(real), Cache(model.config, 3, N_TOKENS, torch.float64)
    first = model(tokens[:, :5], mask, cache=cache).logits
    second = model(tokens[:, 5:8], cache=cache).logits
    rest = [model(tokens[:, t : t + 1], cache=cache).logits for t in range(8, N_TOKENS)]
    for row in range(3):
        alone = model(tokens[row : row + 1, [*mask[row].nonzero()[:, 0], *range(5, N_TOKENS)]])
        parts = [first[row][mask[row]], second[row], *(each[row] for each in rest)]
        equal(torch.cat(parts), alone.logits[0])


@each_scheme
@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@torch.no_grad()
def test_documents_that_are_kept_apart_are_as_they_would_be_alone(scheme: str, kind: str) -> None:
    model, tokens = make_model(scheme, kind=kind), make_tokens(2)
    ids = torch.tensor([[0] * 4 + [1] * 7, [0] * 9 + [1] * 2])
    lay_out = Layout.causal if kind == "decoder" else Layout.bidirectional
    together = model.hidden(tokens, lay_out(tokens, document_ids=ids)).final
    for row, n_first in enumerate((4, 9)):
        for part in (slice(0, n_first), slice(n_first, N_TOKENS)):
            alone = tokens[row : row + 1, part]
            equal(together[row, part], model.hidden(alone, lay_out(alone)).final[0])


@each_scheme
@torch.no_grad()
def test_hypotheses_of_several_lengths_score_as_a_forward_pass_does(scheme: str) -> None:
    model, rng = make_model(scheme, kind="encoder-decoder"), np.random.default_rng(0)
    assert isinstance(model, EncoderDecoder)
    sources = [rng.integers(3, VOCAB_SIZE, n) for n in (7, 2, 5)]
    settings = BeamSettings(3, max_length_ratio=0.5, max_length_offset=2)
    # Fewer at a time than there are, so that the third begins where another ends.
    found = dict(search(model, sources, settings, end_id=2, pad_id=1, sentences=2))
    for number, source in enumerate(sources):
        for each in found[number]:
            given = torch.tensor([[*source, 2]]), torch.tensor([[2, *each.ids]])
            log_p = model(given[0], target=given[1]).logits[0].log_softmax(-1)
            expected = log_p[range(len(each.ids) + 1), [*each.ids, 2]].sum().item()
            assert each.log_p == pytest.approx(expected, abs=1e-9)
