"""This machine's device, free memory and disk, and fast precision, read without torch."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sublayer.config.recipe import Recipe
from sublayer.errors import ConfigError
from sublayer.estimate.micro_batch import DeviceKind, Precision
from sublayer.system.cores import cores
from sublayer.system.memory import free_memory

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
