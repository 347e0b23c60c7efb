import json
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


def test_a_table_is_learned_by_the_names_of_its_columns(reviewer):
    scores = json.loads((reviewer / "scores.json").read_text())
    [table] = scores["tasks"]
    assert table["title"] == "my.csv"
    assert table["score"] > 0.9
    assert table["baselines"]["majority"]["score"] < 0.7


def test_the_recipe_of_the_run_says_all_of_the_table(reviewer):
    data = read_run_recipe(reviewer / "recipe.toml").data
    assert data.tasks == "table"
    assert data.path == str(reviewer.parents[1] / "my.csv")
    assert data.columns == {"text": "review", "label": "stars", "group": "film"}


def test_the_labels_and_the_columns_are_saved_with_the_model(reviewer):
    model = load(reviewer)
    [task] = model.task.tasks
    assert task.labels == ("bad", "good")
    assert task.fields == ("review",)
    assert model.task.columns == {"text": "review", "label": "stars", "group": "film"}
    assert model.config.label_outputs == 2


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


def test_a_run_that_has_ended_is_resumed_as_it_is(sublayer, reviewer, monkeypatch):
    monkeypatch.chdir(reviewer.parents[1])
    words = (*COLUMNS, "--group", "film", *TINY, "--resume", "--out", "runs/my")
    before = (reviewer / "record.json").read_bytes()
    result = sublayer("finetune", "albert-small", "my.csv", *words)
    assert result.code == 0, result.err
    assert (reviewer / "record.json").read_bytes() == before


def test_another_column_is_another_run(sublayer, reviewer, monkeypatch):
    monkeypatch.chdir(reviewer.parents[1])
    words = (*COLUMNS, *TINY, "--resume", "--out", "runs/my")
    result = sublayer("finetune", "albert-small", "my.csv", *words)
    assert result.code == 2
    assert "was started with data.columns = " in result.err


def test_train_takes_the_same_recipe(sublayer, reviewer, here):
    words = ("train.steps=2", "train.evaluate_steps=2", "--out", "again", "--json")
    record = sublayer("train", reviewer, *words).found()
    assert record["step"] == 2
    assert load("again").task == load(reviewer).task


def test_numbers_are_predicted_as_numbers(sublayer, here):
    write_csv(here / "my.csv", reviews(60))
    words = ("--text", "review", "--label", "rating", "--number", *TINY, "train.steps=2", "--json")
    words = tuple(word for word in words if word != "train.steps=60")
    result = sublayer("finetune", "albert-small", "my.csv", *words).found()
    [seed] = result["seeds"]
    assert set(seed["tasks"][0]["metrics"]) == {"pearson", "spearman"}
    [task] = load(here / "runs" / "my").task.tasks
    assert task.kind == "number"
    assert 1.0 <= task.numbers[0] < task.numbers[1] <= 5.0


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


def test_what_is_odd_in_a_table_is_counted(sublayer, here):
    rows = reviews(60)
    rows[5]["stars"] = "fine"
    rows[6]["stars"] = ""
    rows[7]["review"] = " "
    write_csv(here / "my.csv", rows)
    words = [word for word in TINY if not word.startswith("train.steps")]
    result = sublayer("finetune", "albert-small", "my.csv", *COLUMNS, *words, "train.steps=1")
    assert result.code == 0, result.err
    said = result.err
    assert "my.csv, train: 1 row left out: nothing in the column 'stars' (my.csv:8)" in said
    assert "my.csv, train: 1 row left out: nothing in the column 'review' (my.csv:9)" in said
    assert "my.csv, train: 1 row kept as it is: a label that no other row has" in said
    assert "my.csv:7)" in said


def test_rows_that_cannot_be_divided_are_said(sublayer, here):
    rows = [{**each, "film": "one"} for each in reviews(30)]
    write_csv(here / "my.csv", rows)
    message = refused(sublayer, "my.csv", *COLUMNS, "--group", "film", *TINY)
    assert (
        "nothing can be held out of my.csv, train, which has 30 of 30 rows with a label: give "
        "more; rows with the same texts, of one source or of one group stay together, which makes "
        "1 part of them"
    ) in message


def test_a_development_set_beside_the_training_set_is_what_is_scored(sublayer, here):
    folder = here / "mine"
    folder.mkdir()
    write_csv(folder / "train.csv", reviews(60))
    write_csv(folder / "dev.csv", reviews(20, seed=5))
    words = tuple(word for word in TINY if not word.startswith("train.steps"))
    result = sublayer(
        "finetune", "albert-small", "mine", *COLUMNS, *words, "train.steps=1", "--json"
    ).found()
    [seed] = result["seeds"]
    assert (seed["tasks"][0]["split"], seed["tasks"][0]["examples"]) == ("dev", 20)
