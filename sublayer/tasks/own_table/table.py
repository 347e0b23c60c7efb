"""The settings of a table of one's own: which of its columns are read, and as what."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublayer.errors import ConfigError
from sublayer.nearest import nearest_hint
from sublayer.tasks.task import Kind

ROLES = (
    "text", "text_pair", "label", "number", "choices", "answer", "answer_start", "target", "group",
    "id",
)  # fmt: skip
"""What ``data.columns`` says which columns are; ``number`` is a label that is a number."""


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
    target: str = ""
    """Column of the text to be written, or of a list of texts, all of which are right."""
    is_number: bool = False
    """Whether the label is a number to be predicted, and no class."""
    group: str = ""
    """That of the document or author: rows of one stand on one side of a division."""
    id: str = ""
    """That of the rows' ids; empty: they are numbered from 0, those left out included."""

    def __post_init__(self) -> None:
        asked = filter(None, (self.label, self.answer, self.target))
        columns = [*self.texts, *asked, *self.choices]
        twice = [name for name, n in Counter(columns).items() if n > 1]
        if twice:
            raise ConfigError(f"the column {twice[0]!r} is given twice: a column is one thing")
        if self.answer and (self.label or self.choices or self.is_number):
            raise ConfigError(
                "answers that are spans of the text exclude a label, choices and numbers: give "
                "the columns of one kind of task"
            )
        if self.target and (self.label or self.choices or self.is_number or self.answer):
            raise ConfigError(
                "a target that is written excludes a label, choices, numbers and answers: give "
                "the columns of one kind of task"
            )
        if self.answer and not self.text_pair:
            raise ConfigError(
                f"the answers in {self.answer!r} are to questions about the text: give the column "
                "of the questions as text_pair (--text-pair)"
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
        if self.target:
            return "text"
        if self.choices:
            return "choice"
        return "number" if self.is_number else "classes"

    @property
    def is_right(self) -> str:
        """Return the column of the answers: the label's, the spans' or the target's."""
        return self.label or self.answer or self.target

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the columns of texts."""
        return (self.text, self.text_pair) if self.text_pair else (self.text,)


def table_of(path: str | Path, columns: Mapping[str, str | Sequence[str]]) -> Table:
    """Return the settings of a table whose columns are said by their roles, as recipes do.

    Raises ConfigError for a role that there is not, a column without a name, and columns that
    exclude each other.
    """
    values: dict[str, Any] = {}
    for role, named in columns.items():
        if role not in ROLES:
            raise ConfigError(
                f"data.columns: {role} is not one of {', '.join(ROLES)}{nearest_hint(role, ROLES)}"
            )
        is_list = not isinstance(named, str)
        if is_list != (role == "choices"):
            wanted = "a list of columns" if role == "choices" else "one column"
            raise ConfigError(f"data.columns: {role} is {wanted}, by name, not {named!r:.80}")
        if not named or not all(named):
            raise ConfigError(f"data.columns: {role} is empty: name a column, or leave it out")
        values[role] = tuple(named) if is_list else named
    if "text" not in values:
        raise ConfigError("data.columns does not say which column is the text: give text")
    if "number" in values:
        if "label" in values:
            raise ConfigError("data.columns: label and number exclude each other: give one of them")
        values["label"] = values.pop("number")
        values["is_number"] = True
    return Table(path, **values)
