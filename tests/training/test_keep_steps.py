"""``train.keep_steps``: checkpoints that are taken and kept by their steps."""

import shutil

import pytest

from sublayer.config.layering.finetune import load_finetune
from sublayer.config.layering.layers import load_recipe
from sublayer.errors import CheckpointError, ConfigError, Interrupted
from sublayer.files.checkpoints import checkpoint_path, saved_steps
from sublayer.loading import load
from sublayer.runs.finetuning import finetune_seeds
from sublayer.runs.run import from_recipe
from tests.training.test_resume import SignalAt, results

KEPT = {"train.keep_steps": [1, 7, 9], "train.best_by": "last"}


def kept(folder):
    return saved_steps(folder / "checkpoints")


@pytest.fixture
def kept_run(unbroken, tmp_path):
    """A finished run that a test may change: `tmp_path / "kept"`."""
    return shutil.copytree(unbroken(KEPT), tmp_path / "kept")


@pytest.mark.slow
def test_named_steps_are_taken_and_kept_beside_the_newest(unbroken):
    assert kept(unbroken(KEPT)) == [1, 7, 9, 20, 24]
    assert kept(unbroken({"train.best_by": "last"})) == [20, 24]


def test_what_is_kept_changes_nothing_that_is_learned(unbroken):
    assert results(unbroken(KEPT)) == results(unbroken({"train.best_by": "last"}))


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [7, 8, 13])
def test_a_resumed_run_keeps_them(run, tmp_path, stopped):
    with pytest.raises(Interrupted):
        run("kept", KEPT, progress=SignalAt(stopped))
    run("kept", KEPT, resume=True)
    assert kept(tmp_path / "kept") == [1, 7, 9, 20, 24]


@pytest.mark.slow
def test_a_longer_run_keeps_them_and_may_keep_more(run, kept_run, tmp_path):
    more = {**KEPT, "train.keep_steps": [1, 7, 9, 27], "train.steps": 36}
    run("kept", more, resume=True)
    assert kept(tmp_path / "kept") == [1, 7, 9, 27, 32, 36]
    recipe = load_recipe(tmp_path / "kept").recipe
    assert recipe.train.keep_steps == (1, 7, 9, 27)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([1, 7, 9, 11], "names step 11, which .* has passed, and it continues from step 24"),
        ([1, 7], r"was started with train.keep_steps = \[1, 7, 9\], not \[1, 7\]"),
        ([1, 7, 9, 37], "names step 37, and the run has 36 steps"),
    ],
)
def test_a_longer_run_keeps_nothing_that_is_over_and_loses_nothing(
    run, kept_run, tmp_path, steps, said
):
    with pytest.raises(ConfigError, match=said):
        run("kept", {**KEPT, "train.keep_steps": steps, "train.steps": 36}, resume=True)
    assert kept(tmp_path / "kept") == [1, 7, 9, 20, 24]


def test_a_run_that_is_not_longer_keeps_what_it_was_started_with(run, kept_run):
    with pytest.raises(ConfigError, match="was started with train.keep_steps"):
        run("kept", {**KEPT, "train.keep_steps": [1]}, resume=True)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("[25]", "train.keep_steps names step 25, and the run has 24 steps: leave it out"),
        ("[3, 5, 3]", "train.keep_steps names step 3 twice: give it once"),
        ("[0]", r"train.keep_steps = \[0\] must be at least 1"),
        ("7", "train.keep_steps = 7 is not a list of whole numbers"),
        ("['a']", r"train.keep_steps = \['a'\] is not a list of whole numbers"),
    ],
)
def test_steps_that_no_run_has_are_refused_when_the_recipe_is_read(setting, said):
    with pytest.raises(ConfigError, match=said):
        load_recipe("gpt", ["train.steps=24", f"train.keep_steps={setting}"])


def test_a_length_that_follows_from_the_text_refuses_steps_beyond_it(run, tmp_path):
    with pytest.raises(ConfigError, match=r"names step 400, and the run has \d+ steps"):
        run("kept", {"train.epochs": 0.01, "train.keep_steps": [400]})
    assert not (tmp_path / "kept" / "recipe.toml").exists()


@pytest.mark.slow
def test_every_kept_checkpoint_is_a_model_to_start_from(unbroken, tasks_path, tmp_path):
    for step in (7, 9):
        path = checkpoint_path(unbroken(KEPT) / "checkpoints", step)
        own = load(path).state_dict()
        started = from_recipe("gpt", {"init.run": str(path), "data.context": 32})
        assert all(value.equal(own[name]) for name, value in started.state_dict().items())
        told = {
            "train.steps": 1,
            "data.context": 32,
            "train.batch_sequences": 8,
            "train.precision": "float32",
            "train.threads": 1,
        }
        loaded = load_finetune(str(path), ["sst2"], str(tasks_path), told).loaded
        assert loaded.recipe.model.d_model == 24
        out = tmp_path / f"tuned-{path.name}"
        [result] = finetune_seeds(loaded, out, None, resume=False, device="cpu")
        assert result.record["step"] == 1


def test_a_checkpoint_that_is_not_there_is_refused_with_those_that_are(kept_run, tmp_path):
    missing = tmp_path / "kept" / "checkpoints" / "step-00000008"
    there = "there are step-00000001, step-00000007, step-00000009, step-00000020, step-00000024"
    for read in (load, lambda path: from_recipe("gpt", {"init.run": str(path)})):
        with pytest.raises(CheckpointError, match=f"has no checkpoint step-00000008: {there}"):
            read(missing)
    shutil.rmtree(missing.parent)
    with pytest.raises(CheckpointError, match="has no checkpoint step-00000008: there are none"):
        load(missing)


def test_the_recipe_of_a_pretraining_leaves_its_steps_to_it(tmp_path, tasks_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text('extends = "gpt"\n[train]\nsteps = 500\nkeep_steps = [400]\n')
    loaded = load_finetune(str(recipe), ["sst2"], str(tasks_path)).loaded
    assert loaded.recipe.train.keep_steps == ()
