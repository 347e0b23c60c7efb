"""Files of lines with tabs between their fields, in which a quote is text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sublayer.files.lines import decoded, read_lines


@dataclass(frozen=True, slots=True)
class TsvRow:
    """A line's fields, and its number in the file, from 1."""

    line: int
    cells: Sequence[str]


def read_tsv(path: Path) -> Iterator[TsvRow]:
    """Read the lines of a file, without their ends: LF or CRLF, the last with or without one.

    A mark of the byte order is left out; the file may be packed, by its suffix. Raises DataError
    where it cannot be read, or is not UTF-8.
    """
    # str.splitlines would cut at line separators inside a text, too.
    for number, data in read_lines(path):
        line = decoded(path, number, data)
        yield TsvRow(number, line.removesuffix("\n").removesuffix("\r").split("\t"))
