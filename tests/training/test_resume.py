"""A run that was broken off and resumed, or made longer, equals an unbroken one to the bit."""

import itertools
import json
import os
import random
import shutil
import signal
import sys

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.errors import CheckpointError, ConfigError, Interrupted
from sublayer.files.checkpoints import checkpoint_path, saved_steps
from sublayer.loading import load
from sublayer.runs.lengthening import read_lengthenings
from sublayer.runs.run import from_recipe, train_run
from sublayer.training.progress import SilentProgress
from tests.breadth import rows
from tests.made import KINDS, LSTM, MASKED, QUESTIONS, TRANSLATION
from tests.training.runs import Notes, SignalAt, results

FILLED = {"objective.pairs": "sentences", "objective.sentence": "nsp"}
FILLED |= {"data.batch_parts": 2, "train.batch_tokens": 128}
VARIANTS = {
    **{kind: {"optimizer.kind": kind} for kind in OPTIMIZERS},
    "sgd": {"optimizer.kind": "sgd", "optimizer.lr": 0.1, "optimizer.momentum": 0.9},
    "factored": {"optimizer.kind": "adafactor", "optimizer.min_factored": 8},
    "scaled": {"optimizer.parameter_scale": True},
    "uncorrected": {"optimizer.bias_correction": False},
    "as gpt1": {"optimizer.form": "gpt1", "optimizer.warmup": "gpt1", "model.softmax": "all"},
    "layer by layer": {"optimizer.layer_decay": 0.8},
    "shuffled": {"data.windows": "shuffled", "model.share": "all", "train.log_steps": 5},
    "documents of an lstm": {**LSTM, "data.boundaries": "respect", "train.recompute": "blocks"},
    "static copies": {**MASKED, "objective.sentence": "none", "objective.static_copies": 2},
    "steps filled with sentences": {**MASKED, **FILLED},
    "translation by BLEU": {**TRANSLATION, "train.best_by": "bleu"},
    "fairseq's batches": {**TRANSLATION, "data.batch_multiple": 8, "data.batch_order": "once"},
    "questions without answers": {**QUESTIONS, "data.tasks": "squad2"},
}
"""Beyond the shared runs; ``make test-all`` tries them."""
CONSTANT = {"optimizer.schedule": "constant", "optimizer.warmup_steps": 3}
CONSTANT |= {"train.evaluate_steps": 6}
SHORT, LONG = {"train.steps": 6}, {"train.steps": 12}
KEPT = {"train.keep_steps": [1, 7, 9], "train.best_by": "last", "train.steps": 16}


def ended_early(run, folder):
    shutil.copytree(run, folder)
    (folder / "record.json").unlink()
    shutil.rmtree(folder / "model")
    return folder


@pytest.fixture
def whole(made, run, tmp_path):
    def train(kind):
        if kind in KINDS:
            return made(kind)
        run("whole", VARIANTS[kind])
        return tmp_path / "whole"

    return train


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_resumed_equals_the_unbroken_one(made, tiny, tmp_path, kind):
    # Step 20 is between two lines of the log, and between two evaluations.
    folder = ended_early(made(kind), tmp_path / "broken")
    shutil.rmtree(folder / "checkpoints" / "step-00000024")
    assert saved_steps(folder / "checkpoints")[-1] == 20
    record = train_run(tiny(KINDS[kind]), folder, resume=True, progress=SilentProgress())
    assert record["step"] == 24 and results(folder) == results(made(kind))


@pytest.mark.parametrize("kind, number", [
    ("causal", signal.SIGINT), ("masked", signal.SIGTERM), *rows(((v, 2) for v in VARIANTS), 0),
])  # fmt: skip
def test_an_interrupted_run_resumed_equals_an_unbroken_one(run, whole, tmp_path, kind, number):
    settings = {**KINDS, **VARIANTS}[kind]
    with pytest.raises(Interrupted, match="saved at step 11 of 24"):
        run("broken", settings, progress=SignalAt(11, number))
    run("broken", settings, resume=True)
    assert results(tmp_path / "broken") == results(whole(kind))


def test_a_run_ends_early_by_patience_and_the_same_where_it_is_resumed(run, tmp_path):
    settings = {**CONSTANT, "optimizer.lr": 2.0, "train.patience": 2, "train.evaluate_steps": 2}
    notes = Notes()
    record = run("whole", settings, progress=notes)
    best, end = record["valid"]["step"], record["step"]
    assert record["stopped_early"] and end == best + 4 < 24
    assert f"step {end} of 24" in notes.texts[-1]
    for broken in (best + 1, end - 1):
        with pytest.raises(Interrupted):
            run(f"broken-{broken}", settings, progress=SignalAt(broken))
        run(f"broken-{broken}", settings, resume=True)
        assert results(tmp_path / f"broken-{broken}") == results(tmp_path / "whole")
    assert run("whole", settings, resume=True) == record
    folder = ended_early(tmp_path / "whole", tmp_path / "unrecorded")
    assert run(folder.name, settings, resume=True)["step"] == end
    with pytest.raises(ConfigError, match="ended early.*init.run="):
        run("whole", {**settings, "train.steps": 48}, resume=True)
    with pytest.raises(ConfigError, match="train.best_by=loss"):
        run("last", {**settings, "train.best_by": "last"})


def killed_at_file_operation(count, folder, loaded):
    """Train in a child that is killed at its `count`-th file operation in a folder; is it done?"""
    child = os.fork()
    if child == 0:
        begun = itertools.count(1)
        writing = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")

        def hook(event, arguments):
            if event in writing and str(folder) in str(arguments[0]) and next(begun) == count:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            train_run(loaded, folder, resume=True, progress=SilentProgress())
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), "a resumed run failed"
    return code == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork beside threads
@pytest.mark.parametrize("kind", ["causal", *rows(VARIANTS, 0)])
def test_a_run_killed_at_any_file_operation_equals_an_unbroken_one(whole, tiny, tmp_path, kind):
    settings, draw, kills = {**KINDS, **VARIANTS}[kind], random.Random(kind), 0
    while not killed_at_file_operation(draw.randint(1, 160), tmp_path / "broken", tiny(settings)):
        kills += 1
        assert kills < 50, "a run that is killed and resumed gets nowhere"
    assert kills >= 2 and results(tmp_path / "broken") == results(whole(kind))
    partial = (tmp_path / "broken" / "checkpoints").glob(".*.partial")
    assert not [each for each in partial if any(each.iterdir())]


def test_a_truncated_checkpoint_is_refused_by_name_and_the_one_before_is_used(made, run, tmp_path):
    folder = ended_early(made("causal"), tmp_path / "broken")
    weights = folder / "checkpoints" / "step-00000024" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    notes = Notes()
    run("broken", resume=True, progress=notes)
    assert "step-00000024 is refused" in notes.texts[0]
    assert results(folder) == results(made("causal"))
    assert (folder / "checkpoints" / "refused-step-00000024-1").is_dir()


def test_a_start_resumed_and_a_signal_at_a_step_just_saved_change_nothing(run, tmp_path):
    run("plain", SHORT)
    (tmp_path / "empty").mkdir()
    run("empty", SHORT, resume=True)
    with pytest.raises(Interrupted, match="saved at step 4 of 6"):
        run("broken", SHORT, progress=SignalAt(4))
    assert not list((tmp_path / "broken" / "checkpoints").glob("refused-*"))
    run("broken", SHORT, resume=True)
    for name in ("empty", "broken"):
        assert results(tmp_path / name) == results(tmp_path / "plain")


def test_a_finished_run_is_left_as_it_is_and_never_written_over(run, made, tmp_path):
    done = shutil.copytree(made("causal"), tmp_path / "done")
    before = {path: path.stat().st_mtime_ns for path in done.rglob("*")}
    assert run("done", resume=True) == json.loads((done / "record.json").read_text())
    with pytest.raises(ConfigError, match="already holds a run"):
        run("done")
    with pytest.raises(ConfigError, match=r"model\.d_model = 24, not 48"):
        run("done", {"model.d_model": 48}, resume=True)
    assert {path: path.stat().st_mtime_ns for path in done.rglob("*")} == before


def test_a_lengthened_run_of_a_constant_rate_equals_the_run_of_that_length(run, tmp_path):
    first = run("longer", {**CONSTANT, **SHORT})
    notes = Notes()
    record = run("longer", {**CONSTANT, **LONG}, resume=True, progress=notes)
    run("whole", {**CONSTANT, **LONG})
    assert results(tmp_path / "longer") == results(tmp_path / "whole")
    assert (first["lengthened"], record["step"]) == ([], 12)
    assert record["lengthened"] == [{"at_step": 6, "from_steps": 6, "to_steps": 12}]
    assert record["seconds"] > first["seconds"]
    assert any(text.startswith("continues from step 6 to 12") for text in notes.texts)
    assert json.loads((tmp_path / "longer" / "record-step-00000006.json").read_text()) == first
    again = run("longer", {**CONSTANT, "train.steps": 14}, resume=True)
    assert [each["to_steps"] for each in again["lengthened"]] == [12, 14]


def test_an_unfinished_run_may_be_lengthened_interrupted_and_resumed(run, tmp_path):
    with pytest.raises(Interrupted):
        run("longer", {**CONSTANT, **SHORT}, progress=SignalAt(5))
    with pytest.raises(Interrupted, match="saved at step 9 of 12"):
        run("longer", {**CONSTANT, **LONG}, resume=True, progress=SignalAt(9))
    folder = tmp_path / "longer"
    # As `sublayer train RUN --resume` does, the recipe is the run's own by now.
    train_run(load_recipe(folder), folder, resume=True, progress=SilentProgress())
    run("whole", {**CONSTANT, **LONG})
    assert results(folder) == results(tmp_path / "whole")
    assert [each.at_step for each in read_lengthenings(folder / "recipe.toml")] == [5]


def test_a_shorter_length_and_another_field_are_refused_by_name(run, tmp_path):
    run("done", SHORT)
    done = tmp_path / "done"
    before = (done / "recipe.toml").read_bytes()
    refused = {"train.steps = 5": {"train.steps": 5}, "train.tokens = 6.0": {"train.tokens": 6.0}}
    refused["model.d_ff = unset, not 9"] = {"train.steps": 24, "model.d_ff": 9}
    for field, settings in refused.items():
        with pytest.raises(ConfigError, match=field):
            run("done", settings, resume=True)
    shutil.rmtree(done / "checkpoints")
    with pytest.raises(ConfigError, match=r"no checkpoint to continue from: .* init.run="):
        run("done", LONG, resume=True)
    assert (done / "recipe.toml").read_bytes() == before and (done / "record.json").exists()


@pytest.mark.parametrize("length", ["tokens", "epochs", "minutes"])
def test_a_length_of_another_kind_continues_to_it(run, tmp_path, length):
    run("done", SHORT)
    done = tmp_path / "done"
    state = json.loads((done / "checkpoints" / "step-00000006" / "state.json").read_text())
    # Minutes become steps by the time that the run's own took.
    minutes = 9.5 * state["seconds"] / 6 / 60
    value, notes = {"tokens": 9 * 6 * 32, "epochs": 0.05, "minutes": minutes}[length], Notes()
    record = run("done", {f"train.{length}": value}, resume=True, progress=notes)
    assert record["step"] == (pytest.approx(17, abs=8) if length == "epochs" else 9)
    assert load_recipe(done).origins["train.steps"] == "default"
    (continues,) = [text for text in notes.texts if text.startswith("continues")]
    assert "optimizer.schedule = cosine" in continues


def kept(folder):
    return saved_steps(folder / "checkpoints")


@pytest.fixture
def kept_run(workshop, tmp_path):
    def train(folder):
        train_run(workshop.recipe(KEPT), folder, progress=SilentProgress())

    return shutil.copytree(workshop.once("kept-steps", train), tmp_path / "kept")


def test_named_steps_are_kept_beside_the_newest_and_change_nothing(run, kept_run, tmp_path):
    run("plain", {**KEPT, "train.keep_steps": []})
    with pytest.raises(Interrupted):
        run("again", KEPT, progress=SignalAt(8))
    run("again", KEPT, resume=True)
    assert kept(tmp_path / "plain") == [12, 16]
    assert kept(kept_run) == kept(tmp_path / "again") == [1, 7, 9, 12, 16]
    assert results(kept_run) == results(tmp_path / "plain") == results(tmp_path / "again")
    more = {**KEPT, "train.keep_steps": [1, 7, 9, 19], "train.steps": 24}
    run("kept", more, resume=True)
    assert kept(kept_run) == [1, 7, 9, 19, 20, 24]
    assert load_recipe(kept_run).recipe.train.keep_steps == (1, 7, 9, 19)


@pytest.mark.parametrize("steps, length, message", [
    ([1, 7, 9, 11], 24, "names step 11, which .* has passed"),
    ([1, 7], 24, r"train.keep_steps = \[1, 7, 9\], not \[1, 7\]"),
    ([1, 7, 9, 25], 24, "names step 25, and the run has 24 steps"),
    ([1], 16, "was started with train.keep_steps"),
])  # fmt: skip
def test_a_resumed_run_keeps_nothing_that_is_over(run, kept_run, steps, length, message):
    with pytest.raises(ConfigError, match=message):
        run("kept", {**KEPT, "train.keep_steps": steps, "train.steps": length}, resume=True)
    assert kept(kept_run) == [1, 7, 9, 12, 16]


def test_a_kept_checkpoint_is_a_model_to_start_from_and_a_missing_one_is_refused(kept_run):
    path = checkpoint_path(kept_run / "checkpoints", 7)
    weights = load(path).state_dict()
    started = from_recipe("gpt", {"init.run": str(path), "data.context": 32})
    assert all(value.equal(weights[name]) for name, value in started.state_dict().items())
    missing = kept_run / "checkpoints" / "step-00000008"
    for read in (load, lambda path: from_recipe("gpt", {"init.run": str(path)})):
        with pytest.raises(CheckpointError, match="no checkpoint step-00000008: .*step-00000009"):
            read(missing)
    shutil.rmtree(missing.parent)
    with pytest.raises(CheckpointError, match="no checkpoint step-00000008: there are none"):
        load(missing)
