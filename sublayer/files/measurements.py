"""Measurements of this machine, cached by their conditions, with the time."""

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, TypeAdapter, ValidationError

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


_Positive = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Measurement:
    """Measured numbers, in the unit of ``keep``, and their time."""

    values: tuple[_Positive, ...]
    at: _Positive
    """Seconds since 1970."""


def recall(key: str, n_values: int) -> Measurement | None:
    """Return the cached values of ``key`` on this machine and process, ``n_values`` of them.

    They are valid only for the same processor, cores, PyTorch release and environment variables.
    None where they are missing, unreadable or of another number.
    """
    cached = _read(_path()).get(_full(key))
    return None if cached is None or len(cached.values) != n_values else cached


def keep(key: str, values: Sequence[float], clock: Clock = time.time) -> Measurement:
    """Cache new measurements, where the cache can be written; return them with the time.

    ``clock`` gives seconds since 1970. Beyond 1,000 measurements the oldest are dropped.
    """
    taken = Measurement(tuple(map(float, values)), clock())
    path = _path()
    others = {name: other for name, other in _read(path).items() if name != _full(key)}
    newest = sorted(others, key=lambda name: others[name].at)[1 - _MOST :]
    content = {name: asdict(others[name]) for name in newest} | {_full(key): asdict(taken)}
    # A measurement serves this process even where it cannot be cached.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(content, indent=1) + "\n")
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


def _read(path: Path) -> dict[str, Measurement]:
    """Read the valid measurements of a file."""
    content: dict[str, Any] = {}
    with suppress(OSError, DataError):
        content = read_json_object(path, DataError)
    adapter = TypeAdapter(Measurement)
    measurements = {}
    for name, entry in content.items():
        with suppress(ValidationError):
            measurements[name] = adapter.validate_json(json.dumps(entry), strict=True)
    return measurements
