"""DPR: which of two nouns a pronoun stands for. Source: Rahman and Ng 2012."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sublayer.errors import DataError
from sublayer.files.lines import decoded, read_lines
from sublayer.tasks.example import Example
from sublayer.tasks.finding import Layout, check_shards, find_splits
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import read_records, suffix_of
from sublayer.tasks.suite import Found, Suite
from sublayer.tasks.task import Task

_LINES = 4
_NO_PRONOUN = "a sentence without its pronoun"
_NOT_TWO = "not two candidates, with a comma between them"
_NEITHER = "an answer that is neither candidate"
_OTHER_CASE = "an answer whose capitals are not the candidate's"
_LAYOUT = Layout(
    ("DPR", "definite_pronoun_resolution", "wsc_dpr"),
    below=("", "data", "plain_text"),
    own={"train.c.txt": "train", "test.c.txt": "test"},
)


@dataclass(frozen=True, slots=True)
class _Row:
    place: str
    sentence: str
    pronoun: str
    candidates: tuple[str, ...]
    answer: str


def _find(task: Task, folder: Path) -> Found:
    found = find_splits(folder, _LAYOUT, _may_be)
    return {split: found[split] for split in task.splits if split in found}


def _may_be(split: str, path: Path) -> bool:
    try:
        first = next(read_records(path), None)
    except DataError:
        # Files in blocks have names of their own.
        return path.name.lower() in _LAYOUT.own
    return first is not None and {"sentence", "pronoun", "candidates"} <= first.values.keys()


def _read(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    check_shards(paths)
    result = ReadSplit(split, paths)
    n_rows = 0
    for path in paths:
        before = n_rows
        rows = _records(task, path) if suffix_of(path) != ".txt" else _blocks(path, result)
        for row in rows:
            _add(result, row, n_rows)
            n_rows += 1
        if n_rows == before:
            raise DataError(f"{path} has no rows of {task.title}")
    return result


def _blocks(path: Path, result: ReadSplit) -> Iterator[_Row]:
    """Read blocks of a sentence, a pronoun, the candidates and the answer, with an empty line."""
    block: list[str] = []
    for line, text in _with_end(path):
        if text:
            block.append(text)
            continue
        place = f"{path}:{line - len(block)}"
        if len(block) == _LINES:
            sentence, pronoun, candidates, answer = block
            parts = tuple(part.strip() for part in candidates.split(",", 1))
            yield _Row(place, sentence, pronoun, parts, answer)
        elif block:
            result.skip(f"a block of another number of lines than {_LINES}", place)
        block = []


def _with_end(path: Path) -> Iterator[tuple[int, str]]:
    line = 0
    for line, data in read_lines(path):
        yield line, decoded(path, line, data).strip()
    yield line + 1, ""


def _records(task: Task, path: Path) -> Iterator[_Row]:
    """Read the hub's rows, whose label is the index of the right candidate."""
    for record in read_records(path):
        candidates = record.value("candidates")
        label = record.value("label")
        if not isinstance(candidates, list) or not all(isinstance(x, str) for x in candidates):
            raise DataError(f"{record.place}: candidates is no list of texts")
        if label not in range(len(candidates)):
            raise DataError(f"{record.place}: {label!r} is no label of {task.title}: 0 or 1")
        yield _Row(
            record.place,
            record.text("sentence"),
            record.text("pronoun"),
            tuple(candidates),
            candidates[label],
        )


def _add(result: ReadSplit, row: _Row, number: int) -> None:
    if not re.search(rf"\b{re.escape(row.pronoun)}\b", row.sentence, re.IGNORECASE):
        result.skip(_NO_PRONOUN, row.place)
        return
    if len(row.candidates) != 2 or not all(row.candidates):
        result.skip(_NOT_TWO, row.place)
        return
    label = _index(row.candidates, row.answer)
    if label is None:
        plain = tuple(candidate.casefold() for candidate in row.candidates)
        label = _index(plain, row.answer.casefold())
        if label is None:
            result.skip(_NEITHER, row.place)
            return
        result.repair(_OTHER_CASE, row.place)
    example = Example(
        id=str(number),
        fields={"text": row.sentence, "pronoun": row.pronoun},
        choices=row.candidates,
        label=label,
        # Sentences come in twos, of the same candidates, one for each of them.
        source=", ".join(row.candidates).casefold(),
    )
    result.add(example, row)


def _index(candidates: tuple[str, ...], answer: str) -> int | None:
    return candidates.index(answer) if answer in candidates else None


DPR = Suite(
    "dpr",
    tasks=(
        Task("dpr", "DPR", "dpr", "choice", ("text", "pronoun"), ("accuracy",),
             splits=("train", "test")),
    ),
    find=_find,
    files={"dpr": _LAYOUT.described()},
    read=_read,
)  # fmt: skip
