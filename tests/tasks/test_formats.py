"""Tasks as pairs, as traversals and as text to text, and answers read from text."""

import json

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
from sublayer.tasks.registry import TASKS, find_files, read_split
from sublayer.tasks.task import Task


def _pair_task(name: str, kind, fields: str, *, suite="superglue"):
    return Task(name, name, suite, kind, tuple(fields.split()), ("accuracy",))


def _pair_rows(
    name: str, kind, fields: dict[str, str], *, choices=(), extra=None, suite="superglue"
):
    task = _pair_task(name, kind, " ".join(fields), suite=suite)
    return pair_rows(task, Example("0", fields, choices=choices, extra=extra or {}))


@pytest.mark.parametrize(
    ("name", "fields", "row"),
    [
        ("sst2", {"sentence": "fine"}, PairRow("fine")),
        ("rte", {"sentence1": "A", "sentence2": "B"}, PairRow("A", "B", cut="longest")),
        ("boolq", {"passage": "P", "question": "Q"}, PairRow("Q", "P")),
        (
            "multirc",
            {"paragraph": "<b>Sent 1: </b>One.<br>Two.", "question": "Q", "answer": "A"},
            PairRow("Sent 1: One. Two.", "Q A", cut="first"),
        ),
        ("wic", {"sentence1": "A", "sentence2": "B", "word": "w"}, PairRow("w A", "B")),
    ],
)
def test_texts_of_classes_are_ordered_and_cut_as_published(name, fields, row):
    assert _pair_rows(name, "classes", fields) == (row,)


def test_copas_question_is_in_words():
    fields = {"premise": "It broke.", "question": "cause"}
    rows = _pair_rows("copa", "choice", fields, choices=("It fell.", "It flew."))
    first = "It broke. What was the cause of this?"
    assert rows == (PairRow(first, "It fell."), PairRow(first, "It flew."))
    rows = _pair_rows("copa", "choice", fields | {"question": "effect"}, choices=("x",))
    assert rows[0].first == "It broke. What happened as a result?"


def test_records_placeholder_is_filled_with_each_entity():
    fields = {"passage": "P\n@highlight\nH", "query": "Then @placeholder won"}
    rows = _pair_rows("record", "choice", fields, choices=("Ann", "Bob"))
    assert [row.second for row in rows] == ["Then Ann won", "Then Bob won"]
    assert rows[0].first == "P\n@highlight\nH"


def test_races_option_stands_in_every_blank_or_behind_the_question():
    fields = {"article": "A", "question": "The _ and _ ."}
    rows = _pair_rows("race_high", "choice", fields, choices=("x", "y"), suite="race")
    expected = PairRow("A", "The x and x .", cut="first", second_tokens=128)
    assert rows[0] == expected
    rows = _pair_rows("race", "choice", fields | {"question": "Why?"}, choices=("x",), suite="race")
    assert rows[0].second == "Why? x"


def test_wscs_pronoun_is_marked():
    fields = {"text": "Ann told Eve that she won .", "span1_text": "Eve", "span2_text": "she"}
    rows = _pair_rows("wsc", "classes", fields, extra={"span1_index": 2, "span2_index": 4})
    assert rows == (PairRow("Ann told Eve that *she* won .", "Eve"),)


def test_dprs_and_story_clozes_choices_are_second_texts():
    fields = {"text": "Ann told Eve that she won.", "pronoun": "she"}
    rows = _pair_rows("dpr", "choice", fields, choices=("Ann", "Eve"), suite="wsc")
    marked = "Ann told Eve that *she* won."
    assert rows == (PairRow(marked, "Ann"), PairRow(marked, "Eve"))
    rows = _pair_rows(
        "story_cloze", "choice", {"story": "S"}, choices=("good", "bad"), suite="cloze"
    )
    assert rows == (PairRow("S", "good"), PairRow("S", "bad"))


def test_squads_question_stands_before_windows_of_its_passage():
    rows = _pair_rows("squad", "span", {"context": "C", "question": "Q"}, suite="squad")
    assert rows == (PairRow("Q", "C", cut="windows", first_tokens=64),)


@pytest.mark.parametrize(
    ("text", "index", "marked"),
    [
        ("he saw him", 0, "*he* saw him"),
        # T5 repairs these two of the published texts by hand.
        ('"Good for he," he said.', 2, '"Good for *he* ," he said.'),
        ("might want to use he , but", 3, "might want to use *he* , but"),
        ("he and he and he", 2, "he and *he* and he"),
    ],
)
def test_a_pronoun_is_marked_in_its_place(text, index, marked):
    assert mark_word(text, "he", index) == marked


def test_a_pronoun_that_is_not_there_is_refused():
    with pytest.raises(DataError, match="'he' is no word of 'the end'"):
        mark_word("the end", "he", 0)
    with pytest.raises(DataError, match="'he' is no word of 'the end'"):
        mark_first("the end", "he")


def test_the_first_pronoun_between_spaces_is_marked():
    assert mark_first("the hero said he, he won", "he") == "the hero said *he*, he won"
    assert mark_first("He won; is it he?", "he") == "*He* won; is it he?"


def test_every_pronoun_of_the_shared_piece_is_marked(real_data):
    path = real_data / "superglue" / "WSC" / "val.jsonl"
    moved = 0
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        target = row["target"]
        marked = mark_word(row["text"], target["span2_text"], target["span2_index"])
        assert marked.count(f"*{target['span2_text']}*") == 1
        moved += marked.split(" ")[target["span2_index"]] != f"*{target['span2_text']}*"
    assert moved <= 1


def _traversal_rows(
    name: str, kind, fields: dict[str, str], *, choices=(), extra=None, is_symmetric=False
):
    task = Task(name, name, "", kind, tuple(fields), ("accuracy",), is_symmetric=is_symmetric)
    return traversal_rows(task, Example("0", fields, choices=choices, extra=extra or {}))


def test_a_classification_is_its_text():
    assert _traversal_rows("cola", "classes", {"sentence": "He left."}) == (("He left.",),)


def test_an_entailment_is_premise_and_hypothesis():
    assert _traversal_rows("mnli", "classes", {"premise": "P", "hypothesis": "H"}) == (("P", "H"),)


def test_a_similarity_is_both_orders():
    fields = {"sentence1": "A", "sentence2": "B"}
    assert _traversal_rows("stsb", "number", fields, is_symmetric=True) == (("A", "B"), ("B", "A"))
    assert _traversal_rows("mrpc", "classes", fields, is_symmetric=True) == (("A", "B"), ("B", "A"))


def test_a_choice_is_document_and_question_without_delimiter_and_each_answer():
    fields = {"article": "Doc.", "question": "We see _ ."}
    rows = _traversal_rows("race", "choice", fields, choices=("x", "y"))
    assert rows == (("Doc. We see _ .", "x"), ("Doc. We see _ .", "y"))


def test_story_cloze_is_the_story_and_each_ending():
    rows = _traversal_rows("story_cloze", "choice", {"story": "S"}, choices=("good", "bad"))
    assert rows == (("S", "good"), ("S", "bad"))


def test_other_tasks_are_written_as_said():
    rows = _traversal_rows("copa", "choice", {"premise": "P", "question": "effect"}, choices=("x",))
    assert rows == (("P What happened as a result?", "x"),)
    fields = {"passage": "P", "query": "Then @placeholder won"}
    assert _traversal_rows("record", "choice", fields, choices=("Ann",)) == (("P", "Then Ann won"),)
    fields = {"paragraph": "P", "question": "Q", "answer": "A"}
    assert _traversal_rows("multirc", "classes", fields) == (("P Q", "A"),)
    fields = {"sentence1": "A", "sentence2": "B", "word": "w"}
    assert _traversal_rows("wic", "classes", fields) == (("A", "B", "w"),)
    fields = {"context": "C", "question": "Q"}
    assert _traversal_rows("squad", "span", fields) == (("Q", "C"),)
    fields = {"text": "Ann said she won", "span1_text": "Ann", "span2_text": "she"}
    assert _traversal_rows("wsc", "classes", fields, extra={"span2_index": 2}) == (
        ("Ann said *she* won", "Ann"),
    )
    fields = {"text": "Ann said she won", "pronoun": "she"}
    assert _traversal_rows("dpr", "choice", fields, choices=("Ann",)) == (
        ("Ann said *she* won", "Ann"),
    )


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


def _text_task(
    name: str, kind, fields: dict[str, str], *, labels=(), has_unanswerable=False
) -> Task:
    return Task(name, name, "", kind, tuple(fields), ("accuracy",), labels=labels,
                has_unanswerable=has_unanswerable)  # fmt: skip


@pytest.mark.parametrize("name", _CLASSES)
def test_classes_are_written_as_in_t5(name):
    fields, labels, label, read, target = _CLASSES[name]
    task = _text_task(name, "classes", fields, labels=labels)
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
    task = _text_task(name, "choice", fields)
    example = Example("0", fields, 1, choices=("X.", "Y."))
    assert text_input(task, example) == read
    assert text_target(task, example) == target
    assert text_targets(task, example)[1] == target
    assert training_texts(task, example) == ((read, target),)


@pytest.mark.parametrize(
    ("score", "written"), [(2.5, "2.4"), (3.5, "3.6"), (5, "5.0"), (4.077, "4.0")]
)
def test_a_similarity_is_rounded_to_fifths_and_halves_to_even(score, written):
    task = _text_task("stsb", "number", _A_B)
    example = Example("0", _A_B, score)
    assert text_input(task, example) == "stsb sentence1: A b. sentence2: C d."
    assert text_target(task, example) == written
    assert text_targets(task, example) == ()


def test_another_number_is_written_as_it_is():
    task = _text_task("stars", "number", {"text": "good"})
    assert text_target(task, Example("0", {"text": "good"}, 3)) == "3"
    assert text_target(task, Example("0", {"text": "good"}, 12345.5)) == "12345.5"


def test_records_entities_are_listed_and_each_answer_is_a_row():
    fields = {
        "passage": 'He said "no"\n@highlight\nOne line\n@highlight\nAnother.',
        "query": "A @placeholder is a bird.",
    }
    task = _text_task("record", "choice", fields)
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
    task = _text_task("wsc", "classes", fields, labels=_BOOLEANS)
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
    task = _text_task("wnli", "classes", fields, labels=("not_entailment", "entailment"))
    example = Example("0", fields, 1)
    assert text_input(task, example) == f"wsc: {marked}"
    assert text_target(task, example) == referent
    assert training_texts(task, example) == ()


def test_squads_punctuation_has_spaces_on_both_sides():
    fields = {"context": "Some context.", "question": "A question?"}
    task = _text_task("squad", "span", fields)
    example = Example("0", fields, answers=(Answer("The answer."), Answer("Another answer.")))
    # T5's own test, its spaces at the end included.
    assert text_input(task, example) == "question: A question ? context: Some context . "
    assert text_target(task, example) == "The answer . "
    fields = {"context": '"This  is a string with "punctuation (1845-1986) ".', "question": "Q_1"}
    padded = 'question: Q _ 1 context: " This is a string with " punctuation ( 1845 - 1986 ) " . '
    assert text_input(task, Example("0", fields)) == padded


def test_an_unanswerable_question_has_a_text_of_its_own():
    fields = {"context": "C", "question": "Q"}
    task = _text_task("squad2", "span", fields, has_unanswerable=True)
    assert text_target(task, Example("0", fields)) == "unanswerable"
    assert text_target(task, Example("0", fields, is_labelled=False)) is None


def _written_task(name: str, kind, fields: str, **rest) -> Task:
    return Task(name, name, "", kind, tuple(fields.split()), ("accuracy",), **rest)


_SST2 = _written_task("sst2", "classes", "sentence", labels=("negative", "positive"))
_STSB = _written_task("stsb", "number", "sentence1 sentence2", numbers=(0.0, 5.0))
_SQUAD2 = _written_task("squad2", "span", "context question", has_unanswerable=True)


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
    task = _written_task("copa", "choice", "premise question")
    example = Example("0", {"premise": "P", "question": "cause"}, choices=("X", "Y"))
    assert read_answer(task, example, "choice2").label == 1
    assert read_answer(task, example, "Y").label is None


def test_an_entity_is_kept_as_text_even_where_it_is_none_of_the_choices():
    task = _written_task("record", "choice", "passage query")
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
    task = _written_task("wsc", "classes", "text span1_text span2_text", labels=("False", "True"))
    example = Example("0", fields, extra={"span2_index": 3})
    assert read_answer(task, example, "Girl").label == 1
    assert read_answer(task, example, "boy").label == 0
    assert read_answer(task, example, "").label is None
    assert read_answer(task, example, "the").label is None


def test_wnli_asks_whether_the_hypothesis_has_the_noun():
    fields = {"sentence1": "The fish ate the worm. It was tasty.",
              "sentence2": "The worm was tasty."}  # fmt: skip
    labels = ("not_entailment", "entailment")
    task = _written_task("wnli", "classes", "sentence1 sentence2", labels=labels)
    assert read_answer(task, Example("0", fields), "the worm").label == 1
    assert read_answer(task, Example("0", fields), "the fish").label == 0


def test_dpr_asks_which_of_both_is_named():
    task = _written_task("dpr", "choice", "text pronoun")
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


def _examples(real_data, name):
    task = TASKS[name]
    folder = real_data / task.suite
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    for split, paths in find_files(task, folder).items():
        if split != "train" or name in ("cola", "cb", "copa"):
            yield from read_split(task, split, paths).examples


@pytest.mark.parametrize("name", ["cola", "stsb", "copa", "multirc", "wsc", "race_middle"])
def test_what_a_task_wants_written_is_read_as_its_label(real_data, name):
    task = TASKS[name]
    n_read = 0
    for example in _examples(real_data, name):
        n_choices = len(example.choices) if task.kind == "choice" else 1
        assert len(pair_rows(task, example)) == n_choices
        assert len(traversal_rows(task, example)) == (2 if task.is_symmetric else n_choices)
        rows = training_texts(task, example)
        if not example.is_labelled:
            assert rows == ()
            continue
        target = text_target(task, example)
        assert target is not None
        n_read += 1
        answer = read_answer(task, example, target)
        if name == "wsc":
            # What is written is the noun, be it right or wrong.
            assert answer.label == 1 and len(rows) == example.label
        elif name == "stsb":
            assert answer.label == pytest.approx(example.label, abs=0.1 + 1e-6)
        else:
            assert answer.label == example.label
            assert text_targets(task, example)[int(example.label)] == target
            assert rows == ((text_input(task, example), target),)
    assert n_read > 50
