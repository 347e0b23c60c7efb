"""MRPC, also as Microsoft published it: GLUE's development set is named by pairs of ids."""

from collections.abc import Mapping
from pathlib import Path

from sublayer.errors import DataError
from sublayer.tasks.columns import Columns, read_columns, read_rows
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.task import Task
from sublayer.tasks.tsv import read_tsv

MRPC = Columns(
    {"sentence1": ("sentence1", "#1 String"), "sentence2": ("sentence2", "#2 String")},
    label=("label", "Quality"),
)
ORIGINAL = {"msr_paraphrase_train.txt": "train", "msr_paraphrase_test.txt": "test"}
"""The splits of the publisher's files, of which the first holds GLUE's development set, too."""

_TRAIN = "msr_paraphrase_train.txt"
_DEV_IDS = ("mrpc_dev_ids.tsv", "dev_ids.tsv")
_PAIR = ("#1 ID", "#2 ID")
_LACKING = "a pair of ids that the training file lacks"


def with_dev_ids(found: Mapping[str, tuple[Path, ...]]) -> dict[str, tuple[Path, ...]]:
    """Return the files that were found, and those of the sets that the ids make of the original.

    Without the ids, all rows of the original are the training set.
    """
    complete = dict(found)
    for folder in {paths[0].parent for paths in found.values()}:
        train = folder / _TRAIN
        ids = next((folder / name for name in _DEV_IDS if (folder / name).is_file()), None)
        if ids is None or not train.is_file():
            continue
        if complete.get("train", (train,)) == (train,):
            complete["train"] = (train, ids)
        complete.setdefault("dev", (train, ids))
    return complete


def read_mrpc(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    """Read a split: GLUE's files, the hub's, or the part of the original that it has of it.

    Raises DataError as ``read_columns`` does, and for what is no pair of ids.
    """
    if len(paths) == 1 or paths[1].name not in _DEV_IDS:
        return read_columns(task, split, paths, MRPC)
    train, ids = paths
    places = _dev_places(ids)
    result = ReadSplit(split, paths)
    kept = []
    found = set()
    for record in MRPC.records(train):
        pair = None if record.problem else (record.text(_PAIR[0]), record.text(_PAIR[1]))
        is_dev = pair in places
        found.add(pair)
        if is_dev == (split == "dev"):
            kept.append(record)
    if split == "dev":
        for pair, place in places.items():
            if pair not in found:
                result.skip(_LACKING, place)
    read_rows(task, result, kept, MRPC, ids if split == "dev" else train)
    return result


def _dev_places(path: Path) -> dict[tuple[str, str], str]:
    """Return the pairs of ids, each with its place."""
    places = {}
    for row in read_tsv(path):
        place = f"{path}:{row.line}"
        cells = [cell.strip() for cell in row.cells]
        if cells == [""]:
            continue
        if len(cells) != len(_PAIR) or not all(map(str.isdigit, cells)):
            raise DataError(f"{place}: {' '.join(cells)!r} is no pair of ids")
        places[cells[0], cells[1]] = place
    return places
