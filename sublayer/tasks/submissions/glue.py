"""GLUE's submission: eleven files of TSV. Source: gluebenchmark.com, its FAQ."""

import math
from collections.abc import Sequence
from pathlib import Path

from sublayer.errors import DataError
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS
from sublayer.tasks.submissions.answers import Answers
from sublayer.tasks.submissions.filling import Filled, SuiteFile, answers_of, fill
from sublayer.tasks.submissions.folder import Submission, write_submission
from sublayer.tasks.task import Task

FILES = (
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
    by_split = answers_of(FILES, answers)
    contents, notes = {}, []
    for file in FILES:
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
