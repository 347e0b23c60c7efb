"""SQuAD 1.1 and 2.0: questions about passages. Source: Rajpurkar et al. 2016, 2018."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sublayer.errors import DataError
from sublayer.files.lines import decoded, read_lines, read_start, unpacked
from sublayer.files.parsing import parse_json
from sublayer.files.storage import open_file
from sublayer.tasks.finding import (
    FileLayout,
    entries,
    find_in_first,
    one_copy,
    split_in_name,
    unpacked_name,
    words_of,
)
from sublayer.tasks.reading import ReadSplit, kept_answers, place_answer
from sublayer.tasks.records import Record, read_records
from sublayer.tasks.releases import Release
from sublayer.tasks.rows import AnswerFile, Found, PredictedRows, Published, as_json_object
from sublayer.tasks.task import Example, Task

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
# Files written by scripts.
_OUTPUTS = {"predictions", "nbest", "odds", "preds", "eval"}


def _is_squad(name: str) -> bool:
    return "squad" in name.lower()


def _splits(folder: Path, version: str) -> dict[str, tuple[Path, ...]]:
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
    if _OFFICIAL.fullmatch(unpacked_name(path)) or any(
        _is_squad(ancestor.name) for ancestor in (path, *parents)
    ):
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


UNANSWERABLE = "no answer in the passage, of which SQuAD 2.0 alone has some"
CONTRADICTORY = "said to be impossible, and answered"


def _golds(question: Record) -> list[tuple[str, int]] | None:
    """Return text and start of each answer; None where the file does not say."""
    if not question.has("answers"):
        return None
    if isinstance(question.value("answers"), list):
        answers = question.each("answers")
        return [(answer.text("text"), answer.whole("answer_start")) for answer in answers]
    lists = question.inner("answers")
    texts, starts = lists.texts("text"), lists.wholes("answer_start")
    if len(texts) != len(starts):
        raise DataError(f"{lists.place} has {len(texts)} of text, {len(starts)} of answer_start")
    return list(zip(texts, starts, strict=True))


def _is_nested(path: Path) -> bool:
    """Return whether a file is one object, and neither a list nor a row on each line."""
    if ".json" not in path.suffixes:
        return False
    for line, data in read_lines(path):
        text = decoded(path, line, data).strip()
        if text:
            # Within a text, the quotes of such a key would be escaped.
            return text.startswith("{") and ('"data"' in text or '"context"' not in text)
    return False


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

        Places are folders called SQuAD, with or without a version, and ``folder`` itself. Files are
        called as the publisher's, ``train-v1.1.json``, or else have train, dev or validation among
        the words of their names; those of the other version are left out, by the name, that of the
        folder, or a file's own version, and where no name says SQuAD those that have no passages.
        """
        return find_in_first(folder, _is_squad, _BELOW, lambda root: _splits(root, self.version[0]))

    def may_be(self, split: str, path: Path) -> bool:
        """Return whether a file may hold questions."""
        return _may_be_squad(path)

    def records(self, path: Path) -> Iterator[Record]:
        """Read the questions of a file in the publisher's form, or flattened to a row each."""
        if not _is_nested(path):
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
        """Add a question, whose source is its article or, where that has no title, its passage."""
        golds, context = _golds(row), row.text("context")
        has_unanswerable = self.task.has_unanswerable
        is_impossible = row.values.get("is_impossible") is True
        is_impossible = is_impossible or (golds == [] and has_unanswerable)
        if is_impossible and (golds or not has_unanswerable):
            result.skip(CONTRADICTORY if golds else UNANSWERABLE, row.place)
            return
        placed = [place_answer(context, text, start) for text, start in golds or []]
        answers = kept_answers(placed, result, row.place)
        if answers is None:
            return
        example = Example(
            id=str(row.value("id")),
            fields={"context": context, "question": row.text("question")},
            answers=answers,
            is_labelled=bool(placed) or is_impossible,
            source=row.text("title") if row.has("title") else context,
        )
        result.add_known(example, row, "answers")

    def answer_files(
        self, file: AnswerFile, answered: PredictedRows, notes: list[str]
    ) -> Mapping[str, str]:
        """Return an object of ids and answers, empty for none; of 2.0 another of scores of none."""
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
        # The test set is its publisher's alone: the evaluation script takes predictions for the
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
