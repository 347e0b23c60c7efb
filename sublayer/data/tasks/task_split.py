"""A split of tasks: encoded examples, and the examples themselves where they are asked for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from sublayer.config.supervised import Format
from sublayer.data.cache import content_key
from sublayer.data.split import Split
from sublayer.data.tasks.encoded import EncodedExamples, joined
from sublayer.data.tasks.marks import Marks
from sublayer.tasks.task import Example, Task

_T = TypeVar("_T")


@dataclass(frozen=True)
class TaskPart:
    """The examples of one task."""

    task: Task
    published: str
    """The name of the publisher's split that they are of, such as ``dev_matched``."""
    encoded: EncodedExamples
    read_examples: Callable[[], Sequence[Example]]
    """Reads all examples of the publisher's split, of which ``encoded.numbers`` are these."""
    notes: Sequence[str] = ()
    """What is said of the split's rows: those left out, repaired, or kept as they are."""
    weight: float | None = None
    """How often training draws from it, in proportion to the others; None: by its size."""
    size_limit: int | None = None
    """Of a mixture by size: the examples that it counts as at most; None: all that it has."""
    digest: str = ""
    """Of the publisher's split, however its examples are written."""
    n_lost: int = 0
    """Questions that are left out, since no tokens of their passages are the answer."""

    @property
    def distinct_examples(self) -> list[Example]:
        """The examples, once each, where ``encoded`` has several of one."""
        read = self.read_examples()
        return [read[number] for number in dict.fromkeys(self.encoded.numbers.tolist())]

    @cached_property
    def examples(self) -> list[Example]:
        """The examples, in the order of ``encoded``; read at the first access."""
        read = self.read_examples()
        return [read[number] for number in self.encoded.numbers]


@dataclass(frozen=True, kw_only=True)
class TaskSplit(Split):
    """Examples of one task or several, one after another."""

    parts: tuple[TaskPart, ...]
    format: Format
    marks: Marks

    @cached_property
    def encoded(self) -> EncodedExamples:
        """The examples of all parts, one after another."""
        return joined([part.encoded for part in self.parts])

    @property
    def n_examples(self) -> int:
        """Count the examples."""
        return sum(len(part.encoded) for part in self.parts)

    def by_part(self, items: Sequence[_T]) -> Iterator[tuple[TaskPart, Sequence[_T]]]:
        """Yield each part with its own of ``items``, of which there is one for each example."""
        first = 0
        for part in self.parts:
            stop = first + len(part.encoded)
            yield part, items[first:stop]
            first = stop

    @property
    def examples_digest(self) -> str:
        """Return what is equal for equal examples, however they are written for a model."""
        return content_key(
            [(part.digest, np.unique(part.encoded.numbers).tolist()) for part in self.parts]
        )

    def sizes(self) -> dict[str, int]:
        """Return the examples and tokens, for a record."""
        return {"examples": self.n_examples, "tokens": len(self.ids)}


def of_tasks(split: Split) -> TaskSplit:
    """Return a split as one of tasks, which it is."""
    assert isinstance(split, TaskSplit), "the objective reads tasks"
    return split
