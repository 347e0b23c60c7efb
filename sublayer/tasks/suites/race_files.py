"""Where the files of RACE lie, and of which level they are."""

import re
from collections import defaultdict
from pathlib import Path

from sublayer.errors import DataError
from sublayer.tasks.finding import entries, one_copy
from sublayer.tasks.name_words import split_in_name, words_of
from sublayer.tasks.records import read_records
from sublayer.tasks.suite import Found
from sublayer.tasks.task import Task

LEVELS = ("middle", "high")
"""The schools of which the exams are, as files, folders and ids name them."""

_SUFFIXES = {".jsonl", ".ndjson", ".json", ".parquet"}
_JOINED = "all.txt"
_KEYS = {"article", "options"}


def find_race(task: Task, folder: Path) -> Found:
    """Find the files of a level, or of both, in the first place that has any.

    Places are folders called RACE, and ``folder`` itself. In them lie the publisher's, a passage
    each, ``train/middle/1.txt``, or joined, ``train/middle/all.txt``, which are read instead of
    them; or records, with the split among the words of their names, and the level there, in that
    of their folder, or in the ids of what they hold. Of both levels a split is found where both
    are.
    """
    levels = LEVELS if task.name == "race" else (task.name.removeprefix("race_"),)
    named = [child for child in entries(folder) if child.is_dir() and _is_race(child)]
    for place in (*named, folder):
        for below in ("", "RACE", "data", "default"):
            found = _published(place / below, levels) or _records(place / below, levels)
            if found:
                return found
    return {}


def level_of(path: Path) -> str:
    """Return the level that a file's name says, or that of its folder; empty where neither does."""
    for words in (words_of(path.stem), words_of(path.parent.name)):
        levels = [level for level in LEVELS if level in words]
        if len(levels) == 1:
            return levels[0]
    return ""


def _is_race(folder: Path) -> bool:
    return "race" in words_of(folder.name)


def _published(place: Path, levels: tuple[str, ...]) -> Found:
    found = {}
    for split in ("train", "dev", "test"):
        of_levels = [_texts(place / split / level) for level in levels]
        if all(of_levels):
            found[split] = tuple(path for paths in of_levels for path in paths)
    return found


def _texts(folder: Path) -> list[Path]:
    texts = [path for path in entries(folder) if path.suffix == ".txt"]
    joined = folder / _JOINED
    return [joined] if joined in texts else sorted(texts, key=_number)


def _number(path: Path) -> tuple[int, str]:
    number = re.search(r"\d+", path.stem)
    return (int(number[0]) if number else 0, path.name)


def _records(place: Path, levels: tuple[str, ...]) -> Found:
    """Return the files of each split: one for each level, or else one that holds both."""
    files = defaultdict(list)
    for folder in (place, *(place / below for below in (*LEVELS, "all"))):
        for path in entries(folder):
            split = split_in_name(path, _SUFFIXES)
            if split and _may_be_race(path):
                files[split, level_of(path)].append(path)
    found = {}
    for split in ("train", "dev", "test"):
        of_levels = [files[split, level] for level in levels]
        if not all(of_levels):
            of_levels = [files[split, ""]]
        paths = [path for of_level in of_levels for path in one_copy(of_level)]
        if paths:
            found[split] = tuple(paths)
    return found


def _may_be_race(path: Path) -> bool:
    try:
        first = next(read_records(path), None)
    except DataError:
        return _is_race(path.parent) or "race" in words_of(path.stem)
    return first is not None and set(first.values) >= _KEYS
