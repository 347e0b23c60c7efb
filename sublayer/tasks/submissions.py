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
from typing import Any, NamedTuple

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
    ids, predicted = [example.id for example in answers.examples], [id_ for id_, _ in predictions]
    for what, named in (("rows", ids), ("predictions", predicted)):
        twice = [id_ for id_, n in Counter(named).items() if n > 1]
        if twice:
            raise DataError(f"{answers.title} has two {what} with the id {twice[0]!r}")
    by_id = dict(predictions)
    unknown = by_id.keys() - ids
    for what, wrong in (
        ("prediction", [id_ for id_ in predicted if id_ in unknown]),
        ("row", [id_ for id_ in ids if id_ not in by_id]),
    ):
        if wrong:
            raise DataError(
                f"{answers.title} has {count(len(wrong), what)} without a "
                f"{'row' if what == 'prediction' else 'prediction'}: the first has the id "
                f"{wrong[0]!r}"
            )
    return [by_id[id_] for id_ in ids]


ARCHIVE = "submission.zip"
NOTES = "NOTES.txt"
_DATE = (1980, 1, 1, 0, 0, 0)
"""The same archive from the same files."""


class Submission(NamedTuple):
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
    files = {(file.task, file.split): file for file in FILES[suite]}
    by_name: dict[str, Answers] = {}
    for answer in answers:
        known = files.get((answer.task.name, answer.split))
        if known is None:
            raise DataError(f"{answer.title} belongs to no file of this submission")
        if known.name in by_name:
            raise DataError(f"{answer.title} is given twice")
        by_name[known.name] = answer
    contents: dict[str, str] = {}
    notes: list[str] = []
    for file in files.values():
        given = by_name.get(file.name)
        if given is not None:
            examples, predictions = given.examples, _filled(file, given, notes)
        elif file.n_rows:
            examples = [Example(str(number), {}) for number in range(file.n_rows)]
            predictions = [file.most] * file.n_rows
            notes.append(
                f"{file.name}: not trained, and its rows are not here; {file.n_rows:,} rows, as "
                f"published, have {_ONE_FOR_ALL}"
            )
        else:
            notes.append(
                f"{file.name}: left out; it is not trained, and the passages that its rows are "
                "made of are not here"
            )
            continue
        pairs = list(zip(examples, predictions, strict=True))
        if file.name.endswith(".tsv"):
            lines = [f"{example.id}\t{_label(file, example, given)}" for example, given in pairs]
            lines.insert(0, "index\tprediction")
        else:
            rows = (_passages if file.has_passages else _objects)(file, pairs)
            lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        contents[file.name] = "".join(f"{line}\n" for line in lines)
    return write_submission(path, contents, notes, has_archive=True)


def _filled(file: SuiteFile, answers: Answers, notes: list[str]) -> list[Prediction]:
    """Return the predictions of a file's rows, those that are missing the majority's, with notes.

    Raises DataError as ``in_order`` does.
    """
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
    filled = [
        replace(prediction, label=file.most.label)
        if prediction.label is None and not (file.takes_text and prediction.text)
        else prediction
        for prediction in predictions
    ]
    n_outside = sum(new is not old for new, old in zip(filled, predictions, strict=True))
    if n_outside:
        notes.append(
            f"{file.name}: {count(n_outside, 'row')} answered with none of the labels; the "
            "majority's is written"
        )
    if file.n_rows and len(predictions) != file.n_rows:
        notes.append(f"{file.name}: {len(predictions):,} rows, of {file.n_rows:,} as published")
    return filled


_Pairs = Sequence[tuple[Example, Prediction]]


def _label(file: SuiteFile, example: Example, prediction: Prediction) -> str | int:
    """Return a prediction as a file has it."""
    if file.takes_text:
        return answer_text(example, prediction)
    task, label = TASKS[file.task], prediction.label
    assert label is not None, "filled"
    if task.kind != "number":
        return file.labels[int(label)] if file.labels else int(label)
    if not math.isfinite(label):
        raise DataError(f"a prediction for {task.title} is {label}: no number can be written")
    lowest, highest = task.numbers
    return f"{min(max(label, lowest), highest):.3f}"


def _objects(file: SuiteFile, pairs: _Pairs) -> Iterator[dict[str, Any]]:
    for example, prediction in pairs:
        idx = example.extra["query"] if "query" in example.extra else int(example.id)
        yield {"idx": idx, "label": _label(file, example, prediction)}


def _passages(file: SuiteFile, pairs: _Pairs) -> Iterator[dict[str, Any]]:
    passages: dict[int, dict[int, list[dict[str, Any]]]] = {}
    for example, prediction in pairs:
        questions = passages.setdefault(example.extra["passage"], {})
        answers = questions.setdefault(example.extra["question"], [])
        label = _label(file, example, prediction)
        answers.append({"idx": example.extra["answer"], "label": label})
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
    for answer in answers:
        given = list(zip([example.id for example in answer.examples], answer.given(), strict=True))
        columns: dict[str, dict[str, Any]] = {"predictions": {id_: x.text for id_, x in given}}
        if answer.task.has_unanswerable:
            columns["null_odds"] = {id_: x.no_answer for id_, x in given}
        for name, values in columns.items():
            contents[f"{_prefix(answer, answers)}{name}.json"] = _json(values)
    return write_submission(path, contents, (), has_archive=False)


def _write_race(path: Path, answers: Sequence[Answers]) -> Submission:
    """Write a new folder with ``answers.json``, an object of ids and letters, and ``answers.csv``.

    A prediction that is none of the options is A, and counted in the notes. Its authors take no
    file, so its form is ours. Otherwise as ``_write_squad``.
    """
    contents, notes = {}, []
    for answer in answers:
        predictions = answer.given()
        pairs = zip(answer.examples, predictions, strict=True)
        letters = {example.id: _LETTERS[int(given.label or 0)] for example, given in pairs}
        contents[f"{_prefix(answer, answers)}answers.json"] = _json(letters)
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([("id", "answer"), *letters.items()])
        contents[f"{_prefix(answer, answers)}answers.csv"] = table.getvalue()
        n_outside = sum(given.label is None for given in predictions)
        if n_outside:
            notes.append(
                f"{answer.title}: {count(n_outside, 'question')} answered with none of the "
                "options; A is written"
            )
    return write_submission(path, contents, notes, has_archive=False)


def _prefix(answers: Answers, of: Sequence[Answers]) -> str:
    return f"{answers.task.name}-{answers.split}-" if len(of) > 1 else ""


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, indent=0) + "\n"


SUBMISSIONS: dict[str, Callable[[Path, Sequence[Answers]], Submission]] = {
    "glue": partial(_write_files, "glue"),
    "superglue": partial(_write_files, "superglue"),
    "squad": _write_squad,
    "race": _write_race,
}
"""By ``Task.suite``; the others' publishers take no predictions. They raise DataError."""
