"""The items of a comparison, from the folders of its runs or from one file of an earlier version.

Earlier versions wrote the items of all runs into ``items.safetensors.xz``, rounded, and neighbours
added together. It is read where the runs are not there, as in records.
"""

import lzma
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from numpy.typing import NDArray
from pydantic import Field

from sublayer.errors import CheckpointError
from sublayer.evaluation.items import Items, ItemTable
from sublayer.files.arrays import load_arrays
from sublayer.files.parsing import Count, Number, Typed, check_typed, read_bytes, read_json_object
from sublayer.runs.items import DOCUMENTS, Sha256, read_items
from sublayer.study.arms import LONGEST_PART, in_path

STUDY_ITEMS = "items.safetensors.xz"
_VERSION = 1
_MAX_UNPACKED = 128 << 20


@dataclass(frozen=True)
class RunItems:
    """The items of one run."""

    arm: str
    seed: int
    items: Items
    added: Mapping[str, int] = field(default_factory=dict)
    """By table, how many neighbours were added together at a time, in files of earlier versions."""


def read_comparison_items(folder: Path, results: Mapping[str, Any]) -> list[RunItems]:
    """Read the items of the runs that a comparison's results name; ``folder`` is its folder.

    Raises CheckpointError where items are damaged.
    """
    kept = []
    n_runs = 0
    scores = f"{results.get('split', 'test')}.json"
    for arm in results["arms"]:
        for seed, value in zip(arm["seeds"], arm["values"], strict=True):
            n_runs += 1
            runs = [
                run
                for run in _run_folders(folder, arm["name"], seed)
                if (run / scores).is_file()
                and read_json_object(run / scores, CheckpointError).get(results["metric"]) == value
            ]
            # Of several runs with one score none is known to be the arm's.
            items = read_items(runs[0]) if len(runs) == 1 else None
            if items is not None:
                kept.append(RunItems(arm["name"], seed, items))
    if len(kept) < n_runs and (folder / STUDY_ITEMS).is_file():
        return read_study_items(folder / STUDY_ITEMS)
    return kept


def _run_folders(folder: Path, arm: str, seed: int) -> Iterator[Path]:
    """Yield the folders that may hold an arm's run: of any trial, and of finished runs."""
    part = in_path(arm)
    for arm_folder in sorted(folder.glob("arms/*")):
        if re.fullmatch(rf"\d+-{re.escape(part[:LONGEST_PART])}", arm_folder.name):
            yield arm_folder / f"seed-{seed}"
            yield from sorted(arm_folder.glob(f"*/seed-{seed}"))
    if (folder / "runs.json").is_file():
        scored_here = folder / "scores" / part[-LONGEST_PART:] / f"seed-{seed}"
        if scored_here.is_dir():
            yield scored_here
        else:
            runs = read_json_object(folder / "runs.json", CheckpointError).get("runs", ())
            yield from map(Path, runs)


class _Run(Typed):
    arm: str
    seed: Count
    split: str
    sha256: str


class _Group(Typed):
    """A table of the runs that scored the same items."""

    table: str
    unit: str
    digest: Sha256
    runs: Annotated[list[Count], Field(min_length=1)]
    """Indices into the header's runs, in the order of the rows of columns."""
    added: Annotated[Count, Field(ge=1)]
    """How many neighbours were added together at a time."""
    columns: Annotated[list[str], Field(min_length=1)]
    steps: dict[str, Number]
    """Columns that are stored as counts of a step, and that step."""
    shared: list[str]
    """Columns that are the same in all runs, and stored once."""
    has_documents: bool


class _Header(Typed):
    version: int
    runs: list[_Run]
    groups: list[_Group]


def read_study_items(path: Path) -> list[RunItems]:
    """Read the items of a study's runs from the file of an earlier version.

    Sums of neighbouring items stand for the items: ``RunItems.added`` is their number. Raises
    CheckpointError where the file is missing, damaged, or of a version that is not known.
    """
    try:
        packed = read_bytes(path, CheckpointError, max_bytes=_MAX_UNPACKED)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_UNPACKED)
    try:
        data = unpacker.decompress(packed, max_length=_MAX_UNPACKED)
    except lzma.LZMAError as problem:
        raise CheckpointError(f"{path} is damaged: {problem}") from None
    if not unpacker.eof:
        raise CheckpointError(f"{path} is cut short, or holds more than {_MAX_UNPACKED:,} bytes")
    arrays, content = load_arrays(data, str(path), CheckpointError)
    header = check_typed(content, _Header, f"the header of {path}", CheckpointError)
    if header.version != _VERSION:
        raise CheckpointError(
            f"{path} is of version {header.version}, which is not known: this is {_VERSION}"
        )
    tables: list[dict[str, ItemTable]] = [{} for _ in header.runs]
    added: list[dict[str, int]] = [{} for _ in header.runs]
    for number, group in enumerate(header.groups):
        for row, run in enumerate(group.runs):
            if run >= len(header.runs):
                raise CheckpointError(f"{path} is damaged: it has no run {run}")
            tables[run][group.table] = _table_of(arrays, number, group, row, path)
            added[run][group.table] = group.added
    return [
        RunItems(run.arm, run.seed, Items(run.split, run.sha256, tables[index]), added[index])
        for index, run in enumerate(header.runs)
    ]


def _table_of(
    arrays: Mapping[str, NDArray[Any]], number: int, group: _Group, row: int, path: Path
) -> ItemTable:
    """Build the table of one run, the group's at ``row``; ``number`` is the group's in the file."""
    columns = {}
    for name in group.columns:
        array = arrays.get(f"{number}/{name}")
        n_rows = 1 if name in group.shared else len(group.runs)
        if array is None or array.ndim not in (2, 3) or len(array) != n_rows:
            raise CheckpointError(
                f"{path} is damaged: {name[:60]!r} of {group.table[:60]!r} does not fit"
            )
        values = array[min(row, n_rows - 1)]
        columns[name] = values * group.steps[name] if name in group.steps else values
    sizes = {len(column) for column in columns.values()}
    documents = arrays.get(f"{number}/{DOCUMENTS}") if group.has_documents else None
    if group.has_documents:
        sizes.add(-1 if documents is None else len(documents))
    if len(sizes) != 1:
        raise CheckpointError(f"{path} is damaged: the columns of {group.table[:60]!r} do not fit")
    return ItemTable(group.unit, group.digest, columns, documents)
