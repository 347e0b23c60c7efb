"""Inputs and targets: the released vectors, and that both give the text back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.config.objectives.span import SpanObjective
from sublayer.data.counter_rng import Purpose, seeds
from sublayer.data.span.corruption import corrupt
from sublayer.data.span.masks import MASKS
from tests.data.span.restoring import restore, split_at_sentinels

SENTINELS = tuple(range(999, 899, -1))


def one_of(rows):
    assert len(rows.lengths) == 1
    return rows.ids.tolist()


def test_the_released_vectors() -> None:
    mask = np.array([[1, 1, 0, 0, 1, 0]], dtype=np.bool_)
    inputs, targets = corrupt(np.arange(10, 16)[None], mask, SENTINELS)
    assert one_of(inputs) == [999, 12, 13, 998, 15]
    # The same function on the opposite mask.
    assert one_of(targets) == [10, 11, 999, 14, 998]


def test_a_piece_that_begins_as_it_is_has_a_sentinel_before_each_span() -> None:
    mask = np.array([[0, 0, 1, 1, 0, 1]], dtype=np.bool_)
    inputs, targets = corrupt(np.arange(10, 16)[None], mask, SENTINELS)
    assert one_of(inputs) == [10, 11, 999, 14, 998]
    assert one_of(targets) == [999, 12, 13, 998, 15]


def test_without_sentinels_both_hold_just_their_own() -> None:
    mask = np.array([[0, 0, 1, 1]], dtype=np.bool_)
    inputs, targets = corrupt(np.arange(10, 14)[None], mask, ())
    assert (one_of(inputs), one_of(targets)) == ([10, 11], [12, 13])


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


def test_ids_are_split_at_sentinels() -> None:
    assert split_at_sentinels([5, 999, 6, 7, 998], SENTINELS) == [[5], [6, 7], []]
