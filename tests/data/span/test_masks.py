"""Masks of noise: exactly as much as is asked for, drawn evenly."""

import math
from collections import Counter

import numpy as np
import pytest

from sublayer.config.objectives.noise import spans_of
from sublayer.config.objectives.span import SpanObjective
from sublayer.data.arrays import Bools
from sublayer.data.counter_rng import Purpose, seeds
from sublayer.data.span.corruption import limit_runs
from sublayer.data.span.masks import MASKS, chance_mask, prefix_mask, span_mask

T5 = SpanObjective()


def draw(n_rows: int, length: int, objective: SpanObjective = T5, seed: int = 0) -> Bools:
    bits = seeds(seed, Purpose.NOISE, 0, n_rows)
    return MASKS[objective.noise](bits, length, objective)


def runs(row: Bools) -> list[int]:
    """Return the lengths of a mask's runs of noise."""
    return [len(run) for run in "".join("x" if noise else " " for noise in row).split()]


@pytest.mark.parametrize("length", [2, 3, 9, 70, 568])
@pytest.mark.parametrize(("density", "mean_span"), [(0.15, 3.0), (0.5, 1.0), (0.9, 2.0)])
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
