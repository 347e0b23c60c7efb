"""RACE: questions with four options about passages of English exams. Source: Lai et al. 2017."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from json import JSONDecoder
from pathlib import Path

from sublayer.errors import DataError
from sublayer.files.lines import decoded, read_lines
from sublayer.files.parsing import parse_json
from sublayer.tasks.finding import check_shards, entries, one_copy, split_in_name, words_of
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import read_records
from sublayer.tasks.rows import Found, Nested, Published, add_known
from sublayer.tasks.task import Example, Task
from sublayer.tasks.wording import ChoiceWording, PairRow, answered

LEVELS = ("middle", "high")
"""The schools of which the exams are, as files, folders and ids name them."""

_SUFFIXES = {".jsonl", ".ndjson", ".json", ".parquet"}
_JOINED = "all.txt"
_KEYS = {"article", "options"}


def _find(levels: tuple[str, ...], folder: Path) -> Found:
    """Find the files of a level, or of both, in the first place that has any.

    Places are folders called RACE, and ``folder`` itself. In them lie the publisher's, a passage
    each, ``train/middle/1.txt``, or joined, ``train/middle/all.txt``, which are read instead of
    them; or records, with the split among the words of their names, and the level there, in that of
    their folder, or in the ids of their rows. Of both levels a split is found where both are.
    """
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


_LETTERS = "ABCDEFGHIJ"


def _rows(path: Path) -> Iterator[Nested]:
    """Read the objects of a file: a row each, or in a text one behind the other."""
    if path.suffix != ".txt":
        for record in read_records(path):
            yield Nested(record.place, "", record.values)
        return
    decoder = JSONDecoder()
    for line, data in read_lines(path):
        place = f"{path}:{line}"
        text = decoded(path, line, data).strip()
        while text:
            try:
                _, stop = decoder.raw_decode(text)
            except (ValueError, RecursionError):
                stop = len(text)  # which is said with its reason below
            content = parse_json(text[:stop], place, DataError)
            if not isinstance(content, dict):
                raise DataError(f"{place} is {type(content).__name__}, not an object of JSON")
            yield Nested(place, "", content)
            text = text[stop:].lstrip()


def _questions(row: Nested) -> list[tuple[str, Sequence[str], str | None]]:
    """Return questions, options and answers: of a passage, or of a row for each, as the hub has."""
    if row.has("question"):
        answer = row.text("answer") if row.has("answer") else None
        return [(row.text("question"), row.texts("options"), answer)]
    questions = row.texts("questions")
    answers = row.texts("answers") if row.has("answers") else [None] * len(questions)
    options = _lists(row, "options")
    if not len(questions) == len(options) == len(answers):
        raise DataError(
            f"{row.place} has questions, options and answers of {len(questions)}, {len(options)} "
            f"and {len(answers)}: they belong together one by one"
        )
    return list(zip(questions, options, answers, strict=True))


def _lists(row: Nested, name: str) -> list[tuple[str, ...]]:
    values = row.get(name)
    if not isinstance(values, list):
        row.texts(name)  # whose error names the type
    names = [f"{name}[{index}]" for index in range(len(values))]
    inner = Nested(row.whole_place, row.path, dict(zip(names, values, strict=True)))
    return [inner.texts(each) for each in names]


def _label(answer: str | None, options: Sequence[str], row: Nested) -> int | None:
    letters = _LETTERS[: len(options)]
    if answer is None:
        return None
    if len(answer) != 1 or answer not in letters:
        raise DataError(f"{row.place}: {answer!r} is no answer of {', '.join(letters)}")
    return letters.index(answer)


class RaceWording(ChoiceWording):
    """Wording of RACE: the question with the option in its blanks, of which the last 128 tokens are
    read, after the article, which gives way (ALBERT).

    Traversals, whose blanks are not filled, are GPT-1's. As text to text question and options stand
    before the article.
    """

    n_choices = 4

    def choice_row(self, texts: Sequence[str], choice: str) -> PairRow:
        """Return the article, then the question with its option."""
        article, question = texts
        return PairRow(article, answered(question, choice), cut="first", second_tokens=128)

    def text_input(self, example: Example) -> str:
        """Return question, options and article."""
        texts = {**example.fields, **self.numbered(example)}
        return self.keyed(texts, first=("question",), last=("article",))


@dataclass(frozen=True, kw_only=True)
class Race(Published):
    """The exams of one school, or of both."""

    levels: tuple[str, ...]

    @property
    def files(self) -> str:
        """Return the names of the publisher's files, and of copies."""
        return (
            "RACE/train, dev and test, with folders middle and high of .txt; or files of JSON, "
            "JSON lines or Parquet with train, dev or validation, and test in their names"
        )

    def find(self, folder: Path) -> Found:
        """Find the files of its levels."""
        return _find(self.levels, folder)

    def read(self, split: str, paths: tuple[Path, ...]) -> ReadSplit:
        """Read the questions of a split; those of the other level are passed by."""
        for folder in {path.parent for path in paths}:
            check_shards(tuple(path for path in paths if path.parent == folder))
        result = ReadSplit(split, paths)
        n_before: Counter[str] = Counter()  # questions of each passage, whose rows may stand apart
        for path in paths:
            is_empty = True
            for row in _rows(path):
                is_empty = False
                self._add(row, level_of(path), n_before, result)
            if is_empty:
                raise DataError(f"{path} is empty")
        return result

    def _add(self, row: Nested, level: str, n_before: Counter[str], result: ReadSplit) -> None:
        id_ = row.text("id" if row.has("id") else "example_id")
        level = level or next((each for each in LEVELS if id_.startswith(each)), "")
        if self.levels != LEVELS and level not in self.levels:
            if not level:
                raise DataError(
                    f"{row.place}: {id_!r} begins with neither of {', '.join(LEVELS)}, nor does a "
                    "folder or the file say which it is"
                )
            return
        if self.levels == LEVELS and level and not id_.startswith(level):
            id_ = f"{level}/{id_}"  # by which the metrics of a school know it
        article = row.text("article")
        for question, options, answer in _questions(row):
            number = n_before[id_]
            n_before[id_] += 1
            example = Example(
                id=f"{id_}.{number}",
                fields={"article": article, "question": question},
                label=_label(answer, options, row),
                choices=tuple(options),
                is_labelled=answer is not None,
                source=article,
            )
            add_known(result, example, row)


RACE = tuple(
    Race(
        task=Task(name, title, "race", "choice", ("article", "question"), ("accuracy", *metrics)),
        levels=levels,
        wording=partial(
            RaceWording,
            name="race",
            parts={"article": "article", "question": "question with _"},
        ),
    )
    for name, title, levels, metrics in (
        ("race_middle", "RACE middle", ("middle",), ()),
        ("race_high", "RACE high", ("high",), ()),
        ("race", "RACE", LEVELS, LEVELS),
    )
)
