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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    """What the majority is taken of."""

    @property
    def title(self) -> str:
        """Return what messages call it."""
        return f"{self.task.title} ({self.split})"


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


def given_predictions(answers: Answers) -> Sequence[tuple[str, Prediction]]:
    """Return the predictions. Raises DataError where there are none to be handed in."""
    if answers.predictions is None:
        raise DataError(f"{answers.title} has no predictions: answer it first")
    return answers.predictions


def file_prefix(answers: Answers, of: Sequence[Answers]) -> str:
    """Return what the names of a split's files begin with: something where there are several."""
    return f"{answers.task.name}-{answers.split}-" if len(of) > 1 else ""


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
    """What was filled in, left out or is not whole, a line each; also in ``NOTES``, where there are
    any."""


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
    takes_text: bool = False
    """Whether what is none of the choices can be written, as the text that it is."""


@dataclass
class Filled:
    """The predictions of a file, whoever they are from."""

    ids: list[str]
    predictions: list[Prediction]
    notes: list[str]


def answers_of(
    files: Sequence[SuiteFile], answers: Sequence[Answers]
) -> dict[tuple[str, str], Answers]:
    """Return what is handed in, by task and split.

    Raises DataError where a split stands twice, or belongs to none of the files.
    """
    known = {(file.task, file.split) for file in files}
    by_split: dict[tuple[str, str], Answers] = {}
    for each in answers:
        key = (each.task.name, each.split)
        if key not in known:
            raise DataError(f"{each.title} belongs to no file of this submission")
        if key in by_split:
            raise DataError(f"{each.title} is given twice")
        by_split[key] = each
    return by_split


def fill(file: SuiteFile, answers: Answers | None) -> Filled:
    """Return the predictions of a file's rows, and what is to be said of them.

    Without predictions every row has the majority's answer; without the split's examples, rows are
    those of the published set, numbered from 0. Raises DataError as ``in_order`` does.
    """
    if answers is None:
        ids = [str(index) for index in range(file.n_rows)]
        note = (
            f"{file.name}: not trained, and its rows are not here; {file.n_rows:,} rows, as "
            f"published, have {_ONE_FOR_ALL}"
        )
        return Filled(ids, [file.most] * len(ids), [note])
    ids = [example.id for example in answers.examples]
    notes = []
    if answers.predictions is not None:
        predictions = in_order(answers, answers.predictions)
    else:
        predictions, how = _untrained(file, answers)
        in_order(answers, list(zip(ids, predictions, strict=True)))
        notes.append(f"{file.name}: not trained; every row has {how}")
    predictions, n_outside = _with_labels(predictions, file)
    if n_outside:
        notes.append(
            f"{file.name}: {count(n_outside, 'row')} answered with none of the labels; the "
            "majority's is written"
        )
    if file.n_rows and len(ids) != file.n_rows:
        notes.append(f"{file.name}: {len(ids):,} rows, of {file.n_rows:,} as published")
    return Filled(ids, predictions, notes)


def _untrained(file: SuiteFile, answers: Answers) -> tuple[list[Prediction], str]:
    if answers.train:
        predictions = majority(answers.task, answers.train, answers.examples)
        return predictions, describe_majority(answers.task)
    return [file.most] * len(answers.examples), _ONE_FOR_ALL


def _with_labels(
    predictions: Sequence[Prediction], file: SuiteFile
) -> tuple[list[Prediction], int]:
    """Return predictions that can all be written, and how many could not."""
    n_outside = 0
    result = []
    for each in predictions:
        if each.label is None and not (file.takes_text and each.text):
            n_outside += 1
            each = replace(each, label=file.most.label)
        result.append(each)
    return result, n_outside


GLUE_FILES = (
    SuiteFile("CoLA.tsv", "cola", "test", 1063, Prediction(1)),
    SuiteFile("SST-2.tsv", "sst2", "test", 1821, Prediction(1)),
    SuiteFile("MRPC.tsv", "mrpc", "test", 1725, Prediction(1)),
    SuiteFile("STS-B.tsv", "stsb", "test", 1379, Prediction(2.701)),
    SuiteFile("MNLI-m.tsv", "mnli", "test_matched", 9796, Prediction(0)),
    SuiteFile("MNLI-mm.tsv", "mnli", "test_mismatched", 9847, Prediction(0)),
    SuiteFile("QNLI.tsv", "qnli", "test", 5463, Prediction(0)),
    SuiteFile("QQP.tsv", "qqp", "test", 390965, Prediction(0)),
    SuiteFile("RTE.tsv", "rte", "test", 3000, Prediction(0)),
    SuiteFile("WNLI.tsv", "wnli", "test", 146, Prediction(0)),
    SuiteFile("AX.tsv", "ax", "test", 1104, Prediction(0)),
)
"""STS-B's mean is measured."""
_IN_WORDS = ("mnli", "qnli", "rte", "ax")
"""Tasks whose labels are written as words; those of others are 0 and 1."""


def write_glue(path: Path, answers: Sequence[Answers]) -> Submission:
    """Write a new folder with the eleven files, and the archive of them that is handed in.

    Rows of what is not among ``answers``, or has no predictions, are the majority's, marked in the
    notes. Raises DataError where rows are missing, stand twice or are unknown, a number is none,
    there is something at ``path``, or a split is not GLUE's.
    """
    by_split = answers_of(GLUE_FILES, answers)
    contents, notes = {}, []
    for file in GLUE_FILES:
        filled = fill(file, by_split.get((file.task, file.split)))
        notes += filled.notes
        contents[file.name] = _tsv(TASKS[file.task], filled)
    return write_submission(path, contents, notes, has_archive=True)


def _tsv(task: Task, filled: Filled) -> str:
    lines = ["index\tprediction\n"]
    for id_, prediction in zip(filled.ids, filled.predictions, strict=True):
        assert prediction.label is not None, "filled"
        lines.append(f"{id_}\t{_written(task, prediction.label)}\n")
    return "".join(lines)


def _written(task: Task, label: float) -> str:
    if task.kind == "number":
        if not math.isfinite(label):
            raise DataError(f"a prediction for {task.title} is {label}: no number can be written")
        lowest, highest = task.numbers
        return f"{min(max(label, lowest), highest):.3f}"
    return task.labels[int(label)] if task.name in _IN_WORDS else str(int(label))


SUPERGLUE_FILES = (
    SuiteFile("BoolQ.jsonl", "boolq", "test", 3245, Prediction(1)),
    SuiteFile("CB.jsonl", "cb", "test", 250, Prediction(1)),
    SuiteFile("COPA.jsonl", "copa", "test", 500, Prediction(1)),
    SuiteFile("MultiRC.jsonl", "multirc", "test", 0, Prediction(0)),
    SuiteFile("ReCoRD.jsonl", "record", "test", 0, Prediction(0), takes_text=True),
    SuiteFile("RTE.jsonl", "sg_rte", "test", 3000, Prediction(0)),
    SuiteFile("WiC.jsonl", "wic", "test", 1400, Prediction(0)),
    SuiteFile("WSC.jsonl", "wsc", "test", 146, Prediction(0)),
    SuiteFile("AX-b.jsonl", "axb", "dev", 1104, Prediction(0)),
    SuiteFile("AX-g.jsonl", "axg", "dev", 356, Prediction(0)),
)
_TRUTH = {"boolq": ("false", "true"), "wic": ("false", "true"), "wsc": ("False", "True")}
"""Labels that are written otherwise than they are called."""


def write_superglue(path: Path, answers: Sequence[Answers]) -> Submission:
    """Write a new folder with the ten files, and the archive of them that is handed in.

    As ``write_glue``; but without their examples MultiRC and ReCoRD, whose rows nobody can make up,
    are left out, and the notes say so.
    """
    by_split = answers_of(SUPERGLUE_FILES, answers)
    contents, notes = {}, []
    for file in SUPERGLUE_FILES:
        given = by_split.get((file.task, file.split))
        if given is None and not file.n_rows:
            notes.append(
                f"{file.name}: left out; it is not trained, and the passages that its rows are "
                "made of are not here"
            )
            continue
        filled = fill(file, given)
        notes += filled.notes
        task = TASKS[file.task]
        if given is None:
            pairs = zip(filled.ids, filled.predictions, strict=True)
            rows = [_row(task, int(id_), prediction) for id_, prediction in pairs]
        elif task.name == "multirc":
            rows = _passages(given.examples, filled.predictions)
        else:
            examples = zip(given.examples, filled.predictions, strict=True)
            rows = [_row(task, _idx(example), each, example) for example, each in examples]
        contents[file.name] = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return write_submission(path, contents, notes, has_archive=True)


def _idx(example: Example) -> int:
    return example.extra["query"] if "query" in example.extra else int(example.id)


def _row(
    task: Task, idx: int, prediction: Prediction, example: Example | None = None
) -> dict[str, Any]:
    if task.name == "record" and example is not None:
        return {"idx": idx, "label": answer_text(example, prediction)}
    label = int(prediction.label or 0)
    if task.kind == "choice":
        return {"idx": idx, "label": label}
    return {"idx": idx, "label": _TRUTH.get(task.name, task.labels)[label]}


def _passages(
    examples: Sequence[Example], predictions: Sequence[Prediction]
) -> list[dict[str, Any]]:
    passages: dict[int, dict[int, list[dict[str, int]]]] = {}
    for example, prediction in zip(examples, predictions, strict=True):
        questions = passages.setdefault(example.extra["passage"], {})
        answers = questions.setdefault(example.extra["question"], [])
        answers.append({"idx": example.extra["answer"], "label": int(prediction.label or 0)})
    return [
        {
            "idx": idx,
            "passage": {
                "questions": [
                    {"idx": question, "answers": answers} for question, answers in questions.items()
                ]
            },
        }
        for idx, questions in passages.items()
    ]


_LETTERS = "ABCDEFGHIJ"


def write_race(path: Path, answers: Sequence[Answers]) -> Submission:
    """Write a new folder with ``answers.json``, an object of ids and letters, and ``answers.csv``.

    What is none of the options is A, and counted in the notes. Otherwise as ``write_squad``.
    """
    contents, notes = {}, []
    for each in answers:
        predictions = in_order(each, given_predictions(each))
        letters = {
            example.id: _LETTERS[int(given.label or 0)]
            for example, given in zip(each.examples, predictions, strict=True)
        }
        prefix = file_prefix(each, answers)
        contents[f"{prefix}answers.json"] = json.dumps(letters, indent=0) + "\n"
        contents[f"{prefix}answers.csv"] = _csv(letters)
        n_outside = sum(given.label is None for given in predictions)
        if n_outside:
            notes.append(
                f"{each.title}: {count(n_outside, 'question')} answered with none of the options; "
                "A is written"
            )
    return write_submission(path, contents, notes, has_archive=False)


def _csv(letters: dict[str, str]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("id", "answer"))
    writer.writerows(letters.items())
    return buffer.getvalue()


def write_squad(path: Path, answers: Sequence[Answers]) -> Submission:
    """Write a new folder with ``predictions.json``: an object of ids and answers, empty for none.

    Of 2.0 ``null_odds.json`` has each id's score of no answer. With several splits the names begin
    with the task's and the split's. Raises DataError where rows are missing, stand twice, are
    unknown or have no predictions, and where there is something at ``path``.
    """
    contents = {}
    for each in answers:
        ids = [example.id for example in each.examples]
        predictions = in_order(each, given_predictions(each))
        prefix = file_prefix(each, answers)
        texts = {id_: given.text for id_, given in zip(ids, predictions, strict=True)}
        contents[f"{prefix}predictions.json"] = _json(texts)
        if each.task.has_unanswerable:
            odds = {id_: given.no_answer for id_, given in zip(ids, predictions, strict=True)}
            contents[f"{prefix}null_odds.json"] = _json(odds)
    return write_submission(path, contents, (), has_archive=False)


def _json(values: dict[str, str] | dict[str, float]) -> str:
    return json.dumps(values, ensure_ascii=False, indent=0) + "\n"


SUBMISSIONS: dict[str, Callable[[Path, Sequence[Answers]], Submission]] = {
    "glue": write_glue,
    "superglue": write_superglue,
    "squad": write_squad,
    "race": write_race,
}
"""By ``Task.suite``; the others' publishers take no predictions."""


def hand_in(suite: str, folder: Path, answers: Sequence[Answers]) -> Submission:
    """Write predictions as the publisher of a suite takes them. Raises as its own writer does."""
    return SUBMISSIONS[suite](folder, answers)


_FILES: dict[str, tuple[SuiteFile, ...]] = {"glue": GLUE_FILES, "superglue": SUPERGLUE_FILES}
_SPLITS = {"squad": "dev", "race": "test"}
"""Of suites whose tasks are handed in one by one. SQuAD's test set is its publisher's alone: the
predictions for its development set are what the evaluation script takes."""


def asked_sets(suite: str) -> tuple[tuple[str, str], ...]:
    """Return task and split of each set that a suite's publisher asks for."""
    if suite in _FILES:
        return tuple((file.task, file.split) for file in _FILES[suite])
    return tuple((task.name, _SPLITS[suite]) for task in (row.task for row in SUITES[suite]))


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
