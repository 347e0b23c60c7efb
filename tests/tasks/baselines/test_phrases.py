"""Answers by the words of the question."""

import pytest

from sublayer.tasks.baselines.phrases import predict_spans
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.task import Task

PASSAGE = (
    "The tower was built in 1889 by Gustave Eiffel. It is visited by seven million people. "
    "Paris, where it stands, is the capital of France."
)


def _task(has_unanswerable=False):
    return Task(
        "squad", "SQuAD", "squad", "span", ("context", "question"), ("token_f1",),
        has_unanswerable=has_unanswerable,
    )  # fmt: skip


def _asked(question, passage=PASSAGE, answers=()):
    return Example("0", {"context": passage, "question": question}, answers=answers)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("When was the tower built?", "1889"),
        ("Who built the tower?", "Gustave Eiffel"),
        ("What is the capital of France?", "Paris"),
    ],
)
def test_the_answer_is_a_phrase_of_the_sentence_with_the_questions_words(question, answer):
    (prediction,) = predict_spans(_task(), [], [_asked(question)])
    assert prediction.text == answer
    assert PASSAGE[prediction.start :].startswith(answer)


def test_what_the_passage_does_not_speak_of_is_likelier_unanswerable():
    questions = ["When was the tower built?", "When was the senate abolished?"]
    known, unknown = predict_spans(_task(), [], [_asked(each) for each in questions])
    assert 0 <= known.no_answer < unknown.no_answer <= 1


def test_where_questions_may_have_no_answer_the_threshold_is_learned():
    known = _asked("When was the tower built?", answers=(Answer("1889"),))
    unknown = _asked("When was the senate of Rome abolished?")
    predictions = predict_spans(_task(has_unanswerable=True), [known, unknown], [known, unknown])
    assert [each.text for each in predictions] == ["1889", ""]


def test_a_sentence_of_the_questions_words_alone_is_the_answer():
    (prediction,) = predict_spans(_task(), [], [_asked("Is it what it is?", "It is what it is.")])
    assert prediction.text == "It is what it is."


def test_an_empty_passage_has_no_answer():
    (prediction,) = predict_spans(_task(), [], [_asked("Who?", "")])
    assert prediction.text == ""
