"""A table of one's own on the command line: its file, and which column is what."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sublayer.commands.shared.column_options import names_among
from sublayer.config.text.own_table import OwnColumns
from sublayer.errors import ConfigError
from sublayer.files.paths import expanded
from sublayer.tasks.own_table.rows import SUFFIXES, columns_of
from sublayer.tasks.own_table.table import table_of
from sublayer.tasks.records import named
from sublayer.tasks.registry import TASKS

_TEXTS = {"text", "sentence", "review", "content", "body", "message"}
_LABELS = {"label", "labels", "class", "category", "sentiment", "stars", "target", "rating"}
"""Common names of columns, for an example in a message."""


@dataclass(frozen=True)
class ColumnOptions:
    """What the options say which column is."""

    text: str | None = None
    text_pair: str | None = None
    label: str | None = None
    number: bool = False
    choices: str | None = None
    answer: str | None = None
    answer_start: str | None = None
    target: str | None = None
    group: str | None = None
    id: str | None = None

    @property
    def first_given(self) -> str | None:
        """Return the first option that was given, as it is typed; None where none was."""
        given = (name for name, value in vars(self).items() if value)
        name = next(given, None)
        return None if name is None else f"--{name.replace('_', '-')}"

    def columns(self, path: str) -> OwnColumns:
        """Return the columns of a table as recipes say them.

        Raises ConfigError where they do not say what the text is and what is right.
        """
        if not self.text or not (self.label or self.answer or self.target):
            columns_there = columns_of(path)
            text, label = (
                shlex.quote(next((name for name in columns_there if name.lower() in known), other))
                for known, other in ((_TEXTS, columns_there[0]), (_LABELS, columns_there[-1]))
            )
            raise ConfigError(
                f"{path} has the columns {named(columns_there)}: say which is the text and which "
                f"what is right, such as --text {self.text or text} --label {self.label or label}"
            )
        columns: OwnColumns = {}
        for role in ("text", "text_pair", "answer", "answer_start", "target", "group", "id"):
            value = getattr(self, role)
            if value:
                columns[role] = value
        if self.label:
            columns["number" if self.number else "label"] = self.label
        if self.choices:
            columns["choices"] = names_among(self.choices)
        table_of(path, columns)
        return columns


def is_table(word: str) -> bool:
    """Return whether a word names a table, and no task: a file, a folder, or what would be one."""
    if word in TASKS:
        return False
    return word.lower().endswith(SUFFIXES) or expanded(word).exists()


def table_among(words: Sequence[str], options: ColumnOptions, data: str | None) -> str | None:
    """Return the table that is named among words; None where tasks are.

    Raises ConfigError where it stands beside another word or ``--data``, or without a table the
    options of one are given.
    """
    tables = [word for word in words if is_table(word)]
    if not tables:
        if options.first_given:
            missing = "".join(f"; {word} is not there" for word in words if word not in TASKS)
            raise ConfigError(
                f"{options.first_given} is of a table of your own: name its file, such as my.csv"
                f"{missing}"
            )
        return None
    if len(words) > 1:
        others = [word for word in words if word != tables[0]] or tables[:1]
        raise ConfigError(
            f"{tables[0]} is a table of your own, which is learned alone: leave out "
            f"{', '.join(others)}; columns are named by options, such as --label stars"
        )
    if data is not None:
        raise ConfigError(f"{tables[0]} is all that is read: leave out --data")
    return str(Path(tables[0]))
