"""What is computed for each epoch, held for the last two."""

from collections.abc import Callable
from typing import Generic, TypeVar

Plan = TypeVar("Plan")


class LastEpochs(Generic[Plan]):
    """The plans of an epoch and of the one before, for speed alone: a batch may span both."""

    def __init__(self) -> None:
        self._plans: dict[int, Plan] = {}

    def get(self, epoch: int, compute: Callable[[int], Plan]) -> Plan:
        """Return an epoch's plan; where it is not held, compute it and drop all but the last's."""
        if epoch not in self._plans:
            previous = self._plans.get(epoch - 1)
            # Dropped first, so that no third plan takes memory meanwhile.
            self._plans.clear()
            if previous is not None:
                self._plans[epoch - 1] = previous
            self._plans[epoch] = compute(epoch)
        return self._plans[epoch]
