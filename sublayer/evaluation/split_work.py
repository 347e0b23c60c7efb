"""Evaluation divided among processes; all receive every result.

Results are in the order of the parts, so that scores do not depend on the number of processes where
the parts do not.
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
    """Process group of an evaluation."""

    def own(self, n: int) -> range:
        """Return this process's share of ``n`` parts."""

    def gather(self, results: Sequence[Result], n: int) -> list[Result]:
        """Gather the results of all ``n`` parts, in order; ``results`` are this process's.

        A collective: every process calls it, and all receive the same.
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

    ``progress`` receives the number of parts that this process has done.
    """
    results = []
    for done, index in enumerate(processes.own(n), 1):
        results.append(work(index))
        progress(done, n)
    return processes.gather(results, n)


def add_up(values: Iterable[float]) -> float:
    """Add numbers in order: bit-identical sums."""
    total = 0.0
    for value in values:
        total += value
    return total
