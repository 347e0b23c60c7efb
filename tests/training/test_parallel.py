import contextlib
import json
import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from sublayer.files.checkpoints import saved_steps
from sublayer.training.metrics import METRICS, read_metrics
from tests.made import MASKED, PAIR, QUESTIONS, SPAN, TEXT, TINY, TRANSLATION, TRAVERSAL
from tests.torchrun import in_two_processes
from tests.training.conftest import ROOT

pytestmark = pytest.mark.slow


def training(folder, text_path, settings=(), *, resume=False):
    values = {**TINY, "data.path": str(text_path), "model.dropout": 0.0, **dict(settings)}
    if values.get("model.kind") == "lstm":
        del values["model.n_heads"]
    words = ["train", "gpt", *(f"{key}={value}" for key, value in values.items())]
    return [*words, "--out", str(folder), *(["--resume"] if resume else [])]


def command(*words, **options):
    return in_two_processes("sublayer", *training(*words, **options))


def kill_all_that_name(folder):
    """Kill the launcher and, as it can no longer do that, its workers."""
    while found := [
        path for path in Path("/proc").glob("[0-9]*/cmdline") if str(folder) in read(path)
    ]:
        for path in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.parent.name), signal.SIGKILL)
        time.sleep(0.05)


def read(path):
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""


def figures(folder, kind):
    return [line["loss"] for line in read_metrics(folder / METRICS) if line["kind"] == kind]


AUXILIARY = {"model.n_layers": 3, "objective.auxiliary": "layers", "objective.targets": 2}
"""Losses of which some stop on the way, and leave parameters without gradients."""

LAMB = {"model.share": "all", "model.ffn": "swiglu", "optimizer.kind": "lamb", "optimizer.lr": 1e-2}
LAMB |= {"optimizer.schedule": "polynomial", "optimizer.warmup": "albert"}
"""Ratios of norms, of weights that all layers share."""

ADAFACTOR = {"model.ffn": "swiglu", "optimizer.kind": "adafactor", "optimizer.min_factored": 8}
"""Means of rows and columns, of matrices that are stored together."""

UNJUDGED = {**MASKED, "objective.sentence": "none", "optimizer.kind": "lamb", "optimizer.lr": 1e-2}
"""A sentence head that is not trained, and an optimizer that leaves it alone."""

LONELY = {**TRANSLATION, "data.context": 13, "train.batch_sequences": 2}
"""Batches of few pairs, of which the fourth has one alone: less than there are processes."""

NO_ANSWERS = {"data.tasks": "squad2", "objective.dropout": 0.0}
"""Questions of which some have no answer: the joint head."""


WAYS = {
    "plain": {},
    "auxiliary": AUXILIARY,
    "recomputed": {**AUXILIARY, "train.recompute": "blocks"},
    "lamb": LAMB,
    "adafactor": ADAFACTOR,
    "lstm": {"model.kind": "lstm", "data.boundaries": "respect"},
    "masked": MASKED,
    "unjudged": UNJUDGED,
    "translation": TRANSLATION,
    "lonely": LONELY,
    "span": SPAN,
    "pairs of a task": {**PAIR, "objective.dropout": 0.0, "optimizer.lr": 1e-3},
    "tasks as text": {**TEXT, "data.tasks": ["sst2", "rte"], "train.batch_sequences": 5},
    # No choice, start or end depends on what all logits share: the gradient of that bias is
    # noise, of which Adam would make much.
    "traversals of a task": {
        **TRAVERSAL,
        "objective.dropout": 0.0,
        "optimizer.kind": "sgd",
        "optimizer.lr": 0.1,
    },
    "questions": {**QUESTIONS, "optimizer.kind": "sgd", "optimizer.lr": 0.1},
    "questions without answers": {
        **QUESTIONS,
        **NO_ANSWERS,
        "optimizer.kind": "sgd",
        "optimizer.lr": 0.1,
    },
}
AT_LEISURE = ("auxiliary", "unjudged", "translation", "questions")
"""Of which another does all and more."""


# One launch for all: to start two processes takes longer than to train in them.
@pytest.mark.parametrize(
    "names",
    [
        [name for name in WAYS if name not in AT_LEISURE],
        pytest.param(AT_LEISURE, marks=pytest.mark.explore),
    ],
    ids=["most", "at leisure"],
)
def test_two_processes_give_the_losses_and_weights_of_one(
    run, tmp_path, text_path, stories_path, pairs_path, tasks_path, names
):
    paths = {"masked": stories_path, "translation": pairs_path, "supervised": tasks_path}
    trainings = []
    for name in names:
        run(name, {"model.dropout": 0.0, **WAYS[name]})
        path = paths.get(WAYS[name].get("objective.kind"), text_path)
        trainings.append(training(tmp_path / "two" / name, path, WAYS[name]))
    (tmp_path / "trainings.json").write_text(json.dumps(trainings))
    result = subprocess.run(
        in_two_processes("tests.training.several_trainings", tmp_path / "trainings.json"),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    # The first process alone speaks.
    assert result.stdout.count("trained 24 steps") == len(names)
    for name in names:
        one, two = tmp_path / name, tmp_path / "two" / name
        for kind in ("train", "valid"):
            assert figures(two, kind) == pytest.approx(figures(one, kind), rel=1e-4), name
        ours, theirs = (load_file(each / "model" / "model.safetensors") for each in (one, two))
        for key, value in ours.items():
            assert_close(
                theirs[key],
                value,
                rtol=1e-2,
                atol=2e-3,
                msg=partial("{}, {}: {}".format, name, key),
            )


@pytest.mark.parametrize("settings", [AUXILIARY, {"model.kind": "lstm", "train.shard": "full"}])
def test_no_library_warns_of_how_two_processes_train(tmp_path, text_path, settings):
    settings = {**settings, "train.steps": 2}
    done = subprocess.run(
        command(tmp_path / "two", text_path, settings), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "arning" not in done.stderr


def test_two_processes_that_freeze_a_part_give_the_weights_of_one(run, tmp_path, text_path):
    run("start", {"model.dropout": 0.0, "train.steps": 4})
    settings = {"init.run": str(tmp_path / "start"), "init.freeze": "embeddings"}
    run("one", {"model.dropout": 0.0, **settings})
    subprocess.run(command(tmp_path / "two", text_path, settings), check=True, capture_output=True)
    start, ours, theirs = (
        load_file(tmp_path / name / "model" / "model.safetensors")
        for name in ("start", "one", "two")
    )
    for name, value in ours.items():
        assert_close(theirs[name], value, rtol=1e-2, atol=2e-3)
    assert torch.equal(theirs["embedding.weight"], start["embedding.weight"])


def test_four_processes_resumed_have_the_bits_of_four_unbroken(tmp_path, asked, train_in):
    # Of three and more, sums depend on their order.
    way = {"model.dropout": 0.1, "train.batch_sequences": 8, "train.micro_batch_sequences": 1}
    ways = {"plain": way}
    train_in(4, asked(ways, "whole"))
    for end in (14, None):
        train_in(4, asked(ways, "broken", end))
    whole, broken = (
        (tmp_path / name / "plain" / "model" / "model.safetensors").read_bytes()
        for name in ("whole", "broken")
    )
    assert whole == broken


def test_two_processes_stopped_and_resumed_equal_two_unbroken(tmp_path, text_path):
    settings = {"model.dropout": 0.1, "train.steps": 60}
    subprocess.run(
        command(tmp_path / "whole", text_path, settings), check=True, capture_output=True
    )
    begun = subprocess.Popen(
        command(tmp_path / "broken", text_path, settings),
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    while not saved_steps(tmp_path / "broken" / "checkpoints"):
        assert begun.poll() is None
        time.sleep(0.05)
    kill_all_that_name(tmp_path / "broken")
    begun.wait()
    subprocess.run(
        command(tmp_path / "broken", text_path, settings, resume=True),
        check=True,
        capture_output=True,
    )
    whole, broken = (
        (tmp_path / name / "model" / "model.safetensors").read_bytes()
        for name in ("whole", "broken")
    )
    assert whole == broken
