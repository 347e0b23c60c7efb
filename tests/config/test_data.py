"""Texts, their split, and tables of one's own in a recipe."""

from fractions import Fraction

import pytest

from sublayer.config.data import DataConfig
from sublayer.config.layering.layers import load_recipe
from sublayer.config.text.corpora import source_names
from sublayer.config.text.split import parse_split
from sublayer.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"corpus": ("python", "novels")}, "data.corpus = 'novels'"),
        ({"corpus": {"novels": 1.0}}, "data.corpus = 'novels'"),
        ({"path": {"a": 0.0}}, "the weight 0 of 'a'"),
        ({"path": {}}, "is empty"),
        ({"path": {"a": 1.0}, "corpus": "python"}, "give weights to both"),
        ({"corpus": "albert-intrinsic"}, "needs data.path"),
        ({"corpus": ("albert-intrinsic", "c4"), "path": "a"}, "albert-intrinsic reads data.path"),
        ({"corpus": "albert-intrinsic", "path": {"a": 1.0}}, "albert-intrinsic reads data.path"),
    ],
)
def test_sources_that_contradict_are_refused(values, words):
    with pytest.raises(ConfigError, match=words):
        DataConfig(**values)


def test_sources_have_names_however_they_are_written():
    assert source_names(None) == ()
    assert source_names("a") == ("a",)
    assert source_names(("a", "b")) == source_names({"a": 1.0, "b": 2.0}) == ("a", "b")


def test_shares_are_read_exactly():
    assert parse_split("90/5/5") == (Fraction(9, 10), Fraction(1, 20), Fraction(1, 20))
    assert parse_split("99.8 / 0.1 / 0.1") == (
        Fraction(998, 1000),
        Fraction(1, 1000),
        Fraction(1, 1000),
    )


@pytest.mark.parametrize("split", ["90/10", "90/5/4", "0/50/50", "110/-5/-5", "a/b/c", "90//10"])
def test_other_shares_are_refused(split):
    with pytest.raises(
        ConfigError,
        match=r"must be three shares",
    ):
        DataConfig(split=split)


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
