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
    from sublayer.api.answering import predict
    from sublayer.api.finetuning import finetune
    from sublayer.api.harness import harness_model
    from sublayer.api.inspecting import (
        inspect_layers,
        inspect_paths,
        inspect_splitting,
    )
    from sublayer.api.judging import judge
    from sublayer.api.loading import load
    from sublayer.api.planning import plan
    from sublayer.api.recipes import draw, list_recipes, recipe
    from sublayer.api.run import Run, list_runs, open_run, report
    from sublayer.api.scoring import evaluate
    from sublayer.api.training import compare, train
    from sublayer.api.writing import embed, fill, generate, translate
    from sublayer.runs.run import from_recipe

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
    "compare",
    "draw",
    "embed",
    "evaluate",
    "fill",
    "finetune",
    "from_recipe",
    "generate",
    "harness_model",
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

_LAZY = {
    "load": "sublayer.api.loading",
    "from_recipe": "sublayer.runs.run",
    "Run": "sublayer.api.run",
    "open_run": "sublayer.api.run",
    "train": "sublayer.api.training",
    "compare": "sublayer.api.training",
    "finetune": "sublayer.api.finetuning",
    "evaluate": "sublayer.api.scoring",
    "embed": "sublayer.api.writing",
    "fill": "sublayer.api.writing",
    "generate": "sublayer.api.writing",
    "harness_model": "sublayer.api.harness",
    "inspect_layers": "sublayer.api.inspecting",
    "inspect_paths": "sublayer.api.inspecting",
    "inspect_splitting": "sublayer.api.inspecting",
    "judge": "sublayer.api.judging",
    "predict": "sublayer.api.answering",
    "translate": "sublayer.api.writing",
    "draw": "sublayer.api.recipes",
    "list_recipes": "sublayer.api.recipes",
    "list_runs": "sublayer.api.run",
    "plan": "sublayer.api.planning",
    "recipe": "sublayer.api.recipes",
    "report": "sublayer.api.run",
}
"""Modules of public functions, imported when one is used: importing torch takes seconds."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'sublayer' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
