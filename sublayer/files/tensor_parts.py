"""Tensors in safetensors files: all in one, or in parts that several processes wrote.

A part holds slices of tensors, and says in its header where each begins: as
``torch.distributed.checkpoint`` writes them by its ``HuggingFaceStorageWriter``. Nothing here needs
several processes, or one more than reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from sublayer.errors import CheckpointError
from sublayer.files.parsing import parse_json
from sublayer.files.storage import check_file
from sublayer.files.tensor_headers import Header
from sublayer.files.typed import Count, Typed, check_typed

PART_PATTERN = "shard-*.safetensors"
_OFFSETS = "DCP_SHARDING_INFO"


@dataclass(frozen=True)
class StoredTensors:
    """Where tensors are: in one file or, where there is none, in the parts of a folder."""

    whole: Path
    folder: Path

    def files(self) -> list[Path]:
        """List the files, of parts in their order; the whole one where there is nothing."""
        if self.whole.is_file():
            return [self.whole]
        return sorted(self.folder.glob(PART_PATTERN)) or [self.whole]

    @property
    def is_whole(self) -> bool:
        """Whether one file has all, or nothing is there."""
        return self.files() == [self.whole]


class _Part(Typed):
    """What a file says of a slice in it."""

    saved_offsets: list[Count]


@dataclass(frozen=True)
class _Slice:
    """A piece of a tensor in a file: where it begins, and how far it goes along each axis."""

    file: Path
    starts: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str


def read_stored_headers(stored: StoredTensors) -> dict[str, Header]:
    """Read names, shapes and dtypes of whole tensors; no values are read.

    Raises CheckpointError where parts do not make whole tensors, and what opening a file raises:
    OSError, SafetensorError.
    """
    return {name: _header(name, pieces, stored) for name, pieces in _pieces(stored).items()}


def read_stored(stored: StoredTensors, *, device: str = "cpu") -> dict[str, Tensor]:
    """Read whole tensors, put together where they are in parts.

    Raises what ``read_stored_headers`` does.
    """
    if stored.is_whole:
        check_file(stored.whole)
        return load_file(stored.whole, device=device)
    tensors = {}
    for name, pieces in _pieces(stored).items():
        header = _header(name, pieces, stored)
        value = torch.empty(header.shape, dtype=header.torch_dtype, device=device)
        for piece in pieces:
            ends = [start + length for start, length in zip(piece.starts, piece.shape, strict=True)]
            place = tuple(map(slice, piece.starts, ends))
            with safe_open(piece.file, framework="pt") as file:
                value[place] = file.get_tensor(name)
        tensors[name] = value
    return tensors


def _pieces(stored: StoredTensors) -> dict[str, list[_Slice]]:
    pieces: dict[str, list[_Slice]] = {}
    for path in stored.files():
        check_file(path)
        with safe_open(path, framework="pt") as file:
            offsets = _offsets(file.metadata(), path)
            # The file is no mapping: it has keys, but cannot be iterated over.
            for name in file.keys():  # noqa: SIM118
                part = file.get_slice(name)
                shape = tuple(part.get_shape())
                starts = offsets.get(name, (0,) * len(shape))
                found = _Slice(path, starts, shape, part.get_dtype())
                pieces.setdefault(name, []).append(found)
    return pieces


def _offsets(metadata: Mapping[str, str] | None, path: Path) -> dict[str, tuple[int, ...]]:
    """Return where each slice of a part begins; nothing of a file with whole tensors."""
    text = (metadata or {}).get(_OFFSETS)
    if text is None:
        return {}
    described = parse_json(text, str(path), CheckpointError)
    checked = check_typed(described, dict[str, _Part], str(path), CheckpointError)
    return {name: tuple(each.saved_offsets) for name, each in checked.items()}


def _header(name: str, pieces: list[_Slice], stored: StoredTensors) -> Header:
    """Return the header of a whole tensor; raise CheckpointError where its pieces leave a gap."""
    first = pieces[0]
    shape = [0] * len(first.shape)
    is_alike = True
    n_values = 0
    for piece in pieces:
        is_alike &= len(piece.starts) == len(piece.shape) == len(shape)
        is_alike &= piece.dtype == first.dtype
        if not is_alike:
            break
        n_values += _size(piece.shape)
        ends = [start + length for start, length in zip(piece.starts, piece.shape, strict=True)]
        shape = [max(end, found) for end, found in zip(ends, shape, strict=True)]
    if not is_alike or n_values != _size(shape):
        raise CheckpointError(
            f"{stored.folder} has no whole {name}: a part is missing, or is of another checkpoint"
        )
    return Header(shape, first.dtype)


def _size(shape: tuple[int, ...] | list[int]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size
