"""What a plan says that processes hold, against two that talk through gloo."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sublayer.config.layering.layers import load_recipe
from sublayer.study.arms import Arm
from sublayer.study.budget.plan import make_plan
from sublayer.study.budget.processes import Machine, plan_processes
from sublayer.study.budget.resources import Resources
from sublayer.system.peak_memory import PeakMemory
from tests.breadth import rows

ROOT = Path(__file__).parents[3]
DECODER = [
    "model.n_layers=4",
    "model.d_model=512",
    "model.n_heads=8",
    "model.vocab_size=16384",
    "data.context=128",
    "optimizer.warmup_steps=1",
    "train.precision=float32",
    "train.threads=1",
    "train.batch_sequences=6",
    "train.micro_batch_sequences=1",
]


def planned(settings, shard):
    arm = Arm("gpt", load_recipe("gpt", settings), {})
    resources = Resources("cpu", None, None, has_fast_bfloat16=False, cores=2)
    (plan,) = make_plan([arm], "none", resources).arms
    processes = plan_processes(arm, plan, Machine(2, resources))
    return next(each.memory.total for each in processes.shards if each.shard == shard)


def measured(settings):
    """Return the peak of each process beyond the program, in two steps after a tiny one."""
    asked = json.dumps({"recipe": "gpt", "settings": settings})
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = str(ROOT / "benchmarks" / "processes_memory.py")
    done = subprocess.run(
        [sys.executable, "-m", *launcher, script, "--serve", asked],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("{"))
    return json.loads(line)["peak"]


@pytest.mark.all
@pytest.mark.parametrize("shard", rows(["full", "none", "optimizer"], 1))
def test_two_processes_hold_what_is_planned_to_ten_percent(shard):
    with PeakMemory(torch.device("cpu")) as here:
        pass
    if here.bytes is None:
        pytest.skip("this system does not tell a process's peak")
    # No checkpoint is written meanwhile.
    settings = [*DECODER, "train.save_in_background=false", f"train.shard={shard}"]
    assert measured(settings) == pytest.approx([planned(settings, shard)] * 2, rel=0.1)
