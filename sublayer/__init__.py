"""Compose, pre-train, generate with and fairly compare Transformer language models.

``sublayer.train`` and ``sublayer.load`` are functions that share their names with the modules behind them; once such a
module has been imported, it is called in the function's place and does the same.
"""

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sublayer.errors import CheckpointError, ConfigError, DataError, Interrupted, SublayerError, TrainingError

if TYPE_CHECKING:
    from sublayer.load import load
    from sublayer.run import from_recipe, train
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
    # Threads that wait for each other spin for seconds by default, and on a busy machine take the processor from those
    # they wait for: a step of 0.2 s then takes 6. A short spin costs nothing measurable where the machine is quiet.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

_LAZY = {
    "load": "sublayer.load",
    "from_recipe": "sublayer.run",
    "train": "sublayer.run",
    "compare": "sublayer.study.runner",
}
"""Public functions and their modules, which import torch: that takes seconds, so only when one is used."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'sublayer' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return __getattr__(self.__name__.rpartition(".")[2])(*args, **kwargs)


class _Package(ModuleType):
    # Importing `sublayer.train.loop` binds the package `sublayer.train` to the name of the function.
    def __setattr__(self, name: str, value: Any) -> None:
        if name in _LAZY and isinstance(value, ModuleType):
            value.__class__ = _CallableModule
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
