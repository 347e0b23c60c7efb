"""SuperGLUE's submission: ten files of JSON lines. Source: super.gluebenchmark.com; jiant's writer.

MultiRC's rows are passages with their questions and answers; ReCoRD's labels are texts.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sublayer.tasks.example import Example
from sublayer.tasks.metrics.spans import answer_text
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS
from sublayer.tasks.submissions.answers import Answers
from sublayer.tasks.submissions.filling import SuiteFile, answers_of, fill
from sublayer.tasks.submissions.folder import Submission, write_submission
from sublayer.tasks.task import Task

FILES = (
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
    by_split = answers_of(FILES, answers)
    contents, notes = {}, []
    for file in FILES:
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
