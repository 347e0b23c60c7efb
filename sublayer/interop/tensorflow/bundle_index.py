"""The index of a TensorFlow checkpoint: what tensors it holds, and in which bytes of which file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch

from sublayer.errors import CheckpointError
from sublayer.files.storage import open_file
from sublayer.interop.tensorflow.protobuf import Message
from sublayer.interop.tensorflow.sorted_table import is_table, read_table

SUFFIX = ".index"
# Numbers of tensorflow/core/framework/types.proto.
_DTYPES = {
    1: torch.float32,
    2: torch.float64,
    3: torch.int32,
    4: torch.uint8,
    9: torch.int64,
    10: torch.bool,
    14: torch.bfloat16,
    19: torch.float16,
}
_SKIPPED = {7: "string", 20: "resource"}
_VERSION = 1
_MAX_DIMS = 64
_MAX_ELEMENTS = 1 << 48
_MAX_BYTES = 16 << 20
"""Far more than an index has, which holds no weights."""

# First element and number of elements along each axis; None takes the whole axis.
Extents = tuple[tuple[int, int | None], ...]


@dataclass(frozen=True)
class Entry:
    """Where a tensor's bytes stand, or of which slices it is made."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    shard: int
    """The number of the file that holds it, from 0."""
    offset_bytes: int
    """Where its bytes begin there."""
    n_bytes: int
    checksum: int
    """The masked CRC-32C of its bytes."""
    slices: tuple[Extents, ...]
    """What each covers, in any order; none of a tensor whose bytes stand together."""


@dataclass(frozen=True)
class Index:
    """The entries of a checkpoint by key, in order; keys of slices start with a zero byte."""

    path: Path
    n_shards: int
    entries: Mapping[bytes, Entry]

    def shard(self, number: int) -> Path:
        """Return the file that holds a shard's bytes, be it there or not; numbers are from 0."""
        prefix = self.path.name.removesuffix(SUFFIX)
        return self.path.with_name(f"{prefix}.data-{number:05d}-of-{self.n_shards:05d}")


def find_index(path: Path) -> Path:
    """Find the index by a checkpoint's prefix, the index itself, or a folder with one checkpoint.

    A SavedModel's folder has its checkpoint in ``variables``. Raises CheckpointError where there is
    none, or several.
    """
    index = path
    if not path.name.endswith(SUFFIX):
        index = Path(f"{path}{SUFFIX}")
    if index.is_file():
        return index
    if path.is_dir():
        return _only_index(path)
    if path.is_file() and is_table(_tail(path)):
        raise CheckpointError(
            f"{path} is a checkpoint in TensorFlow's old format V1, which is not read: "
            "restore it in TensorFlow and save it again "
            "with tf.compat.v1.train.Saver(write_version=SaverDef.V2)"
        )
    raise CheckpointError(
        f"{path} is not a TensorFlow checkpoint: there is no {index.name}; "
        f"name the part of its files' names before {SUFFIX}, or their folder"
    )


def read_index(path: Path) -> Index:
    """Read the index of a checkpoint; strings and resources, which hold no numbers, are left out.

    Raises CheckpointError, naming the file, where it is damaged, or of a kind that cannot be read.
    """
    try:
        with open_file(path) as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES:,} bytes")
        n_shards, entries = _read_entries(data)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    except ValueError as error:
        raise CheckpointError(
            f"{path} cannot be read as a TensorFlow checkpoint's index: {error}"
        ) from None
    return Index(path, n_shards, entries)


def _read_entries(data: bytes) -> tuple[int, dict[bytes, Entry]]:
    """Read the number of shards, from the header under the empty key, and the entries."""
    table = read_table(data)
    first_key, header = next(table, (None, b""))
    if first_key != b"":
        raise ValueError("it has no header")
    n_shards = _read_header(Message(header))
    entries = {}
    for key, value in table:
        entry = _read_entry(key, value, n_shards)
        if entry is not None:
            entries[key] = entry
    return n_shards, entries


def _only_index(folder: Path) -> Path:
    of_saved_model = folder.glob(f"variables/variables{SUFFIX}")
    paths = sorted([*folder.glob(f"*{SUFFIX}"), *of_saved_model])
    if not paths:
        raise CheckpointError(
            f"{folder} has no TensorFlow checkpoint: no file there ends in {SUFFIX}"
        )
    if len(paths) > 1:
        names = ", ".join(str(path.relative_to(folder)) for path in paths)
        raise CheckpointError(f"{folder} has several TensorFlow checkpoints: name one of {names}")
    return paths[0]


def _tail(path: Path) -> bytes:
    try:
        with open_file(path) as file:
            file.seek(max(0, path.stat().st_size - 8))
            return file.read(8)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None


def _read_header(header: Message) -> int:
    """Read a BundleHeaderProto of tensorflow/core/protobuf/tensor_bundle.proto."""
    n_shards = header.integer(1)
    is_big_endian = header.integer(2) != 0
    if is_big_endian:
        raise ValueError("its numbers are big-endian, and only little-endian ones are read")
    if n_shards < 1:
        raise ValueError(f"it has {n_shards} shards")
    for versions in header.messages(3):
        version = versions.integer(2)
        if version > _VERSION:
            raise ValueError(
                f"it is of version {version}, and {_VERSION} is the newest that is read"
            )
    return n_shards


def _read_entry(key: bytes, value: bytes, n_shards: int) -> Entry | None:
    """Read a BundleEntryProto of tensorflow/core/protobuf/tensor_bundle.proto."""
    entry = Message(value)
    name = key.decode(errors="replace")
    kind = entry.integer(1)
    if kind in _SKIPPED:
        return None
    if kind not in _DTYPES:
        raise ValueError(f"{name!r} is of TensorFlow's dtype number {kind}, which is not read")
    shape = tuple(_read_shape(name, entry.messages(2)))
    slices = []
    for piece in entry.messages(7):
        extents = tuple(_read_extents(piece))
        slices.append(extents)
    read = Entry(
        dtype=_DTYPES[kind],
        shape=shape,
        shard=entry.integer(3),
        offset_bytes=entry.integer(4),
        n_bytes=entry.integer(5),
        checksum=entry.integer(6),
        slices=tuple(slices),
    )
    is_in_shard = 0 <= read.shard < n_shards
    if not is_in_shard or min(read.offset_bytes, read.n_bytes) < 0:
        raise ValueError(
            f"{name!r} stands in shard {read.shard} of {n_shards} at byte {read.offset_bytes}"
        )
    n_bytes = prod(shape) * read.dtype.itemsize
    if not slices and read.n_bytes != n_bytes:
        raise ValueError(
            f"{name!r} has {read.n_bytes} bytes, its shape {list(shape)} needs {n_bytes}"
        )
    return read


def _read_shape(name: str, shapes: list[Message]) -> Iterator[int]:
    dims: list[int] = []
    for shape in shapes:
        dims.extend(dim.integer(1) for dim in shape.messages(2))
    has_unknown_rank = any(shape.integer(3) for shape in shapes)
    if has_unknown_rank or min(dims, default=0) < 0:
        raise ValueError(f"the shape of {name!r} is not known")
    # An axis of no elements must not hide how long the others are.
    n_elements = prod(max(dim, 1) for dim in dims)
    if len(dims) > _MAX_DIMS or n_elements >= _MAX_ELEMENTS:
        raise ValueError(f"the shape of {name!r} is too large")
    yield from dims


def _read_extents(piece: Message) -> Iterator[tuple[int, int | None]]:
    """Read a TensorSliceProto of tensorflow/core/framework/tensor_slice.proto."""
    for extent in piece.messages(1):
        length = extent.integer(2) if 2 in extent else None
        yield extent.integer(1), length
