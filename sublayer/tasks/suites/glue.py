"""GLUE: nine tasks and a diagnostic set. Source: Wang et al. 2018 (1804.07461)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sublayer.errors import DataError
from sublayer.tasks.example import Example
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.suite import Found, Suite
from sublayer.tasks.task import Task
from sublayer.tasks.tsv import read_tsv

_SPLITS = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
_ENTAILMENT = ("entailment", "not_entailment")


@dataclass(frozen=True)
class _Columns:
    """The names of a file's columns by our names of fields, and that of the label."""

    folder: str
    fields: Mapping[str, str]
    label: str
    without_header: Sequence[str] = ()
    """The columns of files that have no header: those with labels."""


_COLUMNS = {
    "cola": _Columns(
        "CoLA", {"sentence": "sentence"}, "label", ("source", "label", "mark", "sentence")
    ),
    "sst2": _Columns("SST-2", {"sentence": "sentence"}, "label"),
    "stsb": _Columns("STS-B", {"sentence1": "sentence1", "sentence2": "sentence2"}, "score"),
    "rte": _Columns("RTE", {"sentence1": "sentence1", "sentence2": "sentence2"}, "label"),
}


def _find(task: Task, folder: Path) -> Found:
    columns = _COLUMNS[task.name]
    found = {}
    for place in (folder / columns.folder, folder / "glue" / columns.folder, folder):
        for split, name in _SPLITS.items():
            if (place / name).is_file():
                found[split] = (place / name,)
        if found:
            break
    return found


def _read(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    result = ReadSplit(split, paths)
    columns = _COLUMNS[task.name]
    has_label = split != "test"
    for path in paths:
        rows = read_tsv(path)
        header = list(columns.without_header)
        if not (header and has_label):
            header = list(next(rows).cells)
        places = {}
        for field, name in columns.fields.items():
            if name not in header:
                raise DataError(f"{path} has no column {name}: it has {', '.join(header)}")
            places[field] = header.index(name)
        label_place = header.index(columns.label) if has_label else None
        for row in rows:
            place = f"{path}:{row.line}"
            if len(row.cells) < len(header):
                result.skip(f"fewer than {len(header)} fields", place)
                continue
            fields = {field: row.cells[index] for field, index in places.items()}
            label = None
            if label_place is not None:
                label = _label(task, row.cells[label_place], place)
            result.examples.append(
                Example(
                    id=str(len(result.examples)),
                    fields=fields,
                    label=label,
                    is_labelled=has_label,
                )
            )
    return result


def _label(task: Task, written: str, place: str) -> int | float:
    if task.kind == "number":
        return float(written)
    if written in task.labels:
        return task.labels.index(written)
    if written in ("0", "1"):
        return int(written)
    raise DataError(f"{place}: {written!r} is no label of {task.title}")


GLUE = Suite(
    "glue",
    tasks=(
        Task("cola", "CoLA", "glue", "classes", ("sentence",), ("matthews",),
             labels=("unacceptable", "acceptable")),
        Task("sst2", "SST-2", "glue", "classes", ("sentence",), ("accuracy",),
             labels=("negative", "positive")),
        Task("stsb", "STS-B", "glue", "number", ("sentence1", "sentence2"),
             ("pearson", "spearman"), is_symmetric=True, numbers=(0.0, 5.0)),
        Task("rte", "RTE", "glue", "classes", ("sentence1", "sentence2"), ("accuracy",),
             labels=_ENTAILMENT),
    ),
    find=_find,
    read=_read,
)  # fmt: skip
