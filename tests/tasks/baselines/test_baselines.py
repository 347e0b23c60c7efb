"""The baselines of every kind of task."""

import pytest

from sublayer.errors import DataError
from sublayer.tasks.baselines.linear import predict_classes
from sublayer.tasks.baselines.table import BASELINES
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.metrics.score import score
from sublayer.tasks.registry import TASKS, find_files, read_split
from sublayer.tasks.task import Task

_CLASSES = Task("x", "X", "", "classes", ("text",), ("accuracy",), labels=("no", "yes", "maybe"))
_NUMBER = Task("x", "X", "", "number", ("text",), ("pearson",))
_CHOICE = Task("x", "X", "", "choice", ("text",), ("accuracy",))
_SPAN = Task("x", "X", "", "span", ("passage", "question"), ("token_f1",))


def _rows(texts, labels):
    return [
        Example(str(index), {"text": text}, label=label)
        for index, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]


def test_the_majority_is_the_most_frequent_label():
    train = _rows("abcd", [1, 0, 1, 2])
    predictions = BASELINES["majority"].predict(_CLASSES, train, train[:2])
    assert [each.label for each in predictions] == [1, 1]
    assert predictions[0].probabilities == (0.25, 0.5, 0.25)


def test_of_numbers_it_is_the_mean():
    train = _rows("abc", [1.0, 2.0, 6.0])
    assert BASELINES["majority"].predict(_NUMBER, train, train[:1])[0].label == 3


def test_of_choices_it_is_the_place_that_is_right_most_often():
    train = [
        Example(str(label), {"text": ""}, label=label, choices=("a", "b", "c"))
        for label in (2, 0, 2)
    ]
    train.append(Example("3", {"text": ""}, choices=("a", "b"), answers=(Answer("b"),)))
    short = Example("4", {"text": ""}, choices=("a", "b"))
    predictions = BASELINES["majority"].predict(_CHOICE, train, [train[0], short])
    assert [each.label for each in predictions] == [2, 0]


def test_of_spans_it_is_the_first_sentence_or_no_answer():
    example = Example("0", {"passage": "He left. She came.", "question": "Who?"})
    majority = BASELINES["majority"]
    assert majority.predict(_SPAN, [], [example])[0].text == "He left."
    unanswerable = Task("x", "X", "", "span", _SPAN.fields, ("token_f1_v2",), has_unanswerable=True)
    assert majority.predict(unanswerable, [], [example])[0].text == ""


def test_words_learns_classes_and_numbers_from_what_is_said():
    texts = ["a good film", "very good", "so bad", "a bad film", "good", "bad bad"]
    train = _rows(texts, [1, 1, 0, 0, 1, 0])
    scored = _rows(["good film", "bad film", ""], [1, 0, 0])
    predictions = BASELINES["words"].predict(_CLASSES, train, scored)
    assert [each.label for each in predictions[:2]] == [1, 0]
    assert sum(predictions[0].probabilities) == pytest.approx(1)
    numbers = BASELINES["words"].predict(_NUMBER, train, scored)
    assert 0 <= numbers[1].label < 0.5 < numbers[0].label <= 1


def test_words_of_pairs_learn_whether_both_say_the_same():
    task = Task("x", "X", "", "classes", ("a", "b"), ("accuracy",), labels=("other", "same"))
    animals = [f"animal{index}" for index in range(40)]
    train = []
    for index, animal in enumerate(animals):
        other = animal if index % 2 else animals[index - 1]
        fields = {"a": f"the {animal} sleeps", "b": f"a {other} sleeps"}
        train.append(Example(str(index), fields, label=index % 2))
    predictions = BASELINES["words"].predict(task, train[:30], train[30:])
    assert score(train[30:], predictions, task.metrics).value == 1


def test_a_diagnostic_set_is_answered_by_what_its_task_teaches():
    train = [
        Example(str(index), {"premise": premise, "hypothesis": hypothesis}, label=label)
        for index, (premise, hypothesis, label) in enumerate(
            [("a cat sat", "a cat sat", 0), ("a cat sat", "dogs ran off", 1)] * 5
        )
    ]
    scored = [
        Example("0", {"sentence1": "a cow ate", "sentence2": "a cow ate"}),
        Example("1", {"sentence1": "a cow ate", "sentence2": "it rained"}),
    ]
    predictions = BASELINES["words"].predict(TASKS["axb"], train, scored)
    assert [each.label for each in predictions] == [0, 1]


@pytest.mark.parametrize("task", [_CLASSES, _NUMBER])
def test_texts_without_a_word_are_no_reason_to_stop(task):
    train = _rows(["", "", ""], [1, 0, 1])
    assert len(BASELINES["words"].predict(task, train, train)) == 3
    assert BASELINES["words"].predict(task, train, []) == []


def test_what_has_no_labels_teaches_nothing():
    train = [Example("0", {"text": "x"}, is_labelled=False)]
    for task in (_CLASSES, _NUMBER):
        for baseline in BASELINES.values():
            with pytest.raises(DataError, match="no training rows with a label"):
                baseline.predict(task, train, train)


def test_every_task_has_a_line_on_each_baseline():
    for task in (*TASKS.values(), _CLASSES, _NUMBER, _CHOICE, _SPAN):
        for baseline in BASELINES.values():
            assert baseline.describe(task)
    assert "classes balanced" in BASELINES["words"].describe(TASKS["cola"])


@pytest.mark.parametrize(
    ("name", "majority", "words"),
    [
        ("cola", 0, 21.6),
        ("stsb", 0, 75.3),
        ("rte", 52.7, 60.3),
        ("cb", (22.2 + 50) / 2, (76.2 + 75) / 2),
        ("race_middle", 26.9, 43.1),
        ("sst2", 50.9, 83.0),
    ],
)
def test_on_real_tasks_they_score_as_measured(real_data, name, majority, words):
    task = TASKS[name]
    found = find_files(task, real_data)
    train, dev = (read_split(task, split, found[split]).examples for split in ("train", "dev"))
    for baseline, expected in (("majority", majority), ("words", words)):
        value = score(dev, BASELINES[baseline].predict(task, train, dev), task.metrics).value
        # Some rows may fall elsewhere by another processor's rounding.
        assert 100 * value == pytest.approx(expected, abs=1)


def test_labels_that_are_rare_count_as_much_where_the_metric_says_so():
    train = _rows(["plain words"] * 10, [0] * 9 + [1])
    balanced = Task("x", "X", "", "classes", ("text",), ("matthews",), labels=("a", "b"))
    plain = Task("x", "X", "", "classes", ("text",), ("accuracy",), labels=("a", "b"))
    scored = _rows(["plain words"], [0])
    p_balanced, p_plain = (
        predict_classes(task, train, scored)[0].probabilities[1] for task in (balanced, plain)
    )
    assert p_plain == pytest.approx(0.1, abs=0.01)
    assert p_balanced == pytest.approx(0.5, abs=0.01)
