"""What a process sends in a step, against numbers worked out by hand and collectives counted."""

import pytest

from sublayer.estimate.cluster.group import Group, Shard, Units
from sublayer.estimate.cluster.memory import tree_sums
from sublayer.estimate.cluster.traffic import step_traffic

UNITS = Units(blocks=(300, 300), root=200)
WEIGHTS = 800


@pytest.mark.parametrize(
    ("shard", "n_passes", "gathering", "summing"),
    [
        ("none", 1, 0, 2 * 600),
        ("none", 3, 0, 2 * 600),
        ("optimizer", 1, 600, 600),
        ("optimizer", 3, 600, 600),
        ("full", 1, 600 + 450, 600),
        ("full", 3, 150 + 3 * 2 * 450, 600),
    ],
)
def test_four_processes_send_three_quarters_of_what_goes_round(
    shard: Shard, n_passes: int, gathering: int, summing: int
) -> None:
    sent = step_traffic(UNITS, WEIGHTS, n_passes=n_passes, group=Group(4, shard))
    assert (sent.gathering, sent.summing) == (gathering, summing)
    assert sent.total == gathering + summing


def test_one_process_sends_nothing() -> None:
    assert step_traffic(UNITS, WEIGHTS, n_passes=2, group=Group(1, "full")).total == 0


def test_what_is_frozen_is_gathered_and_not_summed() -> None:
    sent = step_traffic(UNITS, 400, n_passes=1, group=Group(2, "optimizer"))
    assert (sent.gathering, sent.summing) == (400, 200)


def test_exact_sends_each_sum_of_its_tree_and_the_total() -> None:
    # Three micro-batches leave two sums, of two and of one.
    assert tree_sums(3) == (2, 2)
    sent = step_traffic(UNITS, WEIGHTS, n_passes=3, group=Group(2, exact=True))
    assert (sent.gathering, sent.summing) == (0, 3 * 400)


@pytest.mark.parametrize(("n_parts", "most", "left"), [(1, 1, 1), (2, 2, 1), (4, 3, 1), (7, 3, 3)])
def test_a_tree_keeps_a_sum_for_each_level(n_parts: int, most: int, left: int) -> None:
    assert tree_sums(n_parts) == (most, left)
