"""Columns and files of rows to be answered, and answers by name."""

from pathlib import Path

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Example
from sublayer.tasks.predicting.columns import ToldColumns, example_of, find_columns
from sublayer.tasks.predicting.files import AskedFile, read_asked
from sublayer.tasks.predicting.named import name_prediction
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS
from tests.tasks.files import write

NOTHING = ToldColumns()
PRONOUN = {"text": "Ann said she won.", "span1_text": "Ann", "span2_text": "she"}
COPA = {"premise": "a", "question": "cause"}


OWN = {"text": "a", "choices": ("one", "two"), "label": "c"}


@pytest.mark.parametrize("task, own, told, columns, message", [
    ("rte", {}, NOTHING, ["sentence1", "sentense2"],
     "x.csv has no column 'sentence2': .*did you mean sentense2"),
    ("copa", {}, NOTHING, [*COPA, "choice1"], "x.csv has no columns choice1, choice2"),
    ("copa", OWN, NOTHING, [*COPA, "two"], "no column 'one'"),
    ("sst2", {}, ToldColumns("a", "b"), ["a", "b"], "no second text: leave out --text-pair"),
])  # fmt: skip
def test_columns_that_are_not_there_or_not_the_tasks_are_refused(task, own, told, columns, message):
    with pytest.raises(DataError, match=message):
        find_columns(TASKS[task], own, told, columns, "x.csv")


def _example_of(task, row, own=None, told=NOTHING):
    columns = find_columns(TASKS[task], own or {}, told, row, "x.csv")
    return example_of(TASKS[task], columns, row, 0, "x.csv:2")


@pytest.mark.parametrize("row, own, told, choices", [
    ({f"choice{n}": str(n) for n in range(1, 27)}, {}, NOTHING, tuple(map(str, range(1, 27)))),
    ({"choices": ["x", "y", "z"]}, {}, NOTHING, ("x", "y", "z")),
    ({"one": "x", "two": "y"}, OWN, NOTHING, ("x", "y")),
    ({"one": "x", "two": "y"}, OWN, ToldColumns(choices=("two", "one")), ("y", "x")),
])  # fmt: skip
def test_choices_stand_in_columns_or_in_a_list(row, own, told, choices):
    example = _example_of("copa", {**COPA, **row}, own, told)
    assert (example.choices, example.is_labelled) == (choices, False)


@pytest.mark.parametrize("blank", [" \n", float("nan")])
def test_a_row_without_a_text_is_no_example(blank):
    assert _example_of("rte", {"sentence1": "a", "sentence2": blank}) is None


@pytest.mark.parametrize("written", ["2", 2.0])
def test_the_position_of_a_pronoun_is_read_where_the_task_has_one(written):
    assert _example_of("wsc", {**PRONOUN, "span2_index": written}).extra == {"span2_index": 2}
    assert _example_of("sst2", {"sentence": "fine", "span1_index": "none"}).extra == {}


@pytest.mark.parametrize(
    ("column", "written"), [("span2_index", "she"), ("span2_index", None), ("text", 3)]
)
def test_a_value_of_another_type_is_refused_with_its_place(column, written):
    with pytest.raises(DataError, match=rf"x\.csv:2:? .*{column}"):
        _example_of("wsc", {**PRONOUN, "span2_index": 2, column: written})


RTE = {"entailment": 0.25, "not_entailment": 0.75}


@pytest.mark.parametrize("task, prediction, more, named", [
    ("rte", Prediction(1, (0.25, 0.75)), {},
     {"label": "not_entailment", "probability": 0.75, "probabilities": RTE}),
    ("copa", Prediction(0, (0.6, 0.4, 0.0)), {},
     {"label": "x", "choice": 0, "probability": 0.6,
      "probabilities": {"choice1": 0.6, "choice2": 0.4}}),
    ("copa", Prediction(1, (0.3, 0.7)), {"names": ("one", "two")},
     {"label": "y", "choice": 1, "probabilities": {"one": 0.3, "two": 0.7}}),
    ("squad2", Prediction(text="a", start=3, probabilities=(0.5,), no_answer=-1.5), {},
     {"label": "a", "start": 3, "probability": 0.5, "no_answer": -1.5}),
])  # fmt: skip
def test_a_prediction_has_its_words_and_the_probability_of_each(task, prediction, more, named):
    choices = ("x", "y") if task == "copa" else ()
    example = Example("0", dict.fromkeys(TASKS[task].fields, "a"), choices=choices)
    given = {"names": (), "is_written": False, **more}
    names = given.pop("names")
    found = name_prediction(TASKS[task], example, prediction, names, **given)
    assert {name: getattr(found, name) for name in named} == named


def _asked(task: str, path: Path, told: ToldColumns = NOTHING) -> AskedFile:
    return read_asked(TASKS[task], {}, told, path)


def _values(asked: AskedFile, *names: str) -> list[list]:
    return [[row.values[name] for name in names] for row in asked.rows]


def test_tables_are_read_by_their_header_and_keep_their_columns(tmp_path):
    text = 'index\tsentence1\tsentence2\n0\t"A\tB\n0\t"A\tB\n1\tC\t\n2\tD\n'
    found = _asked("rte", write(tmp_path / "test.tsv", text))
    assert (found.kind, found.names) == ("tsv", ("index", "sentence1", "sentence2"))
    first, again, empty, short = found.rows
    # Rows that are written twice are answered twice; those without a text are not answered.
    assert first.example.fields == again.example.fields == {"sentence1": '"A', "sentence2": "B"}
    assert empty.example is short.example is None
    assert empty.values == {"index": "1", "sentence1": "C", "sentence2": ""}
    cola = write(tmp_path / "dev.tsv", "gj04\t1\t\tIt rains.\ngj04\t0\t*\tIt rain.\n")
    found = _asked("cola", cola)
    assert found.names == ("source", "label", "mark", "sentence")
    assert _values(found, "sentence") == [["It rains."], ["It rain."]]


def _passage(id_):
    questions, options = ["Who?", "_ won."], [["Ann", "Eve"], ["Eve", "Ann"]]
    return {"id": id_, "article": "Ann won.", "questions": questions, "options": options}


def test_nested_files_are_read_as_their_publisher_wrote_them(tmp_path):
    question = {"id": "q1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
    paragraphs = [{"context": "Ann won.", "qas": [question]}]
    content = {"data": [{"title": "t", "paragraphs": paragraphs}]}
    found = _asked("squad", write(tmp_path / "dev.json", content))
    assert (found.kind, found.names) == ("jsonl", ("id", "context", "question"))
    assert _values(found, "id", "context", "question") == [["q1", "Ann won.", "Who?"]]
    # Several files of a test set, and a row for each question of a passage.
    for number in (10, 2):
        path = tmp_path / "RACE" / "test" / "middle" / f"{number}.txt"
        write(path, _passage(f"middle{number}.txt"))
    found = _asked("race_middle", tmp_path)
    values = _values(found, "id", "choices")
    assert [id_ for id_, _ in values] == [f"middle{n}.txt.{k}" for n in (2, 10) for k in (0, 1)]
    assert [choices for _, choices in values[:2]] == [["Ann", "Eve"], ["Eve", "Ann"]]
    with pytest.raises(DataError, match="has the test set of RACE middle in 2 files"):
        _asked("race_middle", tmp_path, ToldColumns("article"))


def test_a_folder_has_the_test_set(tmp_path):
    path = write(tmp_path / "RTE" / "test.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n")
    assert len(list(_asked("rte", tmp_path).rows)) == 1
    path.rename(path.with_name("dev.tsv"))
    with pytest.raises(DataError, match="has dev of RTE, and not one test set"):
        _asked("rte", tmp_path)


@pytest.mark.parametrize("task, told, message", [
    ("sst2", NOTHING, r"test\.tsv:3 has more than 2 fields"),
    ("mnli", NOTHING, "no column 'premise' or 'sentence1' or 'Premise'"),
    ("sst2", ToldColumns("said"), "no column 'said'"),
])  # fmt: skip
def test_a_file_without_a_place_for_answers_is_refused(tmp_path, task, told, message):
    path = write(tmp_path / "test.tsv", "index\tsentence\n0\ta\n1\tb\tc\n")
    with pytest.raises(DataError, match=message):
        list(_asked(task, path, told).rows)
