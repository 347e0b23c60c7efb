"""Values of numpy, pandas, polars and pyarrow as plain ones, and values in words for messages."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from os import PathLike, fspath
from typing import Any

from sublayer.errors import DataError

_AS_TEXT = ("datetime", "pandas", "uuid", "decimal", "fractions")
"""Modules of types that a table holds as text."""
_MISSING = ("NAType", "NaTType")
"""The types of pandas' missing values, which are in no comparison equal or unequal."""
LONGEST_VALUE = 80
"""Characters of a value in a message."""
_DEEPEST = 4
"""Lists and tables within each other that are written out."""
_MOST_BITS, _DIGITS_PER_BIT = 1024, math.log10(2)


def is_missing(value: Any) -> bool:
    """Return whether a value is missing: None, NaN of any type, or pandas' NA and NaT."""
    if isinstance(value, Real | Decimal):
        return math.isnan(value)
    return value is None or type(value).__name__ in _MISSING


def surrogate_problem(text: str) -> str:
    """Describe the fault of a text that UTF-8 cannot encode; empty for any other text."""
    if text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text):
        return ""
    return "contains a lone surrogate, not a valid character: correct the text, or leave it out"


def as_cell(value: Any) -> str:
    """Convert a cell of a type that JSON lacks to text: a date, period, interval or decimal.

    Raises TypeError for bytes, sets and other objects.
    """
    if type(value).__module__.partition(".")[0] in _AS_TEXT:
        return str(value)
    raise TypeError(type(value).__name__)


def plain(value: Any) -> Any:
    """Convert values of numpy and pandas, and paths, to numbers, texts, lists and dicts.

    Missing values of pandas become None; any other value is returned unchanged.
    """
    if isinstance(value, str):
        return str(value) if type(value).__module__ == "numpy" else value
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(content) for key, content in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value)) if type(value) in (list, tuple) else value
    if type(value).__name__ in _MISSING:
        return None
    convert = getattr(value, "tolist", None) or getattr(value, "as_py", None)
    return plain(convert()) if callable(convert) else value


def as_json_values(value: Any) -> Any:
    """Convert a value to JSON: paths to texts, numbers that are not finite to None."""
    if isinstance(value, Mapping):
        return {str(name): as_json_values(content) for name, content in value.items()}
    if isinstance(value, list | tuple):
        return [as_json_values(content) for content in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, PathLike) else value


def table_rows(table: Any) -> list[Mapping[str, Any]] | None:
    """Return the rows of a DataFrame, an Arrow table, a dict of columns or a list of mappings.

    None for any other value. Raises DataError for columns of equal names or of different lengths.
    """
    if isinstance(table, PathLike):
        return None
    if hasattr(table, "to_dicts"):  # polars
        return list(table.to_dicts())
    if hasattr(table, "to_pylist") and hasattr(table, "schema"):
        names = list(table.schema.names)
        _check_names(names)
        return list(table.to_pylist())
    if hasattr(table, "to_dict") and hasattr(table, "columns"):  # pandas
        names = [str(name) for name in table.columns]
        _check_names(names)
        columns = (table.iloc[:, at].tolist() for at in range(len(names)))
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(table, Mapping):
        lists: dict[str, Sequence[Any]] = {}
        for name, values in table.items():
            listed = plain(values)
            if hasattr(listed, "__iter__") and not isinstance(listed, str | bytes | Mapping):
                listed = list(listed)
            if not isinstance(listed, list):
                raise DataError(
                    f"rows is a mapping, but its {name!r} is {type(values).__name__}, not a "
                    "column: give a list of mappings, such as [row], or a mapping of names to "
                    "lists"
                )
            lists[str(name)] = listed
        lengths = {name: len(values) for name, values in lists.items()}
        if len(set(lengths.values())) > 1:
            sizes = ", ".join(f"{name} {n:,}" for name, n in lengths.items())
            raise DataError(f"the columns differ in length ({sizes}): give one value per row")
        return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    if isinstance(table, list | tuple) and table and all(isinstance(row, Mapping) for row in table):
        return list(table)
    return None


def is_frame(value: Any) -> bool:
    """Return whether a value is a DataFrame or an Arrow table."""
    is_pandas = hasattr(value, "to_dict") and hasattr(value, "columns")
    return is_pandas or hasattr(value, "to_dicts") or hasattr(value, "to_pylist")


def given_rows(rows: Any) -> Iterable[Any]:
    """Return the rows of a table of :func:`table_rows`, a Series, an array or any iterable.

    A row is a text, a list, a mapping, or None for a missing value. Raises DataError for a value
    without rows.
    """
    if isinstance(rows, str | bytes | PathLike):
        what = "one text" if isinstance(rows, str) else type(rows).__name__
        raise DataError(f"rows is {what}: give a list of texts, such as [text]")
    if isinstance(rows, set | frozenset):
        raise DataError("rows is a set, which has no order: give a list, such as sorted(rows)")
    table = table_rows(rows)
    if table is not None:
        return map(plain, table)
    try:
        return map(_row, rows)
    except TypeError:
        raise DataError(
            f"rows is {type(rows).__name__}, which holds no rows: give a list of texts, of tuples "
            "or of mappings, or a DataFrame"
        ) from None


def given_lines(lines: Any) -> list[str]:
    """Return the texts of :func:`given_rows`, or of a table's only column; missing ones are empty.

    Raises DataError, with the number of the row from 0, for a value that is not text.
    """
    texts = []
    for number, row in enumerate(given_rows(lines)):
        text = row
        if isinstance(row, Mapping):
            if len(row) != 1:
                raise DataError(f"row {number} has {', '.join(map(str, row))}: give one column")
            [text] = row.values()
        if is_missing(text):
            text = ""
        if not isinstance(text, str):
            raise DataError(f"row {number} is {type(text).__name__}, not a text")
        if problem := surrogate_problem(text):
            raise DataError(f"row {number} {problem}")
        texts.append(text)
    return texts


def _row(row: Any) -> Any:
    if isinstance(row, tuple) and hasattr(row, "_asdict"):
        return plain(row._asdict())
    if hasattr(row, "to_dict") and hasattr(row, "index"):  # a row of a DataFrame
        values = row.to_dict()
        return plain(values if all(isinstance(key, str) for key in values) else [*values.values()])
    if hasattr(row, "keys") and not isinstance(row, Mapping):  # a row of a database
        row = dict(row)
    return None if is_missing(row) else row if isinstance(row, PathLike) else plain(row)


def _check_names(names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"the table has several columns {twice!r}: rename all but one")


def show(value: Any) -> str:
    """Format a value as one line, text in quotes, shortened where it is long."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = _written(value, _DEEPEST)
    if len(text) <= LONGEST_VALUE:
        return text
    return text[: LONGEST_VALUE - 4] + " ..."


def _written(value: Any, deepest: int) -> str:
    """Format any value as ``repr`` does, but no more of it than is shown.

    This holds whatever its length, depth or number of digits.
    """
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        n_digits = round(value.bit_length() * _DIGITS_PER_BIT)
        return f"a whole number of {n_digits:,} digits"
    if isinstance(value, str):
        return repr(value[:LONGEST_VALUE])
    if not isinstance(value, list | tuple | Mapping):
        return repr(value)
    if not deepest:
        return "..."
    # Of so many members the message is full, however short they are.
    shown = [
        f"{_written(member, 0)}: {_written(value[member], deepest - 1)}"
        if isinstance(value, Mapping)
        else _written(member, deepest - 1)
        for member in itertools.islice(value, LONGEST_VALUE)
    ]
    return f"{{{', '.join(shown)}}}" if isinstance(value, Mapping) else f"[{', '.join(shown)}]"
