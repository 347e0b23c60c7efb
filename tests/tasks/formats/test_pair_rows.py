"""Examples as pairs of texts, written by hand from the sources that ``pair_rows`` names."""

import json

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Example
from sublayer.tasks.formats.pair import PairRow, pair_rows
from sublayer.tasks.formats.pronoun import mark_first, mark_word
from sublayer.tasks.task import Task


def _task(name: str, kind, fields: str, *, suite="superglue"):
    return Task(name, name, suite, kind, tuple(fields.split()), ("accuracy",))


def _rows(name: str, kind, fields: dict[str, str], *, choices=(), extra=None, suite="superglue"):
    task = _task(name, kind, " ".join(fields), suite=suite)
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
    assert _rows(name, "classes", fields) == (row,)


def test_copas_question_is_in_words():
    fields = {"premise": "It broke.", "question": "cause"}
    rows = _rows("copa", "choice", fields, choices=("It fell.", "It flew."))
    first = "It broke. What was the cause of this?"
    assert rows == (PairRow(first, "It fell."), PairRow(first, "It flew."))
    rows = _rows("copa", "choice", fields | {"question": "effect"}, choices=("x",))
    assert rows[0].first == "It broke. What happened as a result?"


def test_records_placeholder_is_filled_with_each_entity():
    fields = {"passage": "P\n@highlight\nH", "query": "Then @placeholder won"}
    rows = _rows("record", "choice", fields, choices=("Ann", "Bob"))
    assert [row.second for row in rows] == ["Then Ann won", "Then Bob won"]
    assert rows[0].first == "P\n@highlight\nH"


def test_races_option_stands_in_every_blank_or_behind_the_question():
    fields = {"article": "A", "question": "The _ and _ ."}
    rows = _rows("race_high", "choice", fields, choices=("x", "y"), suite="race")
    expected = PairRow("A", "The x and x .", cut="first", second_tokens=128)
    assert rows[0] == expected
    rows = _rows("race", "choice", fields | {"question": "Why?"}, choices=("x",), suite="race")
    assert rows[0].second == "Why? x"


def test_wscs_pronoun_is_marked():
    fields = {"text": "Ann told Eve that she won .", "span1_text": "Eve", "span2_text": "she"}
    rows = _rows("wsc", "classes", fields, extra={"span1_index": 2, "span2_index": 4})
    assert rows == (PairRow("Ann told Eve that *she* won .", "Eve"),)


def test_dprs_and_story_clozes_choices_are_second_texts():
    fields = {"text": "Ann told Eve that she won.", "pronoun": "she"}
    rows = _rows("dpr", "choice", fields, choices=("Ann", "Eve"), suite="wsc")
    marked = "Ann told Eve that *she* won."
    assert rows == (PairRow(marked, "Ann"), PairRow(marked, "Eve"))
    rows = _rows("story_cloze", "choice", {"story": "S"}, choices=("good", "bad"), suite="cloze")
    assert rows == (PairRow("S", "good"), PairRow("S", "bad"))


def test_squads_question_stands_before_windows_of_its_passage():
    rows = _rows("squad", "span", {"context": "C", "question": "Q"}, suite="squad")
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
