"""The items of a run's test in its folder, ``items.npz``: the numbers that its scores follow from.

``numpy.load`` reads the file. The array ``TABLE/COLUMN``, ``[N]`` or ``[N, K]``, has a row for each
item in the order of the split, ``TABLE/documents`` the document of each item, and ``header`` JSON
text: split, units, digests of the scored items, and the table that each metric follows from.
Earlier versions wrote the same arrays as ``items.safetensors``, which is read too.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
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

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TableHeader(Typed):
    """The header of a table: its unit, the digest of the scored items, their number and columns."""

    unit: str
    digest: Sha256
    n_items: Count
    columns: Annotated[list[str], Field(min_length=1, max_length=_MOST_COLUMNS)]
    has_documents: bool
    """True where there is an array of each item's document."""


class _Header(Typed):
    version: int
    split: str
    sha256: str
    metrics: dict[str, str]
    tables: dict[str, TableHeader]


def write_items(run: Path, items: Items, metrics: Mapping[str, str]) -> str:
    """Write the items of a run's test, whole or not at all, and return the file's SHA-256.

    ``metrics`` are the tables that metrics follow from, by the metric's name; those of a table that
    these items lack are left out. Raises OSError.
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
    """Return the file of a run's items, which is of this version or of an earlier one."""
    return next((run / name for name in (ITEMS, _EARLIER_ITEMS) if (run / name).exists()), None)


def read_items(run: Path) -> Items | None:
    """Read the items of a run's test; None where it keeps none, as runs did before there were any.

    Raises CheckpointError where they are damaged, or of a version that is not known.
    """
    path = items_file(run)
    if path is None:
        return None
    data = read_bytes(path, CheckpointError, max_bytes=_MAX_BYTES)
    arrays, content = load_arrays(data, str(path), CheckpointError)
    header = check_typed(content, _Header, f"the header of {path}", CheckpointError)
    if header.version != _VERSION:
        raise CheckpointError(
            f"{path} is of version {header.version}, which is not known: this is {_VERSION}"
        )
    tables = {}
    for name, about in header.tables.items():
        tables[name] = _table(name, about, arrays, path)
    if arrays:
        raise CheckpointError(f"{path} is damaged: {min(arrays)[:60]!r} is of no table")
    return Items(header.split, header.sha256, tables)


def _table(
    name: str, header: TableHeader, arrays: dict[str, NDArray[np.number[Any]]], path: Path
) -> ItemTable:
    """Build a table from its arrays, which are checked and taken out of those of the file."""

    def take(column: str) -> NDArray[Any]:
        array = arrays.pop(f"{name}/{column}", None)
        shown = repr(f"{name[:60]}/{column[:60]}")
        if array is None:
            raise CheckpointError(f"{path} is damaged: it has no {shown}")
        if array.ndim not in (1, 2) or len(array) != header.n_items:
            raise CheckpointError(
                f"{path} is damaged: {shown} has the shape {array.shape}, "
                f"and there are {header.n_items:,} items"
            )
        return array

    columns = {column: take(column) for column in header.columns}
    documents = take(DOCUMENTS) if header.has_documents else None
    if documents is not None:
        is_whole = documents.ndim == 1 and np.issubdtype(documents.dtype, np.integer)
        if not is_whole or int(documents.min(initial=0)) < 0:
            raise CheckpointError(
                f"{path} is damaged: the {DOCUMENTS} of {name[:60]!r} are no places"
            )
    return ItemTable(header.unit, header.digest, columns, documents)
