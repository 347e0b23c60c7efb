import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError

SETTINGS = {"objective.kind": "supervised", "data.tasks": "table", "data.path": "my.csv"}


def load(**columns):
    return load_recipe("bert-base", {**SETTINGS, "data.columns": columns}).recipe


@pytest.mark.parametrize(
    ("columns", "metrics"),
    [
        ({"text": "a", "label": "c"}, ("accuracy",)),
        ({"text": "a", "text_pair": "b", "number": "c"}, ("pearson", "spearman")),
        ({"text": "a", "choices": ["x", "y"], "label": "c"}, ("accuracy",)),
        ({"text": "a", "text_pair": "b", "answer": "c"}, ()),
    ],
)
def test_the_columns_say_what_is_measured(columns, metrics):
    recipe = load(**columns)
    assert recipe.objective.evaluations(recipe.data) == ("loss", "score", *metrics)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": "a", "lable": "b"}, "lable is not one of text, text_pair, label"),
        ({"label": "b"}, "does not say which column is the text"),
        ({"text": "a", "label": "b", "number": "b"}, "label and number exclude each other"),
        ({"text": "a", "label": "b", "choices": "c"}, "choices is a list of columns"),
        ({"text": ["a", "b"], "label": "b"}, "text is one column"),
        ({"text": "a", "label": ""}, "label is empty: name a column"),
        ({"text": "a", "label": "a"}, "the column 'a' is given twice"),
        ({"text": "a", "answer": "b"}, "give the column of the questions"),
    ],
)
def test_columns_that_contradict_each_other_are_refused(columns, message):
    with pytest.raises(ConfigError, match=message):
        load(**columns)


def test_columns_of_another_type_are_refused_in_a_line():
    with pytest.raises(ConfigError, match="data.columns = 5 is not {name = column}"):
        load_recipe("bert-base", {**SETTINGS, "data.columns": 5})


def test_a_table_needs_its_columns_and_a_path():
    with pytest.raises(ConfigError, match=r"needs data\.columns, such as"):
        load_recipe("bert-base", SETTINGS)
    without = {key: value for key, value in SETTINGS.items() if key != "data.path"}
    with pytest.raises(ConfigError, match=r"needs data\.path"):
        load_recipe("bert-base", {**without, "data.columns": {"text": "a", "label": "b"}})


def test_columns_are_of_a_table_alone():
    columns = {"data.columns": {"text": "a", "label": "b"}}
    with pytest.raises(ConfigError, match=r"data\.columns .*data\.tasks is table"):
        load_recipe("bert-base", {**SETTINGS, "data.tasks": "sst2", **columns})
    with pytest.raises(ConfigError, match="stands in no mixture"):
        load_recipe("bert-base", {**SETTINGS, "data.tasks": ["table", "sst2"], **columns})
