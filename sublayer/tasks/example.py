"""An example of a task: texts with roles, and what belongs to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Answer:
    """A gold answer."""

    text: str
    start: int | None = None
    """Where it begins in the passage, in characters; None where it is stated as a text alone."""


@dataclass(frozen=True, slots=True)
class Example:
    """A row of a task, as its publisher means it.

    Texts are as published: formats change them, readers do not.
    """

    id: str
    """The publisher's, or else the number of its row, from 0; unique within a split."""
    fields: Mapping[str, str]
    """Texts by the names of ``Task.fields``, in that order."""
    label: int | float | None = None
    """The index of its class or of its right choice, or a number; None where it has none: in a
    test split, and where ``answers`` say what is right."""
    choices: tuple[str, ...] = ()
    """The answers to choose from; none where the labels are the same for all examples."""
    answers: tuple[Answer, ...] = ()
    """Gold answers of a question, or references of a text, any of which is right; none where the
    question has none, or where it is not known."""
    is_labelled: bool = True
    """Whether it is known what is right."""
    group: str = ""
    """Examples of one group are scored together, such as the answers to a question; empty: alone.
    """
    source: str = ""
    """The passage, article or document that it is about: examples of one source never stand on
    both sides of a division. Empty: its own."""
    extra: Mapping[str, int] = field(default_factory=dict)
    """Numbers that belong to its texts, by the publisher's names, such as WSC's ``span2_index``."""

    @property
    def texts(self) -> tuple[str, ...]:
        """All that is read of it: by what two examples are one."""
        return (*self.fields.values(), *self.choices)
