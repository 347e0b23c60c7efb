"""Tensors in safetensors files: all in one, or in parts that several processes wrote.

A part holds slices of tensors, and says in its header where each begins: as
``torch.distributed.checkpoint`` writes them by its ``HuggingFaceStorageWriter``. Nothing here needs
several processes, or one more than reads.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from sublayer.counts import count
from sublayer.errors import CheckpointError
from sublayer.files.parsing import parse_json
from sublayer.files.storage import check_file
from sublayer.files.tensor_headers import Header, is_floating
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

    @property
    def described(self) -> str:
        """What errors call it."""
        if self.is_whole:
            return str(self.whole)
        return f"{self.folder}, in {count(len(self.files()), 'part')},"


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
            place = tuple(map(slice, piece.starts, _ends(piece)))
            with safe_open(piece.file, framework="pt") as file:
                value[place] = file.get_tensor(name)
        tensors[name] = value
    return tensors


def _pieces(stored: StoredTensors) -> dict[str, list[_Slice]]:
    pieces: dict[str, list[_Slice]] = {}
    for path in stored.files():
        with _opened(path, stored) as file:
            offsets = _offsets(file.metadata(), path)
            # The file is no mapping: it has keys, but cannot be iterated over.
            for name in file.keys():  # noqa: SIM118
                part = file.get_slice(name)
                shape = tuple(part.get_shape())
                starts = offsets.get(name, (0,) * len(shape))
                found = _Slice(path, starts, shape, part.get_dtype())
                pieces.setdefault(name, []).append(found)
    return pieces


@contextmanager
def _opened(path: Path, stored: StoredTensors) -> Iterator[Any]:
    """Open a file; of several, the error names the one."""
    try:
        check_file(path)
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        if stored.is_whole:
            raise
        raise CheckpointError(f"{path} is damaged or cut short ({error})") from None


def _offsets(metadata: Mapping[str, str] | None, path: Path) -> dict[str, tuple[int, ...]]:
    """Return where each slice of a part begins; nothing of a file with whole tensors."""
    text = (metadata or {}).get(_OFFSETS)
    if text is None:
        return {}
    described = parse_json(text, str(path), CheckpointError)
    checked = check_typed(described, dict[str, _Part], str(path), CheckpointError)
    return {name: tuple(each.saved_offsets) for name, each in checked.items()}


def _header(name: str, pieces: list[_Slice], stored: StoredTensors) -> Header:
    """Return the header of a whole tensor; raise CheckpointError where its pieces make none."""
    first = pieces[0]
    n_axes = len(first.shape)
    is_alike = all(len(each.starts) == len(each.shape) == n_axes for each in pieces)
    is_alike &= all(each.dtype == first.dtype for each in pieces)
    if not is_alike or not _join(pieces):
        raise CheckpointError(
            f"{stored.folder} has no whole {name}: a part is missing, or is of another checkpoint"
        )
    if not is_floating(first.dtype):
        raise CheckpointError(
            f"{first.file} has {name} as {first.dtype}: weights are floating-point numbers"
        )
    return Header([max(ends) for ends in zip(*map(_ends, pieces), strict=True)], first.dtype)


def _join(pieces: list[_Slice]) -> bool:
    """Return whether pieces make a whole: along one axis each begins where one before it ends."""
    wholes = [max(ends) for ends in zip(*map(_ends, pieces), strict=True)]
    divided = [
        axis
        for axis, length in enumerate(wholes)
        if any(each.starts[axis] or each.shape[axis] != length for each in pieces)
    ]
    if not divided:
        return len(pieces) == 1
    axis = divided[0]
    end = 0
    for start, next_end in sorted((each.starts[axis], _ends(each)[axis]) for each in pieces):
        if start != end:
            return False
        end = next_end
    return len(divided) == 1


def _ends(piece: _Slice) -> list[int]:
    return [start + length for start, length in zip(piece.starts, piece.shape, strict=True)]
