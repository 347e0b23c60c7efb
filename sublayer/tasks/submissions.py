"""Predictions as the publishers of tasks take them, complete and checked.

Sources: GLUE's eleven files of TSV: gluebenchmark.com, its FAQ; SuperGLUE's ten files of JSON
lines: super.gluebenchmark.com and jiant's writer, where MultiRC's rows are passages with their
questions and answers and ReCoRD's labels are texts.
"""

import csv
import io
import json
import math
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sublayer.counts import count
from sublayer.errors import DataError
from sublayer.files.storage import new_folder
from sublayer.tasks.baselines import describe_majority, majority
from sublayer.tasks.reading import SAME_ID, ReadSplit
from sublayer.tasks.registry import SUITES, TASKS, read_split
from sublayer.tasks.task import Example, Prediction, Task
from sublayer.tasks.text_metrics import answer_text

_LETTERS = "ABCDEFGHIJ"
_IN_WORDS = ("entailment", "not_entailment")
_THREE_WAY = ("entailment", "neutral", "contradiction")
_SMALL_TRUTH = ("false", "true")


@dataclass(frozen=True)
class Answers:
    """A split, and the predictions for it."""

    task: Task
    split: str
    """Such as ``test``, or ``test_matched``."""
    examples: Sequence[Example]
    predictions: Sequence[tuple[str, Prediction]] | None = None
    """With the id of each one's example, in any order; None where no model was trained: then the
    majority's answer is handed in, and marked."""
    train: Sequence[Example] = ()
    """Examples that the majority is taken of."""

    @property
    def title(self) -> str:
        """Return what messages call it."""
        return f"{self.task.title} ({self.split})"

    def given(self) -> list[Prediction]:
        """Return the prediction of each example; raise DataError where there are none."""
        if self.predictions is None:
            raise DataError(f"{self.title} has no predictions: answer it first")
        return in_order(self, self.predictions)


def in_order(answers: Answers, predictions: Sequence[tuple[str, Prediction]]) -> list[Prediction]:
    """Return the prediction of each example.

    Raises DataError where ids of examples or of predictions stand twice, where examples have no
    prediction, and where predictions are for none of the examples.
    """
    ids = [example.id for example in answers.examples]
    _check_once(answers, ids, "rows")
    predicted = [each for each, _ in predictions]
    _check_once(answers, predicted, "predictions")
    known = set(ids)
    unknown = [each for each in predicted if each not in known]
    if unknown:
        raise DataError(
            f"{count(len(unknown), 'prediction')} for {answers.title} belong to none of its rows: "
            f"the first has the id {unknown[0]!r}"
        )
    by_id = dict(predictions)
    missing = [each for each in ids if each not in by_id]
    if missing:
        raise DataError(
            f"{len(missing):,} of the {len(ids):,} rows of {answers.title} have no prediction: the "
            f"first has the id {missing[0]!r}"
        )
    return [by_id[each] for each in ids]


def _check_once(answers: Answers, ids: Sequence[str], what: str) -> None:
    twice = [each for each, n in Counter(ids).items() if n > 1]
    if twice:
        raise DataError(f"{answers.title} has two {what} with the id {twice[0]!r}")


ARCHIVE = "submission.zip"
NOTES = "NOTES.txt"
_DATE = (1980, 1, 1, 0, 0, 0)
"""The same archive from the same files."""


@dataclass(frozen=True)
class Submission:
    """A folder that was written."""

    path: Path
    files: tuple[str, ...]
    """Their names; ``ARCHIVE``, where there is one, holds them all."""
    notes: tuple[str, ...]
    """Notes on rows filled in or left out and on incomplete files, a line each; also in ``NOTES``,
    where there are any."""


def write_submission(
    path: Path, files: Mapping[str, str], notes: Sequence[str], *, has_archive: bool
) -> Submission:
    """Write files, by name, and their archive into a new folder, or nothing.

    Raises DataError where there is something at ``path``, or where it cannot be written.
    """
    try:
        with new_folder(path) as folder:
            for name, content in files.items():
                (folder / name).write_text(content, encoding="utf-8", newline="")
            if has_archive:
                (folder / ARCHIVE).write_bytes(_archive(files))
            if notes:
                text = "".join(f"{line}\n" for line in notes)
                (folder / NOTES).write_text(text, encoding="utf-8", newline="")
    except FileExistsError:
        raise DataError(f"{path} exists: name a folder that does not") from None
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}") from None
    return Submission(path, tuple(files), tuple(notes))


def _archive(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, _DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, content.encode())
    return buffer.getvalue()


_ONE_FOR_ALL = (
    "one answer: the majority's of the published training set, or the first of balanced classes"
)


@dataclass(frozen=True)
class SuiteFile:
    """A file that a suite's evaluation asks for."""

    name: str
    task: str
    """As ``Task.name``."""
    split: str
    n_rows: int
    """Of the published set; 0 where rows cannot be made without it."""
    most: Prediction
    """The majority's answer in the published training set; the first where classes are balanced."""
    labels: tuple[str, ...] = ()
    """Labels as they are written; empty: by their numbers."""
    takes_text: bool = False
    """True where the text of the choice is written, or the text that was answered instead."""
    has_passages: bool = False
    """True where a row is a passage with all of its questions and answers."""


FILES: dict[str, tuple[SuiteFile, ...]] = {
    "glue": (
        SuiteFile("CoLA.tsv", "cola", "test", 1063, Prediction(1)),
        SuiteFile("SST-2.tsv", "sst2", "test", 1821, Prediction(1)),
        SuiteFile("MRPC.tsv", "mrpc", "test", 1725, Prediction(1)),
        SuiteFile("STS-B.tsv", "stsb", "test", 1379, Prediction(2.701)),
        SuiteFile("MNLI-m.tsv", "mnli", "test_matched", 9796, Prediction(0), _THREE_WAY),
        SuiteFile("MNLI-mm.tsv", "mnli", "test_mismatched", 9847, Prediction(0), _THREE_WAY),
        SuiteFile("QNLI.tsv", "qnli", "test", 5463, Prediction(0), _IN_WORDS),
        SuiteFile("QQP.tsv", "qqp", "test", 390965, Prediction(0)),
        SuiteFile("RTE.tsv", "rte", "test", 3000, Prediction(0), _IN_WORDS),
        SuiteFile("WNLI.tsv", "wnli", "test", 146, Prediction(0)),
        SuiteFile("AX.tsv", "ax", "test", 1104, Prediction(0), _THREE_WAY),
    ),
    "superglue": (
        SuiteFile("BoolQ.jsonl", "boolq", "test", 3245, Prediction(1), _SMALL_TRUTH),
        SuiteFile("CB.jsonl", "cb", "test", 250, Prediction(1), TASKS["cb"].labels),
        SuiteFile("COPA.jsonl", "copa", "test", 500, Prediction(1)),
        SuiteFile("MultiRC.jsonl", "multirc", "test", 0, Prediction(0), has_passages=True),
        SuiteFile("ReCoRD.jsonl", "record", "test", 0, Prediction(0), takes_text=True),
        SuiteFile("RTE.jsonl", "sg_rte", "test", 3000, Prediction(0), _IN_WORDS),
        SuiteFile("WiC.jsonl", "wic", "test", 1400, Prediction(0), _SMALL_TRUTH),
        SuiteFile("WSC.jsonl", "wsc", "test", 146, Prediction(0), TASKS["wsc"].labels),
        SuiteFile("AX-b.jsonl", "axb", "dev", 1104, Prediction(0), _IN_WORDS),
        SuiteFile("AX-g.jsonl", "axg", "dev", 356, Prediction(0), _IN_WORDS),
    ),
}
"""By suite; STS-B's mean is measured."""
_SPLITS = {"squad": "dev", "race": "test"}
"""Of suites whose tasks are handed in one by one. SQuAD's test set is its publisher's alone: the
evaluation script takes the predictions for its development set."""


def asked_sets(suite: str) -> tuple[tuple[str, str], ...]:
    """Return task and split of each set that a suite's publisher asks for."""
    if suite in FILES:
        return tuple((file.task, file.split) for file in FILES[suite])
    return tuple((row.task.name, _SPLITS[suite]) for row in SUITES[suite])


def read_test_set(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    """Read a set that is handed in.

    Raises DataError where rows of it are left out, or two have one id: nothing may be missing.
    """
    read = read_split(task, split, paths)
    problems = [*read.skipped, *(what for what in read.repaired if what == SAME_ID)]
    if problems:
        first = problems[0]
        n = read.skipped[first] or read.repaired[first]
        raise DataError(
            f"{read.firsts[first]}: {first} (in {n:,}): a submission has an answer for each row, "
            "by its id: mend the file"
        )
    return read


def _write_files(suite: str, path: Path, answers: Sequence[Answers]) -> Submission:
    """Write a new folder with all files of a suite, and the archive of them that is handed in.

    Rows of splits that are not among ``answers``, or have no predictions, are the majority's,
    marked in the notes; without their examples MultiRC and ReCoRD, whose rows nobody can make up,
    are left out. Raises DataError where rows are missing, stand twice or are unknown, a number is
    none, there is something at ``path``, or a split is not the suite's.
    """
    files = FILES[suite]
    by_split: dict[tuple[str, str], Answers] = {}
    for each in answers:
        key = (each.task.name, each.split)
        if key not in {(file.task, file.split) for file in files}:
            raise DataError(f"{each.title} belongs to no file of this submission")
        if key in by_split:
            raise DataError(f"{each.title} is given twice")
        by_split[key] = each
    contents: dict[str, str] = {}
    notes: list[str] = []
    for file in files:
        given = by_split.get((file.task, file.split))
        if given is None and not file.n_rows:
            notes.append(
                f"{file.name}: left out; it is not trained, and the passages that its rows are "
                "made of are not here"
            )
            continue
        predictions = _filled(file, given, notes)
        if given is None:
            ids = [str(index) for index in range(file.n_rows)]
        else:
            ids = [example.id for example in given.examples]
        if file.name.endswith(".tsv"):
            pairs = zip(ids, predictions, strict=True)
            lines = [f"{id_}\t{_written(file, prediction)}\n" for id_, prediction in pairs]
            contents[file.name] = "".join(["index\tprediction\n", *lines])
        else:
            examples = given.examples if given is not None else [Example(id_, {}) for id_ in ids]
            rows = (_passages if file.has_passages else _objects)(file, examples, predictions)
            lines = [json.dumps(row, ensure_ascii=False) for row in rows]
            contents[file.name] = "".join(f"{line}\n" for line in lines)
    return write_submission(path, contents, notes, has_archive=True)


def _filled(file: SuiteFile, answers: Answers | None, notes: list[str]) -> list[Prediction]:
    """Return the predictions of a file's rows, and add notes on them.

    Without predictions every row has the majority's answer; without the split's examples, rows are
    those of the published set, numbered from 0. Raises DataError as ``in_order`` does.
    """
    if answers is None:
        notes.append(
            f"{file.name}: not trained, and its rows are not here; {file.n_rows:,} rows, as "
            f"published, have {_ONE_FOR_ALL}"
        )
        return [file.most] * file.n_rows
    if answers.predictions is not None:
        predictions = answers.given()
    else:
        predictions, how = [file.most] * len(answers.examples), _ONE_FOR_ALL
        if answers.train:
            predictions = majority(answers.task, answers.train, answers.examples)
            how = describe_majority(answers.task)
        ids = [example.id for example in answers.examples]
        in_order(answers, list(zip(ids, predictions, strict=True)))
        notes.append(f"{file.name}: not trained; every row has {how}")
    is_outside = [
        each.label is None and not (file.takes_text and each.text) for each in predictions
    ]
    if any(is_outside):
        notes.append(
            f"{file.name}: {count(sum(is_outside), 'row')} answered with none of the labels; the "
            "majority's is written"
        )
    if file.n_rows and len(predictions) != file.n_rows:
        notes.append(f"{file.name}: {len(predictions):,} rows, of {file.n_rows:,} as published")
    return [
        replace(each, label=file.most.label) if is_none else each
        for each, is_none in zip(predictions, is_outside, strict=True)
    ]


def _written(file: SuiteFile, prediction: Prediction) -> str:
    task, label = TASKS[file.task], prediction.label
    assert label is not None, "filled"
    if task.kind != "number":
        return file.labels[int(label)] if file.labels else str(int(label))
    if not math.isfinite(label):
        raise DataError(f"a prediction for {task.title} is {label}: no number can be written")
    lowest, highest = task.numbers
    return f"{min(max(label, lowest), highest):.3f}"


def _objects(
    file: SuiteFile, examples: Sequence[Example], predictions: Sequence[Prediction]
) -> Iterator[dict[str, Any]]:
    for example, prediction in zip(examples, predictions, strict=True):
        index = int(prediction.label or 0)
        label: str | int = file.labels[index] if file.labels else index
        if file.takes_text:
            label = answer_text(example, prediction)
        idx = example.extra["query"] if "query" in example.extra else int(example.id)
        yield {"idx": idx, "label": label}


def _passages(
    file: SuiteFile, examples: Sequence[Example], predictions: Sequence[Prediction]
) -> Iterator[dict[str, Any]]:
    passages: dict[int, dict[int, list[dict[str, int]]]] = {}
    for example, prediction in zip(examples, predictions, strict=True):
        questions = passages.setdefault(example.extra["passage"], {})
        answers = questions.setdefault(example.extra["question"], [])
        answers.append({"idx": example.extra["answer"], "label": int(prediction.label or 0)})
    for idx, questions in passages.items():
        rows = [{"idx": question, "answers": answers} for question, answers in questions.items()]
        yield {"idx": idx, "passage": {"questions": rows}}


def _write_squad(path: Path, answers: Sequence[Answers]) -> Submission:
    """Write a new folder with ``predictions.json``: an object of ids and answers, empty for none.

    Of 2.0 ``null_odds.json`` has each id's score of no answer. With several splits the names begin
    with the task's and the split's. Raises DataError where rows are missing, stand twice, are
    unknown or have no predictions, and where there is something at ``path``.
    """
    contents = {}
    for each in answers:
        by_id = {
            example.id: given for example, given in zip(each.examples, each.given(), strict=True)
        }
        texts = {id_: given.text for id_, given in by_id.items()}
        contents[f"{_prefix(each, answers)}predictions.json"] = _json(texts)
        if each.task.has_unanswerable:
            odds = {id_: given.no_answer for id_, given in by_id.items()}
            contents[f"{_prefix(each, answers)}null_odds.json"] = _json(odds)
    return write_submission(path, contents, (), has_archive=False)


def _write_race(path: Path, answers: Sequence[Answers]) -> Submission:
    """Write a new folder with ``answers.json``, an object of ids and letters, and ``answers.csv``.

    A prediction that is none of the options is A, and counted in the notes. Its authors take no
    file, so its form is ours. Otherwise as ``_write_squad``.
    """
    contents, notes = {}, []
    for each in answers:
        predictions = each.given()
        pairs = zip(each.examples, predictions, strict=True)
        letters = {example.id: _LETTERS[int(given.label or 0)] for example, given in pairs}
        contents[f"{_prefix(each, answers)}answers.json"] = _json(letters)
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([("id", "answer"), *letters.items()])
        contents[f"{_prefix(each, answers)}answers.csv"] = table.getvalue()
        n_outside = sum(given.label is None for given in predictions)
        if n_outside:
            notes.append(
                f"{each.title}: {count(n_outside, 'question')} answered with none of the options; "
                "A is written"
            )
    return write_submission(path, contents, notes, has_archive=False)


def _prefix(answers: Answers, of: Sequence[Answers]) -> str:
    return f"{answers.task.name}-{answers.split}-" if len(of) > 1 else ""


def _json(values: Mapping[str, str] | Mapping[str, float]) -> str:
    return json.dumps(values, ensure_ascii=False, indent=0) + "\n"


SUBMISSIONS: dict[str, Callable[[Path, Sequence[Answers]], Submission]] = {
    "glue": partial(_write_files, "glue"),
    "superglue": partial(_write_files, "superglue"),
    "squad": _write_squad,
    "race": _write_race,
}
"""By ``Task.suite``; the others' publishers take no predictions. They raise DataError."""
