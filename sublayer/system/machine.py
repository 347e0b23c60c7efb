"""This machine: its device, its processor, and their description in a record."""

import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch

from sublayer.errors import ConfigError
from sublayer.system.cores import cores
from sublayer.system.launch import n_launched, own_gpu_number

_CPUINFO = Path("/proc/cpuinfo")


def choose_device(name: str | None) -> torch.device:
    """Return the named device, or the CUDA GPU where there is one, else the CPU.

    Where several processes were started together each has a GPU of its own, unless one is named by
    its number. Apple's GPU (mps) is used where it is named: nothing has been measured on it. Raises
    ConfigError where there is no such device.
    """
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return check_device(_own_gpu(name))


def _own_gpu(name: str) -> str:
    return f"cuda:{own_gpu_number()}" if name == "cuda" and n_launched() > 1 else name


def check_device(name: str | torch.device) -> torch.device:
    """Return a device by its name. Raises ConfigError where there is no such device."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError):
        # torch has no one way to say that it was built without a device, or finds none.
        raise ConfigError(
            f"device {str(name)!r} is not there: use cpu, or cuda where there is a GPU"
        ) from None
    return device


def wait_for(device: torch.device) -> None:
    """Wait until a device has done what it was given, so that a clock can be read."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


@cache
def processor() -> str:
    """Return the processor's name, as the system says it; else its architecture."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:  # only Linux has it
        text = ""
    for line in text.splitlines():
        if line.startswith("model name"):
            _, _, name = line.partition(":")
            return name.strip()
    return platform.processor() or platform.machine()


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Describe hardware and versions, for the record; ``gpu`` is there only where one is used."""
    gpu = {}
    if device.type == "cuda":
        gpu["gpu"] = torch.cuda.get_device_name(device)
    return {
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": cores(),
        "device": str(device),
        **gpu,
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
