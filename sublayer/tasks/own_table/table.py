"""The settings of a table of one's own: which of its columns are read, and as what."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from sublayer.errors import ConfigError
from sublayer.tasks.task import Kind


@dataclass(frozen=True)
class Table:
    """A file, or a folder with one for each split, and what its columns are.

    Raises ConfigError where columns exclude each other, or one is given twice.
    """

    path: str | Path
    text: str
    """The column of the text; of the passage, where answers are spans of it."""
    text_pair: str = ""
    """That of a second text; of the question, where answers are spans."""
    label: str = ""
    """That of the class, the number or the right choice; empty: it is not read."""
    choices: tuple[str, ...] = ()
    """Those of the answers to choose from."""
    answer: str = ""
    """That of an answer that is a span of the passage."""
    answer_start: str = ""
    """That of the place where the answer begins, in characters."""
    is_number: bool = False
    """Whether the label is a number to be predicted, and no class."""
    group: str = ""
    """That of the document or author: rows of one stand on one side of a division."""
    id: str = ""
    """That of the rows' ids; empty: they are numbered from 0, those left out included."""

    def __post_init__(self) -> None:
        columns = [*self.texts, *filter(None, (self.label, self.answer)), *self.choices]
        twice = [name for name, n in Counter(columns).items() if n > 1]
        if twice:
            raise ConfigError(f"the column {twice[0]!r} is given twice: a column is one thing")
        if self.answer and (self.label or self.choices or self.is_number):
            raise ConfigError(
                "answers that are spans of the text exclude a label, choices and numbers: give "
                "the columns of one kind of task"
            )
        if self.answer and not self.text_pair:
            raise ConfigError(
                f"the answers in {self.answer!r} are to questions about the text: give the column "
                "of the questions as text_pair"
            )
        if self.answer_start and not self.answer:
            raise ConfigError("answer_start is the place of an answer: give its column, too")
        if len(self.choices) == 1:
            raise ConfigError(f"{self.choices[0]!r} alone is no choice: give two columns or more")
        if self.choices and self.is_number:
            raise ConfigError("the right one of several choices is no number: give one of the two")

    @property
    def kind(self) -> Kind:
        """Return what is asked."""
        if self.answer:
            return "span"
        if self.choices:
            return "choice"
        return "number" if self.is_number else "classes"

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the columns of texts."""
        return (self.text, self.text_pair) if self.text_pair else (self.text,)
