"""The memory that training is said to take is what a process of its own takes."""

import json
import subprocess
import sys
from statistics import median

import pytest

from sublayer.training.precision import bfloat16_gain, own_clocks
from tests.breadth import rows

WHOLE = """
import json, sys, torch
from sublayer.study.budget.capacity import step_memory
from sublayer.study.budget.measure import train_step
from sublayer.study.budget.resources import find_resources
from sublayer.config.layering.layers import load_recipe, vary
from sublayer.system.peak_memory import PeakMemory

def prepare(smaller):
    recipe = vary(load_recipe(sys.argv[1], sys.argv[2:]), smaller).recipe
    return recipe, train_step(recipe, 256, torch.device("cpu"))

small = ["model.n_layers=2", "model.d_model=32", "data.context=32", "train.batch_sequences=1"]
_, warm = prepare(small)
warm(0)  # what the program itself needs
del warm
recipe, take_step = prepare([])
with PeakMemory(torch.device("cpu")) as measured:
    for step in range(2):
        take_step(step)
said = step_memory(recipe, 256, find_resources("cpu"))
print(json.dumps([said.total - said.weights, measured.bytes]))
"""


SMALL_ALBERT = (
    *(
        "albert-base",
        "model.n_layers=8",
        "model.d_model=256",
        "model.n_heads=4",
        "data.context=256",
    ),
    *(
        "train.batch_sequences=8",
        "train.micro_batch_sequences=4",
        "optimizer.warmup_steps=1",
        "train.steps=9",
    ),
)
CHARACTERS = (
    *("char-t64", "model.n_layers=24", "model.d_model=256", "model.d_ff=1024"),
    *("train.batch_sequences=4", "train.micro_batch_sequences=2"),
)
LSTM = (
    *("gpt", "model.kind=lstm", "data.context=128", "train.precision=float32"),
    *("train.batch_sequences=16", "train.micro_batch_sequences=8"),
)
MODERN = (
    *("modern", "data.context=256", "train.batch_sequences=8", "train.micro_batch_sequences=4"),
    "train.precision=float32",
)


PROCESSES = [
    (
        "gpt",
        "model.d_model=384",
        "data.context=256",
        "train.batch_sequences=4",
        "train.precision=float32",
    ),
    (
        "gpt",
        "model.d_model=384",
        "data.context=256",
        "train.batch_sequences=16",
        "train.precision=float32",
    ),
    (
        "gpt",
        "model.d_model=320",
        "data.context=256",
        "train.batch_sequences=16",
        "train.precision=bfloat16",
    ),
    (
        "gpt",
        "model.d_model=256",
        "model.dropout=0.1",
        "model.n_layers=16",
        "train.precision=bfloat16",
    ),
    (
        "gpt",
        "model.n_layers=24",
        "model.d_model=256",
        "train.recompute=blocks",
        "train.precision=float32",
    ),
    (*MODERN, "model.d_model=384"),
    (*MODERN, "model.d_model=512"),
    (*MODERN, "model.d_model=384", "model.d_ff=384"),
    (*MODERN, "model.d_model=384", "model.d_ff=1024"),
    (
        "gpt",
        "model.d_model=384",
        "optimizer.kind=lamb",
        "train.batch_sequences=1",
        "train.precision=float32",
    ),
    (*LSTM, "model.n_layers=1", "model.d_model=384"),
    (*LSTM, "model.n_layers=3", "model.d_model=256"),
    (*CHARACTERS, "train.precision=float32"),
    (*SMALL_ALBERT, "train.precision=float32"),
    (*SMALL_ALBERT, "train.precision=float32", "train.recompute=blocks"),
    (*CHARACTERS, "train.precision=float32", "train.recompute=blocks"),
    (*CHARACTERS, "train.precision=bfloat16", "train.recompute=blocks"),
]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's peak memory")
@pytest.mark.parametrize("settings", rows(PROCESSES, 1), ids=" ".join)
def test_a_process_takes_what_is_said(settings: tuple[str, ...]) -> None:
    if "train.precision=bfloat16" in settings and bfloat16_gain(256, own_clocks()) == 0.0:
        pytest.skip(
            "bfloat16 is emulated here, in minutes and with copies in float32; no run chooses it"
        )
    said, measured = measure_process(settings)
    if said != pytest.approx(measured, rel=0.1):
        # Where the allocator's holes fall differs from process to process: by 12 % of the whole
        # for one of these. So a process outside the limit is one of five, whose median counts.
        others = [measure_process(settings)[1] for _ in range(4)]
        assert said == pytest.approx(median([measured, *others]), rel=0.1)


def measure_process(settings: tuple[str, ...]) -> tuple[int, int]:
    """Train in a process of its own; return what it is said to take and what it took."""
    # No checkpoint is written meanwhile.
    fixed = ("train.threads=1", "train.save_in_background=false")
    command = [sys.executable, "-c", WHOLE, *settings, *fixed]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said, measured = json.loads(done.stdout)
    return said, measured
