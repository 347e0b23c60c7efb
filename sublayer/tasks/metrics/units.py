"""The units of a set: what is drawn, or left out, as one where chance is estimated."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sublayer.tasks.example import Example


@dataclass(frozen=True)
class Units:
    """Groups of examples, and each example that has no group, in the order of their firsts."""

    of_examples: NDArray[np.int64]
    """The number of each example's unit."""
    n: int

    @property
    def are_examples(self) -> bool:
        """Return whether each unit is a single example."""
        return self.n == len(self.of_examples)

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add what the examples of each unit have, [N, K], to [U, K]."""
        if self.are_examples:
            return values
        result = np.zeros((self.n, values.shape[1]))
        np.add.at(result, self.of_examples, values)
        return result


def find_units(examples: Sequence[Example]) -> Units:
    """Number the units of examples by their groups."""
    numbers: dict[str, int] = {}
    of_examples = []
    n_units = 0
    for example in examples:
        number = numbers.get(example.group, n_units) if example.group else n_units
        if example.group:
            numbers[example.group] = number
        n_units = max(n_units, number + 1)
        of_examples.append(number)
    return Units(np.array(of_examples, dtype=np.int64), n_units)
