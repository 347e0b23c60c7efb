"""What a file of tensors says of them before their values are read: names, shapes, dtypes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sublayer.errors import CheckpointError
from sublayer.storage import check_file

_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


@dataclass(frozen=True)
class Header:
    """A tensor's shape, and its dtype by its name in safetensors."""

    shape: list[int]
    dtype: str


def header_of(tensor: Tensor) -> Header:
    """Return what a file would say of a floating-point tensor."""
    return Header(list(tensor.shape), _DTYPES[tensor.dtype])


def read_headers(path: Path) -> dict[str, Header]:
    """Read the headers of a safetensors file. Raises CheckpointError where it is missing or damaged."""
    try:
        check_file(path)
        with safe_open(path, framework="pt") as file:
            parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {name: Header(list(part.get_shape()), part.get_dtype()) for name, part in parts.items()}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None


def check_names_and_shapes(expected: Mapping[str, list[int]], found: Mapping[str, list[int]], where: Path) -> None:
    """Raise CheckpointError, naming the tensor and both shapes, unless names and shapes are the same."""
    if missing := sorted(expected.keys() - found.keys()):
        raise CheckpointError(f"{where} belongs to another model: it has no {missing[0]}")
    if surplus := sorted(found.keys() - expected.keys()):
        raise CheckpointError(f"{where} belongs to another model: this one has no {surplus[0]}")
    for name, shape in expected.items():
        if found[name] != shape:
            raise CheckpointError(f"{where} belongs to another model: {name} is {found[name]} there, {shape} here")


def check_headers(targets: Mapping[str, Tensor], found: Mapping[str, Header], where: Path) -> None:
    """Raise CheckpointError, naming the tensor, unless names, shapes and dtypes are those of ``targets``."""
    expected = {name: header_of(target) for name, target in targets.items()}
    shapes = {name: header.shape for name, header in found.items()}
    check_names_and_shapes({name: header.shape for name, header in expected.items()}, shapes, where)
    for name, header in expected.items():
        if found[name].dtype != header.dtype:
            raise CheckpointError(f"{where}: {name} is of dtype {found[name].dtype} there, {header.dtype} here")
