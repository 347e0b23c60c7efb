"""Tasks as pairs, as traversals and as text to text, and answers read from text."""

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.formats.pair import PairRow, pair_rows
from sublayer.tasks.formats.pronoun import mark_first, mark_word
from sublayer.tasks.formats.text import text_input, text_target, text_targets, training_texts
from sublayer.tasks.formats.traversal import traversal_rows
from sublayer.tasks.formats.wnli import as_pronoun
from sublayer.tasks.formats.written import names_referent, read_answer
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS


def _example(name, texts, label=None, **more):
    fields = dict(zip(TASKS[name].fields, texts.split("|"), strict=True))
    return Example("0", fields, label, **more)


_TWO = {"choices": ("X.", "Y.")}
_WSC = {"extra": {"span1_index": 2, "span2_index": 4}}
_TOM = "Mitchell asked Tom if he could lend some money."
_MARKED = "Mitchell asked Tom if *he* could lend some money."
_RECORD = 'He said "no"\n@highlight\nOne line\n@highlight\nAnother.'
_EMPLOYEE = "Bob asked Tom if he can lend some money."

FORMATTED = {
    # Its texts, its label and more, as pairs, as traversals, as T5's input and target.
    "cola": (("He left.", 0), [PairRow("He left.")], [("He left.",)],
             "cola sentence: He left.", "unacceptable"),
    "mnli": (("P p.|H h.", 2), [PairRow("P p.", "H h.")], [("P p.", "H h.")],
             "mnli hypothesis: H h. premise: P p.", "contradiction"),
    "axb": (("A b.|C d.", 0), [PairRow("A b.", "C d.")], [("A b.", "C d.")],
            "rte hypothesis: C d. premise: A b.", "entailment"),
    "stsb": (("A b.|C d.", 2.5), [PairRow("A b.", "C d.")], [("A b.", "C d."), ("C d.", "A b.")],
             "stsb sentence1: A b. sentence2: C d.", "2.4"),
    "boolq": (("P.|is it", 1), [PairRow("is it", "P.")], [("P.", "is it")],
              "boolq passage: P. question: is it", "True"),
    "multirc": (("<b>Sent 1: </b>P.<br>R.|Q?|A", 0),
                [PairRow("Sent 1: P. R.", "Q? A", cut="first")], [("Sent 1: P. R. Q?", "A")],
                "multirc question: Q? answer: A paragraph: Sent 1: P. R.", "False"),
    "wic": (("A b.|C d.|b", 1), [PairRow("b A b.", "C d.")], [("A b.", "C d.", "b")],
            "wic sentence1: A b. sentence2: C d. word: b", "True"),
    "copa": (("P.|effect", 1, _TWO),
             [PairRow("P. What happened as a result?", each) for each in ("X.", "Y.")],
             [("P. What happened as a result?", each) for each in ("X.", "Y.")],
             "copa choice1: X. choice2: Y. premise: P. question: effect", "choice2"),
    "race_middle": (("A.|The _ and _ .", 1, _TWO),
                    [PairRow("A.", "The X. and X. .", cut="first", second_tokens=128),
                     PairRow("A.", "The Y. and Y. .", cut="first", second_tokens=128)],
                    [("A. The _ and _ .", "X."), ("A. The _ and _ .", "Y.")],
                    "race question: The _ and _ . choice1: X. choice2: Y. article: A.", "choice2"),
    # T5's own test.
    "dpr": ((f"{_EMPLOYEE}|he", 1, _TWO),
            [PairRow("Bob asked Tom if *he* can lend some money.", each) for each in ("X.", "Y.")],
            [("Bob asked Tom if *he* can lend some money.", each) for each in ("X.", "Y.")],
            "wsc: Bob asked Tom if *he* can lend some money.", "Y."),
    "record": ((f"{_RECORD}|A @placeholder won.", 1, _TWO),
               [PairRow(_RECORD, "A X. won."), PairRow(_RECORD, "A Y. won.")],
               [(_RECORD, "A X. won."), (_RECORD, "A Y. won.")],
               'record query: A @placeholder won. entities: X., Y. passage: He said "no" One line. '
               "Another.", None),
    "wsc": ((f"{_TOM}|Tom|he", 1, _WSC), [PairRow(_MARKED, "Tom")], [(_MARKED, "Tom")],
            f"wsc: {_MARKED}", "Tom"),
    # T5's own test, its spaces at the end included.
    "squad": (("Some context.|A question?", None, {"answers": (Answer("The answer."),)}),
              [PairRow("A question?", "Some context.", cut="windows", first_tokens=64)],
              [("A question?", "Some context.")],
              "question: A question ? context: Some context . ", "The answer . "),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATTED)
def test_a_task_is_formatted_as_published(name):
    (texts, *label), pairs, traversals, read, target = FORMATTED[name]
    more = label[1] if len(label) > 1 else {}
    task, example = TASKS[name], _example(name, texts, *label[:1], **more)
    assert pair_rows(task, example) == tuple(pairs)
    assert traversal_rows(task, example) == tuple(traversals)
    assert text_input(task, example) == read
    assert text_target(task, example) == target
    assert training_texts(task, example) == (() if target is None else ((read, target),))
    unlabelled = _example(name, texts, is_labelled=False, **more)
    assert text_input(task, unlabelled) == read
    assert training_texts(task, unlabelled) == ()
    if task.kind == "classes" and name != "wsc":
        assert text_targets(task, example) == task.labels


def test_questions_of_copa_and_race_are_in_words():
    rows = pair_rows(TASKS["copa"], _example("copa", "It broke.|cause", choices=("It fell.",)))
    assert rows == (PairRow("It broke. What was the cause of this?", "It fell."),)
    assert (
        pair_rows(TASKS["race"], _example("race", "A|Why?", choices=("x",)))[0].second == "Why? x"
    )


@pytest.mark.parametrize("text, index, marked", [
    # T5 repairs these two of the published texts by hand.
    ('"Good for he," he said.', 2, '"Good for *he* ," he said.'),
    ("might want to use he , but", 3, "might want to use *he* , but"),
    ("he and he and he", 2, "he and *he* and he"),
])  # fmt: skip
def test_a_pronoun_is_marked_in_its_place(text, index, marked):
    assert mark_word(text, "he", index) == marked


def test_the_first_pronoun_between_spaces_is_marked():
    assert mark_first("the hero said he, he won", "he") == "the hero said *he*, he won"
    assert mark_first("He won; is it he?", "he") == "*He* won; is it he?"
    for mark in (mark_first, lambda text, word: mark_word(text, word, 0)):
        with pytest.raises(DataError, match="'he' is no word of 'the end'"):
            mark("the end", "he")


@pytest.mark.parametrize(("score", "written"), [(3.5, "3.6"), (4.077, "4.0")])
def test_a_similarity_is_rounded_to_fifths_and_halves_to_even(score, written):
    assert text_target(TASKS["stsb"], _example("stsb", "A|B", score)) == written


def test_each_answer_of_record_is_a_row_and_only_right_nouns_of_wsc_are_learned():
    example = _example("record", "P|A @placeholder.", choices=("penguin", "potato", "pigeon"),
                       answers=(Answer("penguin"), Answer("pigeon")))  # fmt: skip
    read, task = (
        "record query: A @placeholder. entities: penguin, potato, pigeon passage: P",
        "record",
    )
    assert training_texts(TASKS[task], example) == ((read, "penguin"), (read, "pigeon"))
    assert text_target(TASKS[task], example) == "penguin"
    assert text_targets(TASKS[task], example) == example.choices
    example = _example("wsc", f"{_TOM}|Tom|he", 0, **_WSC)
    assert text_target(TASKS["wsc"], example) == "Tom"
    assert training_texts(TASKS["wsc"], example) == text_targets(TASKS["wsc"], example) == ()


@pytest.mark.parametrize("premise, hypothesis, marked, referent", [
    # T5's own tests.
    ("Lily spoke to Donna breaking her silence.",
     "Lily spoke to Donna breaking Donna's silence.",
     "Lily spoke to Donna breaking *her* silence.", "Donna"),
    ("Al stole Bob's wallet and car, and then he was driving it really fast to get away.",
     "He was driving the car really fast to get away.",
     "Al stole Bob's wallet and car, and then he was driving *it* really fast to get away.",
     "the car"),
    # Ours.
    ("Then it (that is all", "Then he (that is all", "Then *it* (that is all", "he"),
])  # fmt: skip
def test_wnlis_pair_becomes_a_pronoun(premise, hypothesis, marked, referent):
    found = as_pronoun(premise, hypothesis)
    assert (found.text, found.referent) == (marked, referent)
    task, example = TASKS["wnli"], _example("wnli", f"{premise}|{hypothesis}", 1)
    assert (text_input(task, example), text_target(task, example)) == (f"wsc: {marked}", referent)
    assert training_texts(task, example) == ()


def test_squads_punctuation_has_spaces_on_both_sides():
    example = _example("squad", '"This  is a string with "punctuation (1845-1986) ".|Q_1')
    padded = 'question: Q _ 1 context: " This is a string with " punctuation ( 1845 - 1986 ) " . '
    assert text_input(TASKS["squad"], example) == padded


_THE_GIRL = ("Ann told Eve she won|the girl|she", {"extra": {"span2_index": 3}})
_DOGS, _CAT = ({"choices": (noun, "the big dog")} for noun in ("the small dog", "the cat"))
_BARKED = "The cat fled the dog as it barked.|it"
_USA = "Made in the U.S. for $5 (about).|Where?"


@pytest.mark.parametrize("name, texts, more, written, read", [
    ("sst2", "fine", {}, "positive ", Prediction(1, text="positive")),
    ("stsb", "A|B", {}, "nan", Prediction(None, text="nan")),
    ("copa", "P|cause", _TWO, "choice2", Prediction(1, text="choice2")),
    ("record", "P|Q", _TWO, "Rob", Prediction(None, text="Rob")),
    ("wsc", *_THE_GIRL, "Girl", Prediction(1, text="Girl")),
    ("wsc", *_THE_GIRL, "the", Prediction(None, text="the")),
    ("wnli", "The fish ate the worm. It was tasty.|The worm was tasty.", {}, "the worm",
     Prediction(1, text="the worm")),
    ("wnli", "The fish ate the worm. It was tasty.|The worm was tasty.", {}, "the fish",
     Prediction(0, text="the fish")),
    ("dpr", _BARKED, _CAT, "Dog", Prediction(1, text="Dog")),
    ("dpr", _BARKED, _CAT, "fox", Prediction(None, text="fox")),
    ("dpr", _BARKED, _DOGS, "dog", Prediction(None, text="dog")),
    ("squad2", _USA, {}, "the U . S . ", Prediction(text="the U.S.", start=8)),
    ("squad2", _USA, {}, "The u . s", Prediction(text="the U.S", start=8)),
    ("squad2", _USA, {}, "the moon", Prediction(text="the moon")),
    ("squad2", _USA, {}, "", Prediction(text="")),
    ("squad2", _USA, {}, "Unanswerable", Prediction(text="", no_answer=1.0)),
])  # fmt: skip
def test_a_written_answer_is_read_as_its_label(name, texts, more, written, read):
    assert read_answer(TASKS[name], _example(name, texts, **more), written) == read


@pytest.mark.parametrize("written, referent", [("the cat", "cat"), ("Bunny", "fuzzy bunny")])
def test_a_noun_is_named_by_the_words_of_either(written, referent):
    assert names_referent(written, referent)  # T5's own tests
