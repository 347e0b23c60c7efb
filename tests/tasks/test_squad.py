"""SQuAD's files, as published and as the hub flattens them."""

import json

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Answer
from sublayer.tasks.gold_spans import MOVED, NOT_FOUND, SPACED, place_answer
from sublayer.tasks.registry import TASKS, find_files, read_split
from sublayer.tasks.suites.squad import CONTRADICTORY, UNANSWERABLE
from tests.tasks.files import write

CONTEXT = "Caf\u00e9 \U0001f600: the Normans gave their name to Normandy."
GOLD = Answer("Normans", 12)


def _question(id_: str, answers=(("Normans", 12),), **more):
    written = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": id_, "question": "Who gave a name?", "answers": written, **more}


def _nested(*questions):
    paragraphs = [{"context": CONTEXT, "qas": list(questions)}]
    return {"version": "1.1", "data": [{"title": "Normans", "paragraphs": paragraphs}]}


def _flat(id_: str, texts=("Normans",), starts=(12,)):
    answers = {"text": list(texts), "answer_start": list(starts)}
    question = {"id": id_, "question": "Who gave a name?", "answers": answers}
    return {"title": "Normans", "context": CONTEXT, **question}


def _read(path, content, name="squad", split="dev"):
    return read_split(TASKS[name], split, (write(path, content),))


def _answers(split):
    return [example.answers for example in split.examples]


@pytest.mark.parametrize("name", ["squad", "squad2"])
def test_the_hubs_rows_are_the_same_examples(tmp_path, name):
    rows = [_flat("q1"), _flat("q2", ("Normandy", "name"), (39, 31))]
    nested = _nested(_question("q1"), _question("q2", [("Normandy", 39), ("name", 31)]))
    examples = _read(tmp_path / "dev-v1.1.json", nested, name).examples
    assert examples[1].answers == (Answer("Normandy", 39), Answer("name", 31))
    contents = {
        "a.parquet": rows,
        "a.jsonl": rows,
        "b.json": json.dumps(rows),
        # As question-answering scripts take them.
        "c.json": {"version": "1.1", "data": rows},
        "d.json": json.dumps(nested, indent=2),
    }
    for file, content in contents.items():
        assert _read(tmp_path / file, content, name).examples == examples, file


def test_unanswerable_questions_are_labelled_and_have_no_answer_not_even_a_plausible_one(tmp_path):
    plausible = [{"text": "Normans", "answer_start": 12}]
    no = _question("no", (), is_impossible=True, plausible_answers=plausible)
    nested = _nested(_question("yes", is_impossible=False), no)
    found = _read(tmp_path / "train-v2.0.json", nested, "squad2", "train")
    assert _answers(found) == [(GOLD,), ()]
    flat = _read(tmp_path / "a.jsonl", [_flat("no", (), ())], "squad2", "train")
    assert _answers(flat) == [()]
    assert all(example.is_labelled for example in (*found.examples, *flat.examples))
    # SQuAD 1.1 has none, and none has an answer.
    found = _read(tmp_path / "a.json", _nested(no))
    assert (found.examples, found.skipped) == ([], {UNANSWERABLE: 1})
    assert found.firsts[UNANSWERABLE].endswith("a.json: data[0].paragraphs[0].qas[0]")
    both = _nested(_question("both", is_impossible=True))
    assert _read(tmp_path / "a.json", both, "squad2").skipped == {CONTRADICTORY: 1}


@pytest.mark.parametrize("name", ["squad", "squad2"])
def test_a_question_without_answers_is_read_to_be_answered_only(tmp_path, name):
    content = _nested({"id": "q", "question": "Who?"})
    assert _read(tmp_path / "a.json", content, name).skipped.total() == 1
    (example,) = _read(tmp_path / "a.json", content, name, "test").examples
    assert not example.is_labelled


def test_an_answer_that_is_not_in_its_place_trains_nothing_and_is_scored_all_the_same(tmp_path):
    # The passage of the first had two spaces before it, which its copy has not.
    rows = [_flat("q0", ("Normans",), (14,)), _flat("q1", ("Vikings",), (12,))]
    rows.append(_flat("q2", ("Vikings", "Normans"), (12, 12)))
    found = _read(tmp_path / "a.jsonl", rows, split="train")
    assert _answers(found) == [(GOLD,)] * 2
    assert (found.skipped, found.repaired) == ({NOT_FOUND: 1}, {MOVED: 1})
    found = _read(tmp_path / "a.jsonl", rows)
    assert _answers(found) == [(GOLD,), (Answer("Vikings"),), (Answer("Vikings"), GOLD)]
    assert found.kept == {NOT_FOUND: 2}


@pytest.mark.parametrize(
    ("passage", "text", "start", "placed"),
    [
        ("one two", "two", 4, ("two", 4, "")),
        # White space in the answer, but not in the passage; in the place, but not in the answer.
        ("one two", " two ", 4, ("two", 4, SPACED)),
        ("one\n two", "two", 3, ("two", 5, SPACED)),
        ("one two", "two", 6, ("two", 4, MOVED)),
        # Two places fit, or none, or one that is too far, or behind.
        ("a a b", "a", 4, ("a", None, "")),
        ("two" + 20 * ".", "two", 20, ("two", None, "")),
        ("one two", "two", 1, ("two", None, "")),
    ],
)
def test_an_answer_has_a_place_or_none(passage, text, start, placed):
    found = place_answer(passage, text, start)
    assert (found.answer.text, found.answer.start, found.repair) == placed


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": []}, "a.json has no questions"),
        (_nested({"id": "q", "answers": []}), "data[0].paragraphs[0].qas[0] has no question"),
        (_nested(_question("q", [("Normans", "12th")])), "qas[0].answers[0].answer_start"),
        ({"data": [_flat("q", ("Normans",), (12, 13))]}, "a.json: data[0].answers"),
    ],
)
def test_another_format_is_refused_with_its_place(tmp_path, content, message):
    with pytest.raises(DataError) as refused:
        _read(tmp_path / "a.json", content)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("name", "version", "tasks"),
    [
        ("squad/squad_v1.1_dev_240_paragraphs.json", "", {"squad"}),
        ("some_dev.json", "v2.0", {"squad2"}),
        ("race/race_dev_middle.jsonl", "", set()),
        ("squad_v2/squad_v2/validation-00000-of-00001.parquet", "", {"squad2"}),
        ("squad/dev2_of_20.json", "", {"squad", "squad2"}),
        ("other/dev-v1.1.json", "", set()),
    ],
)
def test_the_version_is_that_of_the_name_or_of_the_file(tmp_path, name, version, tasks):
    # The version stands at the end, behind more than is read from the beginning.
    content = {"data": [{"article" if "race" in name else "paragraphs": "x" * 100_000}]}
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**content, "version": version} if version else content))
    for place in (tmp_path, path.parent):
        found = {task for task in ("squad", "squad2") if find_files(TASKS[task], place)}
        assert found == tasks or (place != tmp_path and not tasks)
