"""Where the files of SQuAD lie, and of which version they are."""

import re
from collections import defaultdict
from pathlib import Path

from sublayer.files.lines import read_start
from sublayer.files.storage import open_file
from sublayer.tasks.finding import entries, one_copy
from sublayer.tasks.name_words import split_in_name, unpacked_name, words_of
from sublayer.tasks.records import read_records
from sublayer.tasks.suite import Found
from sublayer.tasks.task import Task

_SUFFIXES = {".json", ".jsonl", ".ndjson", ".parquet"}
_OFFICIAL = re.compile(r"(train|dev)-v[12]\.\d\.json")
_BELOW = ("", "data", "plain_text", "squad_v2", "default")
_SHARD = re.compile(r"[-_]\d+[-_]of[-_]\d+")
_NAMED = re.compile(
    r"(?:(?<![a-z])v|squad[-_. ]?v?)([12])(?:[._]?[01])?(?!\d)|(?<!\d)([12])\.[01](?!\d)"
)
_WRITTEN = re.compile(rb'"version"\s*:\s*"?v?([12])')
_PASSAGES = re.compile(rb'"(context|paragraphs)"')
_READ_BYTES = 1 << 16
# What scripts write beside the files.
_OUTPUTS = {"predictions", "nbest", "odds", "preds", "eval"}


def find_squad(task: Task, folder: Path) -> Found:
    """Find the files of a version of SQuAD, in the first place that has any.

    Places are folders called SQuAD, with or without a version, and ``folder`` itself. Files are
    called as the publisher's, ``train-v1.1.json``, or else have train, dev or validation among the
    words of their names; those of the other version are left out, by the name, that of the folder,
    or what a file says itself, and where no name says SQuAD those that have no passages.
    """
    named = [child for child in entries(folder) if child.is_dir() and _is_squad(child)]
    for place in (*named, folder):
        for below in _BELOW:
            if (place / below).is_dir():
                found = _splits(place / below, "2" if task.has_unanswerable else "1")
                if found:
                    return found
    return {}


def _is_squad(path: Path) -> bool:
    return "squad" in path.name.lower()


def _splits(folder: Path, version: str) -> Found:
    files = defaultdict(list)
    for path in entries(folder):
        split = _split(path)
        if split and _version(path) in (version, "") and _may_be_squad(path):
            files[split].append(path)
    return {split: _copy(files[split]) for split in ("train", "dev") if split in files}


def _split(path: Path) -> str:
    return "" if _OUTPUTS.intersection(words_of(path.stem)) else split_in_name(path, _SUFFIXES)


def _version(path: Path) -> str:
    """Return 1 or 2, or nothing where neither the names nor the file say which."""
    for name in (_SHARD.sub("", unpacked_name(path)), path.parent.name.lower()):
        versions = {next(filter(None, match.groups())) for match in _NAMED.finditer(name)}
        if len(versions) == 1:
            return str(versions.pop())
    if path.suffix == ".json":
        for part in (read_start(path, _READ_BYTES), _end(path)):
            match = _WRITTEN.search(part)
            if match:
                return match[1].decode()
    return ""


def _may_be_squad(path: Path) -> bool:
    parents = (path.parent.resolve(), path.parent.resolve().parent)
    if _OFFICIAL.fullmatch(unpacked_name(path)) or any(map(_is_squad, (path, *parents))):
        return True
    if path.suffix == ".parquet":
        first = next(read_records(path), None)
        return first is not None and "context" in first.values
    return _PASSAGES.search(read_start(path, _READ_BYTES)) is not None


def _end(path: Path) -> bytes:
    with open_file(path) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _READ_BYTES))
        return file.read()


def _copy(paths: list[Path]) -> tuple[Path, ...]:
    official = [path for path in paths if _OFFICIAL.fullmatch(unpacked_name(path))]
    return one_copy(official or paths)
