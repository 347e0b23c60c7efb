"""SuperGLUE: eight tasks and two diagnostic sets. Source: Wang et al. 2019 (1905.00537)."""

from collections.abc import Callable
from pathlib import Path

from sublayer.errors import DataError
from sublayer.tasks.finding import Layout, find_splits
from sublayer.tasks.nested import Nested, read_nested
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import Record
from sublayer.tasks.suite import Found, Suite
from sublayer.tasks.suites.multirc import read_multirc
from sublayer.tasks.suites.record import read_record
from sublayer.tasks.suites.superglue_rows import RTE_FILES, read_row, superglue_records
from sublayer.tasks.suites.wic import read_wic
from sublayer.tasks.suites.wsc import read_wsc
from sublayer.tasks.task import Task

_SUITE = ("SuperGLUE", "superglue_data")
_ENTAILMENT = ("entailment", "not_entailment")
_TRUTH = ("False", "True")

_LAYOUTS = {
    "boolq": Layout(("BoolQ",), _SUITE),
    "cb": Layout(("CB",), _SUITE),
    "copa": Layout(
        ("COPA",),
        _SUITE,
        own={"copa-dev.xml": "dev", "copa-test.xml": "test"},
        below=("", "data", "default", "datasets"),
    ),
    "multirc": Layout(
        ("MultiRC", "multirc-v2"),
        _SUITE,
        own={"train_456-fixedIds.json": "train", "dev_83-fixedIds.json": "dev"},
        below=("", "data", "default", "splitv2"),
    ),
    "record": Layout(("ReCoRD",), _SUITE),
    "sg_rte": Layout(("RTE", "sg_rte"), _SUITE, joint=RTE_FILES),
    "wic": Layout(
        ("WiC", "WiC_dataset"),
        _SUITE,
        own={f"{split}.data.txt": split for split in ("train", "dev", "test")},
    ),
    "wsc": Layout(("WSC", "wsc.fixed"), _SUITE, own={"WSCollection.xml": "dev"}),
    "axb": Layout(("AX-b",), _SUITE, own={"ax-b.jsonl": "dev"}),
    "axg": Layout(("AX-g",), _SUITE, own={"ax-g.jsonl": "dev"}),
}
_KEYS = {
    "copa": ({"premise", "choice1", "choice2", "question"},),
    "multirc": (
        {"passage", "idx", "version"},
        {"paragraph", "question", "answer"},
        {"paragraph", "id"},
    ),
    "record": ({"passage", "qas"}, {"passage", "query", "entities"}),
    "wsc": ({"text", "target"}, {"text", "span1_text", "span2_text"}),
}
"""What rows have, as published and in the hub's copies; of all others their fields."""
_READERS: dict[str, Callable[[Task, Nested, ReadSplit], None]] = {
    "multirc": read_multirc,
    "record": read_record,
    "wic": read_wic,
    "wsc": read_wsc,
}


def _find(task: Task, folder: Path) -> Found:
    found = find_splits(folder, _LAYOUTS[task.name], lambda split, path: _may_be(task, path))
    if task.splits == ("dev",) and "test" in found:
        # So the hub's copies call a diagnostic set, with its labels.
        found.setdefault("dev", found["test"])
    if task.name == "sg_rte" and not all(_may_be(task, paths[0]) for paths in found.values()):
        return {}  # GLUE's, whose folder has the same name
    return {split: found[split] for split in task.splits if split in found}


def _may_be(task: Task, path: Path) -> bool:
    """Return whether a file's first row has what a task's rows have."""
    try:
        first = next(superglue_records(path), None)
    except DataError:
        return False
    return first is not None and _has_keys(task, first)


def _has_keys(task: Task, record: Record) -> bool:
    keys = _KEYS.get(task.name, (set(task.fields),))
    return any(each <= set(record.values) for each in keys)


def _read(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    read = _READERS.get(task.name, read_row)
    return read_nested(split, paths, lambda row, result: read(task, row, result), superglue_records)


SUPERGLUE = Suite(
    "superglue",
    tasks=(
        Task("boolq", "BoolQ", "superglue", "classes", ("passage", "question"), ("accuracy",),
             labels=_TRUTH),
        Task("cb", "CB", "superglue", "classes", ("premise", "hypothesis"),
             ("macro_f1", "accuracy"), labels=("entailment", "contradiction", "neutral")),
        Task("copa", "COPA", "superglue", "choice", ("premise", "question"), ("accuracy",)),
        Task("multirc", "MultiRC", "superglue", "classes", ("paragraph", "question", "answer"),
             ("f1a", "group_exact_match"), labels=_TRUTH),
        Task("record", "ReCoRD", "superglue", "choice", ("passage", "query"),
             ("token_f1", "exact_match")),
        Task("sg_rte", "RTE", "superglue", "classes", ("premise", "hypothesis"), ("accuracy",),
             labels=_ENTAILMENT),
        Task("wic", "WiC", "superglue", "classes", ("sentence1", "sentence2", "word"),
             ("accuracy",), labels=_TRUTH),
        Task("wsc", "WSC", "superglue", "classes", ("text", "span1_text", "span2_text"),
             ("accuracy",), labels=_TRUTH),
        Task("axb", "AX-b", "superglue", "classes", ("sentence1", "sentence2"), ("matthews",),
             labels=_ENTAILMENT, splits=("dev",), trained_as="sg_rte"),
        Task("axg", "AX-g", "superglue", "classes", ("premise", "hypothesis"),
             ("accuracy", "gender_parity"), labels=_ENTAILMENT, splits=("dev",),
             trained_as="sg_rte"),
    ),
    find=_find,
    read=_read,
    files={name: layout.described() for name, layout in _LAYOUTS.items()},
)  # fmt: skip
