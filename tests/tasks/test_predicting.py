"""Columns and files of rows to be answered, and answers by name."""

import json
from pathlib import Path

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Example
from sublayer.tasks.predicting.columns import ToldColumns, example_of, find_columns
from sublayer.tasks.predicting.files import AskedFile, read_asked
from sublayer.tasks.predicting.named import NamedPrediction, name_prediction
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS

NOTHING = ToldColumns()


@pytest.mark.parametrize(
    ("task", "there", "found"),
    [
        ("mrpc", ["Quality", "#1 String", "#2 String"], ["#1 String", "#2 String"]),
        ("ax", ["Premise", "Hypothesis"], ["Premise", "Hypothesis"]),
        ("boolq", ["question", "passage"], ["passage", "question"]),
        ("squad", ["id", "context", "question"], ["context", "question"]),
    ],
)
def test_columns_are_found_by_the_names_that_publishers_give_them(task, there, found):
    columns = find_columns(TASKS[task], {}, NOTHING, there, "x.tsv")
    assert list(columns.fields.values()) == found
    assert list(columns.fields) == list(TASKS[task].fields)


def test_columns_are_named_by_who_asks():
    told = ToldColumns("a", "b")
    columns = find_columns(TASKS["rte"], {}, told, ["a", "b", "sentence1"], "x.csv")
    assert columns.fields == {"sentence1": "a", "sentence2": "b"}
    with pytest.raises(DataError, match="SST-2 has no second text: leave out --text-pair"):
        find_columns(TASKS["sst2"], {}, told, ["a", "b"], "x.csv")
    with pytest.raises(DataError, match="RTE has no choices: leave out --choices"):
        find_columns(TASKS["rte"], {}, ToldColumns("a", "b", ("c",)), ["a", "b", "c"], "x.csv")


@pytest.mark.parametrize(
    ("task", "columns", "missing"),
    [
        ("rte", ["sentence1", "sentense2"], "'sentence2': .*did you mean sentense2"),
        ("copa", ["premise", "question", "choice1"], "choice1, choice2"),
        ("wsc", ["text", "span1_text", "span2_text"], "'span2_index'"),
    ],
)
def test_a_missing_column_is_named(task, columns, missing):
    with pytest.raises(DataError, match=rf"x\.csv has no columns? {missing}"):
        find_columns(TASKS[task], {}, NOTHING, columns, "x.csv")


@pytest.mark.parametrize(
    ("row", "choices"),
    [
        ({f"choice{n}": str(n) for n in range(1, 27)}, tuple(map(str, range(1, 27)))),
        ({"choices": ["x", "y", "z"]}, ("x", "y", "z")),
        ({"options": ("x", "y")}, ("x", "y")),
    ],
)
def test_choices_stand_in_columns_of_their_own_or_in_a_list(row, choices):
    row = {"premise": "a", "question": "cause", **row}
    columns = find_columns(TASKS["copa"], {}, NOTHING, row, "x.jsonl")
    example = example_of(TASKS["copa"], columns, row, 0, "x.jsonl:1")
    assert example is not None
    assert example.choices == choices
    assert not example.is_labelled


def test_choices_of_a_table_are_its_columns():
    own = {"text": "a", "choices": ("one", "two"), "label": "c"}
    row = {"premise": "a", "question": "cause", "one": "x", "two": "y"}
    columns = find_columns(TASKS["copa"], own, NOTHING, row, "x.csv")
    assert columns.choices == ("one", "two")
    told = ToldColumns(choices=("two", "one"))
    assert find_columns(TASKS["copa"], own, told, row, "x.csv").choices == ("two", "one")
    with pytest.raises(DataError, match="no column 'one'"):
        find_columns(TASKS["copa"], own, NOTHING, ["premise", "question", "two"], "x.csv")


@pytest.mark.parametrize("blank", [" \n", None, float("nan")])
def test_a_row_without_a_text_is_no_example(blank):
    task = TASKS["rte"]
    row = {"sentence1": "a", "sentence2": blank}
    columns = find_columns(task, {}, NOTHING, row, "x.jsonl")
    assert example_of(task, columns, row, 0, "x.jsonl:1") is None


@pytest.mark.parametrize("written", [2, "2", 2.0])
def test_the_position_of_wscs_pronoun_is_read(written):
    task = TASKS["wsc"]
    row = {"text": "Ann said she won.", "span1_text": "Ann", "span2_text": "she"}
    row = {**row, "span2_index": written}
    example = example_of(task, find_columns(task, {}, NOTHING, row, "x"), row, 0, "x:1")
    assert example is not None
    assert example.extra == {"span2_index": 2}


@pytest.mark.parametrize(
    ("column", "written"), [("span2_index", "she"), ("span2_index", None), ("text", 3)]
)
def test_a_value_of_another_type_is_refused_with_its_place(column, written):
    task = TASKS["wsc"]
    row = {"text": "Ann said she won.", "span1_text": "Ann", "span2_text": "she", "span2_index": 2}
    columns = find_columns(task, {}, NOTHING, row, "x.csv")
    with pytest.raises(DataError, match=rf"x\.csv:2:? .*{column}"):
        example_of(task, columns, {**row, column: written}, 0, "x.csv:2")


def test_a_column_of_another_tasks_numbers_is_not_read():
    task = TASKS["sst2"]
    row = {"sentence": "fine", "span1_index": "none"}
    example = example_of(task, find_columns(task, {}, NOTHING, row, "x"), row, 0, "x:1")
    assert example is not None and example.extra == {}


def example(task, **values):
    return Example("0", dict.fromkeys(TASKS[task].fields, "a"), **values)


def named(task, prediction, *, is_written=False, names=(), **values):
    return name_prediction(
        TASKS[task], example(task, **values), prediction, names, is_written=is_written
    )


def test_a_class_has_its_word_and_the_probability_of_each():
    found = named("rte", Prediction(1, (0.25, 0.75)))
    assert found.label == "not_entailment"
    assert found.probabilities == {"entailment": 0.25, "not_entailment": 0.75}
    assert found.probability == 0.75


def test_a_choice_has_its_text_its_number_and_those_that_it_has_not_none():
    found = named("copa", Prediction(0, (0.6, 0.4, 0.0)), choices=("x", "y"))
    assert (found.label, found.choice, found.probability) == ("x", 0, 0.6)
    assert found.probabilities == {"choice1": 0.6, "choice2": 0.4}
    found = named("copa", Prediction(1, (0.3, 0.7)), choices=("x", "y"), names=("one", "two"))
    assert found.probabilities == {"one": 0.3, "two": 0.7}


def test_a_number_is_itself():
    found = named("stsb", Prediction(2.5))
    assert (found.label, found.probabilities, found.probability) == (2.5, {}, None)


def test_a_span_has_its_place_and_an_empty_one_has_none():
    found = named("squad2", Prediction(text="a", start=3, probabilities=(0.5,), no_answer=-1.5))
    assert (found.label, found.start, found.probability, found.no_answer) == ("a", 3, 0.5, -1.5)
    found = named("squad2", Prediction(text="", start=None, no_answer=2.0))
    assert (found.label, found.start, found.probability) == ("", None, None)
    assert named("squad", Prediction(text="a", start=0)).no_answer is None


@pytest.mark.parametrize(
    ("task", "prediction", "label"),
    [
        ("rte", Prediction(0, text="entailment"), "entailment"),
        ("rte", Prediction(None, text="maybe"), None),
        ("stsb", Prediction(3.2, text="3.2"), 3.2),
    ],
)
def test_what_was_written_stands_beside_what_it_means(task, prediction, label):
    found = named(task, prediction, is_written=True)
    assert (found.label, found.written) == (label, prediction.text)


def test_json_has_what_is_known_and_always_a_prediction():
    found = named("rte", Prediction(1, (0.25, 0.75))).to_json()
    assert json.loads(json.dumps(found)) == {
        "prediction": "not_entailment",
        "probability": 0.75,
        "probabilities": {"entailment": 0.25, "not_entailment": 0.75},
    }
    assert NamedPrediction().to_json() == {"prediction": None}
    assert named("stsb", Prediction(1 / 3)).to_json() == {"prediction": 0.333333}


def asked(task: str, path: Path, told: ToldColumns | None = None) -> AskedFile:
    return read_asked(TASKS[task], {}, told or ToldColumns(), path)


def test_glue_is_read_by_its_header_and_keeps_its_columns(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text('index\tsentence1\tsentence2\n0\t"A\tB\n1\tC\t\n')
    found = asked("rte", path)
    assert (found.kind, found.names) == ("tsv", ("index", "sentence1", "sentence2"))
    first, second = found.rows
    assert first.example is not None
    assert first.example.fields == {"sentence1": '"A', "sentence2": "B"}
    assert second.example is None
    assert second.values == {"index": "1", "sentence1": "C", "sentence2": ""}


def test_cola_may_have_no_header(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("gj04\t1\t\tIt rains.\ngj04\t0\t*\tIt rain.\n")
    found = asked("cola", path)
    assert found.names == ("source", "label", "mark", "sentence")
    assert [row.example.fields["sentence"] for row in found.rows if row.example] == [
        "It rains.",
        "It rain.",
    ]


def test_labels_of_minus_one_and_of_none_ask_as_all_others(tmp_path):
    path = tmp_path / "test.jsonl"
    rows = [{"premise": "a", "hypothesis": "b", "idx": n, "label": -1} for n in range(3)]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = list(asked("cb", path).rows)
    assert [row.values for row in found] == rows
    assert all(row.example is not None for row in found)


def test_rows_that_are_written_twice_are_answered_twice(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("index\tsentence\n0\ta\n0\ta\n0\tb\n")
    assert len(list(asked("sst2", path).rows)) == 3


def test_what_is_nested_is_read_as_its_publisher_wrote_it(tmp_path):
    question = {"id": "q1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
    paragraph = {"context": "Ann won.", "qas": [question]}
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))
    found = asked("squad", path)
    assert (found.kind, found.names) == ("jsonl", ("id", "context", "question"))
    [row] = found.rows
    assert row.values == {"id": "q1", "context": "Ann won.", "question": "Who?"}


def test_a_passage_of_race_becomes_a_row_for_each_question(tmp_path):
    path = tmp_path / "race_test_middle.jsonl"
    passage = {
        "id": "middle1.txt",
        "article": "Ann won.",
        "questions": ["Who?", "_ won."],
        "options": [["Ann", "Eve"], ["Eve", "Ann"]],
        "answers": ["A", "B"],
    }
    path.write_text(json.dumps(passage))
    rows = list(asked("race_middle", path).rows)
    assert [row.values["choices"] for row in rows] == [["Ann", "Eve"], ["Eve", "Ann"]]
    assert [row.values["id"] for row in rows] == ["middle1.txt.0", "middle1.txt.1"]


def test_a_folder_has_the_test_set(tmp_path):
    folder = tmp_path / "RTE"
    folder.mkdir()
    (folder / "test.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    assert len(list(asked("rte", tmp_path).rows)) == 1
    (folder / "test.tsv").rename(folder / "dev.tsv")
    with pytest.raises(DataError, match="has dev of RTE, and not one test set"):
        asked("rte", tmp_path)


def test_a_test_set_of_several_files_is_read_as_its_publisher_wrote_it(tmp_path):
    folder = tmp_path / "RACE" / "test" / "middle"
    folder.mkdir(parents=True)
    for number in (10, 2):
        passage = {
            "id": f"middle{number}.txt",
            "article": "Ann won.",
            "questions": ["Who?"],
            "options": [["Ann", "Eve"]],
        }
        (folder / f"{number}.txt").write_text(json.dumps(passage))
    found = asked("race_middle", tmp_path)
    assert found.kind == "jsonl"
    assert [row.values["id"] for row in found.rows] == ["middle2.txt.0", "middle10.txt.0"]
    with pytest.raises(DataError, match="has the test set of RACE middle in 2 files"):
        asked("race_middle", tmp_path, ToldColumns("article"))


def test_a_row_that_is_too_long_has_no_place_for_an_answer(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("index\tsentence\n0\ta\n1\tb\tc\n")
    with pytest.raises(DataError, match=r"test\.tsv:3 has more than 2 fields"):
        list(asked("sst2", path).rows)


def test_a_row_that_is_too_short_is_answered_where_its_texts_are_there(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("sentence1\tsentence2\tnote\na\tb\nc\n")
    first, second = asked("rte", path).rows
    assert first.example is not None
    assert second.example is None


def test_what_is_of_another_task_names_the_missing_column(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("index\tsentence\n0\ta\n")
    with pytest.raises(DataError, match="no column 'premise' or 'sentence1' or 'Premise'"):
        asked("mnli", path)
    with pytest.raises(DataError, match="no column 'said'"):
        asked("sst2", path, ToldColumns("said"))
