"""Processes that train together: started by torchrun, asked and answering in JSON."""

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from sublayer.config.load import load_recipe
from sublayer.runs.session import Place, Session, assemble, prepare_data, resolve
from sublayer.training.world import join_world


def answer_of(script: Path, asked: Mapping[str, Any], n_processes: int) -> dict[str, Any]:
    """Start a script with ``--serve`` and a request; return the output of its first process."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_processes}"]
    command = [
        sys.executable,
        *(torchrun if n_processes > 1 else []),
        *(str(script), "--serve", json.dumps(asked)),
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    answer = next(line for line in done.stdout.splitlines() if line.startswith("{"))
    return dict(json.loads(answer))


def open_session(settings: Mapping[str, Any]) -> Session:
    """Join the other processes, and build the training of ``gpt`` with settings."""
    device = torch.device("cpu")
    place = Place(device, join_world(device))
    loaded = load_recipe("gpt", settings)
    data = prepare_data(loaded.recipe)
    recipe = resolve(loaded.recipe, data, place)
    torch.set_num_threads(recipe.train.threads)
    return assemble(recipe, data, place)


def medians(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each figure over rounds."""
    return {name: statistics.median(each[name] for each in figures) for name in figures[0]}
