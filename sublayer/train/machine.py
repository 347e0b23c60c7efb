"""What this machine is, and what was measured on it: once, kept in a cache, never per run."""

import json
import os
import platform
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch

from sublayer.config.cores import cores
from sublayer.load import check_device

_GAIN = 1.1
"""How much faster bfloat16 must be to be chosen."""


def cache_folder() -> Path:
    """Give the folder of everything that can be made again: ``$SUBLAYER_CACHE`` or ``~/.cache/sublayer``."""
    return Path(os.environ.get("SUBLAYER_CACHE") or Path.home() / ".cache" / "sublayer")


def choose_device(name: str | None) -> torch.device:
    """Give the named device, or the GPU where there is one. Raises ConfigError where there is no such device."""
    if name is not None:
        return check_device(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@cache
def processor() -> str:
    """Name the processor, as the system does."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Describe hardware and versions, for the record."""
    gpu = {"gpu": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}
    return {
        "processor": processor(),
        "cores": cores(),
        "device": str(device),
        **gpu,
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def remembered(key: str, measure: Callable[[], Any]) -> Any:
    """Give what ``measure`` returned when it was first asked for ``key`` on this machine."""
    path = cache_folder() / "measured.json"
    known = _read(path)
    full_key = f"{processor()} x{cores()}, torch {torch.__version__}: {key}"
    if full_key not in known:
        value = measure()
        known = {**_read(path), full_key: value}
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}-{os.getpid()}")
        partial.write_text(json.dumps(known, indent=1))
        os.replace(partial, path)
    return known[full_key]


def fastest_precision(device: torch.device, d_model: int, threads: int) -> Literal["float32", "bfloat16"]:
    """Measure once which precision multiplies faster at about this width, the casts included."""
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    width = min(1024, max(32, 1 << (d_model - 1).bit_length()))
    gain = remembered(f"bfloat16 gain at width {width}, {threads} threads", lambda: _bfloat16_gain(width))
    return "bfloat16" if gain >= _GAIN else "float32"


def _bfloat16_gain(width: int) -> float:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1024, width, generator=generator)
    weight = torch.randn(4 * width, width, generator=generator, requires_grad=True)

    def seconds(dtype: torch.dtype) -> float:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            hidden = torch.nn.functional.gelu(torch.nn.functional.linear(x, weight))
            hidden.float().sum().backward()  # type: ignore[no-untyped-call]
            begun = time.perf_counter()
            for _ in range(5):
                torch.nn.functional.gelu(torch.nn.functional.linear(x, weight)).float().sum().backward()  # type: ignore[no-untyped-call]
        return time.perf_counter() - begun

    ratios = sorted(seconds(torch.float32) / seconds(torch.bfloat16) for _ in range(9))
    return round(ratios[len(ratios) // 2], 2)


def _read(path: Path) -> dict[str, Any]:
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
