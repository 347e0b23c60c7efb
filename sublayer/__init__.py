"""Compose, pre-train, generate with and fairly compare Transformer language models."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sublayer.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    Interrupted,
    SublayerError,
    TrainingError,
)

if TYPE_CHECKING:
    from sublayer.loading import load
    from sublayer.runs.run import from_recipe, train
    from sublayer.study.runner import compare

__version__ = "0.1.0"
__all__ = [
    "CheckpointError",
    "ConfigError",
    "DataError",
    "Interrupted",
    "SublayerError",
    "TrainingError",
    "__version__",
    "compare",
    "from_recipe",
    "load",
    "train",
]

if "OMP_WAIT_POLICY" not in os.environ:
    # Threads that wait for each other spin for seconds by default, and on a busy machine take the
    # processor from those they wait for: a step of 0.2 s then takes 6. A short spin costs nothing
    # measurable where the machine is quiet.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

_LAZY = {
    "load": "sublayer.loading",
    "from_recipe": "sublayer.runs.run",
    "train": "sublayer.runs.run",
    "compare": "sublayer.study.runner",
}
"""Modules of public functions, imported when one is used: importing torch takes seconds."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'sublayer' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
