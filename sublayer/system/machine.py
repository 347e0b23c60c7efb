"""This machine: device, processor, description for records, peak memory."""

import platform
import re
from functools import cache
from pathlib import Path
from typing import Any, Self

import torch

from sublayer.errors import ConfigError
from sublayer.system.memory import cores, release_freed_memory
from sublayer.system.processes import n_launched, own_gpu_number

_CPUINFO = Path("/proc/cpuinfo")


def choose_device(name: str | None) -> torch.device:
    """Return the named device, by default a CUDA GPU, else the CPU.

    A launched process uses the GPU of its local rank, unless one is named by number. Apple's GPU
    (mps) is used only by name: nothing has been measured on it. Raises ConfigError for a missing
    device.
    """
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and n_launched() > 1:
        name = f"cuda:{own_gpu_number()}"
    return check_device(name)


def check_device(name: str | torch.device) -> torch.device:
    """Return a device by its name. Raises ConfigError where there is no such device."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError):
        # torch raises various errors for devices that are missing or not built in.
        raise ConfigError(
            f"device {str(name)!r} is not there: use cpu, or cuda where there is a GPU"
        ) from None
    return device


def wait_for(device: torch.device) -> None:
    """Synchronise with a device, before a clock is read."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


@cache
def processor() -> str:
    """Return the processor's name, or its architecture where that is unknown."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:  # only Linux has it
        text = ""
    named = re.search(r"^model name[^:\n]*:(.*)", text, re.MULTILINE)
    return named[1].strip() if named else platform.processor() or platform.machine()


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Describe hardware and versions, for the record; ``gpu`` only where one is used."""
    is_gpu = device.type == "cuda"
    return {
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": cores(),
        "device": str(device),
        **({"gpu": torch.cuda.get_device_name(device)} if is_gpu else {}),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class PeakMemory:
    """Context that measures peak memory beyond the bytes resident at its start.

    On a CPU it is the process's resident set (Linux; ``bytes`` is None elsewhere), on a GPU the
    allocator's.
    """

    def __init__(self, device: torch.device) -> None:
        self.bytes: int | None = None
        self._device = device
        self._before: int | None = None

    def __enter__(self) -> Self:
        """Start measuring."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
            return self
        release_freed_memory()
        try:
            _CLEAR.write_text("5")  # resets VmHWM, the peak of the resident set
        except OSError:
            return self
        self._before = _resident("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        """Stop measuring: ``bytes`` is set."""
        if self._device.type == "cuda":
            peak: int | None = torch.cuda.max_memory_allocated(self._device)
        else:
            peak = _resident("VmHWM")
        if peak is not None and self._before is not None:
            self.bytes = max(0, peak - self._before)


def _resident(name: str) -> int | None:
    """Return a line of this process's status, in bytes."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:  # only Linux has it
        return None
    for line in lines:
        if line.startswith(f"{name}:"):
            _, kibibytes, *_ = line.split()
            return int(kibibytes) * 1024
    return None
