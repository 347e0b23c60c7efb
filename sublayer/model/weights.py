"""Weights as a file holds them: made what the program computes in, or refused by the tensor's name."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from sublayer.errors import CheckpointError

_log = logging.getLogger(__name__)

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""What weights are read from."""


def computed_dtype(tensors: Iterable[Tensor]) -> torch.dtype:
    """Choose what weights are computed in: float32, or float64 where every one is."""
    return torch.float64 if all(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32


def usable(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor as ``dtype``. Raises CheckpointError where it holds anything but finite floats."""
    check_float(name, tensor)
    converted = tensor.to(dtype)
    check_finite(name, converted)
    return converted


def usable_weights(tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Return a file's tensors in the one format that the model computes in, and log where that is not theirs.

    Raises CheckpointError, naming the file and the tensor, where one holds anything but finite floats.
    """
    dtype = computed_dtype(tensors.values())
    found = {name: usable(f"{source}: {name}", tensor, dtype) for name, tensor in tensors.items()}
    if (note := describe_conversion(tensors, dtype)) is not None:
        _log.warning("weights of %s: %s", source, note)
    return found


def check_float(name: str, tensor: Tensor) -> None:
    """Raise CheckpointError where a tensor is not of a floating-point format of 16, 32 or 64 bits."""
    if tensor.dtype not in FLOATS:
        raise CheckpointError(f"{name} holds {_short(tensor.dtype)}, not floating-point numbers of 16, 32 or 64 bits")


def check_finite(name: str, tensor: Tensor) -> None:
    """Raise CheckpointError where a tensor holds infinity or what is not a number."""
    if not tensor.numel():
        return
    # One pass without a mask as long as the tensor; what is not a number is both the least and the greatest.
    if not torch.stack(torch.aminmax(tensor.detach())).isfinite().all():
        raise CheckpointError(f"{name} holds numbers that are not finite: its run failed, or the file is damaged")


def describe_conversion(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> str | None:
    """Say in a line how many tensors of which formats become ``dtype``; None where none does."""
    counts = Counter(_short(tensor.dtype) for tensor in tensors.values() if tensor.dtype != dtype)
    if not counts:
        return None
    return f"{' and '.join(f'{n} of {name}' for name, n in sorted(counts.items()))} became {_short(dtype)}"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
