"""Arrays of numbers with a JSON header or footer: npz, small safetensors, and files of blocks.

A footer is written last, and makes a file valid. It carries a checksum of its own, so a file cut
short anywhere is told from a whole one.
"""

import hashlib
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from sublayer.errors import SublayerError
from sublayer.files.parsing import MAX_BYTES, parse_json
from sublayer.files.storage import open_file

Arrays = Mapping[str, NDArray[np.number[Any]]]

_HEADER = "header"
_DTYPES = ("F32", "F64", "U8", "U16", "U32", "U64", "I8", "I16", "I32", "I64")
_SMALLEST = ("uint8", "int8", "uint16", "int16", "uint32", "int32")
"""The types that whole numbers are stored in, in the order in which they are tried."""
_ZIP = b"PK\x03\x04"
"""The first bytes of an npz file, which is a zip archive."""
_MAX_UNPACKED = 1 << 30
_LENGTH_BYTES = 8
"""Of the number that a safetensors file begins with: the length of its JSON header."""


def dump_arrays(arrays: Arrays, header: Mapping[str, Any]) -> bytes:
    """Format arrays as a file; whole numbers take as few bytes as the largest of them needs.

    Arrays keep their shapes; reading them back, whole numbers keep the narrow type. ``header`` is
    any JSON. Raises ValueError for a number in it that is not finite.
    """
    packed = {name: np.ascontiguousarray(_narrow(array)) for name, array in arrays.items()}
    return save(packed, metadata={_HEADER: json.dumps(header, allow_nan=False)})


def dump_npz(arrays: Arrays, header: Mapping[str, Any]) -> bytes:
    """Format arrays as a compressed npz file, which ``numpy.load`` reads; equal ones, equal bytes.

    Whole numbers are narrowed as in ``dump_arrays``. The array ``header`` is JSON text. Raises
    ValueError for a number in it that is not finite.
    """
    packed: dict[str, NDArray[Any]] = {name: _narrow(array) for name, array in arrays.items()}
    packed[_HEADER] = np.array(json.dumps(header, allow_nan=False))
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **packed)
    return file.getvalue()


def load_arrays(
    data: bytes, name: str, error: type[SublayerError]
) -> tuple[dict[str, NDArray[np.number[Any]]], Any]:
    """Read arrays and header back, of either format; ``name`` is the file's, in errors.

    Raises ``error`` where the bytes are damaged, and for arrays of anything but finite numbers.
    """
    load_format = _load_npz if data.startswith(_ZIP) else _load_safetensors
    arrays, header = load_format(data, name, error)
    if header is None:
        raise error(f"{name} has no header of what its arrays are")
    for key, array in arrays.items():
        if not np.isfinite(array).all():
            raise error(f"{name}: {key[:60]!r} has numbers that are not finite")
    content = parse_json(header, f"the header of {name}", error)
    return arrays, content


def _load_npz(
    data: bytes, name: str, error: type[SublayerError]
) -> tuple[dict[str, NDArray[Any]], str | None]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            if sum(entry.file_size for entry in file.zip.infolist()) > _MAX_UNPACKED:
                raise error(f"{name} holds more than {_MAX_UNPACKED:,} bytes")
            arrays = {key: file[key] for key in file.files}
    except (
        *(ValueError, TypeError, KeyError, EOFError, OSError, RuntimeError, MemoryError),
        *(zipfile.BadZipFile, zlib.error),
    ) as problem:
        raise error(f"{name} is damaged: {problem!s:.200}") from None
    header = arrays.pop(_HEADER, None)
    for key, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "iuf":
            raise error(f"{name}: {key[:60]!r} is no array of numbers")
    is_text = isinstance(header, np.ndarray) and header.dtype.kind == "U" and header.ndim == 0
    return arrays, str(header) if is_text else None


def _load_safetensors(
    data: bytes, name: str, error: type[SublayerError]
) -> tuple[dict[str, NDArray[Any]], str | None]:
    entries = _entries(data, name, error)
    metadata = entries.pop("__metadata__", None)
    header = metadata.get(_HEADER) if isinstance(metadata, dict) else None
    for key, entry in entries.items():
        if not isinstance(entry, dict) or entry.get("dtype") not in _DTYPES:
            raise error(f"{name}: {key[:60]!r} is no array of numbers")
    try:
        arrays = load(data)
    except (SafetensorError, ValueError, TypeError, KeyError) as problem:
        raise error(f"{name} is damaged: {problem}") from None
    return arrays, header if isinstance(header, str) else None


def _entries(data: bytes, name: str, error: type[SublayerError]) -> dict[str, Any]:
    """Parse the beginning of a safetensors file: the length of a JSON object, and that object."""
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    n_following = len(data) - _LENGTH_BYTES
    if n_following < 0 or length > min(MAX_BYTES, n_following):
        raise error(f"{name} is damaged: it is no npz or safetensors file")
    end = _LENGTH_BYTES + length
    entries = parse_json(data[_LENGTH_BYTES:end], name, error)
    if not isinstance(entries, dict):
        raise error(f"{name} is damaged: it is no npz or safetensors file")
    return entries


def _narrow(array: NDArray[np.number[Any]]) -> NDArray[np.number[Any]]:
    is_whole = np.issubdtype(array.dtype, np.integer)
    if not is_whole or not array.size:
        return array
    low, high = int(array.min()), int(array.max())
    for dtype in _SMALLEST:
        limits = np.iinfo(dtype)
        if limits.min <= low and high <= limits.max:
            return array.astype(dtype)
    return array


_MAGIC = b"SUBLAYER"
_TAIL = struct.Struct("<Q32s8s")
"""End of a file: the description's length in bytes, its SHA-256, and the magic word."""


def write_description(file: BinaryIO, meta: dict[str, Any]) -> None:
    """End a file with its description.

    ``file`` stands behind the last of its arrays. Raises TypeError for what JSON cannot hold.
    """
    text = json.dumps(meta).encode()
    file.write(text + _TAIL.pack(len(text), hashlib.sha256(text).digest(), _MAGIC))


def read_description(path: Path) -> tuple[dict[str, Any], int]:
    """Return a file's description, and how many bytes stand before it.

    The arrays themselves are not read. Raises ValueError where the file is cut short, ends in
    anything else, or has a description that differs from its checksum; OSError without a file.
    """
    size = path.stat().st_size
    with open_file(path) as file:
        tail_start = max(0, size - _TAIL.size)
        file.seek(tail_start)
        tail = file.read()
        if len(tail) != _TAIL.size:
            raise ValueError("shorter than its tail")
        length, digest, magic = _TAIL.unpack(tail)
        n_bytes = tail_start - length
        if magic != _MAGIC or n_bytes < 0:
            raise ValueError("it does not end in a description")
        file.seek(n_bytes)
        text = file.read(length)
    if hashlib.sha256(text).digest() != digest:
        raise ValueError("its description is damaged")
    meta: dict[str, Any] = json.loads(text)
    return meta, n_bytes


def aligned(n_bytes: int) -> int:
    """Round a number of bytes up to a multiple of 8, so that any array may begin there."""
    return -(-n_bytes // 8) * 8
