"""RACE: questions with four options about passages of English exams. Source: Lai et al. 2017."""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from json import JSONDecoder
from pathlib import Path

from sublayer.counts import count
from sublayer.errors import DataError
from sublayer.files.lines import decoded, read_lines
from sublayer.files.parsing import parse_json
from sublayer.tasks.finding import (
    FileLayout,
    entries,
    find_in_first,
    one_copy,
    split_in_name,
    words_of,
)
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import Record, read_records
from sublayer.tasks.releases import Release
from sublayer.tasks.rows import AnswerFile, Found, PredictedRows, Published, as_json_object
from sublayer.tasks.task import Example, Task
from sublayer.tasks.wording import Wording, answered

LEVELS = ("middle", "high")
"""The schools of which the exams are, as files, folders and ids name them."""

_SUFFIXES = {".jsonl", ".ndjson", ".json", ".parquet"}
_JOINED = "all.txt"
_KEYS = {"article", "options"}


def level_of(path: Path) -> str:
    """Return the level in the name of a file or its folder; empty without one."""
    for words in (words_of(path.stem), words_of(path.parent.name)):
        levels = [level for level in LEVELS if level in words]
        if len(levels) == 1:
            return levels[0]
    return ""


def _is_race(name: str) -> bool:
    return "race" in words_of(name)


def _published(root: Path, levels: tuple[str, ...]) -> dict[str, tuple[Path, ...]]:
    by_split = {}
    for split in ("train", "dev", "test"):
        of_levels = [_texts(root / split / level) for level in levels]
        if all(of_levels):
            by_split[split] = tuple(path for paths in of_levels for path in paths)
    return by_split


def _texts(folder: Path) -> list[Path]:
    texts = [path for path in entries(folder) if path.suffix == ".txt"]
    joined = folder / _JOINED
    return [joined] if joined in texts else sorted(texts, key=_number)


def _number(path: Path) -> tuple[int, str]:
    number = re.search(r"\d+", path.stem)
    return (int(number[0]) if number else 0, path.name)


def _records(root: Path, levels: tuple[str, ...]) -> dict[str, tuple[Path, ...]]:
    """Return the files of each split: one for each level, or else one that holds both."""
    files = defaultdict(list)
    for folder in (root, *(root / below for below in (*LEVELS, "all"))):
        for path in entries(folder):
            split = split_in_name(path, _SUFFIXES)
            if split and _may_be_race(path):
                files[split, level_of(path)].append(path)
    by_split = {}
    for split in ("train", "dev", "test"):
        of_levels = [files[split, level] for level in levels]
        if not all(of_levels):
            of_levels = [files[split, ""]]
        paths = [path for of_level in of_levels for path in one_copy(of_level)]
        if paths:
            by_split[split] = tuple(paths)
    return by_split


def _may_be_race(path: Path) -> bool:
    try:
        first = next(read_records(path), None)
    except DataError:
        return _is_race(path.parent.name) or _is_race(path.stem)
    return first is not None and set(first.values) >= _KEYS


_LETTERS = "ABCDEFGHIJ"


def _rows(path: Path) -> Iterator[Record]:
    """Read the objects of a text, one behind the other."""
    decoder = JSONDecoder()
    for line, data in read_lines(path):
        location = f"{path}:{line}"
        text = decoded(path, line, data).strip()
        while text:
            try:
                _, stop = decoder.raw_decode(text)
            except (ValueError, RecursionError):
                stop = len(text)  # which is said with its reason below
            content = parse_json(text[:stop], location, DataError)
            if not isinstance(content, dict):
                raise DataError(f"{location} is {type(content).__name__}, not an object of JSON")
            yield Record(path, line, content)
            text = text[stop:].lstrip()


def _questions(row: Record) -> list[tuple[str, Sequence[str], str | None]]:
    """Return questions, options and answers: of a passage, or of a row for each, as the hub has."""
    if row.has("question"):
        answer = row.text("answer") if row.has("answer") else None
        return [(row.text("question"), row.texts("options"), answer)]
    questions, options = row.texts("questions"), row.lists("options")
    answers = row.texts("answers") if row.has("answers") else [None] * len(questions)
    if not len(questions) == len(options) == len(answers):
        raise DataError(
            f"{row.place} has questions, options and answers of {len(questions)}, {len(options)} "
            f"and {len(answers)}: they belong together one by one"
        )
    return list(zip(questions, options, answers, strict=True))


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

    def find(self, folder: Path, others: Sequence[FileLayout] = ()) -> Found:
        """Find the files of a level, or of both, in the first place that has any.

        In folders called RACE, and in ``folder`` itself, lie the publisher's, a passage each,
        ``train/middle/1.txt``, or joined, ``train/middle/all.txt``, which are read instead of them;
        or records, with the split among the words of their names, and the level there, in that of
        their folder, or in the ids of their rows. Of both levels a split is found where both are.
        """

        def find(root: Path) -> dict[str, tuple[Path, ...]]:
            return _published(root, self.levels) or _records(root, self.levels)

        return find_in_first(folder, _is_race, ("", "RACE", "data", "default"), find)

    def may_be(self, split: str, path: Path) -> bool:
        """Return whether a file may hold questions."""
        return _may_be_race(path)

    def records(self, path: Path) -> Iterator[Record]:
        """Read the rows of a file."""
        return _rows(path) if path.suffix == ".txt" else read_records(path)

    def add(self, row: Record, result: ReadSplit) -> None:
        """Add the questions of a row; skip the other level's."""
        assert isinstance(row.path, Path), "rows are of files"
        id_, level = row.text("id" if row.has("id") else "example_id"), level_of(row.path)
        level = level or next((prefix for prefix in LEVELS if id_.startswith(prefix)), "")
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
            letters = tuple(_LETTERS[: len(options)])
            if answer is not None and answer not in letters:
                raise DataError(f"{row.place}: {answer!r} is no answer of {', '.join(letters)}")
            # The rows of a passage may stand apart.
            number = result.numbers[id_]
            result.numbers[id_] += 1
            example = Example(
                id=f"{id_}.{number}",
                fields={"article": article, "question": question},
                label=None if answer is None else letters.index(answer),
                choices=tuple(options),
                is_labelled=answer is not None,
                source=article,
            )
            result.add_known(example, row, "answer", "answers")

    def answer_files(
        self, file: AnswerFile, answered: PredictedRows, notes: list[str]
    ) -> Mapping[str, str]:
        """Return an object of ids and letters, and the same as CSV.

        A prediction that is none of the options is A. Its authors take no file, so its form is
        ours.
        """
        letters = {row.id: _LETTERS[int(given.label or 0)] for row, given in answered}
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([("id", "answer"), *letters.items()])
        if n_outside := sum(given.label is None for _, given in answered):
            notes.append(
                f"{self.task.title} ({file.split}): {count(n_outside, 'question')} answered with "
                "none of the options; A is written"
            )
        return {file.name: as_json_object(letters), "answers.csv": table.getvalue()}


RACE = tuple(
    Race(
        task=Task(name, title, "race", "choice", ("article", "question"), ("accuracy", *metrics)),
        layout=FileLayout(("RACE",)),
        levels=levels,
        wording=partial(
            Wording,
            name="race",
            fill=answered,
            pair=("{article}", "{filled}"),
            cut="first",
            second_tokens=128,
            ranks="keys",
            first=("question",),
            last=("article",),
            n_choices=4,
            parts={"article": "article", "question": "question with _"},
        ),
        release=Release.of(
            "race",
            {
                "http://www.cs.cmu.edu/~glai1/data/race/RACE.tar.gz": (
                    "b2769cc9fdc5c546a693300eb9a966cec6870bd349fbc44ed5225f8ad33006e5"
                )
            },
            keeps=r"[^/]+/(train|dev|test)/(middle|high)/[^/]+\.txt",
        ),
        submission=(AnswerFile("answers.json"),),
    )
    for name, title, levels, metrics in (
        ("race_middle", "RACE middle", ("middle",), ()),
        ("race_high", "RACE high", ("high",), ()),
        ("race", "RACE", LEVELS, LEVELS),
    )
)
"""Wording: the question with the option in its blanks, of which the last 128 tokens are read, after
the article, which gives way (ALBERT). Traversals, whose blanks are not filled, are GPT-1's. As text
to text question and options stand before the article."""
