"""Measurements of this machine, cached with their time under all that they depend on."""

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from sublayer.errors import DataError
from sublayer.files.cache_folder import cache_folder
from sublayer.files.parsing import read_json_object
from sublayer.files.storage import write_file
from sublayer.system.machine import processor
from sublayer.system.memory import cores

_SETTINGS = (
    "ATEN_",
    "DNNL_",
    "GOMP_",
    "KMP_",
    "MALLOC_",
    "MKL_",
    "OMP_",
    "ONEDNN_",
    "PYTORCH_",
    "TORCH_",
)
"""Prefixes and names of variables that set how fast PyTorch, oneDNN, MKL, OpenMP and libc are."""
_NAMED = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
)
_WITHOUT_EFFECT = ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK")
"""Variables of OpenMP that set no speed; importing scikit-learn sets them within a process."""
_MOST = 1000
"""Measurements that are kept: the oldest give way."""

Clock = Callable[[], float]


@dataclass(frozen=True)
class Measurement:
    """Numbers, in whatever unit they were kept, and when they were measured."""

    values: tuple[float, ...]
    at: float
    """Seconds since 1970."""


def recall(key: str, n_values: int) -> Measurement | None:
    """Return the cached values of ``key`` on this machine and process, if they are ``n_values``.

    They count only with the processor, cores, release of PyTorch and variables of the environment
    that they were measured with. What cannot be read, or is no such thing, is as if it had never
    been measured: None.
    """
    entry = _read(_path()).get(_full(key))
    values, at = (entry.get("values"), entry.get("at")) if isinstance(entry, dict) else (None, None)
    if not isinstance(values, list) or len(values) != n_values:
        return None
    *measured, when = map(_number, (*values, at))
    known = [value for value in measured if value is not None]
    return None if when is None or len(known) < n_values else Measurement(tuple(known), when)


def keep(key: str, values: Sequence[float], clock: Clock = time.time) -> Measurement:
    """Cache new measurements, where the cache can be written; return them with the time.

    ``clock`` gives seconds since 1970. Of more than 1,000 measurements the oldest give way.
    """
    taken = Measurement(tuple(map(float, values)), clock())
    path = _path()
    own_name = _full(key)
    others = {
        name: entry
        for name, entry in _read(path).items()
        if isinstance(entry, dict) and name != own_name
    }
    # Entries without a time count as the oldest.
    by_age = sorted(others, key=lambda name: _number(others[name].get("at")) or 0.0)
    kept = {name: others[name] for name in by_age[1 - _MOST :]}
    kept[own_name] = {"values": list(taken.values), "at": taken.at}
    # A measurement serves this process even where nothing can be kept for the next.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(kept, indent=1) + "\n")
    return taken


def _path() -> Path:
    return cache_folder() / "measured.json"


def _full(key: str) -> str:
    settings = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if (name.startswith(_SETTINGS) and name not in _WITHOUT_EFFECT) or name in _NAMED
    ]
    machine = [f"{processor()} x{cores()}", f"torch {torch.__version__}"]
    return "; ".join([*machine, *settings, key])


def _read(path: Path) -> dict[str, object]:
    try:
        if not path.is_file():
            return {}
        return dict(read_json_object(path, DataError))
    except (OSError, DataError):
        return {}


def _number(value: object) -> float | None:
    """Return a number that can have been measured: finite and not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
