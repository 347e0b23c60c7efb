"""Prediction files of SQuAD and RACE."""

import csv
import json
from collections import Counter

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.metrics.score import score
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.submissions.answers import Answers
from sublayer.tasks.submissions.race import write_race
from sublayer.tasks.submissions.squad import write_squad
from sublayer.tasks.submissions.table import SUBMISSIONS
from sublayer.tasks.task import Task

_SQUAD = Task("squad", "SQuAD 1.1", "squad", "span", ("context", "question"), ("exact_match",))
_SQUAD2 = Task("squad2", "SQuAD 2.0", "squad", "span", _SQUAD.fields, ("exact_match_v2",),
               has_unanswerable=True)  # fmt: skip
_RACE = Task("race_middle", "RACE middle", "race", "choice", ("article", "question"), ("accuracy",))
_QUESTIONS = [
    Example("q1", {}, answers=(Answer("the cat"), Answer("a big cat"))),
    Example("q2", {}, answers=(Answer("Zoë"),)),
    Example("q3", {}),
]


def _answers(task, rows, predictions, split="dev"):
    pairs = zip(rows, predictions, strict=True)
    return Answers(task, split, rows, [(row.id, each) for row, each in pairs])


def _exact_v1(dataset, predictions):
    """What SQuAD 1.1's script does with a file of predictions, for words without punctuation."""
    total = right = 0
    for question in dataset:
        total += 1
        text = predictions.get(question["id"])
        words = [word for word in (text or "").lower().split() if word not in ("a", "an", "the")]
        golds = [
            [word for word in answer["text"].lower().split() if word not in ("a", "an", "the")]
            for answer in question["answers"]
        ]
        right += any(Counter(words) == Counter(gold) and words == gold for gold in golds)
    return right / total


def test_the_scripts_reader_finds_every_id(tmp_path):
    rows = _QUESTIONS[:2]
    predictions = [Prediction(text="Big Cat"), Prediction(text="zoë")]
    submission = write_squad(tmp_path / "out", [_answers(_SQUAD, rows, predictions)])
    assert submission.files == ("predictions.json",)
    written = json.loads((tmp_path / "out" / "predictions.json").read_text(encoding="utf-8"))
    assert written == {"q1": "Big Cat", "q2": "zoë"}
    dataset = [
        {"id": row.id, "answers": [{"text": each.text} for each in row.answers]} for row in rows
    ]
    ours = score(rows, predictions, _SQUAD.metrics).value
    assert _exact_v1(dataset, written) == ours == 1


def test_of_2_0_no_answer_is_empty_and_its_scores_stand_beside(tmp_path):
    predictions = [
        Prediction(text="cat", no_answer=-2.5),
        Prediction(text="", no_answer=1.0),
        Prediction(text="", no_answer=3.0),
    ]
    write_squad(tmp_path / "out", [_answers(_SQUAD2, _QUESTIONS, predictions)])
    read = {path.name: json.loads(path.read_text()) for path in (tmp_path / "out").iterdir()}
    assert read == {
        "predictions.json": {"q1": "cat", "q2": "", "q3": ""},
        "null_odds.json": {"q1": -2.5, "q2": 1.0, "q3": 3.0},
    }


def test_several_splits_have_files_of_their_own(tmp_path):
    both = [
        _answers(_SQUAD, _QUESTIONS[:1], [Prediction(text="x")]),
        _answers(_SQUAD2, _QUESTIONS[:1], [Prediction(text="y")]),
    ]
    files = write_squad(tmp_path / "out", both).files
    assert files == (
        "squad-dev-predictions.json",
        "squad2-dev-predictions.json",
        "squad2-dev-null_odds.json",
    )


def test_races_answers_are_letters(tmp_path):
    rows = [Example(f"middle1.txt.{number}", {}, choices=tuple("wxyz")) for number in range(3)]
    predictions = [Prediction(3), Prediction(0), Prediction(None)]
    submission = write_race(tmp_path / "out", [_answers(_RACE, rows, predictions, "test")])
    letters = json.loads((tmp_path / "out" / "answers.json").read_text())
    assert letters == {"middle1.txt.0": "D", "middle1.txt.1": "A", "middle1.txt.2": "A"}
    with (tmp_path / "out" / "answers.csv").open(newline="") as file:
        assert {row["id"]: row["answer"] for row in csv.DictReader(file)} == letters
    assert submission.notes == (
        "RACE middle (test): 1 question answered with none of the options; A is written",
    )


@pytest.mark.parametrize("suite", ["squad", "race"])
def test_what_was_not_answered_is_not_written(suite, tmp_path):
    answers = Answers({"squad": _SQUAD, "race": _RACE}[suite], "dev", _QUESTIONS)
    with pytest.raises(DataError, match="has no predictions"):
        SUBMISSIONS[suite](tmp_path / "out", [answers])
    assert not list(tmp_path.iterdir())
