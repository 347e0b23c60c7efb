import pytest

from sublayer.errors import DataError
from sublayer.tasks.predicting.columns import ToldColumns, example_of, find_columns
from sublayer.tasks.registry import TASKS

NOTHING = ToldColumns()


@pytest.mark.parametrize(
    ("task", "there", "found"),
    [
        ("mrpc", ["Quality", "#1 String", "#2 String"], ["#1 String", "#2 String"]),
        ("mnli", ["index", "sentence1", "sentence2"], ["sentence1", "sentence2"]),
        ("ax", ["Premise", "Hypothesis"], ["Premise", "Hypothesis"]),
        ("snli", ["premise", "hypothesis", "label"], ["premise", "hypothesis"]),
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


def test_a_missing_column_is_named_with_those_there_are_and_the_nearest():
    with pytest.raises(DataError) as error:
        find_columns(TASKS["rte"], {}, NOTHING, ["sentence1", "sentense2"], "x.csv")
    assert str(error.value) == (
        "x.csv has no column 'sentence2': it has sentence1, sentense2: did you mean sentense2?"
    )


@pytest.mark.parametrize(
    ("row", "choices"),
    [
        ({"choice1": "x", "choice2": "y"}, ("x", "y")),
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


def test_no_choices_are_said():
    with pytest.raises(DataError, match="no columns choice1, choice2 and so on"):
        find_columns(TASKS["copa"], {}, NOTHING, ["premise", "question", "choice1"], "x.csv")


@pytest.mark.parametrize("blank", ["", " \n", None, float("nan")])
def test_a_row_without_a_text_is_no_example(blank):
    task = TASKS["rte"]
    row = {"sentence1": "a", "sentence2": blank}
    columns = find_columns(task, {}, NOTHING, row, "x.jsonl")
    assert example_of(task, columns, row, 0, "x.jsonl:1") is None


def test_what_is_no_text_is_said_with_its_place():
    task = TASKS["sst2"]
    columns = find_columns(task, {}, NOTHING, ["sentence"], "x.jsonl")
    with pytest.raises(DataError, match=r"x\.jsonl:7: sentence is int, not a text"):
        example_of(task, columns, {"sentence": 3}, 0, "x.jsonl:7")


def test_the_places_of_wsc_are_needed():
    task = TASKS["wsc"]
    row = {"text": "Ann said she won.", "span1_text": "Ann", "span2_text": "she"}
    with pytest.raises(DataError, match="no column 'span2_index'"):
        find_columns(task, {}, NOTHING, row, "x.jsonl")
    for written in (2, "2", 2.0):
        row = {**row, "span2_index": written}
        example = example_of(task, find_columns(task, {}, NOTHING, row, "x"), row, 0, "x:1")
        assert example is not None
        assert example.extra == {"span2_index": 2}


@pytest.mark.parametrize(
    ("written", "said"),
    [("she", "span2_index is str, not a whole number"), (None, "has no span2_index")],
)
def test_a_place_of_wsc_that_is_no_number_is_said(written, said):
    task = TASKS["wsc"]
    row = {"text": "Ann said she won.", "span1_text": "Ann", "span2_text": "she"}
    row = {**row, "span2_index": written}
    columns = find_columns(task, {}, NOTHING, row, "x.csv")
    with pytest.raises(DataError, match=rf"x\.csv:2:? {said}"):
        example_of(task, columns, row, 0, "x.csv:2")


def test_a_column_of_another_tasks_numbers_is_not_read():
    task = TASKS["sst2"]
    row = {"sentence": "fine", "span1_index": "none"}
    example = example_of(task, find_columns(task, {}, NOTHING, row, "x"), row, 0, "x:1")
    assert example is not None and example.extra == {}


def test_as_many_choices_as_letters_are_found():
    row = {"premise": "a", "question": "cause"} | {f"choice{n}": "x" for n in range(1, 27)}
    assert len(find_columns(TASKS["copa"], {}, NOTHING, row, "x").choices) == 26
