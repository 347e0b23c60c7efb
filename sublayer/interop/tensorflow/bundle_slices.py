"""Partitioned tensors of a TensorFlow checkpoint: each slice is an entry under a coded key."""

from sublayer.errors import CheckpointError
from sublayer.interop.tensorflow.bundle_index import Entry, Extents, Index

# Each part of a key ends in two bytes, and a zero byte within it is escaped (ordered_code.cc).
_START = b"\0"
_ESCAPED_ZERO = b"\0\xff"
_END = b"\0\x01"


def is_slice(key: bytes) -> bool:
    """Return whether an entry's key is that of a slice; a tensor's name never starts so."""
    return key.startswith(_START)


def slice_key(name: bytes, extents: Extents) -> bytes:
    """Return the key of a slice: its tensor's name, and first element and length along each axis.

    Source: EncodeTensorNameSlice in tensorflow/core/util/saved_tensor_slice_util.cc,
    ordered_code.cc.
    """
    # A byte 255 would be escaped as well, and no name in UTF-8 has one.
    escaped = name.replace(b"\0", _ESCAPED_ZERO)
    n_axes = bytes([1, len(extents)])
    key = _START + escaped + _END + n_axes
    for start, length in extents:
        key += _ordered(start)
        key += _ordered(-1 if length is None else length)
    return key


def find_slices(index: Index, name: bytes) -> tuple[int, list[bytes]]:
    """Return the axis along which a tensor was partitioned, and the keys of its slices in order.

    Raises CheckpointError where the slices do not follow each other along one axis, without gap or
    overlap.
    """
    whole = index.entries[name]
    axis = _partitioned_axis(index, name, whole)
    n_elements = whole.shape[axis]
    end = 0
    keys = []
    for extents in sorted(whole.slices, key=lambda extents: extents[axis][0]):
        start, length = _resolve(extents[axis], n_elements)
        where = f"the one at element {start} of axis {axis}"
        key = slice_key(name, extents)
        piece = index.entries.get(key)
        if piece is None or piece.slices:
            raise _refused(index, name, f"{where} is missing")
        shape = list(whole.shape)
        shape[axis] = length
        is_alike = piece.dtype == whole.dtype and list(piece.shape) == shape
        if start != end or not is_alike:
            raise _refused(index, name, f"{where} does not fit to the one before")
        end += length
        keys.append(key)
    if end != n_elements:
        reason = f"they end at element {end} of {n_elements} of axis {axis}"
        raise _refused(index, name, reason)
    return axis, keys


def _partitioned_axis(index: Index, name: bytes, whole: Entry) -> int:
    n_axes = len(whole.shape)
    axes: set[int] = set()
    has_same_axes = n_axes > 0
    for extents in whole.slices:
        has_same_axes = has_same_axes and len(extents) == n_axes
    if not has_same_axes:
        raise _refused(index, name, f"they do not have the {n_axes} axes of the tensor")
    for extents in whole.slices:
        axes.update(_cut_axes(whole, extents))
    if len(axes) > 1:
        raise _refused(index, name, f"they cut the axes {sorted(axes)}")
    return axes.pop() if axes else 0


def _cut_axes(whole: Entry, extents: Extents) -> list[int]:
    cut = []
    for axis, n_elements in enumerate(whole.shape):
        extent = _resolve(extents[axis], n_elements)
        if extent != (0, n_elements):
            cut.append(axis)
    return cut


def _resolve(extent: tuple[int, int | None], n: int) -> tuple[int, int]:
    start, length = extent
    if length is None:
        return 0, n
    return start, length


def _ordered(value: int) -> bytes:
    """Encode a signed number so that the bytes sort as the numbers do.

    A number of n bytes has n leading ones, inverted where it is negative, and 7n bits.
    """
    n_bytes = 1
    while not _fits(value, n_bits=7 * n_bytes):
        n_bytes += 1
    n_bits = 8 * n_bytes
    leading_ones = (1 << n_bytes) - 1
    header = leading_ones << (7 * n_bytes)
    two_complement = value % (1 << n_bits)
    coded = two_complement ^ header
    return coded.to_bytes(n_bytes, "big")


def _fits(value: int, *, n_bits: int) -> bool:
    bound = 1 << (n_bits - 1)
    return -bound <= value < bound


def _refused(index: Index, name: bytes, reason: str) -> CheckpointError:
    text = name.decode(errors="replace")
    return CheckpointError(f"{index.path} holds {text!r} in slices that cannot be joined: {reason}")
