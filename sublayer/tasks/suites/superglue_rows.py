"""The rows of SuperGLUE that are an example each, and the files of its tasks from before it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from sublayer.counts import count
from sublayer.errors import DataError
from sublayer.files.parsing import MAX_BYTES, read_bytes
from sublayer.tasks.example import Example
from sublayer.tasks.labels import read_class
from sublayer.tasks.nested import Nested, add_known
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import Record, read_records
from sublayer.tasks.task import Task
from sublayer.tasks.tsv import read_tsv

_XML, _WIC = (".xml", ".data.txt")
_ENTAILED = {
    **dict.fromkeys(("TRUE", "YES", "ENTAILMENT"), "entailment"),
    **dict.fromkeys(("FALSE", "NO", "UNKNOWN", "CONTRADICTION"), "not_entailment"),
}
"""Labels of the challenges of RTE, of two or of three classes."""
RTE_FILES = {
    **dict.fromkeys(("dev.xml", "dev2.xml", "RTE2_dev.xml", "RTE3_dev_3ways.xml"), "train"),
    **dict.fromkeys(("RTE5_MainTask_DevSet.xml", "rte1_dev.xml", "rte3_dev.xml"), "train"),
    **dict.fromkeys(("annotated_test.xml", "RTE2_test.annotated.xml"), "dev"),
    **dict.fromkeys(("RTE3_test_3ways.xml", "RTE5_MainTask_TestSet_Gold.xml"), "dev"),
    **dict.fromkeys(("rte1_test.xml", "rte2_test.xml", "rte3_test.xml"), "dev"),
}
"""Splits of the challenges' files, as published and as NLTK names them: their development sets are
trained on, and their annotated test sets are scored."""
_COPA_TAGS = {"premise": "p", "choice1": "a1", "choice2": "a2"}
_WIC_COLUMNS = ("word", "pos", "indices", "sentence1", "sentence2")
_CHOICES = ("choice1", "choice2")
_SOURCES = ("passage", "premise")
_LABELS = {"boolq": ("label", "answer")}
"""Names of the label beside its usual one: BoolQ's own release has ``answer``."""


def read_row(task: Task, row: Nested, result: ReadSplit) -> None:
    """Add the example of a row."""
    add_known(result, row_example(task, row, result), row)


def row_example(task: Task, row: Nested, result: ReadSplit) -> Example:
    """Return the example of a row, whose columns are called as the task's fields.

    Its source is the passage or premise that it is about, its group the number of a pair. A row
    without a number has that of its place in the file.
    """
    is_choice = task.kind == "choice"
    labelled = replace(task, labels=_CHOICES) if is_choice else task
    name = next((each for each in _LABELS.get(task.name, ()) if each in row.values), "label")
    label = read_class(labelled, row.values.get(name), row.place)
    fields = {name: row.text(name) for name in task.fields}
    return Example(
        id=row_id(row, result),
        fields=fields,
        label=label,
        choices=tuple(row.text(name) for name in _CHOICES) if is_choice else (),
        is_labelled=label is not None,
        group=str(row.get("pair_id")) if row.has("pair_id") else "",
        source=next((fields[name] for name in _SOURCES if name in fields), ""),
    )


def row_id(row: Nested, result: ReadSplit) -> str:
    """Return the number that a row has, or else that of its place among all."""
    if row.has("idx"):
        return str(row.whole("idx"))
    return str(len(result.examples) + result.skipped.total())


def superglue_records(path: Path) -> Iterator[Record]:
    """Read the rows of a file of SuperGLUE, or of a task as it was published before it.

    COPA's, RTE's and Winograd's are XML; WiC's has tabs, and the labels, T and F, in a file of
    their own beside it.
    Raises DataError where the file is not of its kind.
    """
    name = path.name.lower()
    if name.endswith(_XML):
        return xml_records(path)
    return _wic_records(path) if name.endswith(_WIC) else _json_records(path)


def _json_records(path: Path) -> Iterator[Record]:
    """Read rows; also of one object on one line that lists them as ``data``."""
    for record in read_records(path):
        rows = record.values.get("data")
        if isinstance(rows, list) and record.values.keys() <= {"version", "data"}:
            for number, row in enumerate(rows, 1):
                yield Record(path, number, row if isinstance(row, dict) else {})
        else:
            yield record


def xml_records(path: Path) -> Iterator[Record]:
    """Read the items of COPA, the pairs of a challenge of RTE, or the schemas of Winograd.

    Raises DataError where the file is none of these.
    """
    try:
        data = read_bytes(path, DataError, max_bytes=MAX_BYTES)
        if b"<!DOCTYPE" in data and b"<!ENTITY" in data:
            raise DataError(f"{path} declares entities, which no task's file does")
        root = ElementTree.fromstring(data)
    except (ElementTree.ParseError, FileNotFoundError) as error:
        raise DataError(f"{path} is not XML: {error}") from None
    for number, item in enumerate(root.iter("item"), 1):
        values: dict[str, Any] = {ours: item.findtext(tag) for ours, tag in _COPA_TAGS.items()}
        values |= {"question": item.get("asks-for"), "idx": item.get("id")}
        right = item.get("most-plausible-alternative")
        if right is not None:
            values["label"] = f"choice{right}"
        yield Record(path, number, values)
    for number, pair in enumerate(root.iter("pair"), 1):
        text, hypothesis = (_plain(pair.findtext(tag)) for tag in ("t", "h"))
        written = pair.get("value", pair.get("entailment"))
        label = _ENTAILED.get((written or "").upper(), written)
        values = {"premise": text, "hypothesis": hypothesis, "label": label}
        # In GLUE texts have other names.
        yield Record(path, number, {**values, "sentence1": text, "sentence2": hypothesis})
    for number, schema in enumerate(root.iter("schema"), 1):
        yield from _schema_records(path, number, schema)


def _schema_records(path: Path, number: int, schema: ElementTree.Element) -> Iterator[Record]:
    """Read a schema of Winograd: the pronoun and each noun that it may stand for."""
    parts = [_plain(schema.findtext(f"text/{tag}")) for tag in ("txt1", "pron", "txt2")]
    text = " ".join(filter(None, parts))
    words = text.lower().split(" ")
    right = _plain(schema.findtext("correctAnswer")).strip(". ").upper()
    for letter, answer in zip("AB", schema.iterfind("answers/answer"), strict=False):
        noun = _plain(answer.text)
        first = noun.lower().split(" ")
        places = [n for n in range(len(words)) if words[n : n + len(first)] == first]
        span = {"span1_text": noun, "span1_index": places[0] if places else -1}
        span |= {"span2_text": parts[1], "span2_index": len(parts[0].split())}
        yield Record(path, number, {"text": text, "target": span, "label": letter == right})


def _plain(text: str | None) -> str:
    return " ".join((text or "").split())


def _wic_records(path: Path) -> Iterator[Record]:
    gold = path.with_name(path.name[: -len(_WIC)] + ".gold.txt")
    labels = [row.cells[0].strip() for row in read_tsv(gold)] if gold.is_file() else None
    rows = [row for row in read_tsv(path) if row.cells != [""]]
    if labels is not None and len(labels) != len(rows):
        raise DataError(f"{path} has {count(len(rows), 'row')}, and {gold} {len(labels):,} labels")
    for number, row in enumerate(rows):
        if len(row.cells) != len(_WIC_COLUMNS):
            yield Record(path, row.line, {}, f"other than {len(_WIC_COLUMNS)} fields")
            continue
        values: dict[str, Any] = dict(zip(_WIC_COLUMNS, row.cells, strict=True))
        indices = str(values.pop("indices")).split("-")
        for place, sentence in enumerate(("sentence1", "sentence2")):
            words = values[sentence].split(" ")
            at = int(indices[place]) if len(indices) == 2 and indices[place].isdecimal() else -1
            if not 0 <= at < len(words):
                raise DataError(f"{path}:{row.line}: {'-'.join(indices)} are no places of words")
            start = sum(len(word) + 1 for word in words[:at])
            values |= {f"start{place + 1}": start, f"end{place + 1}": start + len(words[at])}
        if labels is not None:
            values["label"] = {"T": "True", "F": "False"}.get(labels[number], labels[number])
        yield Record(path, row.line, values)
