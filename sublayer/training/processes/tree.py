"""Sums in one fixed binary tree, whoever adds which part of it.

Floating-point sums depend on their order. Here it is that of a tree over the parts 0, 1, 2, ...: 0
with 1, 2 with 3, then the sums of those pairs, and so on; where a number of parts is no power of
two, what has no partner goes up as it is. A process that has consecutive parts adds up the subtrees
that lie within them; what is left to add is the same tree, on any number of processes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    """The root of a subtree: the sum of ``2**level`` parts from ``index * 2**level`` on."""

    level: int
    index: int

    def is_joined_by(self, other: "Node") -> bool:
        """Return whether ``other`` is the right half of the subtree that this is the left of."""
        return self.level == other.level and self.index % 2 == 0 and other.index == self.index + 1

    @property
    def parent(self) -> "Node":
        """The subtree of which this is a half."""
        return Node(self.level + 1, self.index // 2)


class TreeSum(Generic[T]):
    """The sum of parts that come in their order, of which it keeps as few as it can.

    That is one for each level of the tree. ``add`` may change its first argument, which is never
    used again.
    """

    def __init__(self, add: Callable[[T, T], T]) -> None:
        self._add = add
        self._stack: list[tuple[Node, T]] = []

    def push(self, node: Node, value: T) -> None:
        """Add a subtree's sum, which begins where the last one ended."""
        while self._stack and self._stack[-1][0].is_joined_by(node):
            left, sum_left = self._stack.pop()
            value = self._add(sum_left, value)
            node = left.parent
        self._stack.append((node, value))

    @property
    def nodes(self) -> list[tuple[Node, T]]:
        """The sums of the largest subtrees that are whole, in order."""
        return list(self._stack)

    def total(self) -> T:
        """Return the sum of all parts, which began at 0; what has no partner goes up as it is."""
        (_, value), *others = reversed(self._stack)
        for _, left in others:
            value = self._add(left, value)
        return value


def part_range(rank: int, size: int, n_parts: int) -> range:
    """Return the consecutive parts of process ``rank`` of ``size``, a share each."""
    start, stop = (number * n_parts // size for number in (rank, rank + 1))
    return range(start, stop)


def subtrees(parts: range) -> list[Node]:
    """Return the largest whole subtrees of consecutive parts, in order."""
    tree = TreeSum[None](lambda left, right: None)
    for part in parts:
        tree.push(Node(0, part), None)
    return [node for node, _ in tree.nodes]
