import json

import pytest

from sublayer.tasks.example import Example
from sublayer.tasks.predicting.named import NamedPrediction, name_prediction
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS


def example(task, **values):
    return Example("0", dict.fromkeys(TASKS[task].fields, "a"), **values)


def named(task, prediction, *, is_written=False, names=(), **values):
    return name_prediction(
        TASKS[task], example(task, **values), prediction, names, is_written=is_written
    )


def test_a_class_has_its_word_and_the_probability_of_each():
    found = named("rte", Prediction(1, (0.25, 0.75)))
    assert found.label == "not_entailment"
    assert found.probabilities == {"entailment": 0.25, "not_entailment": 0.75}
    assert found.probability == 0.75


def test_a_choice_has_its_text_its_number_and_those_that_it_has_not_none():
    found = named("copa", Prediction(0, (0.6, 0.4, 0.0)), choices=("x", "y"))
    assert (found.label, found.choice, found.probability) == ("x", 0, 0.6)
    assert found.probabilities == {"choice1": 0.6, "choice2": 0.4}
    found = named("copa", Prediction(1, (0.3, 0.7)), choices=("x", "y"), names=("one", "two"))
    assert found.probabilities == {"one": 0.3, "two": 0.7}


def test_a_number_is_itself():
    found = named("stsb", Prediction(2.5))
    assert (found.label, found.probabilities, found.probability) == (2.5, {}, None)


def test_a_span_has_its_place_and_an_empty_one_has_none():
    found = named("squad2", Prediction(text="a", start=3, probabilities=(0.5,), no_answer=-1.5))
    assert (found.label, found.start, found.probability, found.no_answer) == ("a", 3, 0.5, -1.5)
    found = named("squad2", Prediction(text="", start=None, no_answer=2.0))
    assert (found.label, found.start, found.probability) == ("", None, None)
    assert named("squad", Prediction(text="a", start=0)).no_answer is None


@pytest.mark.parametrize(
    ("task", "prediction", "label"),
    [
        ("rte", Prediction(0, text="entailment"), "entailment"),
        ("rte", Prediction(None, text="maybe"), None),
        ("stsb", Prediction(3.2, text="3.2"), 3.2),
        ("stsb", Prediction(None, text="three"), None),
    ],
)
def test_what_was_written_stands_beside_what_it_means(task, prediction, label):
    found = named(task, prediction, is_written=True)
    assert (found.label, found.written) == (label, prediction.text)


def test_json_has_what_is_known_and_always_a_prediction():
    found = named("rte", Prediction(1, (0.25, 0.75))).to_json()
    assert json.loads(json.dumps(found)) == {
        "prediction": "not_entailment",
        "probability": 0.75,
        "probabilities": {"entailment": 0.25, "not_entailment": 0.75},
    }
    assert NamedPrediction().to_json() == {"prediction": None}
    assert named("stsb", Prediction(1 / 3)).to_json() == {"prediction": 0.333333}
