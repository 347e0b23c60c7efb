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
    from sublayer.api.checking import check
    from sublayer.api.comparing import compare, judge, plan
    from sublayer.api.finetuning import finetune
    from sublayer.api.inspecting import inspect_layers, inspect_paths, inspect_splitting
    from sublayer.api.recipes import draw, list_recipes, recipe
    from sublayer.api.run import (
        Run,
        export,
        from_recipe,
        import_model,
        list_runs,
        load,
        open_run,
        report,
        train,
    )
    from sublayer.api.scoring import evaluate, harness_model
    from sublayer.api.tokenizing import tokenize
    from sublayer.api.writing import embed, fill, generate, predict, translate

__version__ = "0.1.0"
__all__ = [
    "CheckpointError",
    "ConfigError",
    "DataError",
    "Interrupted",
    "SublayerError",
    "TrainingError",
    "__version__",
    "Run",
    "check",
    "compare",
    "draw",
    "embed",
    "evaluate",
    "export",
    "fill",
    "finetune",
    "from_recipe",
    "generate",
    "harness_model",
    "import_model",
    "inspect_layers",
    "inspect_paths",
    "inspect_splitting",
    "judge",
    "list_recipes",
    "list_runs",
    "load",
    "open_run",
    "plan",
    "predict",
    "recipe",
    "report",
    "tokenize",
    "train",
    "translate",
]

if "OMP_WAIT_POLICY" not in os.environ:
    # Threads that wait for each other spin for seconds by default, and on a busy machine take the
    # processor from those they wait for: a step of 0.2 s then takes 6. A short spin costs nothing
    # measurable where the machine is quiet.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# Of its own parts PyTorch's C++ library warns its developers, in each process: such as of
# parameters that one pass uses and another does not.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

_NAMES = {
    "sublayer.api.checking": ("check",),
    "sublayer.api.comparing": ("compare", "judge", "plan"),
    "sublayer.api.finetuning": ("finetune",),
    "sublayer.api.inspecting": ("inspect_layers", "inspect_paths", "inspect_splitting"),
    "sublayer.api.recipes": ("draw", "list_recipes", "recipe"),
    "sublayer.api.run": (
        *("Run", "export", "from_recipe", "import_model", "list_runs", "load", "open_run"),
        *("report", "train"),
    ),
    "sublayer.api.scoring": ("evaluate", "harness_model"),
    "sublayer.api.tokenizing": ("tokenize",),
    "sublayer.api.writing": ("embed", "fill", "generate", "predict", "translate"),
}
"""Modules of public functions, imported when one is used: importing torch takes seconds."""


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'sublayer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
