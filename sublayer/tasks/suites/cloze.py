"""Story Cloze: which of two endings belongs to a story. Source: Mostafazadeh et al. 2016."""

import re
from pathlib import Path

from sublayer.errors import DataError
from sublayer.tasks.columns import UNLABELLED
from sublayer.tasks.example import Example
from sublayer.tasks.finding import Layout, check_shards, find_splits
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import Record, named, read_records
from sublayer.tasks.suite import Found, Suite
from sublayer.tasks.task import Task

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
