"""Peak memory of one setup over ten steps, in a process of its own."""

import ctypes
import gc
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from contestants import Setup, build_step

from sublayer.train.memory import PeakMemory


def measure_peak(setup: Setup, n_steps: int) -> int:
    """Measure, in this process, the peak over ``n_steps`` minus what is resident once model and data are built."""
    step = build_step(setup)
    gc.collect()
    if sys.platform == "linux":
        # What building freed goes back to the system; else it would hide a part of the peak.
        ctypes.CDLL(None).malloc_trim(0)
    with PeakMemory(torch.device(setup.device)) as memory:
        for index in range(n_steps):
            step(index)
    assert memory.bytes is not None, "this system does not account for peak memory"
    return memory.bytes


def peak_in_a_process(script: Path, setup: Setup, n_steps: int) -> int:
    """Run ``script`` again, for this setup's memory alone."""
    options = {"--peak-of": json.dumps(asdict(setup)), "--peak-steps": n_steps, "--threads": torch.get_num_threads()}
    command = [sys.executable, str(script), *(str(part) for option in options.items() for part in option)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout.splitlines()[-1])
