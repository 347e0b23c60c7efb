"""``sublayer finetune`` and ``train`` on tasks, from the files to the score and what follows."""

import re
from itertools import product

import pytest

from sublayer.commands.train import _last_losses
from sublayer.config.layering.run_recipe import read_run_recipe
from sublayer.data.tasks.prepare import prepare_tasks
from sublayer.data.tasks.task_split import of_tasks
from sublayer.loading import load
from sublayer.tasks.registry import TASKS
from tests.breadth import rows
from tests.commands.conftest import SHORT
from tests.commands.reviews import reviews, write_csv
from tests.published_files import PUBLISHED, write_published
from tests.task_files import write_sst2

COLUMNS = ("--text", "review", "--label", "stars")
RECIPE = """
title = "Small"
source = "tests"
cost = "nothing"
model = { kind = "encoder", n_layers = 1, d_model = 16, n_heads = 2, segments = "both" }
objective = { kind = "supervised" }
data = { tasks = "sst2", path = "glue", context = 32, tokenizer = "wordpiece", vocab_size = 90 }
train = { steps = 6, batch_sequences = 8, precision = "float32", threads = 1 }
"""
_OWN = ("model.d_embed", "data.tokenizer", "data.v")
_STEPS = [word for word in SHORT if not word.startswith(_OWN)]
_STEPS += ["train.steps=2", "train.evaluate_steps=2"]
_SUITES = {"glue": 11, "superglue": 8, "squad": 1, "race": 2}
"""Files that are handed in at least: of MultiRC and ReCoRD only where their questions are known."""
_MODELS = {"albert-small": ["data.tokenizer=wordpiece", "data.vocab_size=120"]}
_MODELS |= {"gpt": ["data.tokenizer=bpe", "data.vocab_size=300"]}
_MODELS |= {"t5-mini": ["data.tokenizer=unigram", "data.vocab_size=150", "data.sentinels=0"]}


@pytest.mark.parametrize(("name", "recipe"), rows(product(PUBLISHED, _MODELS), 12))
def test_a_task_is_read_learned_scored_and_handed_in(sublayer, tmp_path, here, recipe, name):
    if (recipe, name) in (("gpt", "squad2"), ("t5-mini", "wnli")):
        pytest.skip("it is refused")
    data = write_published(tmp_path / "data", name)
    run = tmp_path / "run"
    words = (name, "--data", data, *_STEPS, *_MODELS[recipe], "--out", run, "--json")
    [seed] = sublayer("finetune", recipe, *words).found()["seeds"]
    assert len(seed["tasks"]) == (2 if name == "mnli" else 1)
    for task in seed["tasks"]:
        assert task["examples"] > 0 and task["baselines"].keys() == {"majority", "words"}
    again = sublayer("evaluate", run, "--json").found()
    for field in ("score", "metrics", "baselines"):
        assert [each[field] for each in again["tasks"]] == [each[field] for each in seed["tasks"]]
    suite = TASKS[name].suite
    if suite in _SUITES:
        handed = sublayer("predict", run, "--data", data, "--submission", "out", "--json").found()
        assert len(handed["files"]) >= _SUITES[suite]
        own = [each for each in handed["sets"] if each["task"] == name]
        assert own and all(each["runs"] == [str(run)] and each["rows"] > 0 for each in own)


def test_no_group_of_a_table_stands_in_two_parts(reviewer):
    recipe = read_run_recipe(reviewer / "recipe.toml")
    data = prepare_tasks(recipe.data, recipe.objective, tokenizer=load(reviewer).tokenizer)
    found = [of_tasks(split).parts[0].examples for split in (data.train, data.valid, data.test)]
    parts = [{example.source for example in examples} for examples in found]
    assert list(map(len, found)) == [3 * len(part) for part in parts]
    assert len(set.union(*parts)) == sum(map(len, parts)) == 80
    assert 0.6 < len(parts[0]) / 80 < 0.8


def test_the_run_is_named_after_the_table(sublayer, here):
    write_csv(here / "films.2.csv", reviews(60))
    words = ("films.2.csv", *COLUMNS, *SHORT, "train.steps=1", "--json")
    for expected in ("films", "films.2"):
        assert sublayer("finetune", "albert-small", *words).found()["run"] == f"runs/{expected}"


def test_a_table_that_cannot_be_learned_is_refused(sublayer, here):
    write_csv(here / "my.csv", [{**row, "film": "one"} for row in reviews(30, seed=3)])
    words = ("finetune", "albert-small", "my.csv", *COLUMNS, *SHORT)
    assert "leave out --data" in sublayer(*words, "--data", "glue").refusal()
    code, _, err = sublayer(*words, "--group", "film")
    assert (code, (here / "runs").exists()) == (2, False)
    assert "which makes 1 part of them" in err.splitlines()[-1]


@pytest.fixture
def small(here):
    """A folder with a recipe and files of SST-2: ``glue``, and ``odd`` without training rows."""
    (here / "small.toml").write_text(RECIPE)
    write_sst2(here / "glue")
    (here / "odd" / "SST-2").mkdir(parents=True)
    (here / "odd" / "SST-2" / "dev.tsv").write_text("text\tlabel\nfine\t1\n")
    return here


@pytest.mark.parametrize("words, message", [
    ("data.context=3", "data.context = 3 has no room for texts between their marks"),
    ("data.select=dev data.path=odd", "no training part of SST-2: leave it out"),
    ("data.path=odd", "has no column sentence"),
])  # fmt: skip
def test_tasks_that_cannot_be_trained_are_refused(small, sublayer, words, message):
    code, _, err = sublayer("train", "small.toml", *words.split(), "--out", "run")
    assert (code, (small / "run").exists()) == (2, False)
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and message in errors[0]


def test_a_run_is_scored_on_the_published_set_or_on_what_was_held_out(small, sublayer):
    assert sublayer("train", "small.toml", "--out", "run").code == 0
    [task] = sublayer("evaluate", "run", "--json").found()["tasks"]
    assert (task["task"], task["split"], task["examples"]) == ("sst2", "dev", 20)
    held_out = sublayer("evaluate", "run", "--split", "valid", "--json").found()
    assert held_out["tasks"][0]["examples"] == 6
    shown = sublayer("evaluate", "run", "--split", "valid").out
    assert "scored on what was held out, which chose the checkpoint" in shown
    refusal = sublayer("inspect", "layers", "run").refusal()
    assert "examples of tasks, which are no text: give one" in refusal
    path = small / "glue" / "SST-2" / "dev.tsv"
    path.write_text(path.read_text() + "a fine day\t1\n")
    changed = sublayer("evaluate", "run").refusal()
    assert "the examples of run are no longer what it was trained with" in changed


def test_the_gap_is_to_the_mean_of_the_steps_since_the_evaluation_before(tmp_path):
    # The last line is of a step alone.
    losses = [("train", 10, 9.0), ("valid", 10, 5.0), ("train", 20, 2.0)]
    line = '{{"kind": "{0}", "step": {1}, "loss": {2}, "tokens": {1}, "seconds": {1}}}\n'.format
    lines = [line(*each) for each in (*losses, ("train", 21, 4.2), ("valid", 21, 2.5))]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    # (10 x 2 + 1 x 4.2) / 11
    (found,) = _last_losses(tmp_path, 2.25)
    assert re.findall(r"[\d.]+", found) == ["2.5000", "0.2500", "2.2000", "0.3000"]
