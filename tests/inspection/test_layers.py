"""Changes by blocks, measured between input and output of every real token of spread windows."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sublayer.config.architecture.stacks import is_one_block
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.split import Split
from sublayer.data.store import TokenStore
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.errors import DataError
from sublayer.inspection.layer_change import (
    QUANTITIES,
    LayerChange,
    Spread,
    flat,
    mean_changes,
)
from sublayer.inspection.layers import compare_states, measure_layers
from sublayer.inspection.sample import Sample, spread_rows, spread_windows
from sublayer.model.build import build
from sublayer.model.transformer import Transformer
from tests.breadth import examples

TOKENS = torch.arange(35).view(5, 7) % 17


def model_of(**fields: Any) -> Transformer:
    settings = {"n_layers": 3, "d_model": 6, "n_heads": 3, "d_ff": 11, "init_std": 0.4, **fields}
    config = resolve_model(ModelConfig.model_validate(settings), vocab_size=17, context=13)
    return build(config, seed=3).double().eval()


def idle(model: Transformer) -> Transformer:
    """Make every branch of every block add nothing."""
    with torch.no_grad():
        for parameter in model.stack.parameters():
            parameter.zero_()
    return model


def numbers(changes: list[LayerChange]) -> np.ndarray:
    """Give means and quartiles, [layers, quantities, 4]."""
    spreads = [[getattr(change, name) for name in QUANTITIES] for change in changes]
    return np.array([[[spread.mean, *spread.quartiles] for spread in row] for row in spreads])


def by_hooks(model: Transformer, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Watch what enters and leaves every executed block."""
    calls: list[tuple[Tensor, Tensor]] = []
    sublayers = {
        sublayer for layer in range(model.config.n_layers) for sublayer in model.stack.block(layer)
    }
    handles = [
        each.register_forward_hook(lambda _, given, result: calls.append((given[0], result)))
        for each in sublayers
    ]
    with torch.no_grad():
        model(tokens)
    for handle in handles:
        handle.remove()
    n = len(model.stack.block(0))
    return [(calls[first][0], calls[first + n - 1][1]) for first in range(0, len(calls), n)]


@pytest.mark.parametrize(
    ("before", "after", "distance", "angle"),
    [
        ((3.0, 4.0), (6.0, 8.0), 5.0, 0.0),
        ((1.0, 0.0), (0.0, 2.0), math.sqrt(5.0), 90.0),
        ((2.0, 0.0), (-1.0, 0.0), 3.0, 180.0),
        ((1.0, 0.0), (math.cos(1e-9), math.sin(1e-9)), 1e-9, math.degrees(1e-9)),
    ],
)
def test_distances_and_angles_by_hand(
    before: tuple[float, float], after: tuple[float, float], distance: float, angle: float
) -> None:
    one, other = (
        torch.tensor([before], dtype=torch.float64),
        torch.tensor([after], dtype=torch.float64),
    )
    found = dict(zip(QUANTITIES, compare_states(one, other)[:, 0].tolist(), strict=True))
    assert found["distance"] == pytest.approx(distance, rel=1e-14)
    assert found["angle_degrees"] == pytest.approx(angle, rel=1e-14)
    assert found["cosine"] == pytest.approx(math.cos(math.radians(angle)), abs=1e-15)
    assert (found["norm_in"], found["norm_out"]) == pytest.approx(
        (math.hypot(*before), math.hypot(*after)), rel=1e-14
    )


def test_states_of_half_the_width_of_a_float_are_compared_in_float64() -> None:
    before = torch.tensor([[300.0, 400.0]], dtype=torch.float16)
    found = compare_states(before, before)
    assert found.dtype == torch.float64
    assert found[:, 0].tolist() == [0.0, pytest.approx(1.0, abs=1e-15), 0.0, 500.0, 500.0]


def test_blocks_that_do_nothing_move_nothing_however_often_they_are_run() -> None:
    model = idle(model_of(share="all", positions="learned"))
    found = numbers(measure_layers(model, Sample(TOKENS), batch_sequences=2, beyond=5))
    np.testing.assert_array_equal(found[:, QUANTITIES.index("distance")], 0.0)
    np.testing.assert_array_equal(found[:, QUANTITIES.index("angle_degrees")], 0.0)
    np.testing.assert_allclose(found[:, QUANTITIES.index("cosine")], 1.0, rtol=0, atol=1e-15)


def test_positions_added_before_a_block_are_part_of_its_input() -> None:
    model = idle(model_of(positions="learned-per-layer"))
    found = measure_layers(model, Sample(TOKENS), batch_sequences=5)
    stream = model.embedding(TOKENS)
    for change, table in zip(found, model.positions.tables, strict=True):
        stream = stream + table.weight[:7]
        assert change.norm_in.mean == pytest.approx(
            float(stream.norm(dim=2).mean().detach()), rel=1e-13
        )
        assert change.norm_out.mean == change.norm_in.mean


def doubling(**fields: Any) -> tuple[Transformer, float]:
    """Build a model whose blocks double what enters them; return the norm of what first does."""
    model = model_of(
        norm="none",
        ffn="relu",
        block=["ffn"],
        d_ff=12,
        final_norm="none",
        positions="none",
        **fields,
    )
    eye = torch.eye(6, dtype=torch.float64)
    # relu(x) - relu(-x) = x, which is added to x.
    weights = {"in": torch.cat([eye, -eye]), "out": torch.cat([eye, -eye], dim=1)}
    with torch.no_grad():
        for parameter in model.stack.parameters():
            fitting = [weight for weight in weights.values() if weight.shape == parameter.shape]
            parameter.copy_(fitting[0]) if fitting else parameter.zero_()
        return model, float(model.embedding(TOKENS).norm(dim=2).mean())


@pytest.mark.parametrize(("share", "beyond"), [("none", 0), ("all", 4)])
def test_a_block_that_doubles_moves_by_the_norm_of_its_input(share: str, beyond: int) -> None:
    model, norm = doubling(share=share)
    changes = measure_layers(model, Sample(TOKENS), batch_sequences=3, beyond=beyond)
    assert [change.layer for change in changes] == list(range(1, 4 + beyond))
    assert [change.is_beyond for change in changes] == [False] * 3 + [True] * beyond
    for change in changes:
        grown = norm * 2 ** (change.layer - 1)
        assert change.distance.mean == pytest.approx(grown, rel=1e-13)
        assert (change.norm_in.mean, change.norm_out.mean) == pytest.approx(
            (grown, 2 * grown), rel=1e-13
        )
        assert change.angle_degrees.mean == 0.0


@pytest.mark.parametrize(
    "fields",
    [
        {"norm_order": "post", "block": "macaron"},
        {"share": "all", "n_layers": 4, "positions": "learned-per-layer"},
        {"kind": "encoder", "norm_order": "post", "share": "all", "d_embed": 4, "segments": "both"},
    ],
)
def test_the_numbers_are_those_of_hooks_on_every_executed_block(fields: dict[str, Any]) -> None:
    model = model_of(**fields)
    found = numbers(measure_layers(model, Sample(TOKENS), batch_sequences=2))
    watched = by_hooks(model, TOKENS)
    assert len(found) == len(watched) == model.config.n_layers
    for row, (before, after) in zip(found, watched, strict=True):
        cosine = torch.cosine_similarity(before, after, dim=2)
        expected = [
            torch.dist(*pair)
            for pair in zip(before.flatten(0, 1), after.flatten(0, 1), strict=True)
        ]
        values = [
            torch.stack(expected),
            cosine,
            cosine.arccos().rad2deg(),
            before.norm(dim=2),
            after.norm(dim=2),
        ]
        for spread, value in zip(row, values, strict=True):
            flat = value.flatten().numpy()
            np.testing.assert_allclose(
                spread, [flat.mean(), *np.quantile(flat, [0.25, 0.5, 0.75])], rtol=1e-9
            )


ONE_BLOCK: list[dict[str, Any]] = [
    {"share": "all"},
    {"share": "all", "kind": "encoder", "norm_order": "post", "positions": "learned"},
    {"share": "all", "positions": "rotary", "block": "macaron"},
    {"share": "all", "positions": "alibi", "norm": "rms"},
    {"share": "all", "kind": "encoder", "positions": "relative", "final_norm": "none"},
    {"share": "attention", "block": ["attention"]},
]


@pytest.mark.parametrize("fields", ONE_BLOCK[1::2])
def test_a_block_run_beyond_is_that_of_a_model_with_more_layers(fields: dict[str, Any]) -> None:
    model, deeper = model_of(**fields), model_of(**{**fields, "n_layers": 7})
    deeper.load_state_dict(model.state_dict())
    sample = Sample(TOKENS)
    found = measure_layers(model, sample, batch_sequences=2, beyond=4)
    expected = measure_layers(deeper, sample, batch_sequences=2)
    np.testing.assert_allclose(numbers(found), numbers(expected), rtol=1e-12)
    assert [change.is_beyond for change in found] == [False] * 3 + [True] * 4
    # The model's own blocks are what they are without.
    own = measure_layers(model, sample, batch_sequences=2)
    assert found[:3] == own == measure_layers(model, sample, batch_sequences=2, beyond=0)


@pytest.mark.parametrize(
    "fields",
    [
        {"share": "ffn"},
        {"share": "all", "n_layers": 4, "share_groups": 2},
        {"share": "all", "n_layers": 4, "share_inner": 2},
        {"share": "all", "positions": "learned-per-layer"},
        {"kind": "encoder-decoder", "share": "all"},
    ],
)
def test_different_blocks_cannot_be_run_beyond(fields: dict[str, Any]) -> None:
    assert not is_one_block(ModelConfig(d_model=6, n_heads=3, **fields))
    for shared in ONE_BLOCK:
        assert is_one_block(ModelConfig(d_model=6, n_heads=3, **shared))


def test_how_many_rows_are_computed_at_a_time_changes_nothing() -> None:
    model = model_of()
    whole, done = measure_layers(model, Sample(TOKENS), batch_sequences=5), []
    for size in (1, 2):
        progress = lambda *counts: done.append(counts)  # noqa: E731
        parts = measure_layers(model, Sample(TOKENS), batch_sequences=size, progress=progress)
        np.testing.assert_allclose(numbers(parts), numbers(whole), rtol=1e-12)
    assert done[:5] == [(7, 35), (14, 35), (21, 35), (28, 35), (35, 35)]


@pytest.mark.parametrize(("kind", "side"), [("decoder", "left"), ("encoder", "right")])
def test_padding_is_not_counted_and_changes_nothing(kind: str, side: str) -> None:
    model, short = model_of(kind=kind, share="all"), TOKENS[:, :4]
    padding, real = torch.full((5, 3), 16), torch.ones(5, 4, dtype=torch.bool)
    order = slice(None) if side == "right" else slice(None, None, -1)
    tokens = torch.cat([short, padding][order], dim=1)
    mask = torch.cat([real, torch.zeros(5, 3, dtype=torch.bool)][order], dim=1)
    padded = Sample(tokens, mask=mask)
    assert padded.n_tokens == 20
    for beyond in (0, 2):
        np.testing.assert_allclose(
            numbers(measure_layers(model, padded, batch_sequences=2, beyond=beyond)),
            numbers(measure_layers(model, Sample(short), batch_sequences=2, beyond=beyond)),
            rtol=1e-10,
        )


def test_documents_side_by_side_are_measured_as_if_apart() -> None:
    model = model_of(kind="encoder", positions="learned")
    apart = TOKENS[:4, :6]
    together = Sample(
        apart.reshape(2, 12), document_ids=torch.tensor([1] * 6 + [2] * 6).repeat(2, 1)
    )
    np.testing.assert_allclose(
        numbers(measure_layers(model, together, batch_sequences=2)),
        numbers(measure_layers(model, Sample(apart), batch_sequences=2)),
        rtol=1e-10,
    )


def test_a_state_of_zero_has_no_angle() -> None:
    model = idle(model_of(positions="none"))
    with torch.no_grad():
        model.embedding.weight.zero_()
    (first, *_) = measure_layers(model, Sample(TOKENS), batch_sequences=5)
    assert math.isnan(first.angle_degrees.mean)
    assert math.isnan(first.cosine.mean)
    assert first.distance.mean == 0.0


def test_dropout_is_off_and_the_mode_of_the_model_is_kept() -> None:
    model = model_of(dropout=0.5)
    expected = numbers(measure_layers(model, Sample(TOKENS), batch_sequences=5))
    model.train()
    np.testing.assert_array_equal(
        numbers(measure_layers(model, Sample(TOKENS), batch_sequences=5)), expected
    )
    assert model.training


def test_the_mean_of_models_is_that_of_each_number_of_each_block() -> None:
    def change(value: float, is_beyond: bool) -> LayerChange:
        spread = Spread(value, (value - 1.0, value, value + 2.0))
        angle = Spread(10.0 * value, (0.0, 1.0, value))
        return LayerChange(1, spread, spread, angle, spread, spread, is_beyond=is_beyond)

    (one, two) = mean_changes([[change(1.0, False), change(4.0, True)], [change(2.0, False)] * 2])
    assert one.distance == Spread(1.5, (0.5, 1.5, 3.5))
    assert one.angle_degrees == Spread(15.0, (0.0, 1.0, 1.5))
    assert two == replace(change(3.0, True), angle_degrees=Spread(30.0, (0.0, 1.0, 3.0)))
    assert mean_changes([[one, two]]) == [one, two]
    assert flat(one)["angle_degrees"] == 15.0
    assert flat(one)["angle_degrees_quartiles"] == [0.0, 1.0, 1.5]


def split_of(n_tokens: int, document_starts: tuple[int, ...] = (0,)) -> Split:
    starts = np.array(document_starts, dtype=np.int64)
    store = TokenStore(
        np.arange(n_tokens, dtype=np.uint16), starts, np.array([0]), n_tokens, "", is_lossless=True
    )
    return Split("valid", store, ByteTokenizer(), ("book.txt",))


@pytest.mark.parametrize(
    ("max_tokens", "firsts"),
    [
        (1, [0]),
        (11, [0, 8]),
        (12, [0, 4, 12]),
        (99, [0, 4, 8, 12, 16]),
    ],
)
def test_windows_by_hand(max_tokens: int, firsts: list[int]) -> None:
    sample = spread_windows(split_of(23), context=4, max_tokens=max_tokens)
    assert sample.tokens.tolist() == [[first, first + 1, first + 2, first + 3] for first in firsts]
    assert (len(sample), sample.n_tokens) == (len(firsts), 4 * len(firsts))
    assert sample.document_ids is None


@examples(100)
@given(n_tokens=st.integers(1, 400), context=st.integers(1, 20), max_tokens=st.integers(1, 500))
def test_windows_keep_to_the_limit_and_reach_both_halves(
    n_tokens: int, context: int, max_tokens: int
) -> None:
    if n_tokens < context:
        with pytest.raises(DataError):
            spread_windows(split_of(n_tokens), context=context, max_tokens=max_tokens)
        return
    tokens = spread_windows(split_of(n_tokens), context=context, max_tokens=max_tokens).tokens
    assert tokens.unique().numel() == tokens.numel() <= max(max_tokens, context)
    n_whole = n_tokens // context
    assert len(tokens) == min(n_whole, max(1, max_tokens // context))
    if len(tokens) > 1:
        assert tokens[-1, 0] >= context * (n_whole // 2)


def test_documents_are_numbered_where_they_are_kept_apart() -> None:
    sample = spread_windows(
        split_of(12, (0, 5, 7)), context=4, max_tokens=12, respect_boundaries=True
    )
    assert sample.document_ids is not None
    assert sample.document_ids.tolist() == [[1, 1, 1, 1], [1, 2, 2, 3], [3, 3, 3, 3]]
    assert sample[1:2].document_ids is not None
    assert sample[1:2].document_ids.tolist() == [[1, 2, 2, 3]]


def test_a_text_shorter_than_a_window_is_refused_with_both_lengths() -> None:
    with pytest.raises(DataError, match="7 tokens, fewer than a window of 8"):
        spread_windows(split_of(7), context=8, max_tokens=100)


def test_rows_are_the_shortest_first_and_keep_no_padding_that_all_of_them_have() -> None:
    rows = [np.arange(length) for length in (5, 2, 7, 3)]
    sample = spread_rows(rows, pad_id=99, max_tokens=100)
    assert sample.mask is not None and sample.mask.sum(1).tolist() == [2, 3, 5, 7]
    assert sample[:2].tokens.tolist() == [[0, 1, 99], [0, 1, 2]]
    assert sample[2:].tokens.shape == (2, 7) and sample[2:].n_tokens == 12
