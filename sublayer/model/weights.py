"""Checks and conversion of the weights that a file holds, to the type that is computed in."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from sublayer.errors import CheckpointError

_log = logging.getLogger(__name__)

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""The types that weights are read from."""


def computed_dtype(tensors: Iterable[Tensor]) -> torch.dtype:
    """Choose what weights are computed in: float32, or float64 where every one is.

    Weights of 16 bits are widened, which loses nothing.
    """
    are_double = all(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if are_double else torch.float32


def usable(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a tensor to ``dtype``; one that has it already is returned as it is.

    Raises CheckpointError, under ``name``, where it holds anything but finite floats, or numbers
    that are finite no longer in ``dtype``.
    """
    check_float(name, tensor)
    converted = tensor.to(dtype)
    check_finite(name, converted)
    return converted


def usable_weights(tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Convert a file's tensors to the one type that the model computes in, and log what changed.

    The type is that of ``computed_dtype``. ``source`` names the file in messages.

    Raises CheckpointError, naming the file and the tensor, where one holds anything but finite
    floats.
    """
    dtype = computed_dtype(tensors.values())
    weights = {}
    for name, tensor in tensors.items():
        weights[name] = usable(f"{source}: {name}", tensor, dtype)
    note = describe_conversion(tensors, dtype)
    if note is not None:
        _log.warning("weights of %s: %s", source, note)
    return weights


def check_float(name: str, tensor: Tensor) -> None:
    """Raise CheckpointError where a tensor is not of a floating-point type of ``FLOATS``."""
    if tensor.dtype not in FLOATS:
        raise CheckpointError(
            f"{name} holds {_short(tensor.dtype)}, not floating-point numbers of 16, 32 or 64 bits"
        )


def check_finite(name: str, tensor: Tensor) -> None:
    """Raise CheckpointError where a tensor holds infinity or what is not a number.

    ``name`` is what the error calls it. One without elements passes.
    """
    if not tensor.numel():
        return
    # One pass without a mask as long as the tensor; what is not a number is both the least and the
    # greatest.
    extremes = torch.stack(torch.aminmax(tensor.detach()))
    if not extremes.isfinite().all():
        raise CheckpointError(
            f"{name} holds numbers that are not finite: its run failed, or the file is damaged"
        )


def describe_conversion(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> str | None:
    """Format how many tensors of which types become ``dtype``; None where none does.

    As in ``3 of bfloat16 and 2 of float16 became float32``.
    """
    counts: Counter[str] = Counter()
    for tensor in tensors.values():
        if tensor.dtype != dtype:
            counts[_short(tensor.dtype)] += 1
    if not counts:
        return None
    parts = [f"{n} of {name}" for name, n in sorted(counts.items())]
    return f"{' and '.join(parts)} became {_short(dtype)}"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
