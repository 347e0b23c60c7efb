"""Copy tensors into those of a model, by name."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from sublayer.files.tensor_headers import check_names_and_shapes


def load_into(targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: Path) -> None:
    """Copy ``tensors`` into ``targets`` in place, in the targets' types and on their devices.

    ``where`` is what errors name. Nothing is copied where anything is refused.

    Raises CheckpointError, naming the tensor and both shapes, unless names and shapes are the same.
    """
    check_names_and_shapes(_shapes(targets), _shapes(tensors), where)
    for name, target in targets.items():
        target.detach().copy_(tensors[name])


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, list[int]]:
    shapes = {}
    for name, tensor in tensors.items():
        shapes[name] = list(tensor.shape)
    return shapes
