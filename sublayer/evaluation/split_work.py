"""Evaluation divided among processes: each computes its parts, and all receive every result.

Results are in the order of the parts, whoever computed them, so that scores do not depend on the
number of processes where the parts do not.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Hears how many are done, and of how many."""


def silent(n_done: int, n_all: int) -> None:
    """Show no progress."""


@runtime_checkable
class Processes(Protocol):
    """The processes that share an evaluation."""

    def own(self, n: int) -> range:
        """Return which of ``n`` parts are this process's."""

    def gather(self, results: Sequence[Result], n: int) -> list[Result]:
        """Return the results of all ``n`` parts, in order; ``results`` are those of this process.

        Every process must call it, and all receive the same.
        """


class _OneProcess:
    def own(self, n: int) -> range:
        return range(n)

    def gather(self, results: Sequence[Result], n: int) -> list[Result]:
        return list(results)


ALONE: Processes = _OneProcess()


def compute_each(
    work: Callable[[int], Result], n: int, processes: Processes, progress: Progress = silent
) -> list[Result]:
    """Compute ``work(0)`` to ``work(n - 1)``, divided among processes; return all in order.

    ``progress`` hears of the parts that this process has done.
    """
    results = []
    for done, index in enumerate(processes.own(n), 1):
        results.append(work(index))
        progress(done, n)
    return processes.gather(results, n)


def add_up(values: Iterable[float]) -> float:
    """Add numbers one after another, in their order: the same sum to the last bit."""
    total = 0.0
    for value in values:
        total += value
    return total
