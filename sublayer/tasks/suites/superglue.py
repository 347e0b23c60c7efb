"""SuperGLUE: eight tasks and two diagnostic sets. Source: Wang et al. 2019 (1905.00537).

MultiRC: whether an answer to a question about a paragraph is right; each answer is an example.
Source: Khashabi et al. 2018, as SuperGLUE publishes it, or in the authors' release (``splitv2``).

ReCoRD: which entity of a news text completes a query. Source: Zhang et al. 2018, as SuperGLUE
publishes it, or in the authors' release.

WiC: whether a word has the same meaning in two sentences. Source: Pilehvar and Camacho-Collados
2019.

WSC: whether a pronoun refers to a noun. Source: Levesque et al. 2012. Noun and pronoun are spans of
the text, given as texts and by the positions of their first words, counted between spaces; text and
position sometimes disagree.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

from sublayer.errors import DataError
from sublayer.files.parsing import MAX_BYTES, read_bytes
from sublayer.numbers import count
from sublayer.tasks.finding import FileLayout, Release
from sublayer.tasks.published import (
    AnswerFile,
    ColumnsTask,
    PredictedRows,
    Published,
    ReadSplit,
    read_class,
)
from sublayer.tasks.records import Record, read_records, read_tsv
from sublayer.tasks.task import Answer, Example, Prediction, Task
from sublayer.tasks.wording import Wording, fill_query, marking

_SUITE = ("SuperGLUE", "superglue_data")
_ENTAILMENT = ("entailment", "not_entailment")
_DATA = "https://dl.fbaipublicfiles.com/glue/superglue/data/v2/"
_CB = ("entailment", "contradiction", "neutral")
_TRUTH = ("False", "True")
_SMALL_TRUTH = ("false", "true")
_AVERAGES = ("SuperGLUE",)
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
"""Splits of the challenges' files, under their published names and NLTK's: the development sets
become the training set, and the annotated test sets the development set."""
_COPA_TAGS = {"premise": "p", "choice1": "a1", "choice2": "a2"}
_WIC_COLUMNS = ("word", "pos", "indices", "sentence1", "sentence2")


def superglue_records(path: Path) -> Iterator[Record]:
    """Read the rows of a file of SuperGLUE, or of an earlier release of a task.

    Earlier releases: COPA's, RTE's and Winograd's are XML; WiC's is tab-separated, with the labels,
    T and F, in a second file next to it. JSON may also be one object on one line that lists the
    rows as ``data``. Raises DataError where the file has another format.
    """
    name = path.name.lower()
    if name.endswith(_XML):
        yield from xml_records(path)
    elif name.endswith(_WIC):
        yield from _wic_records(path)
    else:
        for record in read_records(path):
            rows = record.values.get("data")
            if isinstance(rows, list) and record.values.keys() <= {"version", "data"}:
                for number, row in enumerate(rows, 1):
                    yield Record(path, number, row if isinstance(row, dict) else {})
            else:
                yield record


def _wic_records(path: Path) -> Iterator[Record]:
    gold = path.with_name(path.name[: -len(_WIC)] + ".gold.txt")
    labels = [cells[0].strip() for _, cells in read_tsv(gold)] if gold.is_file() else None
    rows = [(line, cells) for line, cells in read_tsv(path) if cells != [""]]
    if labels is not None and len(labels) != len(rows):
        raise DataError(f"{path} has {count(len(rows), 'row')}, and {gold} {len(labels):,} labels")
    for number, (line, cells) in enumerate(rows):
        if len(cells) != len(_WIC_COLUMNS):
            yield Record(path, line, {}, f"other than {len(_WIC_COLUMNS)} fields")
            continue
        values: dict[str, Any] = dict(zip(_WIC_COLUMNS, cells, strict=True))
        indices = re.fullmatch(r"(\d+)-(\d+)", values.pop("indices"))
        for side in (1, 2):
            words = values[f"sentence{side}"].split(" ")
            at = int(indices[side]) if indices else len(words)
            if at >= len(words):
                raise DataError(f"{path}:{line}: {cells[2]} are not positions of words")
            start = len(" ".join([*words[:at], ""]))
            values |= {f"start{side}": start, f"end{side}": start + len(words[at])}
        if labels is not None:
            values["label"] = {"T": "True", "F": "False"}.get(labels[number], labels[number])
        yield Record(path, line, values)


def xml_records(path: Path) -> Iterator[Record]:
    """Read the items of COPA, the pairs of an RTE challenge, or the schemas of Winograd.

    Raises DataError where the file is not XML, or declares entities.
    """
    try:
        data = read_bytes(path, DataError, max_bytes=MAX_BYTES)
        if b"<!DOCTYPE" in data and b"<!ENTITY" in data:
            raise DataError(f"{path} declares XML entities, and no published task does")
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
        # GLUE has other names for the texts.
        yield Record(path, number, {**values, "sentence1": text, "sentence2": hypothesis})
    for number, schema in enumerate(root.iter("schema"), 1):
        # Winograd: the pronoun, with each noun that it may refer to.
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


@dataclass(frozen=True, kw_only=True)
class SuperGlueColumns(ColumnsTask):
    """A task with one example a row, and columns named as the task's fields."""

    reads_tsv: ClassVar[bool] = False
    ids: tuple[str, ...] = ("idx",)

    def records(self, path: Path) -> Iterator[Record]:
        """Read the rows of a file of SuperGLUE, or of an earlier release."""
        return superglue_records(path)

    def example(self, row: Record, result: ReadSplit) -> Example | None:
        """Return the example of a row; an id in ``idx`` must be a whole number."""
        example = super().example(row, result)
        if example is None or not row.has("idx"):
            return example
        return replace(example, id=str(row.whole("idx")))

    def settle(self, files: dict[str, tuple[Path, ...]]) -> dict[str, tuple[Path, ...]]:
        """Return the files; the hub's copies name the labelled diagnostic set test."""
        if self.task.splits == ("dev",) and "test" in files:
            files.setdefault("dev", files["test"])
        return files

    def may_be(self, split: str, path: Path) -> bool:
        """Return whether the first row has the task's columns."""
        names = self.first_names(path)
        return self.has_texts(names) and names.issuperset(self.choices)


class SuperGlueRte(SuperGlueColumns):
    """SuperGLUE's RTE; GLUE has a folder of the same name."""

    def settle(self, files: dict[str, tuple[Path, ...]]) -> dict[str, tuple[Path, ...]]:
        """Return the files, unless they are GLUE's."""
        return files if all(self.may_be("", paths[0]) for paths in files.values()) else {}


@dataclass(frozen=True, kw_only=True)
class SuperGlueObjects(Published):
    """A task with nested rows, a passage with its questions and answers, or with a row for each
    answer."""

    keys: tuple[frozenset[str], ...]
    """Keys of a row, as published or in the hub's copies."""

    def may_be(self, split: str, path: Path) -> bool:
        """Return whether the first row has one of the sets of keys."""
        names = self.first_names(path)
        return any(keys <= names for keys in self.keys)

    def records(self, path: Path) -> Iterator[Record]:
        """Read the rows of a file of SuperGLUE, or of an earlier release."""
        return superglue_records(path)


def _next_passage(result: ReadSplit) -> int:
    """Return the number of an unnumbered passage: one more than the last example's."""
    return int(result.examples[-1].extra["passage"]) + 1 if result.examples else 0


class MultiRC(SuperGlueObjects):
    """MultiRC; each answer is an example."""

    def add(self, row: Record, result: ReadSplit) -> None:
        """Add the examples of a row: all answers of a passage, as published, or one, as in the
        hub's copies.

        The authors' release has ``paragraph`` for the passage and ``isAnswer`` for labels, and
        numbers neither passages nor answers. ``extra`` holds the numbers of passage, question and
        answer for a submission.
        """
        names = (x for x in ("passage", "paragraph") if isinstance(row.values.get(x), dict))
        name = next(names, "")
        if not name:
            idx = row.inner("idx")
            numbers = (idx.whole("paragraph"), idx.whole("question"), idx.whole("answer"))
            self._add(row, tuple(row.text(field) for field in self.task.fields), numbers, result)
            return
        passage = row.inner(name)
        first = row.whole("idx") if name == "passage" else _next_passage(result)
        for question in passage.each("questions"):
            for number, answer in enumerate(question.each("answers")):
                last = answer.whole("idx") if name == "passage" else number
                numbers = (first, question.whole("idx"), last)
                texts = (passage.text("text"), question.text("question"), answer.text("text"))
                self._add(answer, texts, numbers, result)

    def _add(
        self, answer: Record, texts: tuple[str, ...], idx: tuple[int, int, int], result: ReadSplit
    ) -> None:
        written = answer.values.get("label", answer.values.get("isAnswer"))
        label = read_class(self.task, written, answer.place)
        example = Example(
            id=".".join(map(str, idx)),
            fields=dict(zip(self.task.fields, texts, strict=True)),
            label=label,
            is_labelled=label is not None,
            group=f"{idx[0]}.{idx[1]}",
            source=texts[0],
            extra=dict(zip(("passage", "question", "answer"), idx, strict=True)),
        )
        result.add_known(example, answer, "label", "isAnswer")

    def answer_rows(self, file: AnswerFile, answered: PredictedRows) -> Iterator[dict[str, Any]]:
        """Yield passages with all their questions and answers."""
        passages: dict[int, dict[int, list[dict[str, Any]]]] = {}
        for example, prediction in answered:
            questions = passages.setdefault(example.extra["passage"], {})
            answers = questions.setdefault(example.extra["question"], [])
            label = self.written(file, example, prediction)
            answers.append({"idx": example.extra["answer"], "label": label})
        for idx, questions in passages.items():
            rows = [
                {"idx": question, "answers": answers} for question, answers in questions.items()
            ]
            yield {"idx": idx, "passage": {"questions": rows}}


class ReCoRD(SuperGlueObjects):
    """ReCoRD."""

    def add(self, row: Record, result: ReadSplit) -> None:
        """Add the examples of a row: all queries of a passage, as published, or one, as in the
        hub's copies.

        The authors' release numbers neither passages nor queries. Choices and gold answers are the
        distinct texts, sorted; ``extra`` holds the numbers of passage and query. Queries without
        entities are left out; in training so are queries with no answer among the entities.
        """
        if "qas" not in row.values:
            numbers = row.inner("idx")
            idx = (numbers.whole("passage"), numbers.whole("query"))
            gold = row.texts("answers") if row.has("answers") else ()
            texts = (row.text("passage"), row.text("query"))
            self._add(row, texts, set(row.texts("entities")), gold, idx, result)
            return
        passage = row.inner("passage")
        text, entities = passage.text("text"), set()
        for entity in passage.each("entities"):
            start, end = entity.whole("start"), entity.whole("end")  # of the last character
            if not 0 <= start <= end < len(text):
                raise DataError(
                    f"{entity.place} spans {start} to {end} in a text of {len(text)} characters"
                )
            entities.add(text[start : end + 1])
        first = row.whole("idx") if row.has("idx") else _next_passage(result)
        for number, query in enumerate(row.each("qas")):
            answers = query.each("answers") if query.has("answers") else []
            idx = (first, query.whole("idx") if query.has("idx") else number)
            texts = (text, query.text("query"))
            self._add(query, texts, entities, [span.text("text") for span in answers], idx, result)

    def _add(
        self,
        row: Record,
        texts: tuple[str, str],
        entities: set[str],
        gold: Sequence[str],
        idx: tuple[int, int],
        result: ReadSplit,
    ) -> None:
        choices = tuple(sorted(entities))
        answers = tuple(Answer(text) for text in sorted(set(gold)))
        right = [choices.index(answer.text) for answer in answers if answer.text in entities]
        if not choices:
            result.skip("no entities to choose from", row.place)
            return
        if (
            answers
            and not right
            and result.cannot_learn("an answer that is none of the entities", row.place)
        ):
            return
        example = Example(
            id=f"{idx[0]}.{idx[1]}",
            fields=dict(zip(self.task.fields, texts, strict=True)),
            label=right[0] if right else None,
            choices=choices,
            answers=answers,
            is_labelled=bool(answers),
            group=f"{idx[0]}.{idx[1]}",
            source=texts[0],
            extra={"passage": idx[0], "query": idx[1]},
        )
        result.add_known(example, row, "answers")

    def published_number(self, example: Example) -> int:
        """Return the number of a query."""
        return example.extra["query"]


_REPAIRS = (
    "a span spelled as in its text (first letter, full stop, line break)",
    "the position of a span: the nearest occurrence of its words",
)
"""Reasons of repairs, of a span's text and of its position."""
_VERSION = "1.1"
_PLACES = {"sentence1": ("start1", "end1"), "sentence2": ("start2", "end2")}
"""Columns of the word's start and end in each sentence, in characters."""
_IRREGULAR = {"be": {"am", "is", "are", "was", "were"}, "go": {"went"}}
"""Inflected forms that begin with another letter than their lemma."""


class WiC(SuperGlueColumns):
    """WiC."""

    def add(self, row: Record, result: ReadSplit) -> None:
        """Add the example of a row, with the positions of its word, if given, in ``extra``.

        A row with another word, or a part of a word, at the position is kept and counted. Raises
        DataError for a row of a version other than 1.1.
        """
        version = row.values.get("version")
        if version is not None and str(version) != _VERSION:
            raise DataError(
                f"{row.place} has version {version} of {self.task.title}, not {_VERSION}"
            )
        names = [name for of_sentence in _PLACES.values() for name in of_sentence]
        extra = {name: row.whole(name) for name in names if row.has(name)}
        example = self.example(row, result)
        if example is None:
            return
        if not result.add_known(replace(example, extra=extra), row, *self.label):
            return
        lemma = example.fields["word"].casefold()
        for name, (start, end) in _PLACES.items():
            if not extra.keys() >= {start, end}:
                continue
            sentence, where = example.fields[name], slice(extra[start], extra[end])
            form = sentence[where].casefold()
            is_form = form[:1] == lemma[:1] or form in _IRREGULAR.get(lemma, ())
            is_part = re.search(r"\w$", sentence[: where.start])
            if not is_form or is_part or re.match(r"\w", sentence[where.stop :]):
                result.keep("a position without its word in the sentence", row.place)
                break


class WSC(SuperGlueObjects):
    """WSC."""

    def add(self, row: Record, result: ReadSplit) -> None:
        """Add the example of a row, with spans in ``target`` or, in the hub's copies, beside the
        text.

        Spans and their positions are repaired as in TFDS's ``wsc.fixed``. A row whose pronoun is
        missing from the text is left out; in training so is a row whose noun is missing.
        """
        text = row.text("text")
        target = row.inner("target") if "target" in row.values else row
        written = [(target.text(f"span{n}_text"), target.whole(f"span{n}_index")) for n in (1, 2)]
        noun, pronoun = (_fitted(text, *span) for span in written)
        if pronoun is None:
            result.skip("a pronoun that is not in its text", row.place)
            return
        if noun is None and result.cannot_learn("a noun that is not in its text", row.place):
            return
        spans = [noun or written[0], pronoun]
        label = read_class(self.task, row.values.get("label"), row.place)
        example = Example(
            id=str(row.whole("idx") if row.has("idx") else result.n_rows),
            fields={"text": text, "span1_text": spans[0][0], "span2_text": spans[1][0]},
            label=label,
            is_labelled=label is not None,
            source=text,
            extra={"span1_index": spans[0][1], "span2_index": spans[1][1]},
        )
        if not result.add_known(example, row, "label"):
            return
        for part, repair in enumerate(_REPAIRS):
            if [span[part] for span in spans] != [span[part] for span in written]:
                result.repair(repair, row.place)


def _fitted(text: str, span: str, index: int) -> tuple[str, int] | None:
    """Return a span at its position, or the nearest occurrence; None without one.

    Source of the alternative spellings of a span: TFDS's ``wsc.fixed``.
    """
    words = text.split(" ")
    plain = span.rstrip(".").replace("\n", " ").strip()
    forms = [span, plain]
    if plain and 0 <= index < len(words):
        is_lower = words[index].lstrip("\"'(")[:1].islower()
        first = plain[0].lower() if is_lower else plain[0].upper()
        forms.append(first + plain[1:])
    matches = [
        (abs(position - index), written, position)
        for written in filter(None, forms)
        for position in places_of(words, written)
    ]
    there = next((match for match in matches if not match[0]), None)
    if there is None and matches:
        there = min((match for match in matches if match[1] == matches[0][1]), key=itemgetter(0))
    return None if there is None else there[1:]


_COPA_QUESTIONS = {
    "cause": "What was the cause of this?",
    "effect": "What happened as a result?",
}
"""Source: jiant's copa.py."""
_HIGHLIGHT = "\n@highlight\n"
_SENTENCE_END = re.compile(rf"([.?!\"']){_HIGHLIGHT}")


def without_markup(text: str) -> str:
    """Replace HTML line breaks by spaces and drop the tags of bold text, but not the text.

    Source: T5's preprocessing of MultiRC.
    """
    return re.sub("</?b>", "", text.replace("<br>", " "))


def _copa_texts(example: Example) -> list[str]:
    """Return the premise, and the question written out."""
    question = example.fields["question"]
    return [example.fields["premise"], _COPA_QUESTIONS.get(question, question)]


def _multirc_texts(example: Example) -> list[str]:
    return list(map(without_markup, example.fields.values()))


def _multirc_input(example: Example) -> str:
    """Return question and answer before the passage."""
    parts = (f"{key}: {example.fields[key]}" for key in ("question", "answer", "paragraph"))
    return without_markup(" ".join(["multirc", *parts]))


def _record_input(example: Example) -> str:
    """Return query, entities and passage, with highlights as sentences."""
    passage, query = example.fields.values()
    passage = _SENTENCE_END.sub(r"\1 ", passage).replace(_HIGHLIGHT, ". ")
    entities = ", ".join(example.choices)
    return f"record query: {query} entities: {entities} passage: {passage}"


def places_of(words: Sequence[str], span: str) -> dict[int, re.Match[str]]:
    """Find the occurrences of a span's words, by index; the groups are attached punctuation."""
    n_words = len(span.split(" "))
    pattern = re.compile(rf"(\W*){re.escape(span)}(\W*)")
    windows = (" ".join(words[index : index + n_words]) for index in range(len(words)))
    matches = {index: pattern.fullmatch(window) for index, window in enumerate(windows)}
    return {index: match for index, match in matches.items() if match}


def _wsc_marked(example: Example) -> str:
    """Put stars around a pronoun, given by its position among the words between spaces.

    Attached punctuation is split off: ``him,"`` becomes ``*him* ,"``. Where the position has
    another word, the nearest occurrence of the pronoun is marked. Both rules repair the two texts
    that T5's ``wsc_simple`` repairs by hand. Departure: a pronoun may also be the first or the last
    word.

    Raises DataError where the text lacks the pronoun.
    """
    text, pronoun = example.fields["text"], example.fields["span2_text"]
    index = example.extra["span2_index"]
    words = text.split(" ")
    places = places_of(words, pronoun)
    if not places:
        raise DataError(f"{pronoun!r} is not a word of {text!r}")
    nearest = min(places, key=lambda position: abs(position - index))
    before, after = places[nearest].groups()
    parts = [part for part in (before, f"*{pronoun}*", after) if part]
    return " ".join([*words[:nearest], *parts, *words[nearest + len(pronoun.split(" ")) :]])


def _wsc_noun(example: Example) -> str:
    return example.fields["span1_text"]


def _wsc_texts(example: Example) -> list[str]:
    return [_wsc_marked(example), _wsc_noun(example)]


def _release(name: str, file: str, sha256: str) -> Release:
    return Release.of(name, {_DATA + file: sha256})


SUPERGLUE = (
    SuperGlueColumns(
        task=Task("boolq", "BoolQ", "superglue", "classes", ("passage", "question"), ("accuracy",),
                  labels=_TRUTH),
        layout=FileLayout(("BoolQ",), _SUITE),
        label=("label", "answer"),
        source="passage",
        # As a pair the question precedes the passage (jiant).
        wording=partial(Wording, pair=("{question}", "{passage}")),
        release=_release("boolq", "BoolQ.zip",
                         "853fbe7922f70c59629f06a39e8d9ca440c3d740e760fd3b87a5ddf3dcba2436"),
        submission=(AnswerFile("BoolQ.jsonl", 3245, Prediction(1), _SMALL_TRUTH),),
        averages=_AVERAGES,
    ),
    SuperGlueColumns(
        task=Task("cb", "CB", "superglue", "classes", ("premise", "hypothesis"),
                  ("macro_f1", "accuracy"), labels=_CB),
        layout=FileLayout(("CB",), _SUITE),
        source="premise",
        release=_release("cb", "CB.zip",
                         "8d641383298d54554066ba1c93f56ae7410af75df621b90c63028806bbbbb535"),
        submission=(AnswerFile("CB.jsonl", 250, Prediction(1), _CB),),
        averages=_AVERAGES,
    ),
    SuperGlueColumns(
        task=Task("copa", "COPA", "superglue", "choice", ("premise", "question"), ("accuracy",)),
        layout=FileLayout(("COPA",), _SUITE, own={"copa-dev.xml": "dev", "copa-test.xml": "test"},
                          below=("", "data", "default", "datasets")),
        choices=("choice1", "choice2"),
        source="premise",
        # The question is one word, written out: premise and question, then the choice (jiant).
        wording=partial(
            Wording, clean=_copa_texts, pair=("{premise} {question}", "{choice}"), ranks="keys",
            parts={"premise": "premise", "question": "cause"},
        ),
        release=_release("copa", "COPA.zip",
                         "405906cddac74bc1e1ce8220f1107d1025b66a25ef10149d91b10bb30651125f"),
        submission=(AnswerFile("COPA.jsonl", 500, Prediction(1)),),
        averages=_AVERAGES,
    ),
    MultiRC(
        task=Task("multirc", "MultiRC", "superglue", "classes",
                  ("paragraph", "question", "answer"), ("f1a", "group_exact_match"), labels=_TRUTH),
        layout=FileLayout(
            ("MultiRC", "multirc-v2"), _SUITE,
            own={"train_456-fixedIds.json": "train", "dev_83-fixedIds.json": "dev"},
            below=("", "data", "default", "splitv2"),
        ),
        keys=(frozenset({"passage", "idx", "version"}),
              frozenset({"paragraph", "question", "answer"}), frozenset({"paragraph", "id"})),
        # A pair is cut at the end of the passage (jiant, which writes the question into the first
        # text). A traversal is as RACE's (ours): passage and question, then the answer.
        wording=partial(
            Wording, clean=_multirc_texts, cut="first", read=_multirc_input,
            traversal=("{paragraph} {question}", "{answer}"),
        ),
        release=_release("multirc", "MultiRC.zip",
                         "b3cd440856e72eb166b2edcd37b798455f1ebd51f2c3de64c0c2a4e1971d2737"),
        submission=(AnswerFile("MultiRC.jsonl", 0, Prediction(0)),),
        averages=_AVERAGES,
    ),
    ReCoRD(
        task=Task("record", "ReCoRD", "superglue", "choice", ("passage", "query"),
                  ("token_f1", "exact_match")),
        layout=FileLayout(("ReCoRD",), _SUITE),
        keys=(frozenset({"passage", "qas"}), frozenset({"passage", "query", "entities"})),
        # The query is filled with the entity (jiant); text to text lists the entities, and has a
        # row for each gold answer.
        wording=partial(
            Wording, fill=fill_query, pair=("{passage}", "{filled}"), read=_record_input,
            traversal=("{passage}", "{filled}"), ranks="choices", learns="answers", is_free=True,
            parts={"passage": "passage", "query": "query with @placeholder"},
            options=("entity1", "entity2"),
        ),
        release=_release("record", "ReCoRD.zip",
                         "30c7b651ab21b8bf8fab986495cd1084333010e040548f861b839eec0044ac18"),
        submission=(AnswerFile("ReCoRD.jsonl", 0, Prediction(0), takes_text=True),),
        averages=_AVERAGES,
    ),
    SuperGlueRte(
        task=Task("sg_rte", "RTE", "superglue", "classes", ("premise", "hypothesis"),
                  ("accuracy",), labels=_ENTAILMENT),
        layout=FileLayout(("RTE", "sg_rte"), _SUITE, joint=RTE_FILES),
        source="premise",
        wording=partial(Wording, name="rte"),
        release=_release("sg_rte", "RTE.zip",
                         "6310aab3f000424c9d0318a1ff20692e07c7f4aa15e8f17a5972ea0a35c398b9"),
        submission=(AnswerFile("RTE.jsonl", 3000, Prediction(0), _ENTAILMENT),),
        averages=_AVERAGES,
    ),
    WiC(
        task=Task("wic", "WiC", "superglue", "classes", ("sentence1", "sentence2", "word"),
                  ("accuracy",), labels=_TRUTH),
        layout=FileLayout(("WiC", "WiC_dataset"), _SUITE,
                          own={f"{split}.data.txt": split for split in ("train", "dev", "test")}),
        # A pair has the word before the first sentence, safe from cuts (ours: jiant has it as a
        # third text); a traversal has three texts (ours).
        wording=partial(Wording, pair=("{word} {sentence1}", "{sentence2}")),
        release=_release("wic", "WiC.zip",
                         "ee7e67f4ae9eafbf533780faa198e62167f3cda54256cdf261877be3c0e90900"),
        submission=(AnswerFile("WiC.jsonl", 1400, Prediction(0), _SMALL_TRUTH),),
        averages=_AVERAGES,
    ),
    WSC(
        task=Task("wsc", "WSC", "superglue", "classes", ("text", "span1_text", "span2_text"),
                  ("accuracy",), labels=_TRUTH),
        layout=FileLayout(("WSC", "wsc.fixed"), _SUITE, own={"WSCollection.xml": "dev"}),
        keys=(frozenset({"text", "target"}), frozenset({"text", "span1_text", "span2_text"})),
        wording=partial(
            Wording, clean=_wsc_texts, target=_wsc_noun, ranks="", learns="right",
            numbers=("span2_index",), **marking(_wsc_marked, "span2_text"),
            extra={"span1_index": 2, "span2_index": 4},
            parts={"text": "Ann told Eve that she won.", "span1_text": "Eve", "span2_text": "she"},
        ),
        release=_release("wsc", "WSC.zip",
                         "2ed6dfa94556b4a128ff0441efe365b2e883124e7e6aa00fb8d3a6cb1fd520a9"),
        submission=(AnswerFile("WSC.jsonl", 146, Prediction(0), _TRUTH),),
        averages=_AVERAGES,
    ),
    SuperGlueColumns(
        task=Task("axb", "AX-b", "superglue", "classes", ("sentence1", "sentence2"), ("matthews",),
                  labels=_ENTAILMENT, splits=("dev",), trained_as="sg_rte"),
        layout=FileLayout(("AX-b",), _SUITE, own={"ax-b.jsonl": "dev"}),
        wording=partial(
            Wording, name="rte", keys={"sentence1": "premise", "sentence2": "hypothesis"}
        ),
        release=_release("axb", "AX-b.zip",
                         "43b45c55a273575c58a33cd68f10a971f83daa3aa223bfbc4077b92fbdf960b3"),
        submission=(AnswerFile("AX-b.jsonl", 1104, Prediction(0), _ENTAILMENT, "dev"),),
    ),
    SuperGlueColumns(
        task=Task("axg", "AX-g", "superglue", "classes", ("premise", "hypothesis"),
                  ("accuracy", "gender_parity"), labels=_ENTAILMENT, splits=("dev",),
                  trained_as="sg_rte"),
        layout=FileLayout(("AX-g",), _SUITE, own={"ax-g.jsonl": "dev"}),
        source="premise",
        group="pair_id",
        wording=partial(Wording, name="rte"),
        release=_release("axg", "AX-g.zip",
                         "2d4e00d3a7d23d2c3787ee4c1382cc81a72cb05a76fc9d78d142949247ed61b9"),
        submission=(AnswerFile("AX-g.jsonl", 356, Prediction(0), _ENTAILMENT, "dev"),),
    ),
)  # fmt: skip
