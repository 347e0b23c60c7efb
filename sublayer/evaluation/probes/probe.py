"""A probe: what it asks of each example, and how the answer is read off."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import ConfigError
from sublayer.evaluation.probes.query import Query
from sublayer.tasks.example import Example
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.task import Task

Nats = NDArray[np.float64]
_WORDS = ("negative", "positive")
_WORDS_OF = "sst2"
"""The probe that compares words."""


@dataclass(frozen=True)
class Settings:
    """What of probes can be said otherwise."""

    words: tuple[str, str] | None = None
    """Of SST-2: what is compared behind the sentence, for each label; None: negative, positive."""
    references: Mapping[str, float] = field(default_factory=dict)
    """By probe, instead of the table's."""

    def __post_init__(self) -> None:
        """Raise ConfigError for words that are empty or equal, and references that are no share."""
        first, second = self.compared
        if not first or not second or first == second:
            raise ConfigError(
                f"the words {first!r} and {second!r} cannot be compared: give two, that of the "
                "first label, then that of the second, such as negative, positive"
            )
        for name, value in self.references.items():
            if not 0.0 < value <= 1.0:
                raise ConfigError(
                    f"the reference {value:g} of {name} is no share: give such as 0.637"
                )

    @property
    def compared(self) -> tuple[str, str]:
        """Return the words that are compared."""
        return _WORDS if self.words is None else self.words

    def check_asked(self, names: Sequence[str]) -> None:
        """Raise ConfigError for words, or a reference, of a probe that is not among ``names``."""
        for name in self.references:
            if name not in names:
                raise ConfigError(
                    f"{name} has a reference, and is not asked: leave it out, or ask it"
                )
        if self.words is not None and _WORDS_OF not in names:
            raise ConfigError(
                f"{' and '.join(self.words)} are compared by the probe {_WORDS_OF} alone, which is "
                "not asked: leave them out, or ask it"
            )

    def only(self, name: str) -> "Settings":
        """Return what of them is of one probe."""
        references = {own: value for own, value in self.references.items() if own == name}
        return Settings(self.words if name == _WORDS_OF else None, references)


@dataclass(frozen=True)
class Items:
    """The examples of a probe, with the queries of each."""

    task: Task
    examples: Sequence[Example]
    queries: Sequence[Sequence[Query]]
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many cannot be asked, by the reason."""


def say_nothing(tokenizer: Tokenizer, settings: Settings) -> list[str]:
    """Say nothing of a tokenizer."""
    return []


Answer = Callable[[Sequence[Sequence[Nats]], float | None], list[Prediction]]
"""Answers examples by the nats of their queries, and by the threshold, where there is one."""


@dataclass(frozen=True)
class Probe:
    """A row of the table of probes."""

    name: str
    title: str
    tasks: tuple[str, ...]
    """The tasks whose files it reads: the first that is there."""
    splits: tuple[str, ...]
    """Of these the first that is there is scored; several that stand in one: ``train+dev``."""
    metric: str
    chance: float
    """What guessing scores: 0 on the paper's axis."""
    reference: float | None
    """What a model of its time that was trained on the task scores: 1 on the paper's axis."""
    source: str
    """Of the reference."""
    items: Callable[[Task, Sequence[Example], Settings], Items]
    answer: Answer
    threshold: Callable[[Sequence[Sequence[Nats]], Sequence[Example]], float] | None = None
    """Chooses a threshold by examples of the training part, never by those that are scored; None:
    none is needed."""
    notes: Callable[[Tokenizer, Settings], list[str]] = say_nothing
    """Says what a reader should know of how a tokenizer writes what is asked."""

    def chance_error(self, n_examples: int) -> float:
        """Return the standard error of guessing on so many examples.

        Of accuracy that of a proportion; of a correlation 1 / sqrt(n).
        """
        if self.metric == "accuracy":
            return math.sqrt(self.chance * (1 - self.chance) / n_examples)
        return 1 / math.sqrt(n_examples)


def mean_log_p(nats: Nats) -> float:
    """Return the mean log-probability of a text's tokens; of none the worst there is."""
    return -float(nats.mean()) if len(nats) else -float("inf")


def total_log_p(nats: Nats) -> float:
    """Return the log-probability of a text."""
    return -float(nats.sum())


def choose(scores: Sequence[float]) -> Prediction:
    """Return the choice with the highest score, the first of equal ones."""
    best = int(np.argmax(scores))
    return Prediction(label=best)
