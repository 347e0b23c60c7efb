"""Read the items of a study's runs from the file that a record keeps."""

import lzma
from collections.abc import Mapping
from pathlib import Path

from sublayer.errors import CheckpointError
from sublayer.evaluation.items import Items, ItemTable
from sublayer.files.arrays import load_arrays
from sublayer.files.parsing import read_bytes
from sublayer.files.typed import check_typed
from sublayer.runs.items import DOCUMENTS
from sublayer.study.items.compaction import Array
from sublayer.study.items.file_header import VERSION, GroupHeader, RunItems, StudyHeader

_MAX_UNPACKED = 128 << 20


def read_study_items(path: Path) -> list[RunItems]:
    """Read the items of a study's runs, as they were rounded and added.

    Sums of items stand where the items did: ``RunItems.added`` says of how many. Raises
    CheckpointError where the file is missing, damaged, or of a version that is not known.
    """
    try:
        packed = read_bytes(path, CheckpointError, max_bytes=_MAX_UNPACKED)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    data = _unpack(packed, path)
    arrays, content = load_arrays(data, str(path), CheckpointError)
    check_typed(content, StudyHeader, f"the header of {path}", CheckpointError)
    header = StudyHeader.model_validate(content)
    if header.version != VERSION:
        raise CheckpointError(
            f"{path} is of version {header.version}, which is not known: this is {VERSION}"
        )
    for group in header.groups:
        last_run = max(group.runs)
        if last_run >= len(header.runs):
            raise CheckpointError(f"{path} is damaged: it has no run {last_run}")
    all_items = []
    for index, about in enumerate(header.runs):
        tables: dict[str, ItemTable] = {}
        added: dict[str, int] = {}
        for number, group in enumerate(header.groups):
            if index not in group.runs:
                continue
            row = group.runs.index(index)
            tables[group.table] = _table(arrays, number, group, row, path)
            added[group.table] = group.added
        items = Items(about.split, about.sha256, tables)
        all_items.append(RunItems(about.arm, about.seed, items, added))
    return all_items


def _unpack(packed: bytes, path: Path) -> bytes:
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_UNPACKED)
    try:
        data = unpacker.decompress(packed, max_length=_MAX_UNPACKED)
    except lzma.LZMAError as problem:
        raise CheckpointError(f"{path} is damaged: {problem}") from None
    if not unpacker.eof:
        raise CheckpointError(f"{path} is cut short, or holds more than {_MAX_UNPACKED:,} bytes")
    return data


def _table(
    arrays: Mapping[str, Array], number: int, group: GroupHeader, row: int, path: Path
) -> ItemTable:
    """Build the table of one run, the group's at ``row``; ``number`` is the group's in the file."""
    columns = {}
    for name in group.columns:
        array = arrays.get(f"{number}/{name}")
        is_shared = name in group.shared
        n_rows = 1 if is_shared else len(group.runs)
        if array is None or array.ndim not in (2, 3) or len(array) != n_rows:
            raise CheckpointError(
                f"{path} is damaged: {name[:60]!r} of {group.table[:60]!r} does not fit"
            )
        values = array[0] if is_shared else array[row]
        if name in group.steps:  # counts of a step
            values = values * group.steps[name]
        columns[name] = values
    sizes = {len(column) for column in columns.values()}
    documents = None
    if group.has_documents:
        documents = arrays.get(f"{number}/{DOCUMENTS}")
        # None has no size: it fits to no column.
        sizes.add(-1 if documents is None else len(documents))
    if len(sizes) != 1:
        raise CheckpointError(f"{path} is damaged: the columns of {group.table[:60]!r} do not fit")
    return ItemTable(group.unit, group.digest, columns, documents)
