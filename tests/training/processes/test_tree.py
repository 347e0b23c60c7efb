"""Sums in one fixed tree."""

import pytest

from sublayer.training.processes.tree import Node, TreeSum, part_range, subtrees


def written(left: str, right: str) -> str:
    return f"({left} {right})"


@pytest.mark.parametrize(
    ("n_parts", "tree"),
    [
        (1, "0"),
        (2, "(0 1)"),
        (3, "((0 1) 2)"),
        (5, "(((0 1) (2 3)) 4)"),
        (6, "(((0 1) (2 3)) (4 5))"),
        (7, "(((0 1) (2 3)) ((4 5) 6))"),
    ],
)
def test_the_tree_of_a_few_parts(n_parts, tree):
    whole = TreeSum(written)
    for part in range(n_parts):
        whole.push(Node(0, part), str(part))
    assert whole.total() == tree


@pytest.mark.parametrize("n_parts", [1, 2, 5, 8, 13, 32, 37])
def test_any_number_of_processes_adds_the_same_tree(n_parts):
    trees = set()
    for size in range(1, n_parts + 1):
        whole = TreeSum(written)
        taken = []
        for rank in range(size):
            parts = part_range(rank, size, n_parts)
            taken += parts
            own = TreeSum(written)
            for part in parts:
                own.push(Node(0, part), str(part))
            assert [node for node, _ in own.nodes] == subtrees(parts)
            for node, value in own.nodes:
                whole.push(node, value)
        assert taken == list(range(n_parts))
        trees.add(whole.total())
    assert len(trees) == 1


def test_a_sum_keeps_no_more_than_a_value_for_each_level():
    whole = TreeSum(written)
    most = 0
    for part in range(64):
        whole.push(Node(0, part), "")
        most = max(most, len(whole.nodes))
    assert most == 6
