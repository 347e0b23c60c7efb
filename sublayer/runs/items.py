"""Test items of a run in ``items.npz``: the numbers that determine its scores.

``numpy.load`` reads the file. The array ``TABLE/COLUMN``, ``[N]`` or ``[N, K]``, has a row for each
item in the order of the split, ``TABLE/documents`` the document of each item, and ``header`` JSON
text: split, units, digests of the scored items, and the table that each metric follows from. The
same arrays in ``items.safetensors``, of earlier versions, are read, too.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from sublayer.errors import CheckpointError
from sublayer.evaluation.items import Items, ItemTable
from sublayer.files.arrays import dump_npz, load_arrays
from sublayer.files.parsing import Count, Typed, check_typed, read_bytes
from sublayer.files.storage import write_file

ITEMS = "items.npz"
_EARLIER_ITEMS = "items.safetensors"

_VERSION = 1
_MAX_BYTES = 1 << 30
DOCUMENTS = "documents"
"""The array of each item's document, which is no column."""
_MOST_COLUMNS = 64

_NONE = np.empty((0, 0, 0), np.int8)
"""A missing array: of no table's shape."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TableHeader(Typed):
    """The header of a table: its unit, the digest of the scored items, their number and columns."""

    unit: str
    digest: Sha256
    n_items: Count
    columns: Annotated[list[str], Field(min_length=1, max_length=_MOST_COLUMNS)]
    has_documents: bool
    """True with an array of each item's document."""


class _ItemsHeader(Typed):
    version: int
    split: str
    sha256: str
    metrics: dict[str, str]
    tables: dict[str, TableHeader]


def write_items(run: Path, items: Items, metrics: Mapping[str, str]) -> str:
    """Write the items of a run's test atomically, and return the file's SHA-256.

    ``metrics`` are the source tables of metrics, by the metric's name; metrics of missing tables
    are left out. Raises OSError.
    """
    arrays = {}
    headers = {}
    for name, table in items.tables.items():
        assert DOCUMENTS not in table.columns, "that is no column of sums"
        for column, values in table.columns.items():
            arrays[f"{name}/{column}"] = values
        if table.documents is not None:
            arrays[f"{name}/{DOCUMENTS}"] = table.documents
        headers[name] = {
            "unit": table.unit,
            "digest": table.digest,
            "n_items": table.n_items,
            "columns": list(table.columns),
            "has_documents": table.documents is not None,
        }
    header = {
        "version": _VERSION,
        "split": items.split,
        "sha256": items.sha256,
        "metrics": {name: table for name, table in metrics.items() if table in items.tables},
        "tables": headers,
    }
    data = dump_npz(arrays, header)
    write_file(run / ITEMS, data)
    return hashlib.sha256(data).hexdigest()


def items_file(run: Path) -> Path | None:
    """Return the file of a run's items, of this or an earlier version."""
    return next((run / name for name in (ITEMS, _EARLIER_ITEMS) if (run / name).exists()), None)


def read_items(run: Path) -> Items | None:
    """Read the items of a run's test; None if it keeps none, as in early versions.

    Raises CheckpointError if they are damaged, or of an unknown version.
    """
    path = items_file(run)
    if path is None:
        return None
    data = read_bytes(path, CheckpointError, max_bytes=_MAX_BYTES)
    arrays, content = load_arrays(data, str(path), CheckpointError)
    header = check_typed(content, _ItemsHeader, f"the header of {path}", CheckpointError)
    if header.version != _VERSION:
        raise CheckpointError(
            f"{path} is of version {header.version}, which is not known: this is {_VERSION}"
        )
    tables = {}
    for name, about in header.tables.items():
        columns: dict[str, Any] = {
            column: arrays.pop(f"{name}/{column}", _NONE) for column in about.columns
        }
        documents: Any = arrays.pop(f"{name}/{DOCUMENTS}", _NONE) if about.has_documents else None
        whole = [array.ndim in (1, 2) and len(array) == about.n_items for array in columns.values()]
        if documents is not None:
            is_integer = np.issubdtype(documents.dtype, np.integer)
            whole.append(documents.shape == (about.n_items,) and is_integer)
            whole.append(bool((documents >= 0).all()))
        if not all(whole):
            raise CheckpointError(f"{path} is damaged: its arrays are not those of its header")
        tables[name] = ItemTable(about.unit, about.digest, columns, documents)
    if arrays:
        raise CheckpointError(f"{path} is damaged: {min(arrays)[:60]!r} is of no table")
    return Items(header.split, header.sha256, tables)
