"""A compiled objective computes what an eager one does, as one graph."""

import json
import subprocess
import sys

import pytest
import torch

from tests.gpu.compiled_together import CASES
from tests.torchrun import in_two_processes

SCRIPT = """
import json, sys
from pathlib import Path
import torch
from torch._dynamo.utils import counters
from sublayer.training.step import allow_graphs
from tests.gpu.kinds import KINDS, Texts, gradients, open_session

device, plain, *kinds = sys.argv[1:]
texts = Texts(*[Path(plain)] * 4)
torch.set_num_threads(1)
found = {}
for kind in kinds:
    settings = {**KINDS[kind], "model.dropout": 0.0}
    sessions = [open_session(texts, settings, device) for _ in range(2)]
    counters.clear()
    allow_graphs(8)
    # A CPU is compiled for without generating code, which takes long there.
    sessions[1].train_step.objective.compile(backend="aot_eager" if device == "cpu" else "inductor")
    worst = 0.0
    for step in range(3):
        (loss, own), (compiled_loss, compiled) = (gradients(each, step) for each in sessions)
        worst = max(worst, abs(compiled_loss - loss) / abs(loss))
        largest = max(float(each.norm()) for each in own.values())
        for name, gradient in own.items():
            difference = float((compiled[name] - gradient).norm())
            worst = max(worst, difference / largest)
        for each in sessions:
            each.train_step.optimizer.zero_grad(set_to_none=True)
    found[kind] = {
        "worst": worst,
        "breaks": sum(counters["graph_break"].values()),
        "graphs": counters["stats"]["unique_graphs"],
    }
print(json.dumps(found))
"""
COMPILED = ["decoder", "documents", "alibi", "auxiliary", "span"]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_what_is_compiled_computes_what_is_not_in_one_graph(place, texts):
    # In a process of its own: annotations that are checked cannot be compiled.
    command = [sys.executable, "-c", SCRIPT, place, str(texts.plain), *COMPILED]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == set(COMPILED)
    for kind, each in found.items():
        assert each["worst"] < 1e-4, (kind, each)
        assert each["breaks"] == 0, (kind, each)
        assert each["graphs"] == 1, (kind, each)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_two_processes_compute_compiled_what_they_compute_otherwise(place, texts):
    if place == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("one GPU alone")
    command = in_two_processes("tests.gpu.compiled_together", place, texts.plain)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert found.keys() == set(CASES)
    for name, each in found.items():
        assert each["worst"] < 1e-4, (name, each)
        # Blocks are compiled as what is around them.
        assert each["attentions"] > 0, (name, each)
