"""Headers of safetensors files: names, shapes and dtypes, without the values."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from sublayer.errors import CheckpointError

_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


@dataclass(frozen=True)
class Header:
    """A tensor's shape and dtype, as a file says them."""

    shape: list[int]
    dtype: str
    """Its name in safetensors, such as F32 or BF16."""

    @property
    def torch_dtype(self) -> torch.dtype:
        """Return PyTorch's; raise KeyError for what is no floating-point type."""
        return {name: dtype for dtype, name in _DTYPES.items()}[self.dtype]


def is_floating(dtype: str) -> bool:
    """Return whether safetensors has floating-point numbers under a name."""
    return dtype in _DTYPES.values()


def header_of(tensor: Tensor) -> Header:
    """Return what a file would say of a floating-point tensor.

    Raises KeyError for any other dtype: weights have none.
    """
    shape = list(tensor.shape)
    return Header(shape, _DTYPES[tensor.dtype])


def check_names_and_shapes(
    expected: Mapping[str, list[int]], stored: Mapping[str, list[int]], where: Path | str
) -> None:
    """Raise CheckpointError, naming the tensor and both shapes, where names or shapes differ.

    ``expected`` are the model's, ``stored`` those of the file ``where``. Names are checked first:
    of several that differ the first in order is named.
    """
    belongs = f"{where} belongs to another model"
    missing = expected.keys() - stored.keys()
    if missing:
        raise CheckpointError(f"{belongs}: it has no {min(missing)}")
    surplus = stored.keys() - expected.keys()
    if surplus:
        raise CheckpointError(f"{belongs}: this one has no {min(surplus)}")
    for name, shape in expected.items():
        there = stored[name]
        if there != shape:
            raise CheckpointError(f"{belongs}: {name} is {there} there, {shape} here")


def check_headers(
    targets: Mapping[str, Tensor], stored: Mapping[str, Header], where: Path | str
) -> None:
    """Raise CheckpointError, naming the tensor, where names, shapes or dtypes differ.

    ``targets`` are the model's tensors by name, ``stored`` what the file ``where`` says of its own.
    A dtype is not converted: a run continues in the precision that it was saved in.
    """
    expected = {name: header_of(target) for name, target in targets.items()}
    expected_shapes = _shapes(expected)
    stored_shapes = _shapes(stored)
    check_names_and_shapes(expected_shapes, stored_shapes, where)
    for name, header in expected.items():
        dtype = stored[name].dtype
        if dtype != header.dtype:
            raise CheckpointError(f"{where}: {name} is of dtype {dtype} there, {header.dtype} here")


def _shapes(headers: Mapping[str, Header]) -> dict[str, list[int]]:
    return {name: header.shape for name, header in headers.items()}
