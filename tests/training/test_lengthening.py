"""A run that is resumed with a longer length continues to it, and says so in what it keeps."""

import json
import shutil

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError, Interrupted
from sublayer.runs.lengthening import read_lengthenings
from sublayer.runs.run import train_run
from tests.made import MASKED, SPAN, TRANSLATION
from tests.training.conftest import Notes
from tests.training.test_resume import SignalAt, results

CONSTANT = {
    "optimizer.schedule": "constant",
    "optimizer.warmup_steps": 3,
    "train.evaluate_steps": 6,
}
KINDS = {
    "decoder": CONSTANT,
    "encoder": {**CONSTANT, **MASKED},
    "translator": {**CONSTANT, **TRANSLATION},
    "gap filler": {**CONSTANT, **SPAN},
}
SHORT, LONG = {"train.steps": 12}, {"train.steps": 24}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind == "decoder" else pytest.mark.slow) for kind in KINDS],
)
@pytest.mark.slow
def test_a_lengthened_run_of_a_constant_rate_equals_the_run_of_that_length(
    run, unbroken, tmp_path, kind
):
    settings = KINDS[kind]
    run("longer", {**settings, **SHORT})
    run("longer", {**settings, **LONG}, resume=True)
    assert results(tmp_path / "longer") == results(unbroken({**settings, **LONG}))


@pytest.mark.slow
def test_a_lengthened_run_may_be_interrupted_and_resumed(run, unbroken, tmp_path):
    run("longer", {**CONSTANT, **SHORT})
    with pytest.raises(Interrupted, match="saved at step 17 of 24"):
        run("longer", {**CONSTANT, **LONG}, resume=True, progress=SignalAt(17))
    assert not (tmp_path / "longer" / "record.json").exists()
    # As `sublayer train RUN --resume` does, the recipe is the run's own by now.
    train_run(load_recipe(tmp_path / "longer"), tmp_path / "longer", resume=True, progress=Notes())
    assert results(tmp_path / "longer") == results(unbroken({**CONSTANT, **LONG}))


@pytest.mark.slow
def test_an_unfinished_run_may_be_lengthened(run, unbroken, tmp_path):
    with pytest.raises(Interrupted):
        run("longer", {**CONSTANT, **SHORT}, progress=SignalAt(5))
    run("longer", {**CONSTANT, **LONG}, resume=True)
    assert results(tmp_path / "longer") == results(unbroken({**CONSTANT, **LONG}))
    assert [each.at_step for each in read_lengthenings(tmp_path / "longer" / "recipe.toml")] == [5]


@pytest.mark.slow
def test_recipe_and_record_say_at_which_step_a_run_was_lengthened(run, tmp_path):
    first = run("longer", {**CONSTANT, **SHORT})
    assert first["lengthened"] == []
    notes = Notes()
    record = run("longer", {**CONSTANT, **LONG}, resume=True, progress=notes)
    assert record["step"] == 24
    assert record["lengthened"] == [{"at_step": 12, "from_steps": 12, "to_steps": 24}]
    assert record["seconds"] > first["seconds"]
    assert "continues from step 12 to 24 instead of 12" in notes.texts
    kept = json.loads((tmp_path / "longer" / "record-step-00000012.json").read_text())
    assert kept == first
    recipe = load_recipe(tmp_path / "longer").recipe
    assert recipe.train.steps == 24
    # A second time, and as a base it is a recipe like any other.
    again = run("longer", {**CONSTANT, "train.steps": 26}, resume=True)
    assert [each["to_steps"] for each in again["lengthened"]] == [24, 26]


@pytest.mark.slow
def test_a_schedule_that_depends_on_the_length_says_what_it_does(run):
    run("longer", SHORT)
    notes = Notes()
    run("longer", LONG, resume=True, progress=notes)
    (said,) = [text for text in notes.texts if text.startswith("continues")]
    assert said.startswith(
        "continues from step 12 to 24 instead of 12: optimizer.schedule = cosine follows the "
        "longer length from there on; the learning rate is 0.00"
    )
    assert " after " in said


@pytest.mark.slow
def test_a_shorter_length_and_another_field_are_refused_by_name(run, tmp_path):
    run("done", SHORT)
    before = (tmp_path / "done" / "recipe.toml").read_bytes()
    with pytest.raises(ConfigError, match=r"has 12 steps, and train.steps = 6 is shorter"):
        run("done", {"train.steps": 6}, resume=True)
    with pytest.raises(ConfigError, match=r"has 12 steps, and train.tokens = 6.0 is shorter"):
        run("done", {"train.tokens": 6.0}, resume=True)
    with pytest.raises(ConfigError, match=r"was started with optimizer.lr = 0.01, not 0.1"):
        run("done", {"train.steps": 24, "optimizer.lr": 0.1}, resume=True)
    with pytest.raises(ConfigError, match=r"was started with model.d_ff = unset, not 9"):
        run("done", {"train.steps": 24, "model.d_ff": 9}, resume=True)
    assert (tmp_path / "done" / "recipe.toml").read_bytes() == before
    assert (tmp_path / "done" / "record.json").exists()


@pytest.mark.parametrize(
    ("length", "steps"),
    [("train.tokens", 18 * 6 * 32), pytest.param("train.epochs", 0.1, marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_a_length_of_another_kind_continues_to_it(run, tmp_path, length, steps):
    run("longer", SHORT)
    record = run("longer", {length: steps}, resume=True)
    assert record["step"] > 12
    assert load_recipe(tmp_path / "longer").origins["train.steps"] == "default"


@pytest.mark.slow
def test_minutes_become_steps_by_the_time_that_the_runs_own_took(run, tmp_path):
    record = run("longer", SHORT)
    step_s = record["seconds"] / 12
    state_path = tmp_path / "longer" / "checkpoints" / "step-00000012" / "state.json"
    spent_s = json.loads(state_path.read_text())["seconds"]
    minutes = 15.5 * spent_s / 12 / 60
    again = run("longer", {"train.minutes": minutes}, resume=True)
    assert again["step"] == 15
    assert step_s > 0


def test_a_run_whose_checkpoints_are_gone_says_what_else_can_be_done(run, tmp_path):
    run("done", SHORT)
    shutil.rmtree(tmp_path / "done" / "checkpoints")
    with pytest.raises(ConfigError, match=r"no checkpoint to continue from: .* init.run="):
        run("done", LONG, resume=True)
    assert (tmp_path / "done" / "record.json").exists()
    assert (tmp_path / "done" / "model").exists()


@pytest.mark.slow
def test_evaluations_rarer_than_the_run_was_long_are_no_damage(run):
    rare = {**CONSTANT, "train.evaluate_steps": 20}
    run("longer", {**rare, **SHORT})
    assert run("longer", {**rare, **LONG}, resume=True)["step"] == 24
