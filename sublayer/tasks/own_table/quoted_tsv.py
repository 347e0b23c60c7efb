"""TSV of anyone's, whose quotes stand around fields, as in CSV, or are text; workbooks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sublayer.errors import DataError
from sublayer.tasks.records import Record, read_csv, read_records, read_xlsx, sheets_note, suffix_of


@dataclass(frozen=True, slots=True)
class OwnTsv:
    """The rows of a file."""

    records: Sequence[Record]
    note: str = ""
    """How quotes were read, or which sheet; empty where there is no choice."""
    is_quoted: bool = False
    """Whether they stand around fields."""


def read_own_tsv(path: Path) -> OwnTsv:
    """Read the rows of a file of TSV, or of a workbook.

    Quotes are those of CSV, around fields, where all rows have their columns so; unless all have
    them too where quotes are text, and there are more rows: then a quote would have joined lines
    that do not belong together.

    Raises DataError where the file cannot be read.
    """
    if suffix_of(path) == ".xlsx":
        return OwnTsv(list(read_xlsx(path)), sheets_note(path))
    as_text = list(read_records(path, ".tsv"))
    if not any(_begins_quoted(record) for record in as_text):
        return OwnTsv(as_text)
    try:
        as_csv = list(read_csv(path, "\t"))
    except DataError:
        as_csv = []
    is_whole = as_csv and not any(record.problem for record in as_csv)
    if is_whole and (len(as_csv) == len(as_text) or any(record.problem for record in as_text)):
        return OwnTsv(as_csv, f"{path}: quotes stand around fields, as in CSV", is_quoted=True)
    return OwnTsv(as_text, f"{path}: quotes are text")


def _begins_quoted(record: Record) -> bool:
    return any(text.startswith('"') for text in (*record.values, *record.values.values()))
