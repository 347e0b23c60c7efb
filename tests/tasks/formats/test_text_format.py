"""Tasks as text to text, against strings written by hand from the papers and T5's own tests."""

import pytest

from sublayer.tasks.example import Answer, Example
from sublayer.tasks.formats.text import text_input, text_target, text_targets, training_texts
from sublayer.tasks.formats.wnli import as_pronoun
from sublayer.tasks.task import Task

_NLI = ("entailment", "neutral", "contradiction")
_TWO = ("entailment", "not_entailment")
_BOOLEANS = ("False", "True")
_A_B = {"sentence1": "A b.", "sentence2": "C d."}
_P_H = {"premise": "P p.", "hypothesis": "H h."}

_CLASSES = {
    # name: fields, labels, label, input, target
    "cola": ({"sentence": "He left."}, ("unacceptable", "acceptable"), 0,
             "cola sentence: He left.", "unacceptable"),
    "qqp": ({"question1": "A?", "question2": "B?"}, ("not_duplicate", "duplicate"), 0,
            "qqp question1: A? question2: B?", "not_duplicate"),
    "mnli": (_P_H, _NLI, 2, "mnli hypothesis: H h. premise: P p.", "contradiction"),
    "ax": (_A_B, _NLI, 1, "mnli hypothesis: C d. premise: A b.", "neutral"),
    "boolq": ({"passage": "P.", "question": "is it"}, _BOOLEANS, 1,
              "boolq passage: P. question: is it", "True"),
    "multirc": ({"paragraph": "<b>Sent 1: </b>P.<br>R.", "question": "Q?", "answer": "A"},
                _BOOLEANS, 0,
                "multirc question: Q? answer: A paragraph: Sent 1: P. R.", "False"),
    "sg_rte": (_P_H, _TWO, 0, "rte hypothesis: H h. premise: P p.", "entailment"),
    "wic": (_A_B | {"word": "b"}, _BOOLEANS, 1,
            "wic sentence1: A b. sentence2: C d. word: b", "True"),
    "axb": (_A_B, _TWO, 0, "rte hypothesis: C d. premise: A b.", "entailment"),
}  # fmt: skip

_CHOICES = {
    "copa": ({"premise": "P.", "question": "cause"},
             "copa choice1: X. choice2: Y. premise: P. question: cause", "choice2"),
    "race_middle": ({"article": "A.", "question": "The _ ."},
                    "race question: The _ . choice1: X. choice2: Y. article: A.", "choice2"),
    "story_cloze": ({"story": "S."},
                    "story_cloze choice1: X. choice2: Y. story: S.", "choice2"),
    # T5's own test.
    "dpr": ({"text": "Bob asked Tom if he can lend some money.", "pronoun": "he"},
            "wsc: Bob asked Tom if *he* can lend some money.", "Y."),
}  # fmt: skip


def _task(name: str, kind, fields: dict[str, str], *, labels=(), has_unanswerable=False) -> Task:
    return Task(name, name, "", kind, tuple(fields), ("accuracy",), labels=labels,
                has_unanswerable=has_unanswerable)  # fmt: skip


@pytest.mark.parametrize("name", _CLASSES)
def test_classes_are_written_as_in_t5(name):
    fields, labels, label, read, target = _CLASSES[name]
    task = _task(name, "classes", fields, labels=labels)
    example = Example("0", fields, label)
    assert text_input(task, example) == read
    assert text_target(task, example) == target
    assert text_targets(task, example) == labels
    assert training_texts(task, example) == ((read, target),)
    unlabelled = Example("0", fields, is_labelled=False)
    assert text_input(task, unlabelled) == read
    assert text_target(task, unlabelled) is None
    assert training_texts(task, unlabelled) == ()


@pytest.mark.parametrize("name", _CHOICES)
def test_a_task_of_choices_is_written_by_the_same_rule(name):
    fields, read, target = _CHOICES[name]
    task = _task(name, "choice", fields)
    example = Example("0", fields, 1, choices=("X.", "Y."))
    assert text_input(task, example) == read
    assert text_target(task, example) == target
    assert text_targets(task, example)[1] == target
    assert training_texts(task, example) == ((read, target),)


@pytest.mark.parametrize(
    ("score", "written"), [(2.5, "2.4"), (3.5, "3.6"), (5, "5.0"), (4.077, "4.0")]
)
def test_a_similarity_is_rounded_to_fifths_and_halves_to_even(score, written):
    task = _task("stsb", "number", _A_B)
    example = Example("0", _A_B, score)
    assert text_input(task, example) == "stsb sentence1: A b. sentence2: C d."
    assert text_target(task, example) == written
    assert text_targets(task, example) == ()


def test_another_number_is_written_as_it_is():
    task = _task("stars", "number", {"text": "good"})
    assert text_target(task, Example("0", {"text": "good"}, 3)) == "3"
    assert text_target(task, Example("0", {"text": "good"}, 12345.5)) == "12345.5"


def test_records_entities_are_listed_and_each_answer_is_a_row():
    fields = {
        "passage": 'He said "no"\n@highlight\nOne line\n@highlight\nAnother.',
        "query": "A @placeholder is a bird.",
    }
    task = _task("record", "choice", fields)
    example = Example("0", fields, choices=("penguin", "potato", "pigeon"),
                      answers=(Answer("penguin"), Answer("pigeon")))  # fmt: skip
    read = (
        "record query: A @placeholder is a bird. entities: penguin, potato, pigeon "
        'passage: He said "no" One line. Another.'
    )
    assert text_input(task, example) == read
    assert training_texts(task, example) == ((read, "penguin"), (read, "pigeon"))
    assert text_target(task, example) == "penguin"
    assert text_targets(task, example) == ("penguin", "potato", "pigeon")


def _wsc(label: int | None, index: int = 4) -> tuple[Task, Example]:
    fields = {
        "text": "Mitchell asked Tom if he could lend some money.",
        "span1_text": "Tom",
        "span2_text": "he",
    }
    task = _task("wsc", "classes", fields, labels=_BOOLEANS)
    return task, Example("0", fields, label, extra={"span1_index": 2, "span2_index": index},
                         is_labelled=label is not None)  # fmt: skip


def test_wscs_noun_is_the_target_and_only_right_ones_are_learned():
    read = "wsc: Mitchell asked Tom if *he* could lend some money."
    for label, rows in ((1, ((read, "Tom"),)), (0, ()), (None, ())):
        task, example = _wsc(label)
        assert text_input(task, example) == read
        assert text_target(task, example) == "Tom"
        assert training_texts(task, example) == rows
        assert text_targets(task, example) == ()


@pytest.mark.parametrize(
    ("premise", "hypothesis", "marked", "referent"),
    [
        # T5's own tests.
        ("Lily spoke to Donna breaking her silence.",
         "Lily spoke to Donna breaking Donna's silence.",
         "Lily spoke to Donna breaking *her* silence.", "Donna"),
        ("Edward dropped adhesive tape onto his window sill, and when he pulled the tape off, "
         "some of the glue was stuck on it.",
         "Some of the glue was stuck on the window sill.",
         "Edward dropped adhesive tape onto his window sill, and when he pulled the tape off, "
         "some of the glue was stuck on *it* .", "the window sill"),
        ("Al stole Bob's wallet and car, and then he was driving it really fast to get away.",
         "He was driving the car really fast to get away.",
         "Al stole Bob's wallet and car, and then he was driving *it* really fast to get away.",
         "the car"),
        # Ours.
        ("Ann won.", "Eve lost.", "Ann won.", "Eve lost."),
        ("Then it (that is all", "Then he (that is all", "Then *it* (that is all", "he"),
    ],
)  # fmt: skip
def test_wnlis_pair_becomes_a_pronoun(premise, hypothesis, marked, referent):
    found = as_pronoun(premise, hypothesis)
    assert (found.text, found.referent) == (marked, referent)
    fields = {"sentence1": premise, "sentence2": hypothesis}
    task = _task("wnli", "classes", fields, labels=("not_entailment", "entailment"))
    example = Example("0", fields, 1)
    assert text_input(task, example) == f"wsc: {marked}"
    assert text_target(task, example) == referent
    assert training_texts(task, example) == ()


def test_squads_punctuation_has_spaces_on_both_sides():
    fields = {"context": "Some context.", "question": "A question?"}
    task = _task("squad", "span", fields)
    example = Example("0", fields, answers=(Answer("The answer."), Answer("Another answer.")))
    # T5's own test, its spaces at the end included.
    assert text_input(task, example) == "question: A question ? context: Some context . "
    assert text_target(task, example) == "The answer . "
    fields = {"context": '"This  is a string with "punctuation (1845-1986) ".', "question": "Q_1"}
    padded = 'question: Q _ 1 context: " This is a string with " punctuation ( 1845 - 1986 ) " . '
    assert text_input(task, Example("0", fields)) == padded


def test_an_unanswerable_question_has_a_text_of_its_own():
    fields = {"context": "C", "question": "Q"}
    task = _task("squad2", "span", fields, has_unanswerable=True)
    assert text_target(task, Example("0", fields)) == "unanswerable"
    assert text_target(task, Example("0", fields, is_labelled=False)) is None
