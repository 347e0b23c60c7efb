"""SQuAD 1.1 and 2.0: questions about passages. Source: Rajpurkar et al. 2016, 2018."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sublayer.errors import DataError
from sublayer.files.lines import decoded, read_lines, unpacked
from sublayer.files.parsing import parse_json
from sublayer.tasks.example import Example
from sublayer.tasks.finding import check_shards
from sublayer.tasks.gold_spans import NOT_FOUND, place_answer
from sublayer.tasks.nested import Nested, add_known
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import read_records
from sublayer.tasks.suite import Suite
from sublayer.tasks.suites.squad_files import find_squad
from sublayer.tasks.task import Task

UNANSWERABLE = "no answer in the passage, of which SQuAD 2.0 alone has some"
CONTRADICTORY = "said to be impossible, and answered"


@dataclass(frozen=True, slots=True)
class _Question:
    """A question as it is written, nested or flattened."""

    node: Nested
    context: str
    source: str
    """The title of its article, or where there is none the passage."""

    @property
    def golds(self) -> list[tuple[str, int]] | None:
        """Return text and start of each answer; None where the file does not say."""
        if not self.node.has("answers"):
            return None
        if isinstance(self.node.get("answers"), list):
            answers = self.node.each("answers")
            return [(answer.text("text"), answer.whole("answer_start")) for answer in answers]
        lists = self.node.inner("answers")
        texts, starts = lists.texts("text"), lists.wholes("answer_start")
        if len(texts) != len(starts):
            raise DataError(
                f"{lists.place} has {len(texts)} of text, {len(starts)} of answer_start"
            )
        return list(zip(texts, starts, strict=True))

    @property
    def is_impossible(self) -> bool:
        return self.node.has("is_impossible") and self.node.get("is_impossible") is True


def _read(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    check_shards(paths)
    result = ReadSplit(split, paths)
    for path in paths:
        is_empty = True
        for question in _questions(path):
            is_empty = False
            _add(task, question, result)
        if is_empty:
            raise DataError(f"{path} has no questions")
    return result


def _questions(path: Path) -> Iterator[_Question]:
    """Read the questions of a file in the publisher's form, or flattened to a row each."""
    if not _is_nested(path):
        for record in read_records(path):
            yield _flat(Nested(record.place, "", record.values))
        return
    content = parse_json(unpacked(path), str(path), DataError)
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no JSON object")
    for article in Nested(str(path), "", content).each("data"):
        if not article.has("paragraphs"):
            yield _flat(article)
            continue
        for paragraph in article.each("paragraphs"):
            context = paragraph.text("context")
            source = article.text("title") if article.has("title") else context
            for question in paragraph.each("qas"):
                yield _Question(question, context, source)


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


def _flat(row: Nested) -> _Question:
    context = row.text("context")
    return _Question(row, context, row.text("title") if row.has("title") else context)


def _add(task: Task, question: _Question, result: ReadSplit) -> None:
    node = question.node
    golds = question.golds
    is_impossible = question.is_impossible or (golds == [] and task.has_unanswerable)
    if is_impossible and golds:
        result.skip(CONTRADICTORY, node.place)
        return
    if is_impossible and not task.has_unanswerable:
        result.skip(UNANSWERABLE, node.place)
        return
    placed = [place_answer(question.context, text, start) for text, start in golds or []]
    found = [each for each in placed if each.answer.start is not None]
    if len(found) < len(placed):
        if result.name == "train" and not found:
            result.skip(NOT_FOUND, node.place)
            return
        result.keep(NOT_FOUND, node.place)
    for repair in dict.fromkeys(each.repair for each in found if each.repair):
        result.repair(repair, node.place)
    example = Example(
        id=str(node.get("id")),
        fields={"context": question.context, "question": node.text("question")},
        answers=tuple(each.answer for each in (found if result.name == "train" else placed)),
        is_labelled=bool(placed) or is_impossible,
        source=question.source,
    )
    add_known(result, example, node)


SQUAD = Suite(
    "squad",
    tasks=(
        Task("squad", "SQuAD 1.1", "squad", "span", ("context", "question"),
             ("exact_match", "token_f1"), splits=("train", "dev")),
        Task("squad2", "SQuAD 2.0", "squad", "span", ("context", "question"),
             ("exact_match_v2", "token_f1_v2"), has_unanswerable=True, splits=("train", "dev")),
    ),
    find=find_squad,
    files={
        name: f"train-v{version}.json and dev-v{version}.json; or files of JSON, JSON lines or "
        "Parquet with train, and dev or validation in their names"
        for name, version in (("squad", "1.1"), ("squad2", "2.0"))
    },
    read=_read,
)  # fmt: skip
