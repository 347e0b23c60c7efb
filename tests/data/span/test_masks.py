"""Masks of noise drawn evenly, and the inputs and targets that give a text back."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.config.objectives.noise import spans_of
from sublayer.config.objectives.span import SpanObjective
from sublayer.data.arrays import Bools
from sublayer.data.counter_rng import Purpose, seeds
from sublayer.data.span.corruption import corrupt, limit_runs
from sublayer.data.span.masks import MASKS, chance_mask, prefix_mask, span_mask
from tests.data.span.restoring import restore, split_at_sentinels

T5 = SpanObjective()


def draw(n_rows: int, length: int, objective: SpanObjective = T5, seed: int = 0) -> Bools:
    bits = seeds(seed, Purpose.NOISE, 0, n_rows)
    return MASKS[objective.noise](bits, length, objective)


def runs(row: Bools) -> list[int]:
    """Return the lengths of a mask's runs of noise."""
    return [len(run) for run in "".join("x" if noise else " " for noise in row).split()]


@pytest.mark.parametrize("length", [2, 9, 568])
@pytest.mark.parametrize(("density", "mean_span"), [(0.15, 3.0), (0.9, 2.0)])
def test_every_mask_has_exactly_its_noise_and_its_spans(
    length: int, density: float, mean_span: float
) -> None:
    objective = SpanObjective(noise_density=density, mean_span=mean_span)
    n_noise, n_spans = spans_of(objective, length)
    for row in draw(20, length, objective):
        assert sum(runs(row)) == n_noise
        assert len(runs(row)) == n_spans
        assert not row[0]
        assert row[-1]


def test_every_division_of_the_noise_is_as_likely() -> None:
    # Of 12 tokens 6 are noise, in 3 spans: 10 ways to divide 6 into 3 parts.
    objective = SpanObjective(noise_density=0.5, mean_span=2.0)
    counts = Counter(tuple(runs(row)) for row in draw(20_000, 12, objective))
    assert len(counts) == 10
    expected = 2000
    deviation = math.sqrt(expected)
    assert all(abs(count - expected) < 5 * deviation for count in counts.values())


def test_the_mean_span_and_where_noise_lies_follow_from_the_settings() -> None:
    masks = draw(4000, 568)
    assert masks.mean() == 85 / 568
    lengths = [length for row in masks[:400] for length in runs(row)]
    assert np.mean(lengths) == 85 / 28
    # A piece is noise everywhere as often, but for its ends: the last token always is.
    shares = masks[:, 60:500].mean(0)
    assert abs(shares.mean() - 85 / 568) < 0.005
    assert shares.std() < 3 * math.sqrt(0.15 * 0.85 / 4000)


def test_chance_takes_each_token_with_the_density() -> None:
    objective = SpanObjective(noise="iid", noise_density=0.25)
    masks = draw(2000, 100, objective)
    assert abs(masks.mean() - 0.25) < 0.005
    assert abs(masks[:, 0].mean() - 0.25) < 0.05
    both = (masks[:, 1:] & masks[:, :-1]).mean()
    assert abs(both - 0.0625) < 0.005


def test_a_prefix_is_of_any_length_as_often() -> None:
    masks = draw(9000, 10, SpanObjective(noise="prefix"))
    assert (np.diff(masks.astype(int), axis=1) >= 0).all()
    counts = Counter((~masks).sum(1).tolist())
    assert set(counts) == set(range(1, 10))
    assert all(abs(count - 1000) < 160 for count in counts.values())


@pytest.mark.parametrize("mask", [span_mask, chance_mask, prefix_mask])
def test_a_row_depends_on_its_own_seed_alone(mask) -> None:
    bits = seeds(3, Purpose.NOISE, 0, 8)
    together = mask(bits, 70, T5)
    for number in range(8):
        assert (mask(bits[number : number + 1], 70, T5)[0] == together[number]).all()


def test_runs_beyond_the_sentinels_are_not_noise() -> None:
    mask = np.array([[0, 1, 0, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 0, 1, 1]], dtype=np.bool_)
    limited = limit_runs(mask, 3)
    assert limited.astype(int).tolist() == [[0, 1, 0, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 1, 1]]
    assert limit_runs(mask, 4) is mask


SENTINELS = tuple(range(999, 899, -1))


@pytest.mark.parametrize(
    ("mask", "sentinels", "inputs", "targets"),
    [
        # The released vectors: the same function on the opposite mask gives the targets.
        ([1, 1, 0, 0, 1, 0], SENTINELS, [999, 12, 13, 998, 15], [10, 11, 999, 14, 998]),
        # A piece that begins as it is has a sentinel before each span.
        ([0, 0, 1, 1, 0, 1], SENTINELS, [10, 11, 999, 14, 998], [999, 12, 13, 998, 15]),
        ([0, 0, 1, 1], (), [10, 11], [12, 13]),
    ],
)
def test_inputs_and_targets_are_the_released_vectors(mask, sentinels, inputs, targets) -> None:
    pieces = np.arange(10, 10 + len(mask))[None]
    rows = corrupt(pieces, np.array([mask], dtype=np.bool_), sentinels)
    assert [row.ids.tolist() for row in rows] == [inputs, targets]
    assert [len(row.lengths) for row in rows] == [1, 1]

    assert split_at_sentinels([5, 999, 6, 7, 998], SENTINELS) == [[5], [6, 7], []]


@pytest.mark.parametrize("noise", MASKS)
@given(
    length=st.integers(2, 300),
    density=st.floats(0.01, 0.99),
    mean_span=st.floats(1.0, 40.0),
    seed=st.integers(0, 2**63 - 1),
    n_sentinels=st.integers(2, 200),
)
def test_inputs_and_targets_give_the_text_back(
    noise: str, length: int, density: float, mean_span: float, seed: int, n_sentinels: int
) -> None:
    objective = SpanObjective(noise=noise, noise_density=density, mean_span=mean_span)
    mask = MASKS[noise](seeds(seed, Purpose.NOISE, 0, 3), length, objective)
    pieces = np.arange(3 * length).reshape(3, length) + 10_000
    sentinels = () if noise == "prefix" else tuple(range(n_sentinels, 0, -1))
    inputs, targets = corrupt(pieces, mask, sentinels)
    input_rows = np.split(inputs.ids, np.cumsum(inputs.lengths)[:-1])
    target_rows = np.split(targets.ids, np.cumsum(targets.lengths)[:-1])
    for piece, source, target in zip(pieces.tolist(), input_rows, target_rows, strict=True):
        assert restore(source.tolist(), target.tolist(), sentinels) == piece
        for row in (source, target):
            used = [id_ for id_ in row.tolist() if id_ < 10_000]
            # Counted down from the first, and none of them twice.
            assert used == list(sentinels[: len(used)])
