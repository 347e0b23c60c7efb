"""Data sets of the Hugging Face hub, one document a row, fetched once by the ``datasets`` library."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sublayer.config.data import HUB
from sublayer.data.pack import Found
from sublayer.data.records import encoded, extra_module, shown_fields
from sublayer.errors import DataError

_NAME = re.compile(r"hub:(?P<name>[\w.-]+/[\w.-]+)(?::(?P<config>[^:@]+))?(?:@(?P<split>[^@]+))?")


@dataclass(frozen=True)
class HubSet:
    """A split of a data set; ``revision`` is a branch of its repository."""

    name: str
    config: str | None = None
    split: str = "train"
    revision: str | None = None

    def __str__(self) -> str:
        return f"{HUB}{self.name}{f':{self.config}' if self.config else ''}@{self.split}"

    def load(self) -> Any:
        """Fetch it, once. Raises DataError where that is not possible."""
        datasets = extra_module("datasets", "data sets of the hub")
        known = (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError)
        try:
            return datasets.load_dataset(self.name, self.config, split=self.split, revision=self.revision)
        except known as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise DataError(
                f"{self} cannot be fetched from the hub ({reason}): fetch it where there is a network, "
                "or name its files in data.path"
            ) from error

    def rows(self, field: str) -> Iterator[Found]:
        """Read the rows. Raises DataError where the set cannot be fetched, or has no such field of text."""
        found = self.load()
        if field not in found.column_names:
            raise DataError(f"{self} has no field {field!r}: set data.text_field to {shown_fields(found.column_names)}")
        for row, values in enumerate(found.select_columns([field]), 1):
            text = values[field]
            if not isinstance(text, str | None):
                raise DataError(f"{self}, row {row}: field {field!r} is {type(text).__name__}, not text")
            yield row, encoded(text, str(self), row)


def parse_hub(entry: str) -> HubSet:
    """Read ``hub:owner/name``, ``hub:owner/name:config@split``. Raises DataError where it is not that."""
    found = _NAME.fullmatch(entry)
    if found is None:
        raise DataError(f"{entry} does not name a data set: write hub:owner/name, with :config and @split if needed")
    return HubSet(found["name"], found["config"], found["split"] or "train")
