"""What tests of runs do and compare."""

import os
import signal

import pytest
import torch

from sublayer.config.optimizers import OPTIMIZERS as TABLES
from sublayer.model.kernels.compiled import find_compiler
from sublayer.runs.session import Place, assemble, prepare_data, resolve
from sublayer.training.log import METRICS, SilentProgress, read_metrics
from sublayer.training.world import World

ALONE = Place(torch.device("cpu"), World(rank=0, size=1))
OPTIMIZERS = {
    **{kind: {"optimizer.kind": kind} for kind in TABLES},
    "sgd": {"optimizer.kind": "sgd", "optimizer.lr": 0.1, "optimizer.momentum": 0.9},
    "lamb as published": {"optimizer.kind": "lamb", "optimizer.form": "published"},
    "factored": {"optimizer.kind": "adafactor", "optimizer.min_factored": 8},
    "scaled": {"optimizer.parameter_scale": True},
    "uncorrected": {"optimizer.bias_correction": False},
    "as gpt1": {"optimizer.form": "gpt1", "optimizer.warmup": "gpt1"},
    "by head": {"optimizer.kind": "muon", "optimizer.muon_unit": "head"},
}


needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler")


class Notes(SilentProgress):
    def __init__(self):
        self.texts = []

    def note(self, text):
        self.texts.append(text)


class SignalAt(SilentProgress):
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


def figures(folder, kind):
    return [line["loss"] for line in read_metrics(folder / METRICS) if line["kind"] == kind]


def open_session(loaded, place=ALONE):
    data = prepare_data(loaded.recipe)
    return assemble(resolve(loaded.recipe, data, place), data, place)


def weights(train_step):
    return {name: value.detach().clone() for name, value in train_step.parameters.items()}
