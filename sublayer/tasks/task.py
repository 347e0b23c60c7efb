"""A task: its fields, what is asked of them, and how it is scored, in one row."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["classes", "choice", "number", "span", "text"]
"""What is asked: one of the labels, one of the example's own choices, a number, a span of the
passage, or a text that is written."""


@dataclass(frozen=True)
class Task:
    """A row of the table of tasks."""

    name: str
    """As recipes and commands say it, such as ``sst2``."""
    title: str
    """As its publisher writes it, such as ``SST-2``."""
    suite: str
    """``glue``, ``superglue``, ``squad``, ``race``, ``nli``, ``cloze`` or ``dpr``."""
    kind: Kind
    fields: tuple[str, ...]
    """The names of its texts, in the order in which they are read: of a pair the first text, and
    then the second; of a question about a passage the passage first."""
    metrics: tuple[str, ...]
    """Names of ``METRICS``; the task's score is the mean of those that count for it."""
    labels: tuple[str, ...] = ()
    """Of ``classes``: the words of the labels, by index."""
    is_symmetric: bool = False
    """Whether the two texts may be exchanged."""
    numbers: tuple[float, float] = (0.0, 1.0)
    """Of ``number``: the lowest and the highest."""
    is_bounded: bool = True
    """Of ``number``: whether there is none beyond those."""
    has_unanswerable: bool = False
    """Of ``span``: whether some questions have no answer in their passage."""
    splits: tuple[str, ...] = ("train", "dev", "test")
    """Those that its publisher has; ``dev`` and ``test`` may be several: ``dev_matched``."""
    trained_as: str = ""
    """Of a diagnostic set: the task whose model answers it, such as ``mnli``."""

    @property
    def dev_splits(self) -> tuple[str, ...]:
        """Return the splits that are scored: those of the published development set."""
        return tuple(name for name in self.splits if name.startswith("dev"))

    @property
    def test_splits(self) -> tuple[str, ...]:
        """Return the splits of tests: most have no labels, and predictions are handed in."""
        return tuple(name for name in self.splits if name.startswith("test"))
