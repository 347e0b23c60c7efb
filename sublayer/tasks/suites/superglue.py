"""SuperGLUE: eight tasks and two diagnostic sets. Source: Wang et al. 2019 (1905.00537).

MultiRC: whether an answer to a question about a paragraph is right; each answer is an example.
Source: Khashabi et al. 2018, as SuperGLUE publishes it, or in their own release (``splitv2``).

ReCoRD: which entity of a news text belongs into a query. Source: Zhang et al. 2018, as SuperGLUE
publishes it, or in their own release.

WiC: whether a word has the same meaning in two sentences. Source: Pilehvar and Camacho-Collados
2019.

WSC: whether a pronoun stands for a noun. Source: Levesque et al. 2012. Two spans of the text, noun
and pronoun, are given as texts and by the places of their first words, counted where spaces
separate them. They do not always agree.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from sublayer.counts import count
from sublayer.errors import DataError
from sublayer.files.parsing import MAX_BYTES, read_bytes
from sublayer.tasks.finding import Layout, find_splits
from sublayer.tasks.reading import ReadSplit, read_class
from sublayer.tasks.records import Record, read_records, read_tsv
from sublayer.tasks.rows import Found, Nested, Suite, add_known, next_passage, read_nested
from sublayer.tasks.task import Answer, Example, Task

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


def read_multirc(task: Task, row: Nested, result: ReadSplit) -> None:
    """Add the examples of a row: of a passage with its questions, as it is published, or of one
    answer, as the hub's copies have it.

    In the authors' own release the passage is called ``paragraph``, labels ``isAnswer``, and
    neither passages nor answers are numbered. Passage, question and answer are numbered in
    ``extra``, as a submission writes them.
    """
    name = next((x for x in ("passage", "paragraph") if isinstance(row.values.get(x), dict)), "")
    if name:
        passage = row.inner(name)
        first = row.whole("idx") if name == "passage" else next_passage(result)
        for question in passage.each("questions"):
            for number, answer in enumerate(question.each("answers")):
                last = answer.whole("idx") if name == "passage" else number
                idx = (first, question.whole("idx"), last)
                texts = (passage.text("text"), question.text("question"), answer.text("text"))
                _add(task, answer, texts, idx, result)
    else:
        numbers = row.inner("idx")
        idx = (numbers.whole("paragraph"), numbers.whole("question"), numbers.whole("answer"))
        texts = (row.text("paragraph"), row.text("question"), row.text("answer"))
        _add(task, row, texts, idx, result)


def _add(
    task: Task,
    answer: Nested,
    texts: tuple[str, str, str],
    idx: tuple[int, int, int],
    result: ReadSplit,
) -> None:
    written = answer.values.get("label", answer.values.get("isAnswer"))
    label = read_class(task, written, answer.place)
    example = Example(
        id=".".join(map(str, idx)),
        fields=dict(zip(task.fields, texts, strict=True)),
        label=label,
        is_labelled=label is not None,
        group=f"{idx[0]}.{idx[1]}",
        source=texts[0],
        extra=dict(zip(("passage", "question", "answer"), idx, strict=True)),
    )
    add_known(result, example, answer)


_NO_ENTITIES = "no entities to choose from"
_NO_CHOICE = "an answer that is none of the entities"


def read_record(task: Task, row: Nested, result: ReadSplit) -> None:
    """Add the examples of a row: of a passage with its queries, as it is published, or of one
    query, as the hub's copies have it.

    The authors' own release numbers neither passages nor queries.
    Choices and gold answers are the distinct texts, sorted. Passage and query are numbered in
    ``extra``. Queries that cannot be answered are left out: without entities, or in training with
    an answer that is none of them.
    """
    if "qas" in row.values:
        passage = row.inner("passage")
        entities = _entities(passage)
        first = row.whole("idx") if row.has("idx") else next_passage(result)
        for number, query in enumerate(row.each("qas")):
            gold = [answer.text("text") for answer in _answers(query)]
            last = query.whole("idx") if query.has("idx") else number
            idx = {"passage": first, "query": last}
            texts = (passage.text("text"), query.text("query"))
            _record_add(task, query, texts, entities, gold, idx, result)
    else:
        numbers = row.inner("idx")
        idx = {"passage": numbers.whole("passage"), "query": numbers.whole("query")}
        gold = list(row.texts("answers")) if row.has("answers") else []
        texts = (row.text("passage"), row.text("query"))
        _record_add(task, row, texts, set(row.texts("entities")), gold, idx, result)


def _answers(query: Nested) -> list[Nested]:
    return query.each("answers") if query.has("answers") else []


def _entities(passage: Nested) -> set[str]:
    """Return the texts of the entities, whose ends are places of their last characters."""
    text = passage.text("text")
    entities = set()
    for entity in passage.each("entities"):
        start, end = entity.whole("start"), entity.whole("end")
        if not 0 <= start <= end < len(text):
            raise DataError(
                f"{entity.place} is from {start} to {end} of a text of {len(text)} characters"
            )
        entities.add(text[start : end + 1])
    return entities


def _record_add(
    task: Task,
    row: Nested,
    texts: tuple[str, str],
    entities: set[str],
    gold: list[str],
    idx: dict[str, int],
    result: ReadSplit,
) -> None:
    choices = tuple(sorted(entities))
    answers = tuple(Answer(text) for text in sorted(set(gold)))
    right = [choices.index(answer.text) for answer in answers if answer.text in entities]
    if not choices:
        result.skip(_NO_ENTITIES, row.place)
        return
    if answers and not right:
        if result.name == "train":
            result.skip(_NO_CHOICE, row.place)
            return
        result.keep(_NO_CHOICE, row.place)
    name = f"{idx['passage']}.{idx['query']}"
    example = Example(
        id=name,
        fields=dict(zip(task.fields, texts, strict=True)),
        label=right[0] if right else None,
        choices=choices,
        answers=answers,
        is_labelled=bool(answers),
        group=name,
        source=texts[0],
        extra=idx,
    )
    add_known(result, example, row)


_VERSION = "1.1"
_PLACES = {"sentence1": ("start1", "end1"), "sentence2": ("start2", "end2")}
"""Of each sentence, where the word stands in it, in characters."""
_OTHER_PLACE = "a place in a sentence where its word does not stand"
_IRREGULAR = {"be": {"am", "is", "are", "was", "were"}, "go": {"went"}}
"""Forms of words that begin with another letter than they."""


def read_wic(task: Task, row: Nested, result: ReadSplit) -> None:
    """Add the example of a row, with the places of its word in ``extra``, where the row has them.

    A row is kept and counted where another word stands in one of them, or a part of a word. Raises
    DataError for a row that says it is of another version than 1.1.
    """
    version = row.get("version") if row.has("version") else _VERSION
    if str(version) != _VERSION:
        raise DataError(f"{row.place} is of version {version} of {task.title}, not {_VERSION}")
    example = row_example(task, row, result)
    names = [name for of_sentence in _PLACES.values() for name in of_sentence]
    example = replace(example, extra={name: row.whole(name) for name in names if row.has(name)})
    n_examples = len(result.examples)
    add_known(result, example, row)
    if len(result.examples) > n_examples:
        for sentence, (start, end) in _PLACES.items():
            if start in example.extra and end in example.extra:
                place = slice(example.extra[start], example.extra[end])
                if not _stands(example.fields["word"], example.fields[sentence], place):
                    result.keep(_OTHER_PLACE, row.place)
                    break


def _stands(word: str, sentence: str, place: slice) -> bool:
    """Return whether a form of a word stands in a place: a whole word with its first letter."""
    there = sentence[place]
    if re.search(r"\w$", sentence[: place.start]) or re.match(r"\w", sentence[place.stop :]):
        return False
    form, lemma = there.casefold(), word.casefold()
    return form[:1] == lemma[:1] or form in _IRREGULAR.get(lemma, ())


_REWRITTEN = "a span that is written as its text is (its first letter, a full stop, a line break)"
_MOVED = "the place of a span: where its words stand, nearest to what was said"
_NO_PRONOUN = "a pronoun that is not in its text"
_NO_NOUN = "a noun that is not in its text"


@dataclass(frozen=True, slots=True)
class _Span:
    text: str
    index: int


def read_wsc(task: Task, row: Nested, result: ReadSplit) -> None:
    """Add the example of a row, whose spans stand in ``target``, or beside the text, as in the
    hub's copies.

    Spans are repaired as in TFDS's ``wsc.fixed``, and their places, too. A row whose pronoun is
    nowhere in its text is left out; in training also one whose noun is not.
    """
    text = row.text("text")
    target = row.inner("target") if "target" in row.values else row
    written = [
        _Span(target.text(f"span{number}_text"), target.whole(f"span{number}_index"))
        for number in (1, 2)
    ]
    noun, pronoun = (_fitted(text, span) for span in written)
    if pronoun is None:
        result.skip(_NO_PRONOUN, row.place)
        return
    if noun is None:
        if result.name == "train":
            result.skip(_NO_NOUN, row.place)
            return
        result.keep(_NO_NOUN, row.place)
    spans = [noun or written[0], pronoun]
    label = read_class(task, row.values.get("label"), row.place)
    example = Example(
        id=row_id(row, result),
        fields={"text": text, "span1_text": spans[0].text, "span2_text": spans[1].text},
        label=label,
        is_labelled=label is not None,
        source=text,
        extra={"span1_index": spans[0].index, "span2_index": spans[1].index},
    )
    n_examples = len(result.examples)
    add_known(result, example, row)
    if len(result.examples) > n_examples:
        if any(new.text != old.text for new, old in zip(spans, written, strict=True)):
            result.repair(_REWRITTEN, row.place)
        if any(new.index != old.index for new, old in zip(spans, written, strict=True)):
            result.repair(_MOVED, row.place)


def _fitted(text: str, span: _Span) -> _Span | None:
    """Return a span as it stands in its place, or else nearest to it; None where nowhere."""
    words = text.split(" ")
    found = {written: _places(words, written) for written in _ways(words, span)}
    for written, places in found.items():
        if span.index in places:
            return _Span(written, span.index)
    for written, places in found.items():
        if places:
            return _Span(written, min(places, key=lambda place: abs(place - span.index)))
    return None


def _ways(words: list[str], span: _Span) -> list[str]:
    """Return what a span may be meant to be. Source: TFDS's ``wsc.fixed``."""
    plain = span.text.rstrip(".").replace("\n", " ").strip()
    ways = [span.text, plain]
    if plain and 0 <= span.index < len(words):
        is_lower = words[span.index].lstrip("\"'(")[:1].islower()
        first = plain[0].lower() if is_lower else plain[0].upper()
        ways.append(first + plain[1:])
    return [way for way in ways if way]


def _places(words: list[str], span: str) -> list[int]:
    """Return where the words of a span stand, whatever punctuation sticks to them."""
    n_words = len(span.split(" "))
    pattern = re.compile(rf"\W*{re.escape(span)}\W*")
    return [
        place
        for place in range(len(words) - n_words + 1)
        if pattern.fullmatch(" ".join(words[place : place + n_words]))
    ]


_SUITE = ("SuperGLUE", "superglue_data")
_ENTAILMENT = ("entailment", "not_entailment")
_TRUTH = ("False", "True")

_LAYOUTS = {
    "boolq": Layout(("BoolQ",), _SUITE),
    "cb": Layout(("CB",), _SUITE),
    "copa": Layout(
        ("COPA",),
        _SUITE,
        own={"copa-dev.xml": "dev", "copa-test.xml": "test"},
        below=("", "data", "default", "datasets"),
    ),
    "multirc": Layout(
        ("MultiRC", "multirc-v2"),
        _SUITE,
        own={"train_456-fixedIds.json": "train", "dev_83-fixedIds.json": "dev"},
        below=("", "data", "default", "splitv2"),
    ),
    "record": Layout(("ReCoRD",), _SUITE),
    "sg_rte": Layout(("RTE", "sg_rte"), _SUITE, joint=RTE_FILES),
    "wic": Layout(
        ("WiC", "WiC_dataset"),
        _SUITE,
        own={f"{split}.data.txt": split for split in ("train", "dev", "test")},
    ),
    "wsc": Layout(("WSC", "wsc.fixed"), _SUITE, own={"WSCollection.xml": "dev"}),
    "axb": Layout(("AX-b",), _SUITE, own={"ax-b.jsonl": "dev"}),
    "axg": Layout(("AX-g",), _SUITE, own={"ax-g.jsonl": "dev"}),
}
_KEYS = {
    "copa": ({"premise", "choice1", "choice2", "question"},),
    "multirc": (
        {"passage", "idx", "version"},
        {"paragraph", "question", "answer"},
        {"paragraph", "id"},
    ),
    "record": ({"passage", "qas"}, {"passage", "query", "entities"}),
    "wsc": ({"text", "target"}, {"text", "span1_text", "span2_text"}),
}
"""What rows have, as published and in the hub's copies; of all others their fields."""
_READERS: dict[str, Callable[[Task, Nested, ReadSplit], None]] = {
    "multirc": read_multirc,
    "record": read_record,
    "wic": read_wic,
    "wsc": read_wsc,
}


def _find(task: Task, folder: Path) -> Found:
    found = find_splits(folder, _LAYOUTS[task.name], lambda split, path: _may_be(task, path))
    if task.splits == ("dev",) and "test" in found:
        # So the hub's copies call a diagnostic set, with its labels.
        found.setdefault("dev", found["test"])
    if task.name == "sg_rte" and not all(_may_be(task, paths[0]) for paths in found.values()):
        return {}  # GLUE's, whose folder has the same name
    return {split: found[split] for split in task.splits if split in found}


def _may_be(task: Task, path: Path) -> bool:
    """Return whether a file's first row has what a task's rows have."""
    try:
        first = next(superglue_records(path), None)
    except DataError:
        return False
    return first is not None and _has_keys(task, first)


def _has_keys(task: Task, record: Record) -> bool:
    keys = _KEYS.get(task.name, (set(task.fields),))
    return any(each <= set(record.values) for each in keys)


def _read(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    read = _READERS.get(task.name, read_row)
    return read_nested(split, paths, lambda row, result: read(task, row, result), superglue_records)


SUPERGLUE = Suite(
    "superglue",
    tasks=(
        Task("boolq", "BoolQ", "superglue", "classes", ("passage", "question"), ("accuracy",),
             labels=_TRUTH),
        Task("cb", "CB", "superglue", "classes", ("premise", "hypothesis"),
             ("macro_f1", "accuracy"), labels=("entailment", "contradiction", "neutral")),
        Task("copa", "COPA", "superglue", "choice", ("premise", "question"), ("accuracy",)),
        Task("multirc", "MultiRC", "superglue", "classes", ("paragraph", "question", "answer"),
             ("f1a", "group_exact_match"), labels=_TRUTH),
        Task("record", "ReCoRD", "superglue", "choice", ("passage", "query"),
             ("token_f1", "exact_match")),
        Task("sg_rte", "RTE", "superglue", "classes", ("premise", "hypothesis"), ("accuracy",),
             labels=_ENTAILMENT),
        Task("wic", "WiC", "superglue", "classes", ("sentence1", "sentence2", "word"),
             ("accuracy",), labels=_TRUTH),
        Task("wsc", "WSC", "superglue", "classes", ("text", "span1_text", "span2_text"),
             ("accuracy",), labels=_TRUTH),
        Task("axb", "AX-b", "superglue", "classes", ("sentence1", "sentence2"), ("matthews",),
             labels=_ENTAILMENT, splits=("dev",), trained_as="sg_rte"),
        Task("axg", "AX-g", "superglue", "classes", ("premise", "hypothesis"),
             ("accuracy", "gender_parity"), labels=_ENTAILMENT, splits=("dev",),
             trained_as="sg_rte"),
    ),
    find=_find,
    read=_read,
    files={name: layout.described() for name, layout in _LAYOUTS.items()},
)  # fmt: skip
