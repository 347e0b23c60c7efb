"""What is handed in where no model was trained, or where it answered with none of the labels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sublayer.counts import count
from sublayer.errors import DataError
from sublayer.tasks.baselines.majority import describe_majority, majority
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.submissions.answers import Answers, in_order

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
