import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError

TABLE = {"objective.kind": "supervised", "data.tasks": "table", "data.path": "my.csv"}


COLUMNS = {"text": "a", "label": "b"}


def load(**columns):
    return load_recipe("bert-base", {**TABLE, "data.columns": columns}).recipe


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
    ("columns", "words"),
    [
        ({"text": "a", "lable": "b"}, "lable is not one of text"),
        ({"label": "b"}, "column is the text"),
        ({"text": "a", "label": "b", "number": "b"}, "label and number"),
        ({"text": "a", "label": "b", "choices": "c"}, "choices is a list"),
        ({"text": ["a", "b"], "label": "b"}, "text is one column"),
        ({"text": "a", "label": ""}, "label is empty"),
        ({"text": "a", "label": "a"}, "'a' is given twice"),
        ({"text": "a", "answer": "b"}, "column of the questions"),
    ],
)
def test_columns_that_contradict_each_other_are_refused(columns, words):
    with pytest.raises(ConfigError, match=words):
        load(**columns)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"data.columns": 5}, "data.columns = 5"),
        ({}, r"needs data\.columns"),
        ({"data.columns": COLUMNS, "data.path": None}, r"needs data\.path"),
        ({"data.columns": COLUMNS, "data.tasks": "sst2"}, r"data\.columns .*data\.tasks is table"),
        ({"data.columns": COLUMNS, "data.tasks": ["table", "sst2"]}, "stands in no mixture"),
    ],
)
def test_a_table_alone_has_columns_and_needs_them_and_a_path(settings, words):
    given = {**TABLE, **settings}
    with pytest.raises(ConfigError, match=words):
        load_recipe("bert-base", {key: value for key, value in given.items() if value is not None})
