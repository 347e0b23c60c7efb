"""Checkpoints that are written while training goes on."""

import threading

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from sublayer.errors import CheckpointError
from sublayer.files.checkpoints import checkpoint_path, saved_steps, verify_checkpoint
from sublayer.training.checkpoints import saving
from sublayer.training.checkpoints.background import Background
from sublayer.training.checkpoints.loop_state import LoopState
from sublayer.training.checkpoints.snapshots import Snapshots
from sublayer.training.processes import alone
from sublayer.training.progress import SilentProgress
from tests.training.runs import open_session, results

AFTER_SIX = {"train.steps": 6, "train.evaluate_steps": 6, "train.checkpoint_steps": 3}
WAITING = {**AFTER_SIX, "train.save_in_background": False}


class OpenAt(SilentProgress):
    """Lets writing begin once a step has been taken."""

    def __init__(self, step):
        self.step = step
        self.is_open = threading.Event()
        self.was_beside = False

    def update(self, status):
        if status.step == self.step:
            self.is_open.set()

    def write(self, *given):
        self.is_open.wait()
        save_file(*given)


def files(folder, step):
    found = checkpoint_path(folder / "checkpoints", step)
    return {
        name: (found / name).read_bytes()
        for name in ("model/model.safetensors", "training.safetensors")
    }


def test_a_checkpoint_is_of_the_step_that_it_was_taken_after(run, tmp_path, monkeypatch):
    run("waiting", WAITING)
    slow = OpenAt(5)
    monkeypatch.setattr(alone, "save_file", slow.write)
    run("beside", AFTER_SIX, progress=slow)
    for step in (3, 6):
        assert files(tmp_path / "beside", step) == files(tmp_path / "waiting", step)


def test_copies_are_made_beside_the_next_pass_and_its_update_waits_for_them(
    tiny, tmp_path, monkeypatch
):
    session = open_session(tiny())
    train_step, copy = session.train_step, saving._copies
    has_gradients, done = threading.Event(), []

    def copy_late(tensors, kept):
        assert has_gradients.wait(60)
        copies = copy(tensors, kept)
        done.append("copied")
        return copies

    monkeypatch.setattr(saving, "_copies", copy_late)
    snapshots = Snapshots(tmp_path, train_step, lambda folder: None)
    train_step(0)
    saved = {name: value.detach().clone() for name, value in train_step.parameters.items()}
    snapshots.saving.save(LoopState(1, tokens=1, seconds=1.0, step_seconds=1.0))
    wait = train_step.before_update
    monkeypatch.setattr(train_step, "before_update", lambda: (has_gradients.set(), wait()))
    train_step.optimizer.register_step_pre_hook(lambda *_: done.append("updated"))
    train_step(1)
    assert done == ["copied", "copied", "updated"]
    snapshots.saving.wait()
    weights = load_file(checkpoint_path(snapshots.root, 1) / "model" / "model.safetensors")
    for name, value in weights.items():
        torch.testing.assert_close(value, saved[f"model.{name}"], rtol=0, atol=0)


def test_copies_that_cannot_be_made_stop_the_run_and_hold_no_update(run, monkeypatch):
    def fail(tensors, kept):
        raise RuntimeError("not enough memory")

    monkeypatch.setattr(saving, "_copies", fail)
    with pytest.raises(RuntimeError, match="not enough memory"):
        run("run")


def test_training_waits_for_what_is_written_where_it_is_asked_to(run, tmp_path, monkeypatch):
    seen = []

    class Watch(SilentProgress):
        def update(self, status):
            seen.append((status.step, saved_steps(tmp_path / "run" / "checkpoints")))

    run("run", WAITING, progress=Watch())
    assert dict(seen)[3] == [3]
    assert dict(seen)[6] == [3, 6]


def test_a_full_disk_stops_the_run_soon_with_the_checkpoint_before_it_whole(
    run, tmp_path, monkeypatch
):
    n_written = 0

    def full(*given):
        nonlocal n_written
        n_written += 1
        # The second file of the second checkpoint.
        if n_written == 4:
            raise SafetensorError("No space left on device (os error 28)")
        save_file(*given)

    monkeypatch.setattr(alone, "save_file", full)
    with pytest.raises(CheckpointError, match="No space left"):
        run("run", AFTER_SIX)
    root = tmp_path / "run" / "checkpoints"
    assert [path.name for path in root.iterdir()] == ["step-00000003"]
    verify_checkpoint(checkpoint_path(root, 3))
    monkeypatch.undo()
    run("run", AFTER_SIX, resume=True)
    run("whole", AFTER_SIX)
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_what_work_beside_raises_is_raised_where_it_is_waited_for():
    beside, done = Background(), []
    beside.start(lambda: done.append(1))
    beside.start(lambda: done.append(1 / 0))
    with pytest.raises(ZeroDivisionError):
        beside.start(lambda: done.append(2))
    assert done == [1]
    assert not beside.has_failed
    beside.wait()


def test_the_newest_checkpoints_keep_the_best_that_they_refer_to(tiny, tmp_path):
    session = open_session(tiny())
    snapshots = Snapshots(tmp_path, session.train_step, lambda folder: None)
    session.train_step(0)
    # The last is the best so far; before it the first was.
    for step, best in ((6, 6), (8, 6), (12, 12)):
        score = {"step": best, "loss": 3.0, "bits_per_byte": 4.0}
        state = LoopState(step, tokens=step, seconds=1.0, step_seconds=1.0, best=score)
        snapshots.saving.save(state)
    snapshots.saving.wait()
    assert saved_steps(snapshots.root) == [6, 8, 12]
    (checkpoint_path(snapshots.root, 12) / "state.json").write_text("{")
    refused = []
    assert snapshots.newest(refused.append) == checkpoint_path(snapshots.root, 8)
    assert len(refused) == 1
