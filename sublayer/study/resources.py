"""What this machine has, found without torch: its device, the memory and the disk that are free, its fast precision."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sublayer.config.cores import cores
from sublayer.config.recipe import Recipe
from sublayer.errors import ConfigError
from sublayer.model.passes import DeviceKind, Precision
from sublayer.system_memory import free_memory

PROGRAM_BYTES = 400 << 20
"""Resident memory of a process that has loaded torch and nothing else."""

_CPUINFO = Path("/proc/cpuinfo")
_QUERY = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]


_BFLOAT16_UNITS = ("BF16", "FP16", "AMX", "AVX10")
"""In the names of instruction sets that oneDNN may be limited to: those that multiply bfloat16."""


@dataclass(frozen=True)
class Resources:
    """A machine's device and what is free on it, in bytes; None where the system does not say."""

    device: DeviceKind
    memory_bytes: int | None
    disk_bytes: int | None
    has_fast_bfloat16: bool
    cores: int

    def precision(self, recipe: Recipe) -> Precision:
        """Give the precision that a run will probably have: ``auto`` is measured when it starts."""
        if recipe.train.precision != "auto":
            return recipe.train.precision
        return "bfloat16" if self.has_fast_bfloat16 else "float32"


def find_resources(device: str | None = None, folder: Path = Path()) -> Resources:
    """Look at this machine: its GPU where it has one, unless ``device`` says otherwise; the disk of ``folder``.

    Raises ConfigError for what is no device. A GPU that is not here may be planned for; its memory is then unknown.
    """
    found = re.fullmatch(r"(cpu|cuda)(?::(\d+))?", device or "cuda")
    if found is None:
        raise ConfigError(f"device {device!r} is not one of cpu, cuda, cuda:1 and so on")
    gpu_bytes = None if found[1] == "cpu" else _free_gpu_memory(int(found[2] or 0))
    is_gpu = found[1] == "cuda" and (device is not None or gpu_bytes is not None)
    kind: DeviceKind = "cuda" if is_gpu else "cpu"
    memory = gpu_bytes if kind == "cuda" else free_memory()
    return Resources(kind, memory, shutil.disk_usage(folder).free, kind == "cuda" or _has_fast_bfloat16(), cores())


def _free_gpu_memory(index: int) -> int | None:
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=3, check=True)
        return int(done.stdout.split()[index]) << 20
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def _has_fast_bfloat16() -> bool:
    limit = (os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "ALL").upper()
    if limit not in ("ALL", "DEFAULT") and not any(units in limit for units in _BFLOAT16_UNITS):
        return False
    try:
        flags = next(line for line in _CPUINFO.read_text().splitlines() if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return False
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(flags.split())
