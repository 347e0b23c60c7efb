"""Examples as traversals: figure 1 of Radford et al. 2018, and what it leaves open."""

from sublayer.tasks.example import Example
from sublayer.tasks.formats.traversal import traversal_rows
from sublayer.tasks.task import Task


def _rows(name: str, kind, fields: dict[str, str], *, choices=(), extra=None, is_symmetric=False):
    task = Task(name, name, "", kind, tuple(fields), ("accuracy",), is_symmetric=is_symmetric)
    return traversal_rows(task, Example("0", fields, choices=choices, extra=extra or {}))


def test_a_classification_is_its_text():
    assert _rows("cola", "classes", {"sentence": "He left."}) == (("He left.",),)


def test_an_entailment_is_premise_and_hypothesis():
    assert _rows("mnli", "classes", {"premise": "P", "hypothesis": "H"}) == (("P", "H"),)


def test_a_similarity_is_both_orders():
    fields = {"sentence1": "A", "sentence2": "B"}
    assert _rows("stsb", "number", fields, is_symmetric=True) == (("A", "B"), ("B", "A"))
    assert _rows("mrpc", "classes", fields, is_symmetric=True) == (("A", "B"), ("B", "A"))


def test_a_choice_is_document_and_question_without_delimiter_and_each_answer():
    fields = {"article": "Doc.", "question": "We see _ ."}
    rows = _rows("race", "choice", fields, choices=("x", "y"))
    assert rows == (("Doc. We see _ .", "x"), ("Doc. We see _ .", "y"))


def test_story_cloze_is_the_story_and_each_ending():
    rows = _rows("story_cloze", "choice", {"story": "S"}, choices=("good", "bad"))
    assert rows == (("S", "good"), ("S", "bad"))


def test_other_tasks_are_written_as_said():
    rows = _rows("copa", "choice", {"premise": "P", "question": "effect"}, choices=("x",))
    assert rows == (("P What happened as a result?", "x"),)
    fields = {"passage": "P", "query": "Then @placeholder won"}
    assert _rows("record", "choice", fields, choices=("Ann",)) == (("P", "Then Ann won"),)
    fields = {"paragraph": "P", "question": "Q", "answer": "A"}
    assert _rows("multirc", "classes", fields) == (("P Q", "A"),)
    fields = {"sentence1": "A", "sentence2": "B", "word": "w"}
    assert _rows("wic", "classes", fields) == (("A", "B", "w"),)
    fields = {"context": "C", "question": "Q"}
    assert _rows("squad", "span", fields) == (("Q", "C"),)
    fields = {"text": "Ann said she won", "span1_text": "Ann", "span2_text": "she"}
    assert _rows("wsc", "classes", fields, extra={"span2_index": 2}) == (
        ("Ann said *she* won", "Ann"),
    )
    fields = {"text": "Ann said she won", "pronoun": "she"}
    assert _rows("dpr", "choice", fields, choices=("Ann",)) == (("Ann said *she* won", "Ann"),)
