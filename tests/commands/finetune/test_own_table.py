from pathlib import Path

import pytest

from sublayer.config.layering.run_recipe import read_run_recipe
from sublayer.data.tasks.prepare import prepare_tasks
from sublayer.data.tasks.task_split import of_tasks
from sublayer.loading import load
from tests.commands.conftest import TINY
from tests.commands.results import Sublayer
from tests.commands.reviews import reviews, write_csv

COLUMNS = ("--text", "review", "--label", "stars")


def test_no_group_stands_in_two_parts(reviewer):
    recipe = read_run_recipe(reviewer / "recipe.toml")
    data = prepare_tasks(recipe.data, recipe.objective, tokenizer=load(reviewer).tokenizer)
    parts = {}
    for split in (data.train, data.valid, data.test):
        [part] = of_tasks(split).parts
        parts[split.name] = {example.source for example in part.examples}
        assert len(part.examples) == 3 * len(parts[split.name])
    assert not parts["train"] & parts["valid"]
    assert not parts["train"] & parts["test"]
    assert not parts["valid"] & parts["test"]
    n_all = len(parts["train"] | parts["valid"] | parts["test"])
    assert n_all == 80
    assert 0.6 < len(parts["train"]) / n_all < 0.8


def test_the_run_is_named_after_the_table(sublayer, here):
    write_csv(here / "films.2.csv", reviews(60))
    words = tuple(word for word in TINY if not word.startswith("train.steps"))
    for expected in ("films", "films.2"):
        result = sublayer(
            "finetune", "albert-small", "films.2.csv", *COLUMNS, *words, "train.steps=1", "--json"
        )
        assert result.found()["run"] == str(Path("runs") / expected)


def refused(sublayer: Sublayer, *words: str) -> str:
    result = sublayer("finetune", "albert-small", *words)
    assert result.code == 2, result.out
    return result.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            (),
            "my.csv has the columns review, stars, rating, film: say which is the text and which ",
        ),
        (("--text", "reveiw", "--label", "stars"), "no column 'reveiw': it has review, stars, rat"),
        (("--text", "review", "--label", "review"), "the column 'review' is given twice"),
        (("--text", "review", "--label", "stars", "--data", "glue"), "leave out --data"),
        (("sst2", "--text", "review", "--label", "stars"), "which is learned alone"),
        (("--text", "review", "--label", "stars", "--number"), "the label 'good' is no number"),
        (("--text", "review", "--label", "rating"), "say that it is a number"),
        (("--text", "review", "--label", "film", "--choices", "stars"), "'stars' alone is no cho"),
    ],
)
def test_what_a_table_is_not_is_said(sublayer, here, words, message):
    write_csv(here / "my.csv", reviews(30, seed=3))
    assert message in refused(sublayer, "my.csv", *words)
    assert not (here / "runs").exists()


def test_rows_that_cannot_be_divided_are_said(sublayer, here):
    rows = [{**each, "film": "one"} for each in reviews(30)]
    write_csv(here / "my.csv", rows)
    message = refused(sublayer, "my.csv", *COLUMNS, "--group", "film", *TINY)
    assert (
        "nothing can be held out of my.csv, train, which has 30 of 30 rows with a label: give "
        "more; rows with the same texts, of one source or of one group stay together, which makes "
        "1 part of them"
    ) in message
