"""A run that was broken off and resumed equals an unbroken one to the bit."""

import json
import os
import random
import shutil
import signal
import sys
import warnings

import pytest

from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.errors import ConfigError, Interrupted
from sublayer.files.checkpoints import saved_steps
from sublayer.runs.run import train_run
from sublayer.training.progress import SilentProgress
from tests.breadth import rows
from tests.made import KINDS, LSTM, MASKED, QUESTIONS, TEXT, TRANSLATION
from tests.training.runs import Notes, SignalAt, results

VARIANTS = {
    **{kind: {"optimizer.kind": kind} for kind in OPTIMIZERS},
    "sgd": {"optimizer.kind": "sgd", "optimizer.lr": 0.1, "optimizer.momentum": 0.9},
    "factored": {"optimizer.kind": "adafactor", "optimizer.min_factored": 8},
    "scaled": {"optimizer.parameter_scale": True},
    "uncorrected": {"optimizer.bias_correction": False},
    "as gpt1": {"optimizer.form": "gpt1", "optimizer.warmup": "gpt1", "model.softmax": "all"},
    "words of gpt1": {"data.tokenizer": "gpt1-bpe", "data.merges": 30},
    "layer by layer": {"optimizer.layer_decay": 0.8},
    "shuffled": {"data.windows": "shuffled", "model.share": "all", "train.log_steps": 5},
    "documents of an lstm": {**LSTM, "data.boundaries": "respect", "train.recompute": "blocks"},
    "static copies": {**MASKED, "objective.sentence": "none", "objective.static_copies": 2},
    "steps filled with sentences": {
        **MASKED,
        "objective.pairs": "sentences",
        "objective.sentence": "nsp",
        "data.batch_parts": 2,
        "train.batch_tokens": 128,
    },
    "by the last": {"train.best_by": "last"},
    "translation by BLEU": {**TRANSLATION, "train.best_by": "bleu"},
    "fairseq's batches": {**TRANSLATION, "data.batch_multiple": 8, "data.batch_order": "once"},
    "questions without answers": {**QUESTIONS, "data.tasks": "squad2"},
    "text by score": {**TEXT, "train.best_by": "score"},
}
"""Beyond the shared runs; ``make test-all`` tries them."""


@pytest.fixture
def broken(made, tmp_path):
    """Copy a finished run to `tmp_path / "broken"` as it was when its last checkpoint was begun."""

    def copy(kind):
        folder = tmp_path / "broken"
        shutil.copytree(made(kind), folder)
        (folder / "record.json").unlink()
        shutil.rmtree(folder / "model")
        shutil.rmtree(folder / "checkpoints" / "step-00000024")
        return folder

    return copy


@pytest.fixture
def whole(made, run, tmp_path):
    """Give the folder of an unbroken run of a kind or variant."""

    def train(kind):
        if kind in KINDS:
            return made(kind)
        run("whole", VARIANTS[kind])
        return tmp_path / "whole"

    return train


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_resumed_equals_the_unbroken_one(made, broken, tiny, kind):
    # Step 20 is between two lines of the log, and between two evaluations.
    folder = broken(kind)
    assert saved_steps(folder / "checkpoints")[-1] == 20
    record = train_run(tiny(KINDS[kind]), folder, resume=True, progress=SilentProgress())
    assert record["step"] == 24
    assert results(folder) == results(made(kind))


@pytest.mark.parametrize(
    ("kind", "number"),
    [("causal", signal.SIGINT), ("masked", signal.SIGTERM), *rows(((v, 2) for v in VARIANTS), 0)],
)
def test_an_interrupted_run_resumed_equals_an_unbroken_one(run, whole, tmp_path, kind, number):
    settings = {**KINDS, **VARIANTS}[kind]
    with pytest.raises(Interrupted, match="saved at step 11 of 24"):
        run("broken", settings, progress=SignalAt(11, number))
    run("broken", settings, resume=True)
    assert results(tmp_path / "broken") == results(whole(kind))


def killed_at_file_operation(count, folder, loaded):
    """Train in a child process that is killed at its `count`-th file operation in the run's folder.

    Returns whether it finished before.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        left = count

        def hook(event, arguments):
            nonlocal left
            if event in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir") and str(
                folder
            ) in str(arguments[0]):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            train_run(loaded, folder, resume=True, progress=SilentProgress())
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0, "a resumed run failed"
    return True


@pytest.mark.parametrize("kind", ["causal", *rows(VARIANTS, 0)])
def test_a_run_killed_at_any_file_operation_and_resumed_equals_an_unbroken_one(
    whole, tiny, tmp_path, kind
):
    settings = {**KINDS, **VARIANTS}[kind]
    draw, kills = random.Random(kind), 0
    while not killed_at_file_operation(draw.randint(1, 160), tmp_path / "broken", tiny(settings)):
        kills += 1
        assert kills < 50, "a run that is killed and resumed gets nowhere"
    assert kills >= 2
    assert results(tmp_path / "broken") == results(whole(kind))


def test_a_truncated_checkpoint_is_refused_by_name_and_the_one_before_is_used(made, run, tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(made("causal"), folder)
    (folder / "record.json").unlink()
    shutil.rmtree(folder / "model")
    weights = folder / "checkpoints" / "step-00000024" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    notes = Notes()
    run("broken", resume=True, progress=notes)
    assert "step-00000024 is refused" in notes.texts[0]
    assert results(folder) == results(made("causal"))
    assert (folder / "checkpoints" / "refused-step-00000024-1").is_dir()


def test_resume_starts_at_the_beginning_where_there_is_nothing(run, tmp_path):
    (tmp_path / "empty").mkdir()
    short = {"train.steps": 2}
    run("plain", short)
    for name in ("empty", "missing"):
        run(name, short, resume=True)
        assert results(tmp_path / name) == results(tmp_path / "plain")


def test_a_signal_at_a_step_that_was_just_saved_saves_it_once(run, tmp_path):
    short = {"train.steps": 6}
    with pytest.raises(Interrupted, match="saved at step 4 of 6"):
        run("broken", short, progress=SignalAt(4))
    assert not list((tmp_path / "broken" / "checkpoints").glob("refused-*"))
    run("broken", short, resume=True)
    run("plain", short)
    assert results(tmp_path / "broken") == results(tmp_path / "plain")


def test_a_finished_run_is_left_as_it_is_and_never_written_over(run, made, tmp_path):
    shutil.copytree(made("causal"), tmp_path / "done")
    record = json.loads((tmp_path / "done" / "record.json").read_text())
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "done").rglob("*")}
    assert run("done", resume=True) == record
    with pytest.raises(ConfigError, match="already holds a run"):
        run("done")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "done").rglob("*")} == before


def test_a_resumed_run_whose_recipe_differs_is_refused(run, broken):
    broken("causal")
    with pytest.raises(ConfigError, match=r"model\.d_model = 24, not 48"):
        run("broken", {"model.d_model": 48}, resume=True)


def test_a_folder_of_other_files_and_a_file_are_never_written_to(run, tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("Dear reader")
    (tmp_path / "file").write_text("not a folder")
    for name, said in (("letters", "already holds other files"), ("file", "is not a folder")):
        with pytest.raises(ConfigError, match=said):
            run(name)
