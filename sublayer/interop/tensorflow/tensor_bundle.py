"""TensorFlow's checkpoints (format V2, a "tensor bundle"), read without TensorFlow.

Nothing in them is executed. A checkpoint NAME is ``NAME.index``, a sorted string table, and
``NAME.data-00000-of-0000N``, the tensors' bytes. Source:
tensorflow/core/protobuf/tensor_bundle.proto and tensorflow/core/util/tensor_bundle.
"""

from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

from sublayer.errors import CheckpointError
from sublayer.files.storage import open_file
from sublayer.interop.tensorflow.bundle_index import Entry, Index, find_index, read_index
from sublayer.interop.tensorflow.bundle_slices import find_slices, is_slice
from sublayer.interop.tensorflow.crc32c import masked_crc32c


def read_bundle(path: Path) -> dict[str, Tensor]:
    """Read every tensor of a TensorFlow checkpoint by its name there, in the names' order.

    ``path`` is the checkpoint's prefix (``model.ckpt-best``), its index, or a folder with one
    checkpoint, also the one of a SavedModel. Tensors that were partitioned along one axis are
    joined; strings and resources are left out. They are on the CPU, of the types that they have
    there; every checksum is verified.

    Raises CheckpointError, naming the file, where one is missing, damaged, cut short, or of a kind
    that is not read.
    """
    index = read_index(find_index(path))
    _check_shards(index)
    names = [key for key in index.entries if not is_slice(key)]
    return {_decode(index, key): _read_whole(index, key) for key in names}


def _decode(index: Index, key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{index.path} is damaged: a name is not UTF-8: {error}") from None


def _check_shards(index: Index) -> None:
    """Check, before any tensor is read, that no shard is missing or too short for its tensors."""
    last_bytes: Counter[int] = Counter()
    total_bytes: Counter[int] = Counter()
    for entry in index.entries.values():
        if entry.slices:
            continue
        shard = entry.shard
        end = entry.offset_bytes + entry.n_bytes
        last_bytes[shard] = max(last_bytes[shard], end)
        total_bytes[shard] += entry.n_bytes
    for number in sorted(last_bytes):
        path = index.shard(number)
        n_bytes = _file_bytes(index, path)
        # Tensors never share bytes, so that a shard has at least the sum of theirs.
        needed = max(last_bytes[number], total_bytes[number])
        if needed > n_bytes:
            raise CheckpointError(
                f"{path} is cut short: it has {n_bytes} bytes, {index.path.name} needs {needed}"
            )


def _file_bytes(index: Index, path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing, which {index.path.name} promises") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None


def _read_whole(index: Index, key: bytes) -> Tensor:
    entry = index.entries[key]
    if not entry.slices:
        return _read_entry(index, key, entry)
    axis, slice_keys = find_slices(index, key)
    slices = [_read_entry(index, each, index.entries[each]) for each in slice_keys]
    return torch.cat(slices, dim=axis)


def _read_entry(index: Index, key: bytes, entry: Entry) -> Tensor:
    path = index.shard(entry.shard)
    raw = _read_bytes(path, entry)
    checksum = masked_crc32c(raw.numpy())
    if checksum != entry.checksum:
        name = key.decode(errors="replace")
        raise CheckpointError(
            f"{path} is damaged: the checksum of {name!r} is {checksum:#010x}, "
            f"{index.path.name} says {entry.checksum:#010x}"
        )
    # A byte that is neither 0 nor 1 would be no valid bool.
    is_bool = entry.dtype == torch.bool
    values = raw != 0 if is_bool else raw.view(entry.dtype)
    return values.reshape(entry.shape)


def _read_bytes(path: Path, entry: Entry) -> Tensor:
    raw = torch.empty(entry.n_bytes, dtype=torch.uint8)
    try:
        with open_file(path) as file:
            file.seek(entry.offset_bytes)
            n_bytes = file.readinto(raw.numpy().data)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if n_bytes != entry.n_bytes:
        raise CheckpointError(
            f"{path} is cut short: {n_bytes} of {entry.n_bytes} bytes could be read"
        )
    return raw
