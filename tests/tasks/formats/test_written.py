"""Answers read from what a model wrote."""

import json

import pytest

from sublayer.tasks.example import Answer, Example
from sublayer.tasks.formats.text import text_target
from sublayer.tasks.formats.written import names_referent, read_answer
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.task import Task


def _task(name: str, kind, fields: str, **rest) -> Task:
    return Task(name, name, "", kind, tuple(fields.split()), ("accuracy",), **rest)


_SST2 = _task("sst2", "classes", "sentence", labels=("negative", "positive"))
_STSB = _task("stsb", "number", "sentence1 sentence2", numbers=(0.0, 5.0))
_SQUAD2 = _task("squad2", "span", "context question", has_unanswerable=True)


def test_a_label_is_read_by_its_word():
    example = Example("0", {"sentence": "fine"})
    assert read_answer(_SST2, example, "positive ") == Prediction(1, text="positive")
    assert read_answer(_SST2, example, "posit") == Prediction(None, text="posit")


@pytest.mark.parametrize(
    ("written", "number"), [("-1", -1), ("3.8", 3.8), ("three", None), ("nan", None)]
)
def test_a_number_is_read_and_what_is_none_is_no_label(written, number):
    example = Example("0", {"sentence1": "A", "sentence2": "B"})
    assert read_answer(_STSB, example, written) == Prediction(number, text=written)


def test_a_choice_is_read_by_its_name():
    task = _task("copa", "choice", "premise question")
    example = Example("0", {"premise": "P", "question": "cause"}, choices=("X", "Y"))
    assert read_answer(task, example, "choice2").label == 1
    assert read_answer(task, example, "Y").label is None


def test_an_entity_is_kept_as_text_even_where_it_is_none_of_the_choices():
    task = _task("record", "choice", "passage query")
    example = Example("0", {"passage": "P", "query": "Q"}, choices=("Ann", "Bob"))
    assert read_answer(task, example, "Bob") == Prediction(1, text="Bob")
    assert read_answer(task, example, "Rob") == Prediction(None, text="Rob")


@pytest.mark.parametrize(
    ("written", "referent", "is_named"),
    [
        # T5's own tests.
        ("potato", "turnip", False),
        ("the cat", "cat", True),
        ("Bob's hat", "Bob", False),
        ("fuzzy bunny", "Bunny", True),
        ("Bunny", "fuzzy bunny", True),
    ],
)
def test_a_noun_is_named_by_the_words_of_either(written, referent, is_named):
    assert names_referent(written, referent) == is_named


def test_wsc_asks_whether_the_noun_is_named():
    fields = {"text": "Ann told Eve she won", "span1_text": "the girl", "span2_text": "she"}
    task = _task("wsc", "classes", "text span1_text span2_text", labels=("False", "True"))
    example = Example("0", fields, extra={"span2_index": 3})
    assert read_answer(task, example, "Girl").label == 1
    assert read_answer(task, example, "boy").label == 0
    assert read_answer(task, example, "").label is None
    assert read_answer(task, example, "the").label is None


def test_wnli_asks_whether_the_hypothesis_has_the_noun():
    fields = {"sentence1": "The fish ate the worm. It was tasty.",
              "sentence2": "The worm was tasty."}  # fmt: skip
    labels = ("not_entailment", "entailment")
    task = _task("wnli", "classes", "sentence1 sentence2", labels=labels)
    assert read_answer(task, Example("0", fields), "the worm").label == 1
    assert read_answer(task, Example("0", fields), "the fish").label == 0


def test_dpr_asks_which_of_both_is_named():
    task = _task("dpr", "choice", "text pronoun")
    fields = {"text": "The cat fled the dog as it barked.", "pronoun": "it"}
    example = Example("0", fields, choices=("the cat", "the big dog"))
    assert read_answer(task, example, "the big dog").label == 1
    assert read_answer(task, example, "Dog").label == 1
    assert read_answer(task, example, "the bird").label is None
    example = Example("0", fields, choices=("the small dog", "the big dog"))
    assert read_answer(task, example, "dog").label is None


def test_a_span_is_the_passages_own_text_without_the_spaces_of_the_format():
    fields = {"context": "Made in the U.S. for $5 (about).", "question": "Where?"}
    example = Example("0", fields, answers=(Answer("the U.S.", 8),))
    written = text_target(_SQUAD2, example)
    assert written == "the U . S . "
    assert read_answer(_SQUAD2, example, written) == Prediction(text="the U.S.", start=8)
    assert read_answer(_SQUAD2, example, "The u . s") == Prediction(text="the U.S", start=8)
    assert read_answer(_SQUAD2, example, "the moon") == Prediction(text="the moon")
    assert read_answer(_SQUAD2, example, "") == Prediction(text="")


def test_no_answer_is_a_text_of_its_own():
    example = Example("0", {"context": "C", "question": "Q"})
    prediction = read_answer(_SQUAD2, example, "Unanswerable")
    assert (prediction.text, prediction.no_answer) == ("", 1.0)


def test_every_answer_of_the_shared_piece_is_read_back(real_data):

    path = real_data / "squad" / "squad_v1.1_dev_240_paragraphs.json"
    n_questions = n_inside = 0
    for article in json.loads(path.read_text("utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answers = [Answer(row["text"], row["answer_start"]) for row in question["answers"]]
                fields = {"context": paragraph["context"], "question": question["question"]}
                example = Example("0", fields, answers=tuple(answers))
                written = text_target(_SQUAD2, example)
                assert written is not None
                read = read_answer(_SQUAD2, example, written)
                n_questions += 1
                if read.start is None:
                    n_inside += 1
                else:
                    assert read.text == answers[0].text
    # An answer that is a part of a word cannot be told from one that was made up.
    assert n_questions > 1000 and n_inside == 6
