"""The loop: batches prepared ahead, the best checkpoint, notes, checkpoints written beside it."""

import math
import re
import threading

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from sublayer.errors import CheckpointError, ConfigError, DataError, Interrupted, TrainingError
from sublayer.files.checkpoints import checkpoint_path, saved_steps, verify_checkpoint
from sublayer.training.ahead import Ahead, PreparedStep
from sublayer.training.checkpoints import saving
from sublayer.training.checkpoints.loop_state import LoopState
from sublayer.training.checkpoints.snapshots import Snapshots
from sublayer.training.loop import Evaluate, Loop
from sublayer.training.processes import alone
from sublayer.training.progress import SilentProgress
from tests.made import MASKED, TRANSLATION
from tests.training.runs import Notes, SignalAt, open_session, results

RUINOUS = {"optimizer.schedule": "constant", "optimizer.lr": 0.5, "optimizer.warmup_steps": 5}
AFTER_SIX = {"train.steps": 6, "train.evaluate_steps": 6, "train.checkpoint_steps": 3}
WAITING = {**AFTER_SIX, "train.save_in_background": False}


def test_the_model_of_a_run_is_its_best_checkpoint(run, tmp_path):
    # A learning rate that ruins the model: the last evaluation is not the best.
    record = run("run", {**RUINOUS, "train.steps": 8, "train.evaluate_steps": 2})
    best = record["valid"]["step"]
    assert best < 8
    checkpoint = tmp_path / "run" / "checkpoints" / f"step-{best:08d}"
    model, kept = (each / "model" / "model.safetensors" for each in (tmp_path / "run", checkpoint))
    assert model.read_bytes() == kept.read_bytes()


def loop_of(loaded, folder, losses):
    """Make a tiny run, whose evaluations give these losses."""
    session, given = open_session(loaded), iter(losses)
    snapshots = Snapshots(folder, session.train_step, lambda folder: None)
    evaluate = Evaluate(lambda: {"loss": next(given)}, ("loss",))
    return Loop(session.recipe.train, session.train_step, evaluate, snapshots, LoopState())


# The checkpoint of step 20 cannot be resumed without the best one of then.
@pytest.mark.parametrize(
    ("losses", "kept"), [([2.0, 3.0, 4.0, 1.0], [6, 20, 24]), ([4.0, 2.0, 3.0, 1.0], [12, 20, 24])]
)
def test_the_newest_checkpoints_and_the_best_of_each_are_kept(tiny, tmp_path, losses, kept):
    loop_of(tiny(), tmp_path, losses).run(SilentProgress())
    assert saved_steps(tmp_path / "checkpoints") == kept


def test_a_loss_that_is_not_finite_stops_the_run_and_is_never_the_best(run, tiny, tmp_path):
    settings = {"optimizer.lr": 1e6, "optimizer.weight_decay": 0.1, "optimizer.warmup_steps": 0}
    with pytest.raises(TrainingError, match=r"finite at step \d+ of 24; there is no checkpoint"):
        run("run", settings)
    assert not (tmp_path / "run" / "checkpoints").exists()
    loop = loop_of(tiny(), tmp_path, [math.nan])
    with pytest.raises(TrainingError, match="validation loss is not finite at step 6"):
        loop.run(SilentProgress())
    assert loop.state.best is None


def test_compilation_on_a_cpu_is_refused(run):
    with pytest.raises(ConfigError, match=r"train\.compile"):
        run("run", {"train.compile": True})


def test_rows_that_the_text_does_not_fill_are_noted_before_training(run, tmp_path):
    for number in range(40):
        text = f"the cat sat {number}.\nthe dog ran {number}.\n" if number % 4 else " "
        (tmp_path / f"{number:02}.txt").write_text(text)
    notes = Notes()
    settings = {"data.path": str(tmp_path / "*.txt"), "data.documents": "file", "train.steps": 1}
    run("short", {**MASKED, **settings, "data.vocab_size": 5000}, progress=notes)
    start = "data.vocab_size = 5000, of which the training"
    (unfilled,) = [place for place, text in enumerate(notes.texts) if text.startswith(start)]
    assert sum(int(text.split()[5]) for text in notes.texts[unfilled + 1 :]) == 10


def test_unknown_tokens_of_a_vocabulary_are_noted_before_training(run, tmp_path):
    (tmp_path / "few.codes").write_text("#version: 0.2\no n</w>\nt h\nth e</w>\n")
    settings = {key: value for key, value in TRANSLATION.items() if key != "data.vocab_size"}
    settings["data.tokenizer"] = str(tmp_path / "few.codes")
    for given, n_notes in ((settings, 1), (TRANSLATION, 0)):
        notes = Notes()
        run(f"run {n_notes}", {**given, "train.steps": 1}, progress=notes)
        found = [re.match(r"\d[\d,]* of [\d,]+ tokens .* unknown", text) for text in notes.texts]
        assert len(list(filter(None, found))) == n_notes


class Counted:
    """Prepares nothing, and keeps which step in which thread; ``before`` is called first."""

    def __init__(self, before=lambda step: None):
        self.asked = []
        self.before = before

    def __call__(self, step):
        self.asked.append((step, threading.current_thread().name))
        self.before(step)
        return PreparedStep([], 10 * step)

    def n_tokens(self, step):
        self.asked.append((f"count {step}", threading.current_thread().name))
        return 10 * step


def test_the_next_step_is_prepared_while_one_computes():
    begun, computed = threading.Event(), threading.Event()

    def before(step):
        if step == 1:
            begun.set()
            assert computed.wait(60), "it was not begun before step 0 ended"

    ahead = Ahead(Counted(before), 3)
    assert ahead(0).n_tokens == 0
    # Here the step computes: the next one is being prepared.
    assert begun.wait(60)
    computed.set()
    assert ahead(1).n_tokens == 10


def test_one_thread_reads_all_batches_in_any_order_and_none_beyond_the_last_step():
    counted = Counted()
    ahead = Ahead(counted, 7)
    assert [ahead(step).n_tokens for step in (0, 5, 5, 6, 2)] == [0, 50, 50, 60, 20]
    assert ahead.n_tokens(7) == 70
    steps, threads = zip(*counted.asked, strict=True)
    assert steps == (0, 1, 5, 6, 5, 6, 2, 3, "count 7")
    assert len(set(threads)) == 1 and threads[0].startswith("batches")


def test_an_error_of_the_thread_is_raised_where_its_step_is_taken():
    def before(step):
        if step == 1:
            raise DataError("text.txt: line 7 is gone")

    ahead = Ahead(Counted(before), 3)
    ahead(0)
    with pytest.raises(DataError, match="line 7 is gone"):
        ahead(1)
    assert ahead(2).n_tokens == 20


def test_a_run_stopped_and_resumed_ahead_equals_one_that_never_prepared_ahead(
    run, made, tmp_path, monkeypatch
):
    monkeypatch.setattr("sublayer.training.step.pays", lambda device: True)
    with pytest.raises(Interrupted, match="saved at step 11"):
        run("ahead", progress=SignalAt(11))
    run("ahead", resume=True)
    assert results(tmp_path / "ahead") == results(made("causal"))


class OpenAt(SilentProgress):
    """Lets writing begin once a step has been taken, and keeps what is saved after each step."""

    def __init__(self, step, folder):
        self.step, self.folder = step, folder
        self.is_open = threading.Event()
        self.saved = {}

    def update(self, status):
        self.saved[status.step] = saved_steps(self.folder / "checkpoints")
        if status.step == self.step:
            self.is_open.set()

    def write(self, *given):
        assert self.is_open.wait(60)
        save_file(*given)


def test_a_checkpoint_is_of_the_step_that_it_was_taken_after(run, tmp_path, monkeypatch):
    watch = OpenAt(0, tmp_path / "waiting")
    run("waiting", WAITING, progress=watch)
    assert (watch.saved[3], watch.saved[6]) == ([3], [3, 6])
    slow = OpenAt(5, tmp_path / "beside")
    monkeypatch.setattr(alone, "save_file", slow.write)
    run("beside", AFTER_SIX, progress=slow)
    assert slow.saved[4] == []
    for step in (3, 6):
        ours, theirs = (
            checkpoint_path(tmp_path / name / "checkpoints", step) for name in ("beside", "waiting")
        )
        for file in ("model/model.safetensors", "training.safetensors"):
            assert (ours / file).read_bytes() == (theirs / file).read_bytes()


def test_copies_are_made_beside_the_next_pass_and_its_update_waits_for_them(
    tiny, tmp_path, monkeypatch
):
    train_step, copy = open_session(tiny()).train_step, saving._copies
    has_gradients, done = threading.Event(), []

    def copy_late(tensors, kept):
        assert has_gradients.wait(60)
        done.append("copied")
        return copy(tensors, kept)

    monkeypatch.setattr(saving, "_copies", copy_late)
    snapshots = Snapshots(tmp_path, train_step, lambda folder: None)
    train_step(0)
    expected = {name: value.detach().clone() for name, value in train_step.parameters.items()}
    snapshots.saving.save(LoopState(1, tokens=1, seconds=1.0, step_seconds=1.0))
    wait = train_step.before_update
    monkeypatch.setattr(train_step, "before_update", lambda: (has_gradients.set(), wait()))
    train_step.optimizer.register_step_pre_hook(lambda *_: done.append("updated"))
    train_step(1)
    assert done == ["copied", "copied", "updated"]
    snapshots.saving.wait()
    weights = load_file(checkpoint_path(snapshots.root, 1) / "model" / "model.safetensors")
    assert all(torch.equal(value, expected[f"model.{name}"]) for name, value in weights.items())


def test_copies_that_cannot_be_made_stop_the_run_and_hold_no_update(run, monkeypatch):
    def fail(tensors, kept):
        raise RuntimeError("not enough memory")

    monkeypatch.setattr(saving, "_copies", fail)
    with pytest.raises(RuntimeError, match="not enough memory"):
        run("run")


def test_a_full_disk_stops_the_run_soon_with_the_checkpoint_before_it_whole(
    run, tmp_path, monkeypatch
):
    written = []

    def full(*given):
        written.append(given)
        # The second file of the second checkpoint.
        if len(written) == 4:
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
