"""Data sets of the Hugging Face hub, one document a row, fetched once by ``datasets``."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sublayer.config.texts import HUB
from sublayer.data.text.files import RawDocument
from sublayer.data.text.records import encoded, shown_fields
from sublayer.errors import DataError
from sublayer.system.extras import extra_module

_NAME = re.compile(r"hub:(?P<name>[\w.-]+/[\w.-]+)(?::(?P<config>[^:@]+))?(?:@(?P<split>[^@]+))?")


@dataclass(frozen=True)
class HubSet:
    """A split of a data set."""

    name: str
    """``owner/name`` on the hub."""
    config: str | None = None
    """One of the data set's parts, such as a language; None: its default."""
    split: str = "train"
    """By the data set's own names."""
    revision: str | None = None
    """A branch of its repository; None: its main one."""

    def __str__(self) -> str:
        config = f":{self.config}" if self.config else ""
        return f"{HUB}{self.name}{config}@{self.split}"

    def load(self) -> Any:
        """Fetch it, once, and return the rows as ``datasets`` gives them.

        Raises DataError where that is not possible, or datasets is not installed.
        """
        datasets = extra_module("datasets", "data sets of the hub")
        known = (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError)
        try:
            return datasets.load_dataset(
                self.name, self.config, split=self.split, revision=self.revision
            )
        except known as error:
            on_one_line = " ".join(str(error).split())
            reason = on_one_line[:200] or type(error).__name__
            raise DataError(
                f"{self} cannot be fetched from the hub ({reason}): "
                "fetch it where there is a network, or name its files in data.path"
            ) from error

    def rows(self, field: str) -> Iterator[RawDocument]:
        """Read the rows: each one's number, from 1, and its text in ``field``, empty for null.

        Raises DataError where the set cannot be fetched, or has no such field of text.
        """
        data_set = self.load()
        if field not in data_set.column_names:
            raise DataError(
                f"{self} has no field {field!r}: "
                f"set data.text_field (--text-field) to {shown_fields(data_set.column_names)}"
            )
        for row, values in enumerate(data_set.select_columns([field]), 1):
            text = values[field]
            if not isinstance(text, str | None):
                raise DataError(
                    f"{self}, row {row}: field {field!r} is {type(text).__name__}, not text"
                )
            yield row, encoded(text, str(self), row)


def parse_hub(entry: str) -> HubSet:
    """Parse ``hub:owner/name`` or ``hub:owner/name:config@split``; raise DataError otherwise.

    Either of config and split may be left out; the split is then ``train``.
    """
    match = _NAME.fullmatch(entry)
    if match is None:
        raise DataError(
            f"{entry} does not name a data set: "
            "write hub:owner/name, with :config and @split if needed"
        )
    return HubSet(match["name"], match["config"], match["split"] or "train")
