"""What an objective learns, a row for each loss: what diagrams draw on top of a model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Loss:
    """A loss: what is predicted, and what predicts it."""

    title: str
    """What is predicted, such as ``next token``."""
    head: str | None = "vocabulary"
    """The head that predicts it, by its name in ``HEADS``; None: a classifier of its own, which
    training alone has."""
    notes: tuple[str, ...] = ()
    """Weights and the like, a short line each."""
    is_of_each_layer: bool = False
    """Whether every block below the last has it, by a classifier of its own."""
