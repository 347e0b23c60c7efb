"""This machine's memory and disk, and whether a run fits into them."""

import math
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sublayer.config.recipe import Recipe, ResolvedTrain
from sublayer.config.resolve_train import resolve_train
from sublayer.config.task_heads import expected_model, rows_of_example
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters
from sublayer.estimate.memory import TrainingMemory, n_states, training_memory
from sublayer.estimate.micro_batch import FLOAT32_BYTES, DeviceKind, MicroBatch, Precision
from sublayer.system.memory import cores, free_memory

PROGRAM_BYTES = 400 << 20
"""Resident memory of a process that has loaded torch and nothing else."""

_CPUINFO = Path("/proc/cpuinfo")
_QUERY = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]

_BFLOAT16_UNITS = ("BF16", "FP16", "AMX", "AVX10")
"""In the names of instruction sets that oneDNN may be limited to: those that multiply bfloat16."""


@dataclass(frozen=True)
class Resources:
    """A machine's device and what is free on it."""

    device: DeviceKind
    memory_bytes: int | None
    """Free memory of the device; None where the system does not say."""
    disk_bytes: int | None
    """Free on the disk that runs are written to; None where the system does not say."""
    has_fast_bfloat16: bool
    """Whether the device has units that multiply bfloat16."""
    cores: int
    """Those of the processor that this process may use."""

    def precision(self, recipe: Recipe) -> Precision:
        """Return the precision that a run will probably have: ``auto`` is measured at its start."""
        if recipe.train.precision != "auto":
            return recipe.train.precision
        return "bfloat16" if self.has_fast_bfloat16 else "float32"


def find_resources(device: str | None = None, folder: Path = Path()) -> Resources:
    """Detect this machine: its GPU, unless ``device`` says otherwise, and ``folder``'s disk.

    Raises ConfigError for what is no device. A GPU that is not here may be planned for; its memory
    is then unknown.
    """
    match = re.fullmatch(r"(cpu|cuda)(?::(\d+))?", device or "cuda")
    if match is None:
        raise ConfigError(f"device {device!r} is not one of cpu, cuda, cuda:1 and so on")
    named, index = match.groups()
    gpu_bytes = None
    if named == "cuda":
        gpu_bytes = _free_gpu_memory(int(index or 0))
    is_there = device is not None or gpu_bytes is not None
    is_gpu = named == "cuda" and is_there
    kind: DeviceKind = "cuda" if is_gpu else "cpu"
    memory = gpu_bytes if kind == "cuda" else free_memory()
    disk = shutil.disk_usage(folder).free
    has_fast_bfloat16 = kind == "cuda" or _has_fast_bfloat16()
    return Resources(kind, memory, disk, has_fast_bfloat16, cores())


def _free_gpu_memory(index: int) -> int | None:
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=3, check=True)
        megabytes = done.stdout.split()  # a line for each GPU, in MiB
        return int(megabytes[index]) << 20
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def _has_fast_bfloat16() -> bool:
    """Return whether the processor has units for bfloat16, and oneDNN may use them."""
    named = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA")
    limit = (named or "ALL").upper()
    is_limited = limit not in ("ALL", "DEFAULT")
    if is_limited and not any(units in limit for units in _BFLOAT16_UNITS):
        return False
    try:
        lines = _CPUINFO.read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        if line.startswith(("flags", "Features")):
            # All processors are taken to be as the first.
            return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(line.split())
    return False


_BESIDES_NEWEST = 3
"""Checkpoints beside the newest: the best, one being written, and the model, counted whole."""


def batches(recipe: Recipe, resources: Resources) -> ResolvedTrain:
    """Fill what ``[train]`` leaves open about batches.

    Only fields of batches count in what is returned: its length and evaluations are made up.
    """
    is_gpu = resources.device == "cuda"
    # Only the batches are wanted, so any length and any split will do.
    return resolve_train(recipe, steps=1, valid_tokens=1, is_gpu=is_gpu, threads=resources.cores)


def step_memory(recipe: Recipe, vocab_size: int, resources: Resources) -> TrainingMemory:
    """Estimate the peak memory of an optimizer step of a recipe on this machine, in bytes by part.

    The program itself is not counted: see ``fits_memory``.
    """
    train = batches(recipe, resources)
    step = micro_batch(recipe, vocab_size, resources, train.micro_batch_sequences)
    n_passes = math.ceil(train.batch_sequences * rows_of_example(recipe) / step.sequences)
    memory = training_memory(step, recipe.optimizer, n_passes=n_passes)
    return memory.beside_saving() if copies_in_memory(recipe, resources) else memory


def copies_in_memory(recipe: Recipe, resources: Resources) -> bool:
    """Return whether the memory in which a recipe trains has copies that checkpoints are made of.

    Those of a GPU are in the machine's.
    """
    return recipe.train.save_in_background and resources.device == "cpu"


def micro_batch(
    recipe: Recipe, vocab_size: int, resources: Resources, sequences: int
) -> MicroBatch:
    """Describe a micro-batch of ``sequences`` windows, of whole examples."""
    n_rows = rows_of_example(recipe)
    return MicroBatch(
        expected_model(recipe, vocab_size),
        sequences=max(1, sequences // n_rows) * n_rows,
        context=recipe.data.context,
        precision=resources.precision(recipe),
        device=resources.device,
        objective=recipe.objective,
        recomputes=recipe.train.recompute == "blocks",
        keeps_documents_apart=recipe.data.boundaries == "respect" or recipe.data.tasks is not None,
        frozen=recipe.init.frozen,
    )


def fits_memory(recipe: Recipe, vocab_size: int, resources: Resources) -> bool | None:
    """Return whether a step and the program fit into free memory; None where that is unknown."""
    if resources.memory_bytes is None:
        return None
    step = step_memory(recipe, vocab_size, resources)
    # On a GPU the program stands in the machine's memory and not in the step's.
    program_bytes = PROGRAM_BYTES if resources.device == "cpu" else 0
    return step.total + program_bytes <= resources.memory_bytes


def fits_disk(recipe: Recipe, vocab_size: int, resources: Resources) -> bool | None:
    """Return whether a run fits on the disk that is free; None where that is unknown."""
    if resources.disk_bytes is None:
        return None
    return run_disk(recipe, vocab_size) <= resources.disk_bytes


def run_disk(recipe: Recipe, vocab_size: int) -> int:
    """Estimate the peak bytes of a run's folder: checkpoints, optimizer states, and the model."""
    train = recipe.train
    n_checkpoints = train.keep_checkpoints + len(train.keep_steps) + _BESIDES_NEWEST
    return _checkpoint_disk(recipe, vocab_size) * n_checkpoints


def scored_disk(recipe: Recipe, vocab_size: int) -> int:
    """Estimate the bytes that a run's folder keeps once it is scored.

    That is its model, and the checkpoints of ``train.keep_steps``.
    """
    model = FLOAT32_BYTES * count_parameters(expected_model(recipe, vocab_size)).total
    return model + _checkpoint_disk(recipe, vocab_size) * len(recipe.train.keep_steps)


def _checkpoint_disk(recipe: Recipe, vocab_size: int) -> int:
    model = expected_model(recipe, vocab_size)
    n_parameters = count_parameters(model, recipe.objective).training
    n_saved = n_parameters + n_states(model, recipe.objective, recipe.optimizer, recipe.init.frozen)
    return FLOAT32_BYTES * n_saved
