"""What was measured on this machine, kept in the cache under all that it depends on, with the time it was taken."""

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from sublayer.cache import cache_folder
from sublayer.config.cores import cores
from sublayer.errors import DataError
from sublayer.machine import processor
from sublayer.parsing import read_json_object
from sublayer.storage import write_file

_SETTINGS = ("ATEN_", "DNNL_", "GOMP_", "KMP_", "MALLOC_", "MKL_", "OMP_", "ONEDNN_", "PYTORCH_", "TORCH_")
"""What begins so, or is named below, sets how fast PyTorch, oneDNN, MKL, OpenMP and the C library are."""
_NAMED = ("CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "GLIBC_TUNABLES", "LD_PRELOAD")
_MOST = 1000
"""Measurements that are kept: the oldest give way."""

Clock = Callable[[], float]


@dataclass(frozen=True)
class Measurement:
    """Numbers, and when they were measured, in seconds since 1970."""

    values: tuple[float, ...]
    at: float


def recall(key: str, n_values: int) -> Measurement | None:
    """Return what was kept for ``key`` under the settings of this machine and process, if it is ``n_values`` numbers.

    What cannot be read, or is no such thing, is as if it had never been measured.
    """
    return _valid(_read(_path()).get(_full(key)), n_values)


def keep(key: str, values: Sequence[float], clock: Clock = time.time) -> Measurement:
    """Keep numbers that were measured now, where the cache can be written, and return them with the time."""
    taken = Measurement(tuple(map(float, values)), clock())
    path = _path()
    others = {name: entry for name, entry in _read(path).items() if isinstance(entry, dict) and name != _full(key)}
    newest = sorted(others, key=lambda name: _age_key(others[name]))[1 - _MOST :]
    kept = {name: others[name] for name in newest} | {_full(key): {"values": list(taken.values), "at": taken.at}}
    # A measurement serves this process even where nothing can be kept for the next.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(kept, indent=1) + "\n")
    return taken


def _path() -> Path:
    return cache_folder() / "measured.json"


def _full(key: str) -> str:
    set_here = [
        f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(_SETTINGS) or name in _NAMED
    ]
    return "; ".join([f"{processor()} x{cores()}", f"torch {torch.__version__}", *set_here, key])


def _read(path: Path) -> dict[str, object]:
    try:
        return dict(read_json_object(path, DataError)) if path.is_file() else {}
    except (OSError, DataError):
        return {}


def _valid(entry: object, n_values: int) -> Measurement | None:
    if not isinstance(entry, dict):
        return None
    values, at = entry.get("values"), entry.get("at")
    if not isinstance(values, list) or len(values) != n_values:
        return None
    numbers = [_number(each) for each in [*values, at]]
    if any(each is None for each in numbers):
        return None
    *found, when = [each for each in numbers if each is not None]
    return Measurement(tuple(found), when)


def _number(value: object) -> float | None:
    """Return a number that can have been measured: finite and not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _age_key(entry: dict[str, object]) -> float:
    return _number(entry.get("at")) or 0.0
