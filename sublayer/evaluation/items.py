"""Evaluation divided among processes; items of a test, their metrics, and their file in a run.

Every metric is a function of sums over items. ``numpy.load`` reads ``items.npz``. The array
``TABLE/COLUMN``, ``[N]`` or ``[N, K]``, has a row for each item in the order of the split,
``TABLE/documents`` the document of each item, and ``header`` JSON text: split, units, digests of
the scored items, and the table that each metric follows from. The same arrays in
``items.safetensors``, of earlier versions, are read, too.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sublayer.config.objective import EvaluatedMetric
from sublayer.errors import CheckpointError
from sublayer.files.arrays import dump_npz, load_arrays
from sublayer.files.parsing import Count, Typed, check_typed, read_bytes
from sublayer.files.storage import write_file

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.data.store import Split

Numbers = NDArray[np.integer] | NDArray[np.floating]
Sums = Mapping[str, NDArray[np.float64] | np.float64]
"""Sums of a table's columns over items: a number each, or ``[K]``."""

_CHUNK = 1 << 20
"""Integers digested at a time."""


@dataclass(frozen=True)
class ItemTable:
    """Numbers about items, a row each, in the order of the split."""

    unit: str
    """Description of an item, for people."""
    digest: str
    """SHA-256 of the scored items, one by one: tests with one digest scored the same items."""
    columns: Mapping[str, Numbers]
    """``[N]`` or ``[N, K]`` by name; only sums over items are meaningful."""
    documents: NDArray[np.integer] | None
    """Documents of the items, ``[N]``, by their indices in the split; None without documents."""

    @property
    def n_items(self) -> int:
        """Number of items."""
        return min(len(column) for column in self.columns.values())

    def sums(self, times: Numbers | None = None) -> Sums:
        """Sum the columns, items weighted by ``times``, ``[N]``, if given."""
        columns = self.columns.items()
        if times is None:
            return {name: column.sum(0, dtype=np.float64) for name, column in columns}
        weights = times.astype(np.float64)
        return {name: weights @ column.astype(np.float64) for name, column in columns}


@dataclass(frozen=True)
class Items:
    """Items of a test, in a table per measure."""

    split: str
    """Name of the split."""
    sha256: str
    """Checksum of its text."""
    tables: Mapping[str, ItemTable]


@dataclass(frozen=True)
class FromItems:
    """A metric as a function of a test's items: the table, and the function of its sums."""

    table: str
    """Name of a table in ``Items.tables``."""
    value: Callable[[Sums], float]
    """Computes the metric from the table's sums, over any subset of items."""

    def of(self, items: Items) -> float | None:
        """Compute the metric over all items; None where the test lacks its table."""
        table = items.tables.get(self.table)
        return None if table is None else self.value(table.sums())


def ratio(total: str, count: str) -> Callable[[Sums], float]:
    """Return the metric ``sum(total) / sum(count)``; NaN for a count of 0."""

    def value(sums: Sums) -> float:
        n = float(sums[count])
        return float(sums[total]) / n if n else math.nan

    return value


def quotient_of(measure: EvaluatedMetric) -> FromItems:
    """Return a quotient of sums as a metric of items; NaN for a count of 0."""
    value = ratio(*measure.columns)
    return FromItems(measure.table, lambda sums: value(sums) / measure.unit)


class Digest:
    """SHA-256 of a sequence of items, independent of their integer type.

    ``names`` are hashed first: items scored in two ways have two digests.
    """

    def __init__(self, *names: str) -> None:
        self._sha256 = hashlib.sha256()
        for name in names:
            self._sha256.update(f"{name}\n".encode())

    def add(self, ids: Iterable[int] | NDArray[np.integer]) -> None:
        """Add the integers of one or several items, and their number."""
        values = ids if isinstance(ids, np.ndarray) else np.array(list(ids), dtype=np.int64)
        self._sha256.update(f"{values.size}\n".encode())
        flat = values.reshape(-1)
        # In chunks, to limit the memory of the conversion.
        for start in range(0, flat.size, _CHUNK):
            self._sha256.update(flat[start : start + _CHUNK].astype("<i8").tobytes())

    def hexdigest(self) -> str:
        """Return the digest so far, in hexadecimal."""
        return self._sha256.hexdigest()


def _always(_: object) -> bool:
    return True


Basis = Literal["bytes", "items", "scores"]
"""``bytes``: the text, where tokenizers keep every byte of it; ``items``: exactly the scored items;
``scores``: unknown."""


@dataclass(frozen=True)
class Metric:
    """A measure for comparing models, and its good direction.

    A metric is defined with its objective's family. Files keep values unscaled; ``label``,
    ``unit``, ``factor`` and ``decimals`` are for people.
    """

    name: str
    """Key in scores and results."""
    label: str
    is_lower_better: bool
    from_items: FromItems | None = field(kw_only=True)
    """Computes it from the items of a test; None, which must be explicit: it follows from no items.
    """
    basis: Basis = "scores"
    """What two models' values must share to be compared."""
    unit: str = ""
    """Unit of differences; empty: the label."""
    factor: float = 1.0
    """Factor of shown values: 100 makes a share a percentage."""
    decimals: int = 3
    """Fewest decimals of a shown value; a study shows more where its differences need them."""
    has_head: Callable[["Recipe"], bool] = _always
    """True where a recipe's model can be measured at all."""
    has_items: Callable[["Split"], bool] = _always
    """True where it can be measured on a split at all."""
    asks: str = "a head"
    """Subject of ``has_head``."""
    head: str = ""
    """Missing part where ``has_head`` is False."""
    items: str = ""
    """Missing part where ``has_items`` is False."""

    @property
    def difference(self) -> str:
        """Unit of differences."""
        return self.unit or self.label


ITEMS = "items.npz"
_EARLIER_ITEMS = "items.safetensors"

_VERSION = 1
_MAX_BYTES = 1 << 30
DOCUMENTS = "documents"
"""Array of each item's document; not a column."""
_MOST_COLUMNS = 64

_NONE = np.empty((0, 0, 0), np.int8)
"""Stands in for a missing array: no table has its shape."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TableHeader(Typed):
    """Header of a table: its unit, the digest of the scored items, their number and columns."""

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
        raise CheckpointError(f"{path} has version {header.version}, this program reads {_VERSION}")
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
            raise CheckpointError(f"{path} is damaged: its arrays do not match its header")
        tables[name] = ItemTable(about.unit, about.digest, columns, documents)
    if arrays:
        raise CheckpointError(f"{path} is damaged: {min(arrays)[:60]!r} belongs to no table")
    return Items(header.split, header.sha256, tables)


Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Called with the number done and the total."""


def silent(n_done: int, n_all: int) -> None:
    """Show no progress."""


@runtime_checkable
class Processes(Protocol):
    """Process group of an evaluation."""

    def own(self, n: int) -> range:
        """Return this process's share of ``n`` parts."""

    def gather(self, results: Sequence[Result], n: int) -> list[Result]:
        """Gather the results of all ``n`` parts, in order; ``results`` are this process's.

        A collective: every process calls it, and all receive the same.
        """


class _OneProcess:
    def own(self, n: int) -> range:
        return range(n)

    def gather(self, results: Sequence[Result], n: int) -> list[Result]:
        return list(results)


ALONE: Processes = _OneProcess()


def compute_each(
    work: Callable[[int], Result], n: int, processes: Processes, progress: Progress = silent
) -> list[Result]:
    """Compute ``work(0)`` to ``work(n - 1)``, divided among processes; return all in order.

    ``progress`` receives the number of parts that this process has done.
    """
    results = []
    for done, index in enumerate(processes.own(n), 1):
        results.append(work(index))
        progress(done, n)
    return processes.gather(results, n)


def add_up(values: Iterable[float]) -> float:
    """Add numbers in order: bit-identical sums."""
    total = 0.0
    for value in values:
        total += value
    return total
