"""Tensors in safetensors files: headers, and parts written by several processes.

A part holds slices of tensors, with their offsets in its header, as written by the
``HuggingFaceStorageWriter`` of ``torch.distributed.checkpoint``. A single process can read the
parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from sublayer.errors import CheckpointError
from sublayer.files.parsing import Count, Typed, check_typed, parse_json
from sublayer.files.storage import check_file
from sublayer.numbers import count

_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


@dataclass(frozen=True)
class Header:
    """Shape and dtype of a tensor in a file."""

    shape: list[int]
    dtype: str
    """Name of the dtype in safetensors, such as F32 or BF16."""

    @property
    def torch_dtype(self) -> torch.dtype:
        """Return PyTorch's dtype; raise KeyError unless it is a floating-point type."""
        return {name: dtype for dtype, name in _DTYPES.items()}[self.dtype]


def header_of(tensor: Tensor) -> Header:
    """Return the file header of a floating-point tensor.

    Raises KeyError for any other dtype.
    """
    return Header(list(tensor.shape), _DTYPES[tensor.dtype])


def check_names_and_shapes(
    expected: Mapping[str, list[int]], stored: Mapping[str, list[int]], where: Path | str
) -> None:
    """Raise CheckpointError, naming the tensor and both shapes, where names or shapes differ.

    ``expected`` are the model's shapes, ``stored`` those of the file ``where``. Names are checked
    first; the error names the first tensor in order.
    """
    belongs = f"{where} belongs to another model"
    if missing := expected.keys() - stored.keys():
        raise CheckpointError(f"{belongs}: it has no {min(missing)}")
    if surplus := stored.keys() - expected.keys():
        raise CheckpointError(f"{belongs}: this one has no {min(surplus)}")
    for name, shape in expected.items():
        if stored[name] != shape:
            raise CheckpointError(
                f"{belongs}: {name} has the shape {stored[name]} there, {shape} here"
            )


def check_headers(
    targets: Mapping[str, Tensor], stored: Mapping[str, Header], where: Path | str
) -> None:
    """Raise CheckpointError, naming the tensor, where names, shapes or dtypes differ.

    ``targets`` are the model's tensors by name, ``stored`` the headers of the file ``where``.
    Dtypes are not converted, since a run resumes in its saved precision.
    """
    expected = {name: header_of(target) for name, target in targets.items()}
    shapes, stored_shapes = (
        {name: header.shape for name, header in some.items()} for some in (expected, stored)
    )
    check_names_and_shapes(shapes, stored_shapes, where)
    for name, header in expected.items():
        dtype = stored[name].dtype
        if dtype != header.dtype:
            raise CheckpointError(f"{where}: {name} is of dtype {dtype} there, {header.dtype} here")


PART_PATTERN = "shard-*.safetensors"
_OFFSETS = "DCP_SHARDING_INFO"


class _SliceEntry(Typed):
    """Description of a slice in a file."""

    saved_offsets: list[Count]


@dataclass(frozen=True)
class _Slice:
    """Slice of a tensor in a file: offset and length along each axis."""

    file: Path
    starts: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str

    @property
    def ends(self) -> list[int]:
        """Position after the slice along each axis."""
        return [start + length for start, length in zip(self.starts, self.shape, strict=True)]


@dataclass(frozen=True)
class StoredTensors:
    """Stored tensors, in a single file or else in the parts of a folder."""

    whole: Path
    folder: Path

    def files(self) -> list[Path]:
        """List the files, parts in order; the single file if nothing exists."""
        if self.whole.is_file():
            return [self.whole]
        return sorted(self.folder.glob(PART_PATTERN)) or [self.whole]

    @property
    def is_whole(self) -> bool:
        """Return whether the tensors are in a single file, or nothing exists."""
        return self.files() == [self.whole]

    @property
    def described(self) -> str:
        """Name in errors."""
        if self.is_whole:
            return str(self.whole)
        return f"{self.folder}, in {count(len(self.files()), 'part')},"

    def headers(self) -> dict[str, Header]:
        """Read names, shapes and dtypes of full tensors, without their values.

        Raises CheckpointError where parts do not form full tensors; OSError and SafetensorError
        where a file cannot be opened.
        """
        return {name: self._header(name, pieces) for name, pieces in self._pieces().items()}

    def read(self, *, device: str = "cpu") -> dict[str, Tensor]:
        """Read full tensors, joined from their parts.

        Raises the errors of ``headers``.
        """
        if self.is_whole:
            check_file(self.whole)
            return load_file(self.whole, device=device)
        tensors = {}
        for name, pieces in self._pieces().items():
            header = self._header(name, pieces)
            value = torch.empty(header.shape, dtype=header.torch_dtype, device=device)
            for piece in pieces:
                region = tuple(map(slice, piece.starts, piece.ends))
                with safe_open(piece.file, framework="pt") as file:
                    value[region] = file.get_tensor(name)
            tensors[name] = value
        return tensors

    def _pieces(self) -> dict[str, list[_Slice]]:
        pieces: dict[str, list[_Slice]] = {}
        for path in self.files():
            try:
                check_file(path)
                with safe_open(path, framework="pt") as file:
                    # Offset of each slice of a part; empty in a file of full tensors.
                    text = (file.metadata() or {}).get(_OFFSETS, "{}")
                    described = parse_json(text, str(path), CheckpointError)
                    offsets = check_typed(
                        described, dict[str, _SliceEntry], str(path), CheckpointError
                    )
                    # The file has keys, but cannot be iterated over.
                    for name in file.keys():  # noqa: SIM118
                        part = file.get_slice(name)
                        shape = tuple(part.get_shape())
                        starts = (
                            offsets[name].saved_offsets if name in offsets else [0] * len(shape)
                        )
                        piece = _Slice(path, tuple(starts), shape, part.get_dtype())
                        pieces.setdefault(name, []).append(piece)
            except (OSError, SafetensorError) as error:
                if self.is_whole:
                    raise
                # The error names the damaged file among several.
                raise CheckpointError(f"{path} is damaged or truncated ({error})") from None
        return pieces

    def _header(self, name: str, pieces: list[_Slice]) -> Header:
        """Return the header of a full tensor; raise CheckpointError if pieces are missing."""
        first = pieces[0]
        n_axes = len(first.shape)
        is_alike = all(
            len(piece.starts) == len(piece.shape) == n_axes and piece.dtype == first.dtype
            for piece in pieces
        )
        if not is_alike or not _join(pieces):
            raise CheckpointError(
                f"{self.folder} lacks a piece of {name}: a part is missing, or belongs to another "
                "checkpoint"
            )
        if first.dtype not in _DTYPES.values():
            raise CheckpointError(
                f"{first.file} has {name} as {first.dtype}: weights must be floating-point numbers"
            )
        return Header(_whole(pieces), first.dtype)


def _whole(pieces: list[_Slice]) -> list[int]:
    return [max(ends) for ends in zip(*(piece.ends for piece in pieces), strict=True)]


def _join(pieces: list[_Slice]) -> bool:
    """Check whether pieces cover a tensor, contiguous along one axis."""
    divided = [
        axis
        for axis, length in enumerate(_whole(pieces))
        if any(piece.starts[axis] or piece.shape[axis] != length for piece in pieces)
    ]
    if len(divided) != 1:
        return not divided and len(pieces) == 1
    edges = sorted((piece.starts[divided[0]], piece.ends[divided[0]]) for piece in pieces)
    starts, ends = zip(*edges, strict=True)
    return starts == (0, *ends[:-1])
