"""Longer lengths of resumed runs, and ``train.keep_steps``: checkpoints kept by their steps."""

import json
import shutil

import pytest

from sublayer.config.layering.finetune import load_finetune
from sublayer.config.layering.layers import load_recipe
from sublayer.errors import CheckpointError, ConfigError, Interrupted
from sublayer.files.checkpoints import checkpoint_path, saved_steps
from sublayer.loading import load
from sublayer.runs.lengthening import read_lengthenings
from sublayer.runs.run import from_recipe, train_run
from sublayer.training.progress import SilentProgress
from tests.training.runs import Notes, SignalAt, results

CONSTANT = {
    "optimizer.schedule": "constant",
    "optimizer.warmup_steps": 3,
    "train.evaluate_steps": 6,
}
SHORT, LONG = {"train.steps": 6}, {"train.steps": 12}
KEPT = {"train.keep_steps": [1, 7, 9], "train.best_by": "last", "train.steps": 16}


def test_a_lengthened_run_of_a_constant_rate_equals_the_run_of_that_length(run, tmp_path):
    settings = CONSTANT
    first = run("longer", {**settings, **SHORT})
    notes = Notes()
    record = run("longer", {**settings, **LONG}, resume=True, progress=notes)
    run("whole", {**settings, **LONG})
    assert results(tmp_path / "longer") == results(tmp_path / "whole")
    assert (first["lengthened"], record["step"]) == ([], 12)
    assert record["lengthened"] == [{"at_step": 6, "from_steps": 6, "to_steps": 12}]
    assert record["seconds"] > first["seconds"]
    assert any(text.startswith("continues from step 6 to 12") for text in notes.texts)
    assert json.loads((tmp_path / "longer" / "record-step-00000006.json").read_text()) == first
    again = run("longer", {**settings, "train.steps": 14}, resume=True)
    assert [each["to_steps"] for each in again["lengthened"]] == [12, 14]


def test_an_unfinished_run_may_be_lengthened_interrupted_and_resumed(run, tmp_path):
    with pytest.raises(Interrupted):
        run("longer", {**CONSTANT, **SHORT}, progress=SignalAt(5))
    with pytest.raises(Interrupted, match="saved at step 9 of 12"):
        run("longer", {**CONSTANT, **LONG}, resume=True, progress=SignalAt(9))
    assert not (tmp_path / "longer" / "record.json").exists()
    # As `sublayer train RUN --resume` does, the recipe is the run's own by now.
    folder = tmp_path / "longer"
    train_run(load_recipe(folder), folder, resume=True, progress=SilentProgress())
    run("whole", {**CONSTANT, **LONG})
    assert results(folder) == results(tmp_path / "whole")
    assert [each.at_step for each in read_lengthenings(folder / "recipe.toml")] == [5]


def test_a_schedule_that_depends_on_the_length_is_noted(run):
    run("longer", SHORT)
    notes = Notes()
    run("longer", LONG, resume=True, progress=notes)
    (said,) = [text for text in notes.texts if text.startswith("continues")]
    assert "optimizer.schedule = cosine" in said
    assert " after " in said


@pytest.fixture
def done(run, tmp_path):
    """A finished run of six steps: `tmp_path / "done"`."""
    run("done", SHORT)
    return tmp_path / "done"


def test_a_shorter_length_and_another_field_are_refused_by_name(run, done):
    before = (done / "recipe.toml").read_bytes()
    for settings, field in (
        ({"train.steps": 5}, "train.steps = 5"),
        ({"train.tokens": 6.0}, "train.tokens = 6.0"),
        ({"train.steps": 24, "optimizer.lr": 0.1}, "optimizer.lr = 0.01, not 0.1"),
        ({"train.steps": 24, "model.d_ff": 9}, "model.d_ff = unset, not 9"),
    ):
        with pytest.raises(ConfigError, match=field):
            run("done", settings, resume=True)
    assert (done / "recipe.toml").read_bytes() == before
    assert (done / "record.json").exists()


@pytest.mark.parametrize(("length", "value"), [("tokens", 9 * 6 * 32), ("epochs", 0.05)])
def test_a_length_of_another_kind_continues_to_it(run, done, length, value):
    record = run("done", {f"train.{length}": value}, resume=True)
    assert record["step"] == (9 if length == "tokens" else pytest.approx(17, abs=8))
    assert load_recipe(done).origins["train.steps"] == "default"


def test_minutes_become_steps_by_the_time_that_the_runs_own_took(run, done):
    state = json.loads((done / "checkpoints" / "step-00000006" / "state.json").read_text())
    minutes = 9.5 * state["seconds"] / 6 / 60
    assert run("done", {"train.minutes": minutes}, resume=True)["step"] == 9


def test_a_run_whose_checkpoints_are_gone_is_refused_and_left_as_it_is(run, done):
    shutil.rmtree(done / "checkpoints")
    with pytest.raises(ConfigError, match=r"no checkpoint to continue from: .* init.run="):
        run("done", LONG, resume=True)
    assert (done / "record.json").exists()
    assert (done / "model").exists()


def kept(folder):
    return saved_steps(folder / "checkpoints")


@pytest.fixture
def kept_run(workshop, tmp_path):
    """A finished run that a test may change: `tmp_path / "kept"`."""

    def train(folder):
        train_run(workshop.recipe(KEPT), folder, progress=SilentProgress())

    return shutil.copytree(workshop.once("kept-steps", train), tmp_path / "kept")


def test_named_steps_are_kept_beside_the_newest_and_change_nothing(run, kept_run, tmp_path):
    run("plain", {**KEPT, "train.keep_steps": []})
    assert kept(kept_run) == [1, 7, 9, 12, 16]
    assert kept(tmp_path / "plain") == [12, 16]
    assert results(kept_run) == results(tmp_path / "plain")


def test_a_resumed_run_keeps_named_steps(run, tmp_path):
    with pytest.raises(Interrupted):
        run("again", KEPT, progress=SignalAt(8))
    run("again", KEPT, resume=True)
    assert kept(tmp_path / "again") == [1, 7, 9, 12, 16]


def test_a_longer_run_keeps_named_steps_and_may_keep_more(run, kept_run):
    more = {**KEPT, "train.keep_steps": [1, 7, 9, 19], "train.steps": 24}
    run("kept", more, resume=True)
    assert kept(kept_run) == [1, 7, 9, 19, 20, 24]
    assert load_recipe(kept_run).recipe.train.keep_steps == (1, 7, 9, 19)


@pytest.mark.parametrize(
    ("steps", "length", "said"),
    [
        ([1, 7, 9, 11], 24, "names step 11, which .* has passed"),
        ([1, 7], 24, r"train.keep_steps = \[1, 7, 9\], not \[1, 7\]"),
        ([1, 7, 9, 25], 24, "names step 25, and the run has 24 steps"),
        ([1], 16, "was started with train.keep_steps"),
    ],
)
def test_a_resumed_run_keeps_nothing_that_is_over_and_loses_nothing(
    run, kept_run, steps, length, said
):
    with pytest.raises(ConfigError, match=said):
        run("kept", {**KEPT, "train.keep_steps": steps, "train.steps": length}, resume=True)
    assert kept(kept_run) == [1, 7, 9, 12, 16]


@pytest.mark.parametrize("setting", ["[25]", "[3, 5, 3]", "[0]", "7"])
def test_steps_that_no_run_has_are_refused_when_the_recipe_is_read(setting):
    load_recipe("gpt", ["train.steps=24", "train.keep_steps=[24]"])
    with pytest.raises(ConfigError, match="train.keep_steps"):
        load_recipe("gpt", ["train.steps=24", f"train.keep_steps={setting}"])


def test_a_kept_checkpoint_is_a_model_to_start_from_and_a_missing_one_is_refused(kept_run):
    path = checkpoint_path(kept_run / "checkpoints", 7)
    own = load(path).state_dict()
    started = from_recipe("gpt", {"init.run": str(path), "data.context": 32})
    assert all(value.equal(own[name]) for name, value in started.state_dict().items())
    missing = kept_run / "checkpoints" / "step-00000008"
    for read in (load, lambda path: from_recipe("gpt", {"init.run": str(path)})):
        with pytest.raises(CheckpointError, match="no checkpoint step-00000008: .*step-00000009"):
            read(missing)
    shutil.rmtree(missing.parent)
    with pytest.raises(CheckpointError, match="no checkpoint step-00000008: there are none"):
        load(missing)


def test_fine_tuning_takes_a_checkpoint_and_no_steps_of_the_pretraining(
    kept_run, tmp_path, tasks_path
):
    path = checkpoint_path(kept_run / "checkpoints", 7)
    told = {"train.steps": 1, "data.context": 32}
    loaded = load_finetune(str(path), ["sst2"], str(tasks_path), told).loaded
    assert loaded.recipe.model.d_model == 24
    recipe = tmp_path / "mine.toml"
    recipe.write_text('extends = "gpt"\n[train]\nsteps = 500\nkeep_steps = [400]\n')
    loaded = load_finetune(str(recipe), ["sst2"], str(tasks_path)).loaded
    assert loaded.recipe.train.keep_steps == ()
