"""The rows of SuperGLUE that are an example each, and the files of COPA and WiC before it."""

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

_COPA, _WIC = (".xml", ".data.txt")
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
    """Read the rows of a file of SuperGLUE, or of COPA or WiC as these were published before it.

    COPA's is XML; WiC's has tabs, and the labels, T and F, in a file of their own beside it.
    Raises DataError where the file is not of its kind.
    """
    name = path.name.lower()
    if name.endswith(_COPA):
        return _copa_records(path)
    return _wic_records(path) if name.endswith(_WIC) else read_records(path)


def _copa_records(path: Path) -> Iterator[Record]:
    try:
        data = read_bytes(path, DataError, max_bytes=MAX_BYTES)
        if b"<!DOCTYPE" in data and b"<!ENTITY" in data:
            raise DataError(f"{path} declares entities, which COPA has none of")
        items = ElementTree.fromstring(data).findall("item")
    except (ElementTree.ParseError, FileNotFoundError) as error:
        raise DataError(f"{path} is not XML: {error}") from None
    for number, item in enumerate(items, 1):
        values: dict[str, Any] = {ours: item.findtext(tag) for ours, tag in _COPA_TAGS.items()}
        values |= {"question": item.get("asks-for"), "idx": item.get("id")}
        right = item.get("most-plausible-alternative")
        if right is not None:
            values["label"] = f"choice{right}"
        yield Record(path, number, values)


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
