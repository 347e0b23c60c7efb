"""Questions about passages: SQuAD 1.1 and 2.0, and RACE, exams with four options per question.

Sources: Rajpurkar et al. 2016, 2018; Lai et al. 2017.
"""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from json import JSONDecoder
from pathlib import Path
from typing import Any

from sublayer.errors import DataError
from sublayer.files.lines import decoded, read_lines, read_start, unpacked
from sublayer.files.parsing import parse_json
from sublayer.files.storage import open_file
from sublayer.numbers import count
from sublayer.tasks.finding import (
    FileLayout,
    Release,
    entries,
    find_in_first,
    one_copy,
    split_in_name,
    unpacked_name,
    words_of,
)
from sublayer.tasks.published import (
    AnswerFile,
    Found,
    PredictedRows,
    Published,
    ReadSplit,
    as_json_object,
    place_answer,
)
from sublayer.tasks.records import Record, read_records
from sublayer.tasks.task import Example, Task
from sublayer.tasks.wording import Wording, answered

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
_OUTPUTS = {"predictions", "nbest", "odds", "preds", "eval"}
"""Words in the names of files that evaluation scripts write."""
UNANSWERABLE = "no answer in the passage, as only SQuAD 2.0 has"
CONTRADICTORY = "marked as impossible, yet answered"


def _is_squad(name: str) -> bool:
    return "squad" in name.lower()


def _version(path: Path) -> str:
    """Return 1 or 2, by the name of a file or its folder, or by its content; empty for unknown."""
    for name in (_SHARD.sub("", unpacked_name(path)), path.parent.name.lower()):
        versions = {next(filter(None, match.groups())) for match in _NAMED.finditer(name)}
        if len(versions) == 1:
            return str(versions.pop())
    if path.suffix != ".json":
        return ""
    match = _WRITTEN.search(read_start(path, _READ_BYTES))
    if match is None:
        with open_file(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _READ_BYTES))
            match = _WRITTEN.search(file.read())
    return "" if match is None else match[1].decode()


@dataclass(frozen=True, kw_only=True)
class Squad(Published):
    """A version of SQuAD."""

    version: str

    @property
    def files(self) -> str:
        """Return the names of the publisher's files, and of copies."""
        return (
            f"train-v{self.version}.json and dev-v{self.version}.json; or files of JSON, JSON "
            "lines or Parquet with train, and dev or validation in their names"
        )

    def find(self, folder: Path, others: Sequence[FileLayout] = ()) -> Found:
        """Find the files of the version, in the first place that has any.

        Places are folders called SQuAD, with or without a version, and ``folder`` itself. Files
        have the publisher's names, ``train-v1.1.json``, or train, dev or validation as a word of
        their names. Files of the other version are left out, by the name of the file or its folder,
        or by the version in the file; so are files without passages where no name says SQuAD.
        """
        return find_in_first(folder, _is_squad, _BELOW, self._find_in)

    def _find_in(self, root: Path) -> dict[str, tuple[Path, ...]]:
        files = defaultdict(list)
        for path in entries(root):
            is_output = _OUTPUTS.intersection(words_of(path.stem))
            split = "" if is_output else split_in_name(path, _SUFFIXES)
            if split and _version(path) in (self.version[0], "") and self.may_be(split, path):
                files[split].append(path)
        by_split = {}
        for split in ("train", "dev"):
            paths = files.get(split, [])
            official = [path for path in paths if _OFFICIAL.fullmatch(unpacked_name(path))]
            if paths:
                by_split[split] = one_copy(official or paths)
        return by_split

    def may_be(self, split: str, path: Path) -> bool:
        """Return whether a file may hold questions, by its name or its content."""
        folder = path.parent.resolve()
        is_named = any(_is_squad(place.name) for place in (path, folder, folder.parent))
        if is_named or _OFFICIAL.fullmatch(unpacked_name(path)):
            return True
        if path.suffix == ".parquet":
            first = next(read_records(path), None)
            return first is not None and "context" in first.values
        return _PASSAGES.search(read_start(path, _READ_BYTES)) is not None

    def records(self, path: Path) -> Iterator[Record]:
        """Read the questions of a file in the publisher's nested form, or with one row each."""
        is_nested = False
        if ".json" in path.suffixes:
            texts = (decoded(path, line, data).strip() for line, data in read_lines(path))
            first = next(filter(None, texts), "")
            # One nested object, not a list and not a row per line. Inside a text the quotes
            # around a key would be escaped.
            is_nested = first.startswith("{") and ('"data"' in first or '"context"' not in first)
        if not is_nested:
            yield from read_records(path)
            return
        content = parse_json(unpacked(path), str(path), DataError)
        if not isinstance(content, dict):
            raise DataError(f"{path} holds no JSON object")
        for article in Record(path, 0, content).each("data"):
            if not article.has("paragraphs"):
                yield article
                continue
            title = {"title": article.text("title")} if article.has("title") else {}
            for paragraph in article.each("paragraphs"):
                context = paragraph.text("context")
                for question in paragraph.each("qas"):
                    values = {**question.values, **title, "context": context}
                    yield replace(question, values=values)

    def add(self, row: Record, result: ReadSplit) -> None:
        """Add a question; its source is the article's title or, without one, the passage."""
        golds: list[tuple[str, int]] | None = None
        if row.has("answers") and isinstance(row.value("answers"), list):
            answers = row.each("answers")
            golds = [(answer.text("text"), answer.whole("answer_start")) for answer in answers]
        elif row.has("answers"):
            lists = row.inner("answers")
            texts, starts = lists.texts("text"), lists.wholes("answer_start")
            if len(texts) != len(starts):
                n_texts = len(texts)
                raise DataError(
                    f"{lists.place} has {n_texts} of text, {len(starts)} of answer_start"
                )
            golds = list(zip(texts, starts, strict=True))
        context, has_unanswerable = row.text("context"), self.task.has_unanswerable
        is_impossible = row.values.get("is_impossible") is True
        is_impossible = is_impossible or (golds == [] and has_unanswerable)
        if is_impossible and (golds or not has_unanswerable):
            result.skip(CONTRADICTORY if golds else UNANSWERABLE, row.place)
            return
        placed = [place_answer(context, text, start) for text, start in golds or []]
        of_passage = result.kept_answers(placed, row.place)
        if of_passage is None:
            return
        example = Example(
            id=str(row.value("id")),
            fields={"context": context, "question": row.text("question")},
            answers=of_passage,
            is_labelled=bool(placed) or is_impossible,
            source=row.text("title") if row.has("title") else context,
        )
        result.add_known(example, row, "answers")

    def answer_files(
        self, file: AnswerFile, answered: PredictedRows, notes: list[str]
    ) -> Mapping[str, str]:
        """Return answers by question id, empty for none; for 2.0 also the scores of no answer."""
        objects: dict[str, dict[str, Any]] = {file.name: {row.id: p.text for row, p in answered}}
        if self.task.has_unanswerable:
            objects["null_odds.json"] = {row.id: p.no_answer for row, p in answered}
        return {name: as_json_object(values) for name, values in objects.items()}


SQUAD = tuple(
    Squad(
        task=Task(name, f"SQuAD {version}", "squad", "span", ("context", "question"), metrics,
                  has_unanswerable=version == "2.0", splits=("train", "dev")),
        layout=FileLayout(("SQuAD",)),
        version=version,
        release=Release.of(name, {
            f"https://rajpurkar.github.io/SQuAD-explorer/dataset/{split}-v{version}.json": sha256
            for split, sha256 in sums.items()
        }),
        # The publisher keeps the test set; the evaluation script takes predictions for the
        # development set.
        submission=(AnswerFile("predictions.json", split="dev"),),
    )
    for name, version, metrics, sums in (
        ("squad", "1.1", ("exact_match", "token_f1"), {
            "train": "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
            "dev": "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
        }),
        ("squad2", "2.0", ("exact_match_v2", "token_f1_v2"), {
            "train": "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002",
            "dev": "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8",
        }),
    )
)  # fmt: skip

LEVELS = ("middle", "high")
"""School levels of the exams, as files, folders and ids name them."""
_JOINED = "all.txt"
_LETTERS = "ABCDEFGHIJ"


def level_of(path: Path) -> str:
    """Return the level in the name of a file or its folder; empty without one."""
    for words in (words_of(path.stem), words_of(path.parent.name)):
        levels = [level for level in LEVELS if level in words]
        if len(levels) == 1:
            return levels[0]
    return ""


def _is_race(name: str) -> bool:
    return "race" in words_of(name)


def _number(path: Path) -> tuple[int, str]:
    number = re.search(r"\d+", path.stem)
    return (int(number[0]) if number else 0, path.name)


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

        Places are folders called RACE, and ``folder`` itself. They hold the publisher's files, one
        for each passage, ``train/middle/1.txt``, or, preferred, all passages in one,
        ``train/middle/all.txt``; or else records, with the split as a word of their names, and the
        level there, in the folder's name, or in the ids of their rows. With both levels a split
        needs files of each.
        """
        return find_in_first(folder, _is_race, ("", "RACE", "data", "default"), self._find_in)

    def _find_in(self, root: Path) -> dict[str, tuple[Path, ...]]:
        by_split: dict[str, tuple[Path, ...]] = {}
        for split in ("train", "dev", "test"):
            of_levels = []
            for folder in (root / split / level for level in self.levels):
                texts = [path for path in entries(folder) if path.suffix == ".txt"]
                joined = folder / _JOINED
                of_levels.append([joined] if joined in texts else sorted(texts, key=_number))
            if all(of_levels):
                by_split[split] = tuple(chain(*of_levels))
        if by_split:
            return by_split
        files = defaultdict(list)
        for folder in (root, *(root / below for below in (*LEVELS, "all"))):
            for path in entries(folder):
                split = split_in_name(path, _SUFFIXES)
                if split and self.may_be(split, path):
                    files[split, level_of(path)].append(path)
        for split in ("train", "dev", "test"):
            of_levels = [files[split, level] for level in self.levels]
            if not all(of_levels):
                of_levels = [files[split, ""]]  # of both levels
            paths = [path for of_level in of_levels for path in one_copy(of_level)]
            if paths:
                by_split[split] = tuple(paths)
        return by_split

    def may_be(self, split: str, path: Path) -> bool:
        """Return whether a file may hold questions, by its first row."""
        try:
            first = next(read_records(path), None)
        except DataError:
            return _is_race(path.parent.name) or _is_race(path.stem)
        return first is not None and first.values.keys() >= {"article", "options"}

    def records(self, path: Path) -> Iterator[Record]:
        """Read the rows of a file; a ``.txt`` holds JSON objects, one after another."""
        if path.suffix != ".txt":
            yield from read_records(path)
            return
        decoder = JSONDecoder()
        for line, data in read_lines(path):
            location = f"{path}:{line}"
            text = decoded(path, line, data).strip()
            while text:
                try:
                    _, stop = decoder.raw_decode(text)
                except (ValueError, RecursionError):
                    stop = len(text)  # parse_json raises the error, with its reason
                content = parse_json(text[:stop], location, DataError)
                if not isinstance(content, dict):
                    kind = type(content).__name__
                    raise DataError(f"{location} is {kind}, not a JSON object")
                yield Record(path, line, content)
                text = text[stop:].lstrip()

    def add(self, row: Record, result: ReadSplit) -> None:
        """Add the questions of a passage, or of a hub's row the one; skip the other level."""
        assert isinstance(row.path, Path), "rows come from files"
        id_, level = row.text("id" if row.has("id") else "example_id"), level_of(row.path)
        level = level or next((prefix for prefix in LEVELS if id_.startswith(prefix)), "")
        if self.levels != LEVELS and level not in self.levels:
            if not level:
                raise DataError(
                    f"{row.place}: the level of {id_!r} is unknown: begin the id, or the name of "
                    f"the file or its folder, with one of {', '.join(LEVELS)}"
                )
            return
        if self.levels == LEVELS and level and not id_.startswith(level):
            id_ = f"{level}/{id_}"  # the metrics of a level select by this prefix
        article = row.text("article")
        questions: tuple[str, ...]
        answers: Sequence[str | None]
        if row.has("question"):
            answers = [row.text("answer") if row.has("answer") else None]
            questions, options = (row.text("question"),), [row.texts("options")]
        else:
            questions, options = row.texts("questions"), row.lists("options")
            answers = row.texts("answers") if row.has("answers") else [None] * len(questions)
        if not len(questions) == len(options) == len(answers):
            raise DataError(
                f"{row.place} has questions, options and answers of {len(questions)}, "
                f"{len(options)} and {len(answers)}: they belong together one by one"
            )
        for question, choices, answer in zip(questions, options, answers, strict=True):
            letters = tuple(_LETTERS[: len(choices)])
            if answer is not None and answer not in letters:
                raise DataError(
                    f"{row.place}: the answer {answer!r} is not one of {', '.join(letters)}"
                )
            # The rows of a passage need not be adjacent.
            number = result.numbers[id_]
            result.numbers[id_] += 1
            example = Example(
                id=f"{id_}.{number}",
                fields={"article": article, "question": question},
                label=None if answer is None else letters.index(answer),
                choices=choices,
                is_labelled=answer is not None,
                source=article,
            )
            result.add_known(example, row, "answer", "answers")

    def answer_files(
        self, file: AnswerFile, answered: PredictedRows, notes: list[str]
    ) -> Mapping[str, str]:
        """Return letters by question id, as JSON and as CSV; A where the prediction is none of the
        options.

        Departure: the publisher takes no file; the format is ours.
        """
        letters = {row.id: _LETTERS[int(prediction.label or 0)] for row, prediction in answered}
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([("id", "answer"), *letters.items()])
        if n_outside := sum(prediction.label is None for _, prediction in answered):
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
"""Wording: the article, cut at its end, then the last 128 tokens of the question with the option in
its blanks (ALBERT). Traversals leave the blanks open, as GPT-1 does. Text to text puts question and
options before the article."""
