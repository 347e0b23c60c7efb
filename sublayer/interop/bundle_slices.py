"""Partitioned tensors of a TensorFlow checkpoint: each slice is an entry of its own, under a coded key."""

from sublayer.errors import CheckpointError
from sublayer.interop.bundle_index import Entry, Extents, Index

_START = b"\0"


def is_slice(key: bytes) -> bool:
    """Say whether an entry's key is that of a slice; a tensor's name never starts so."""
    return key.startswith(_START)


def slice_key(name: bytes, extents: Extents) -> bytes:
    """Give the key of a slice: its tensor's name, and the first element and length along each axis.

    Source: EncodeTensorNameSlice in tensorflow/core/util/saved_tensor_slice_util.cc, ordered_code.cc.
    """
    # A byte 255 would be escaped as well, and no name in UTF-8 has one.
    key = _START + name.replace(b"\0", b"\0\xff") + b"\0\x01" + bytes([1, len(extents)])
    for start, length in extents:
        key += _ordered(start) + _ordered(-1 if length is None else length)
    return key


def find_slices(index: Index, name: bytes) -> tuple[int, list[bytes]]:
    """Give the axis along which a tensor was partitioned, and the keys of its slices in their order.

    Raises CheckpointError where the slices do not follow each other along one axis, without gap or overlap.
    """
    whole = index.entries[name]
    if not whole.shape or any(len(extents) != len(whole.shape) for extents in whole.slices):
        raise _refused(index, name, f"they do not have the {len(whole.shape)} axes of the tensor")
    axes = {axis for extents in whole.slices for axis in _cut_axes(whole, extents)}
    if len(axes) > 1:
        raise _refused(index, name, f"they cut the axes {sorted(axes)}")
    axis = axes.pop() if axes else 0
    end, keys = 0, []
    for extents in sorted(whole.slices, key=lambda extents: extents[axis][0]):
        start, length = _resolve(extents[axis], whole.shape[axis])
        piece = index.entries.get(slice_key(name, extents))
        if piece is None or piece.slices:
            raise _refused(index, name, f"the one at element {start} of axis {axis} is missing")
        shape = (*whole.shape[:axis], length, *whole.shape[axis + 1 :])
        if start != end or piece.shape != shape or piece.dtype != whole.dtype:
            raise _refused(index, name, f"the one at element {start} of axis {axis} does not fit to the one before")
        end += length
        keys.append(slice_key(name, extents))
    if end != whole.shape[axis]:
        raise _refused(index, name, f"they end at element {end} of {whole.shape[axis]} of axis {axis}")
    return axis, keys


def _cut_axes(whole: Entry, extents: Extents) -> list[int]:
    return [axis for axis, n in enumerate(whole.shape) if _resolve(extents[axis], n) != (0, n)]


def _resolve(extent: tuple[int, int | None], n: int) -> tuple[int, int]:
    start, length = extent
    return (0, n) if length is None else (start, length)


def _ordered(value: int) -> bytes:
    """Write a signed number so that the bytes sort as the numbers do: as many leading ones as there are bytes."""
    n_bytes = 1
    while not -1 << (7 * n_bytes - 1) <= value < 1 << (7 * n_bytes - 1):
        n_bytes += 1
    header = ((1 << n_bytes) - 1) << (7 * n_bytes)
    return ((value % (1 << 8 * n_bytes)) ^ header).to_bytes(n_bytes, "big")


def _refused(index: Index, name: bytes, reason: str) -> CheckpointError:
    return CheckpointError(
        f"{index.path} holds {name.decode(errors='replace')!r} in slices that cannot be joined: {reason}"
    )
