"""How long a task is trained on, by how many examples it has."""

from typing import Self

_EPOCHS = 3.0
_FEWEST_EXAMPLES, _MOST_EPOCHS = 24_000, 20.0
_MOST_EXAMPLES, _FEWEST_EPOCHS = 200_000, 1.0


class TaskEpoch(int):
    """Tokens of an epoch of tasks, as steps count them, that knows its number of examples."""

    n_examples: int

    def __new__(cls, tokens: int, n_examples: int) -> Self:
        """Make a number of tokens."""
        epoch = super().__new__(cls, tokens)
        epoch.n_examples = n_examples
        return epoch


def default_epochs(n_examples: int) -> float:
    """Return how many epochs a task of so many training examples is trained on, unless told.

    Three; of a small task as many as make 24,000 examples, at most 20; of a large one as many as
    make 200,000 examples, at least one. So tasks of 250 to 400,000 rows take 5,000 to 400,000
    examples.
    """
    for_small = min(_MOST_EPOCHS, _FEWEST_EXAMPLES / n_examples)
    for_large = max(_FEWEST_EPOCHS, _MOST_EXAMPLES / n_examples)
    return min(max(_EPOCHS, for_small), for_large)
