"""Changes by blocks, measured between input and output of every real token of spread windows."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sublayer.config.architecture.stacks import is_one_block
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
from sublayer.model.transformer import Transformer
from tests.inspection.models import config_of, model_of

TOKENS = torch.arange(35).view(5, 7) % 17


def numbers(changes: list[LayerChange]) -> np.ndarray:
    """Give means and quartiles, [layers, quantities, 4]."""
    spreads = [[getattr(change, name) for name in QUANTITIES] for change in changes]
    return np.array([[[spread.mean, *spread.quartiles] for spread in row] for row in spreads])


def by_hooks(model: Transformer, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Watch what enters and leaves every executed block."""
    calls: list[tuple[Tensor, Tensor]] = []
    layers = range(model.config.n_layers)
    for sublayer in {sublayer for layer in layers for sublayer in model.stack.block(layer)}:
        sublayer.register_forward_hook(lambda _, given, result: calls.append((given[0], result)))
    with torch.no_grad():
        model(tokens)
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
    pair = (torch.tensor([state], dtype=torch.float64) for state in (before, after))
    norms = (math.hypot(*before), math.hypot(*after))
    expected = (distance, math.cos(math.radians(angle)), angle, *norms)
    assert compare_states(*pair)[:, 0].tolist() == pytest.approx(expected, rel=1e-14, abs=1e-15)


@pytest.mark.parametrize(
    "fields",
    [
        {"share": "all", "n_layers": 4, "positions": "learned-per-layer", "block": "macaron"},
        {"kind": "encoder", "norm_order": "post", "share": "all", "d_embed": 4, "segments": "both"},
    ],
)
def test_the_numbers_are_those_of_hooks_on_every_executed_block(fields: dict[str, Any]) -> None:
    model = model_of(**fields)
    found = numbers(measure_layers(model, Sample(TOKENS), batch_sequences=2))
    watched = by_hooks(model, TOKENS)
    assert len(found) == len(watched) == model.config.n_layers
    for row, (before, after) in zip(found, watched, strict=True):
        distance, cosine = (after - before).norm(dim=2), torch.cosine_similarity(before, after, 2)
        angle = cosine.arccos().rad2deg()
        for spread, value in zip(
            row, (distance, cosine, angle, before.norm(dim=2), after.norm(dim=2)), strict=True
        ):
            expected = [value.mean(), *np.quantile(value, [0.25, 0.5, 0.75])]
            np.testing.assert_allclose(spread, expected, rtol=1e-9)


def test_a_block_run_beyond_is_that_of_a_model_with_more_layers() -> None:
    fields = {"share": "all", "norm_order": "post", "positions": "alibi", "block": "macaron"}
    model, deeper = (model_of(**fields, n_layers=n) for n in (3, 7))
    deeper.load_state_dict(model.state_dict())
    found = measure_layers(model, Sample(TOKENS), batch_sequences=2, beyond=4)
    expected = measure_layers(deeper, Sample(TOKENS), batch_sequences=2)
    np.testing.assert_allclose(numbers(found), numbers(expected), rtol=1e-12)
    assert [change.is_beyond for change in found] == [False] * 3 + [True] * 4
    assert found[:3] == measure_layers(model, Sample(TOKENS), batch_sequences=2)


@pytest.mark.parametrize(
    ("fields", "is_one"),
    [
        ({"share": "attention", "block": ["attention"]}, True),
        ({"share": "ffn"}, False),
        ({"share": "all", "n_layers": 4, "share_groups": 2}, False),
        ({"share": "all", "n_layers": 4, "share_inner": 2}, False),
        ({"share": "all", "positions": "learned-per-layer"}, False),
        ({"share": "all", "kind": "encoder-decoder"}, False),
    ],
)
def test_different_blocks_cannot_be_run_beyond(fields: dict[str, Any], is_one: bool) -> None:
    assert is_one_block(config_of(**fields)) == is_one


def test_neither_batches_nor_dropout_change_what_is_measured() -> None:
    model, done = model_of(dropout=0.5), []
    whole = numbers(measure_layers(model, Sample(TOKENS), batch_sequences=5))
    model.train()
    for size in (2, 1):
        done.clear()
        progress = lambda *counts: done.append(counts)  # noqa: E731
        parts = measure_layers(model, Sample(TOKENS), batch_sequences=size, progress=progress)
        np.testing.assert_allclose(numbers(parts), whole, rtol=1e-12)
    assert done == [(7, 35), (14, 35), (21, 35), (28, 35), (35, 35)]
    assert model.training


@pytest.mark.parametrize(("kind", "side"), [("decoder", "left"), ("encoder", "right")])
def test_padding_is_not_counted_and_changes_nothing(kind: str, side: str) -> None:
    model, short = model_of(kind=kind, share="all"), TOKENS[:, :4]
    order = slice(None) if side == "right" else slice(None, None, -1)
    tokens = torch.cat([short, torch.full((5, 3), 16)][order], dim=1)
    mask = torch.cat([torch.ones(5, 4), torch.zeros(5, 3)][order], dim=1).bool()
    padded, plain = (
        numbers(measure_layers(model, sample, batch_sequences=2, beyond=2))
        for sample in (Sample(tokens, mask=mask), Sample(short))
    )
    np.testing.assert_allclose(padded, plain, rtol=1e-10)


def test_the_mean_of_models_is_that_of_each_number_of_each_block() -> None:
    def change(value: float, is_beyond: bool) -> LayerChange:
        spread = Spread(value, (value - 1.0, value, value + 2.0))
        angle = Spread(10.0 * value, (0.0, 1.0, value))
        return LayerChange(1, spread, spread, angle, spread, spread, is_beyond=is_beyond)

    (one, two) = mean_changes([[change(1.0, False), change(4.0, True)], [change(2.0, False)] * 2])
    assert one == replace(change(1.5, False), angle_degrees=Spread(15.0, (0.0, 1.0, 1.5)))
    assert two == replace(change(3.0, True), angle_degrees=Spread(30.0, (0.0, 1.0, 3.0)))
    assert flat(one)["angle_degrees"] == 15.0
    assert flat(one)["angle_degrees_quartiles"] == [0.0, 1.0, 1.5]


def split_of(n_tokens: int, document_starts: tuple[int, ...] = (0,)) -> Split:
    ids, starts = np.arange(n_tokens, dtype=np.uint16), np.array(document_starts, dtype=np.int64)
    store = TokenStore(ids, starts, np.array([0]), n_tokens, "", is_lossless=True)
    return Split("valid", store, ByteTokenizer(), ("book.txt",))


@pytest.mark.parametrize(
    ("max_tokens", "firsts"), [(1, [0]), (11, [0, 8]), (12, [0, 4, 12]), (99, [0, 4, 8, 12, 16])]
)
def test_windows_are_spread_and_keep_to_the_limit(max_tokens: int, firsts: list[int]) -> None:
    sample = spread_windows(split_of(23), context=4, max_tokens=max_tokens)
    assert sample.tokens.tolist() == [[first, first + 1, first + 2, first + 3] for first in firsts]
    assert (len(sample), sample.n_tokens) == (len(firsts), 4 * len(firsts))
    assert sample.document_ids is None


def test_documents_are_numbered_where_they_are_kept_apart() -> None:
    split = split_of(12, (0, 5, 7))
    sample = spread_windows(split, context=4, max_tokens=12, respect_boundaries=True)
    assert sample.document_ids is not None and sample[1:2].document_ids is not None
    assert sample.document_ids.tolist() == [[1, 1, 1, 1], [1, 2, 2, 3], [3, 3, 3, 3]]
    assert sample[1:2].document_ids.tolist() == [[1, 2, 2, 3]]
    with pytest.raises(DataError, match="12 tokens, fewer than a window of 13"):
        spread_windows(split, context=13, max_tokens=100)


def test_rows_are_the_shortest_first_and_keep_no_padding_that_all_of_them_have() -> None:
    rows = [np.arange(length) for length in (5, 2, 7, 3)]
    sample = spread_rows(rows, pad_id=99, max_tokens=100)
    assert sample.mask is not None and sample.mask.sum(1).tolist() == [2, 3, 5, 7]
    assert sample[:2].tokens.tolist() == [[0, 1, 99], [0, 1, 2]]
    assert sample[2:].tokens.shape == (2, 7) and sample[2:].n_tokens == 12
    few = spread_rows(rows, pad_id=99, max_tokens=9)  # of two rows, by their mean length
    assert few.mask is not None and few.mask.sum(1).tolist() == [5, 7]
