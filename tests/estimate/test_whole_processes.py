"""The memory that training is estimated to take is what whole processes take."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from sublayer.training.precision import bfloat16_gain, own_clocks
from tests.breadth import rows

ROOT = Path(__file__).parents[2]
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
estimated = step_memory(recipe, 256, find_resources("cpu"))
print(json.dumps([estimated.total - estimated.weights, measured.bytes]))
"""
F32, BF16 = "train.precision=float32", "train.precision=bfloat16"
GPT = "gpt data.context=256"
ALBERT = (
    "albert-base model.n_layers=8 model.d_model=256 model.n_heads=4 data.context=256 train.steps=9"
    " train.batch_sequences=8 train.micro_batch_sequences=4 optimizer.warmup_steps=1"
)
CHARACTERS = (
    "char-t64 model.n_layers=24 model.d_model=256 model.d_ff=1024 train.batch_sequences=4"
    " train.micro_batch_sequences=2"
)
LSTM = "gpt model.kind=lstm data.context=128 train.batch_sequences=16 train.micro_batch_sequences=8"
MODERN = "modern data.context=256 train.batch_sequences=8 train.micro_batch_sequences=4"
PROCESSES = [
    f"{GPT} model.d_model=384 train.batch_sequences=4 {F32}",
    f"{GPT} model.d_model=384 train.batch_sequences=16 {F32}",
    f"{GPT} model.d_model=320 train.batch_sequences=16 {BF16}",
    f"gpt model.d_model=256 model.dropout=0.1 model.n_layers=16 {BF16}",
    f"gpt model.n_layers=24 model.d_model=256 train.recompute=blocks {F32}",
    *(f"{MODERN} {F32} model.d_model=384 model.d_ff={d_ff}" for d_ff in (384, 1024)),
    f"{MODERN} {F32} model.d_model=512",
    f"gpt model.d_model=384 optimizer.kind=lamb train.batch_sequences=1 {F32}",
    f"{LSTM} {F32} model.n_layers=1 model.d_model=384",
    f"{LSTM} {F32} model.n_layers=3 model.d_model=256",
    *(f"{ALBERT} {F32} train.recompute={blocks}" for blocks in ("none", "blocks")),
    *(f"{CHARACTERS} {precision} train.recompute=blocks" for precision in (F32, BF16)),
    f"{CHARACTERS} {F32}",
]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's peak memory")
@pytest.mark.parametrize("settings", rows(PROCESSES, 1))
def test_a_process_takes_what_is_estimated(settings):
    if BF16 in settings and bfloat16_gain(256, own_clocks()) == 0.0:
        pytest.skip("bfloat16 is emulated here, with copies in float32; no run chooses it")
    estimated, measured = measure_process(settings)
    if estimated != pytest.approx(measured, rel=0.1):
        # Where the allocator's holes fall differs from process to process: by 12 % of the whole
        # for one of these. So a process outside the limit is one of five, whose median counts.
        others = [measure_process(settings)[1] for _ in range(4)]
        assert estimated == pytest.approx(median([measured, *others]), rel=0.1)


def measure_process(settings: str) -> tuple[int, int]:
    """Train in another process; return what it is estimated to take and what it took."""
    # No checkpoint is written meanwhile.
    fixed = ("train.threads=1", "train.save_in_background=false")
    command = [sys.executable, "-c", WHOLE, *settings.split(), *fixed]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    estimated, measured = json.loads(done.stdout)
    return estimated, measured
