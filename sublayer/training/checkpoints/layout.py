"""What a checkpoint holds of model and training, and where."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from sublayer.files.tensor_headers import Header
from sublayer.files.tensor_parts import StoredTensors
from sublayer.model.model_folder import stored_weights
from sublayer.objective.base import Objective
from sublayer.training.processes.alone import Owner

CHECKPOINTS = "checkpoints"
"""The folder of checkpoints in a run's."""
TRAINING = "training.safetensors"
"""What training needs beside the model, in a checkpoint: the optimizer's state and heads."""
TRAINING_PARTS = "training"
"""The folder of the parts of that, where each process has written its own."""
MODEL = "model"
"""The model in a checkpoint, a folder that is a model by itself."""
_HEAD = "head/"
"""What the names of heads begin with there, unlike those of the optimizer's state."""

Saved = TypeVar("Saved", Tensor, Header)


def heads_to_save(objective: Objective) -> dict[str, Tensor]:
    """Return what training needs beside the model and the optimizer's state, by its saved name."""
    return {f"{_HEAD}{name}": value.detach() for name, value in objective.training_only().items()}


def split_heads(saved: Mapping[str, Saved]) -> tuple[dict[str, Saved], dict[str, Saved]]:
    """Split what training saves beside the model into heads and the optimizer's state."""
    heads = {}
    state = {}
    for name, value in saved.items():
        if name.startswith(_HEAD):
            heads[name] = value
        else:
            state[name] = value
    return heads, state


def owner_of_weight(name: str) -> Owner:
    """Return the parameter of the objective that a weight of the model is."""
    return Owner(f"model.{name}")


def owner_of_state(name: str) -> Owner:
    """Return the parameter that a head is, or that a state of the optimizer is of."""
    state, _, parameter = name.partition("/")
    return Owner(parameter) if name.startswith(_HEAD) else Owner(parameter, state)


def stored_model(checkpoint: Path) -> StoredTensors:
    """Return where a checkpoint has the model's weights."""
    return stored_weights(checkpoint / MODEL)


def stored_training(checkpoint: Path) -> StoredTensors:
    """Return where a checkpoint has what training needs beside the model."""
    return StoredTensors(checkpoint / TRAINING, checkpoint / TRAINING_PARTS)
