"""Story Cloze: which of two endings belongs to a story. Source: Mostafazadeh et al. 2016.

DPR: which of two nouns a pronoun stands for. Source: Rahman and Ng 2012.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sublayer.errors import DataError
from sublayer.files.lines import decoded, read_lines
from sublayer.tasks.finding import Layout, check_shards, find_splits
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import Record, named, read_records, suffix_of
from sublayer.tasks.rows import UNLABELLED, Found, Suite
from sublayer.tasks.task import Example, Task

_NAMES: tuple[tuple[str, ...], ...] = (
    (
        *("InputStoryid", "InputSentence1", "InputSentence2", "InputSentence3", "InputSentence4"),
        *("RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2", "AnswerRightEnding"),
    ),
    (
        *("story_id", "input_sentence_1", "input_sentence_2", "input_sentence_3"),
        *("input_sentence_4", "sentence_quiz1", "sentence_quiz2", "answer_right_ending"),
    ),
)
"""The publisher's names of the columns, and the hub's. Other tables are read by place."""
_N_COLUMNS = 8
_N_UNLABELLED = 7
_LAYOUT = Layout(("Story Cloze", "cloze", "ROCStories"), below=("", "data", "2016"))
_PUBLISHED = re.compile(r"cloze_test_(?P<split>val|test)(?P<year>.*)\.csv", re.IGNORECASE)
_SPLITS = {"val": "dev", "test": "test"}


def _find(task: Task, folder: Path) -> Found:
    places = [folder, *(each for each in sorted(folder.iterdir()) if _LAYOUT.is_named(each.name))]
    for place in places:
        found = _published(place)
        if found:
            return found
    found = find_splits(folder, _LAYOUT, _may_be)
    return {split: found[split] for split in task.splits if split in found}


def _published(place: Path) -> dict[str, tuple[Path, ...]]:
    """Return the files that bear the publisher's names, those of spring 2016 before later ones."""
    found: dict[str, tuple[Path, ...]] = {}
    paths = sorted(place.iterdir()) if place.is_dir() else []
    for path in sorted(paths, key=lambda path: ("2016" not in path.name, path.name)):
        match = _PUBLISHED.fullmatch(path.name)
        if match:
            found.setdefault(_SPLITS[match["split"].lower()], (path,))
    return found


def _may_be(split: str, path: Path) -> bool:
    try:
        first = next(read_records(path), None)
    except DataError:
        return False
    return first is not None and any(set(names[:-1]) <= first.values.keys() for names in _NAMES)


def _read(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    check_shards(paths)
    result = ReadSplit(split, paths)
    for path in paths:
        n_before = len(result.examples) + result.skipped.total()
        for record in read_records(path):
            if record.problem:
                result.skip(record.problem, record.place)
            else:
                _add(task, result, record)
        if len(result.examples) + result.skipped.total() == n_before:
            raise DataError(f"{path} has no rows")
    return result


def _add(task: Task, result: ReadSplit, record: Record) -> None:
    names = _columns(task, record)
    id_, *texts = names[:_N_UNLABELLED]
    sentences = [record.text(name) for name in texts]
    label = None
    if len(names) == _N_COLUMNS:
        label = _label(task, record.value(names[-1]), record)
    if label is None and not result.name.startswith("test"):
        result.skip(UNLABELLED, record.place)
        return
    example = Example(
        id=str(record.value(id_)),
        fields={"story": " ".join(sentences[:-2])},
        choices=tuple(sentences[-2:]),
        label=label,
        is_labelled=label is not None,
    )
    result.add(example, record)


def _columns(task: Task, record: Record) -> tuple[str, ...]:
    for names in _NAMES:
        if set(names[:-1]) <= record.values.keys():
            return names if names[-1] in record.values else names[:-1]
    names = tuple(record.values)
    if len(names) not in (_N_COLUMNS, _N_UNLABELLED):
        raise DataError(
            f"{record.path} has {len(names)} columns, {named(names)}: {task.title} has an id, four "
            "sentences, two endings and which of them is right, in this order"
        )
    return names


def _label(task: Task, written: object, record: Record) -> int | None:
    number = str(written).strip()
    if written is None or number in ("", "-1"):
        return None
    if number not in ("1", "2"):
        raise DataError(f"{record.place}: {written!r} is no right ending of {task.title}: 1 or 2")
    return int(number) - 1


CLOZE = Suite(
    "cloze",
    tasks=(
        Task("story_cloze", "Story Cloze", "cloze", "choice", ("story",), ("accuracy",),
             splits=("dev", "test")),
    ),
    find=_find,
    files={"story_cloze": f"cloze_test_val__spring2016.csv and so on; or {_LAYOUT.described()}"},
    read=_read,
)  # fmt: skip


_LINES = 4
_NO_PRONOUN = "a sentence without its pronoun"
_NOT_TWO = "not two candidates, with a comma between them"
_NEITHER = "an answer that is neither candidate"
_OTHER_CASE = "an answer whose capitals are not the candidate's"
_DPR_LAYOUT = Layout(
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


def _dpr_find(task: Task, folder: Path) -> Found:
    found = find_splits(folder, _DPR_LAYOUT, _dpr_may_be)
    return {split: found[split] for split in task.splits if split in found}


def _dpr_may_be(split: str, path: Path) -> bool:
    try:
        first = next(read_records(path), None)
    except DataError:
        # Files in blocks have names of their own.
        return path.name.lower() in _DPR_LAYOUT.own
    return first is not None and {"sentence", "pronoun", "candidates"} <= first.values.keys()


def _dpr_read(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    check_shards(paths)
    result = ReadSplit(split, paths)
    n_rows = 0
    for path in paths:
        before = n_rows
        rows = _records(task, path) if suffix_of(path) != ".txt" else _blocks(path, result)
        for row in rows:
            _dpr_add(result, row, n_rows)
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


def _dpr_add(result: ReadSplit, row: _Row, number: int) -> None:
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
    find=_dpr_find,
    files={"dpr": _DPR_LAYOUT.described()},
    read=_dpr_read,
)  # fmt: skip
