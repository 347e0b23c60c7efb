"""Write the items of a study's runs into a file that a record can keep."""

import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.evaluation.items import ItemTable
from sublayer.files.arrays import dump_arrays
from sublayer.files.storage import write_file
from sublayer.runs.items import DOCUMENTS
from sublayer.study.items.compaction import (
    COARSE,
    Array,
    Compaction,
    Stack,
    add_neighbours,
    round_column,
)
from sublayer.study.items.file_header import VERSION, RunItems

MAX_BYTES = 1_000_000
"""The largest file of a study: above, items are rounded more, then added together."""


def write_study_items(
    path: Path,
    study: str,
    runs: Sequence[RunItems],
    metrics: Mapping[str, str],
    *,
    missing: Sequence[str] = (),
    max_bytes: int = MAX_BYTES,
) -> None:
    """Write the items of a study's runs into one file of at most ``max_bytes``.

    Nats are rounded to a step, by more where the file is too large, and neighbours are added
    together where it still is: within documents first, then across them. The header says what was
    done; no item is left out. ``missing`` names the runs that kept none. Raises OSError.
    """
    head = {
        "version": VERSION,
        "study": study,
        "metrics": dict(metrics),
        "runs": [_describe(run) for run in runs],
        "missing": list(missing),
    }
    groups = list(_groups(runs))
    first, *smaller = _attempts(groups)
    packed_by = first
    data = _pack(head, groups, first)
    for how in smaller:
        if len(data) <= max_bytes:
            break
        # Sums take more bytes than what is added, so that less than this does not do.
        least = len(data) * packed_by.added / how.added
        is_last = how == smaller[-1]
        if how.added > 1 and least > max_bytes and not is_last:
            continue
        packed_by = how
        data = _pack(head, groups, how)
    write_file(path, data)


def _describe(run: RunItems) -> dict[str, Any]:
    items = run.items
    return {"arm": run.arm, "seed": run.seed, "split": items.split, "sha256": items.sha256}


@dataclass(frozen=True)
class _Stacked:
    """The same table of the runs that scored the same items."""

    name: str
    table: ItemTable
    runs: list[int]
    stack: Stack


@dataclass(frozen=True)
class _RunTable:
    """One table of one run, which is the ``index``-th."""

    name: str
    table: ItemTable
    index: int

    @property
    def group(self) -> tuple[str, str]:
        """What tables share that scored the same items."""
        return self.name, self.table.digest


def _groups(runs: Sequence[RunItems]) -> Iterator[_Stacked]:
    tables = []
    for index, run in enumerate(runs):
        for name, table in run.items.tables.items():
            tables.append(_RunTable(name, table, index))
    tables.sort(key=lambda each: (each.group, each.index))
    for (name, _), same in groupby(tables, key=lambda each: each.group):
        members = list(same)
        first = members[0].table
        columns = {}
        for column in first.columns:
            of_runs = [member.table.columns[column] for member in members]
            columns[column] = np.stack(of_runs)
        indices = [member.index for member in members]
        stack = Stack(columns, first.documents)
        yield _Stacked(name, first, indices, stack)


def _attempts(groups: Sequence[_Stacked]) -> Iterator[Compaction]:
    """Generate compactions, each smaller than the one before, until one item is left."""
    yield Compaction()
    yield Compaction(step=COARSE)
    longest = max((each.stack.longest for each in groups), default=1)
    n_items = max((each.stack.n_items for each in groups), default=1)
    added = 1
    while added < longest:
        added *= 2
        yield Compaction(COARSE, added)
    while added < n_items:
        added *= 2
        yield Compaction(COARSE, added, across_documents=True)


def _pack(head: Mapping[str, Any], groups: Sequence[_Stacked], how: Compaction) -> bytes:
    arrays: dict[str, Array] = {}
    described = []
    for number, group in enumerate(groups):
        own_arrays, header = _pack_group(group, how)
        for name, array in own_arrays.items():
            arrays[f"{number}/{name}"] = array
        described.append(header)
    data = dump_arrays(arrays, {**head, "groups": described})
    return lzma.compress(data)


def _pack_group(group: _Stacked, how: Compaction) -> tuple[dict[str, Array], dict[str, Any]]:
    stack = add_neighbours(group.stack, how)
    arrays: dict[str, Array] = {}
    steps = {}
    for name, column in stack.columns.items():
        if np.issubdtype(column.dtype, np.integer):
            arrays[name] = column
        else:
            steps[name] = how.step
            arrays[name] = round_column(column, how.step)
    # How long texts are is the same in all runs, and stored once.
    shared = []
    for name, array in arrays.items():
        first = array[:1]
        is_same = array == first
        if is_same.all():
            shared.append(name)
            arrays[name] = first
    if stack.documents is not None:
        arrays[DOCUMENTS] = stack.documents
    header = {
        "table": group.name,
        "unit": group.table.unit,
        "digest": group.table.digest,
        "runs": group.runs,
        "n_items": group.stack.n_items,
        "added": how.added,
        "across_documents": how.across_documents,
        "columns": list(stack.columns),
        "steps": steps,
        "shared": shared,
        "has_documents": stack.documents is not None,
    }
    return arrays, header
