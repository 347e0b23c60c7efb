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
from sublayer.runs.run import train_run
from sublayer.training.metrics import METRICS, read_metrics
from sublayer.training.progress import SilentProgress
from tests.in_time import some_at_leisure
from tests.made import MASKED, PAIR, QUESTIONS, SPAN, TEXT, TRANSLATION, TRAVERSAL
from tests.training.conftest import Notes

VARIANTS = {
    **{kind: {"optimizer.kind": kind} for kind in OPTIMIZERS},
    "sgd": {"optimizer.kind": "sgd", "optimizer.lr": 0.1, "optimizer.momentum": 0.9},
    "auxiliary": {
        "model.n_layers": 4,
        "model.positions": "learned-per-layer",
        "objective.auxiliary": "layers",
        "objective.targets": 2,
        "optimizer.kind": "sgd",
        "optimizer.momentum": 0.99,
        "optimizer.lr": 3e-3,
    },
    "lamb": {
        "model.ffn": "swiglu",
        "model.swish_beta": "learned",
        "model.share": "all",
        "optimizer.kind": "lamb",
        "optimizer.form": "published",
        "optimizer.schedule": "polynomial",
        "optimizer.warmup": "albert",
    },
    "factored": {"optimizer.kind": "adafactor", "optimizer.min_factored": 8},
    "scaled": {"optimizer.parameter_scale": True},
    "uncorrected": {"optimizer.bias_correction": False},
    "as gpt1": {
        "model.softmax": "all",
        "model.dropout": 0.1,
        "model.dropout_embedding_of": "matrix",
        "optimizer.form": "gpt1",
        "optimizer.warmup": "gpt1",
    },
    "words of gpt1": {"data.tokenizer": "gpt1-bpe", "data.merges": 30},
    "layer by layer": {"optimizer.layer_decay": 0.8},
    "shuffled": {
        "data.windows": "shuffled",
        "model.positions": "rotary",
        "model.share": "all",
        "train.log_steps": 5,
    },
    "lstm": {
        "model.kind": "lstm",
        "model.dropout": 0.2,
        "data.boundaries": "respect",
        "train.recompute": "blocks",
    },
    "masked": MASKED,
    "masked alone": {
        **MASKED,
        "model.norm_order": "post",
        "model.share": "all",
        "objective.masking": "ngram",
        "objective.sentence": "none",
        "objective.static_copies": 2,
        "optimizer.kind": "lamb",
    },
    "masked, steps filled with sentences": {
        **MASKED,
        "objective.pairs": "sentences",
        "objective.sentence": "nsp",
        "data.batch_parts": 2,
        "train.batch_tokens": 128,
    },
    "translation": {**TRANSLATION, "optimizer.kind": "adam", "train.best_by": "bleu"},
    "translation in fairseq's batches": {
        **TRANSLATION,
        "data.batch_multiple": 8,
        "data.batch_order": "once",
        "data.batch_parts": 2,
        "model.zero_padding": True,
    },
    "span": SPAN,
    "pairs of a task": {**PAIR, "train.best_by": "spearman"},
    "traversals of a task": TRAVERSAL,
    "traversals that an lstm reads": {**TRAVERSAL, "model.kind": "lstm"},
    "questions": QUESTIONS,
    "questions, of which some have no answer": {**QUESTIONS, "data.tasks": "squad2"},
    "tasks as text": {**TEXT, "train.best_by": "score"},
}


class SignalAt(SilentProgress):
    """Sends this process a signal after a given step."""

    def __init__(self, step, number=signal.SIGINT):
        self.step, self.number = step, number

    def update(self, status):
        if status.step == self.step:
            os.kill(os.getpid(), self.number)


def results(folder):
    """What must not differ: the weights, and every figure of metrics.jsonl but the clock's."""
    lines = [
        {name: value for name, value in line.items() if name != "seconds"}
        for line in read_metrics(folder / METRICS)
    ]
    return (folder / "model" / "model.safetensors").read_bytes(), lines


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


SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize(
    ("variant", "number"),
    [
        # Every variant by one of the two in turn; by the other one at leisure.
        pytest.param(variant, SIGNALS[(place + turn) % 2], marks=[pytest.mark.explore] * turn)
        for turn in (0, 1)
        for place, variant in enumerate(VARIANTS)
    ],
)
@pytest.mark.slow
def test_a_run_interrupted_and_resumed_equals_an_unbroken_one(
    run, unbroken, tmp_path, variant, number
):
    with pytest.raises(Interrupted, match="saved at step 11 of 24"):
        run("broken", VARIANTS[variant], progress=SignalAt(11, number))
    run("broken", VARIANTS[variant], resume=True)
    assert results(tmp_path / "broken") == results(unbroken(VARIANTS[variant]))


@pytest.mark.slow
@pytest.mark.parametrize("variant", some_at_leisure(VARIANTS, 3))
def test_a_run_killed_at_any_file_operation_and_resumed_equals_an_unbroken_one(
    unbroken, tiny, tmp_path, variant
):
    draw = random.Random(variant)
    kills = 0
    while not killed_at_file_operation(
        draw.randint(1, 160), tmp_path / "broken", tiny(VARIANTS[variant])
    ):
        kills += 1
        assert kills < 50, "a run that is killed and resumed gets nowhere"
    assert kills >= 2
    assert results(tmp_path / "broken") == results(unbroken(VARIANTS[variant]))


@pytest.mark.slow
def test_a_truncated_checkpoint_is_refused_by_name_and_the_one_before_is_used(
    run, unbroken, tmp_path
):
    with pytest.raises(Interrupted):
        run("broken", progress=SignalAt(11))
    weights = tmp_path / "broken" / "checkpoints" / "step-00000011" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    notes = Notes()
    run("broken", resume=True, progress=notes)
    assert "step-00000011 is refused" in notes.texts[0]
    assert results(tmp_path / "broken") == results(unbroken())
    assert (tmp_path / "broken" / "checkpoints" / "refused-step-00000011-1").is_dir()


@pytest.mark.slow
def test_resume_starts_at_the_beginning_where_there_is_nothing(run, unbroken, tmp_path):
    (tmp_path / "empty").mkdir()
    run("empty", resume=True)
    run("missing", resume=True)
    assert results(tmp_path / "empty") == results(tmp_path / "missing") == results(unbroken())


def test_a_finished_run_is_left_as_it_is(run, unbroken, tmp_path):
    shutil.copytree(unbroken(), tmp_path / "done")
    record = json.loads((tmp_path / "done" / "record.json").read_text())
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "done").rglob("*")}
    assert run("done", resume=True) == record
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "done").rglob("*")} == before


def test_a_resumed_run_whose_recipe_differs_is_refused(run):
    with pytest.raises(Interrupted):
        run("broken", progress=SignalAt(5))
    with pytest.raises(ConfigError, match=r"was started with model.d_model = 24, not 48"):
        run("broken", {"model.d_model": 48}, resume=True)


def test_a_folder_that_holds_something_is_never_written_to(run, unbroken, tmp_path):
    shutil.copytree(unbroken(), tmp_path / "done")
    with pytest.raises(ConfigError, match="already holds a run: resume it with --resume"):
        run("done")
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("Dear reader")
    with pytest.raises(ConfigError, match="already holds other files"):
        run("letters")
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ConfigError, match="is not a folder"):
        run("file")


@pytest.mark.slow
def test_a_signal_at_a_step_that_was_just_saved_saves_it_once(run, unbroken, tmp_path):
    with pytest.raises(Interrupted, match="saved at step 12 of 24"):
        run("broken", progress=SignalAt(12))
    assert not list((tmp_path / "broken" / "checkpoints").glob("refused-*"))
    run("broken", resume=True)
    assert results(tmp_path / "broken") == results(unbroken())
