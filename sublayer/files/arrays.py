"""Arrays of numbers: names for their types; npz, old safetensors and files with a footer.

The footer, a JSON description with a checksum, is written last and makes a file valid: truncated
files are detected.
"""

import hashlib
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from sublayer.errors import SublayerError
from sublayer.files.lines import FileText, blocks_of
from sublayer.files.parsing import parse_json
from sublayer.files.storage import open_file

# Docstrings give shapes in brackets where the code has no jaxtyping: ``[N]``, ``[B, T]``.

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
AnyInts = NDArray[np.integer]
"""Integers of any width: token ids as they are stored."""
TokenIds = NDArray[np.int32]
"""Token ids as tokenizers give them."""
Arrays = Mapping[str, NDArray[np.number[Any]]]

_HEADER = "header"
_SMALLEST = ("uint8", "int8", "uint16", "int16", "uint32", "int32")
"""Types in which integers are stored, in the order in which they are tried."""
_ZIP = b"PK\x03\x04"
"""First bytes of an npz file, which is a zip archive."""
_MAX_UNPACKED = 1 << 30
_LENGTH_BYTES = 8
"""Size of the number with which a safetensors file begins: the length of its JSON header."""
_DAMAGED = (
    *(ValueError, TypeError, KeyError, EOFError, OSError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, SafetensorError),
)


def dump_arrays(arrays: Arrays, header: Mapping[str, Any]) -> bytes:
    """Format arrays as safetensors; integers in the narrowest sufficient type.

    Shapes are kept; integers are read back in the narrow type. ``header`` is any JSON. Raises
    ValueError for a number in it that is not finite.
    """
    packed = {name: np.ascontiguousarray(_narrow(array)) for name, array in arrays.items()}
    return save(packed, metadata={_HEADER: json.dumps(header, allow_nan=False)})


def dump_npz(arrays: Arrays, header: Mapping[str, Any]) -> bytes:
    """Format arrays as a compressed npz file for ``numpy.load``; deterministic bytes.

    Integers are narrowed as in ``dump_arrays``. The array ``header`` is JSON text. Raises
    ValueError for a number in it that is not finite.
    """
    packed: dict[str, Any] = {name: _narrow(array) for name, array in arrays.items()}
    packed[_HEADER] = np.array(json.dumps(header, allow_nan=False))
    file = io.BytesIO()
    # NumPy 2.0 would store its option allow_pickle as an array.
    np.savez_compressed(file, **packed)
    return file.getvalue()


def load_arrays(
    data: bytes, name: str, error: type[SublayerError]
) -> tuple[dict[str, NDArray[np.number[Any]]], Any]:
    """Read the arrays and the header back from either format; errors begin with ``name``.

    Raises ``error`` for damaged bytes, and for arrays of anything but finite numbers.
    """
    header: Any
    arrays: dict[str, NDArray[Any]]
    try:
        if data.startswith(_ZIP):
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                if sum(entry.file_size for entry in file.zip.infolist()) > _MAX_UNPACKED:
                    raise error(f"{name} holds more than {_MAX_UNPACKED:,} bytes")
                arrays = {key: file[key] for key in file.files}
            header = str(arrays.pop(_HEADER, ""))
        else:
            arrays = load(data)
            end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
            entries = parse_json(data[_LENGTH_BYTES:end], name, error)
            header = entries.get("__metadata__", {}).get(_HEADER, "")
    except _DAMAGED as problem:
        raise error(f"{name} is damaged: {problem!s:.200}") from None
    if not header:
        raise error(f"{name} is damaged: it has no header")
    for key, array in arrays.items():
        is_numbers = isinstance(array, np.ndarray) and array.dtype.kind in "iuf"
        if not is_numbers or not np.isfinite(array).all():
            raise error(f"{name}: {key[:60]!r} is not an array of finite numbers")
    return arrays, parse_json(header, f"the header of {name}", error)


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
_CHECKED_BYTES = 256 << 20


class FooterFile:
    """File being written: bytes, columns of numbers, and a final description."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.n_bytes = 0
        self.crc32 = 0
        """CRC-32 of the bytes written before the columns."""

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._file.write(data)
        self.n_bytes += len(data)
        self.crc32 = zlib.crc32(data, self.crc32)

    def write_columns(self, *columns: Iterable[bytes]) -> tuple[list[int], int]:
        """Write columns, aligned to 8 bytes; return their sizes in bytes, and their CRC."""
        self._file.write(b"\0" * (_aligned(self.n_bytes) - self.n_bytes))
        sizes, crc32 = [], 0
        for column in columns:
            sizes.append(0)
            for block in column:
                self._file.write(block)
                sizes[-1] += len(block)
                crc32 = zlib.crc32(block, crc32)
        return sizes, crc32

    def close(self, meta: Mapping[str, Any]) -> None:
        """Write the description, which ends the file."""
        text = json.dumps(meta).encode()
        self._file.write(text + _TAIL.pack(len(text), hashlib.sha256(text).digest(), _MAGIC))


def read_description(path: Path) -> tuple[dict[str, Any], int]:
    """Return a file's description, and the number of bytes before it.

    Arrays are not read. Raises ValueError where the file is truncated or has no footer, or where
    the description differs from its checksum; OSError without a file.
    """
    size = path.stat().st_size
    with open_file(path) as file:
        tail_start = max(0, size - _TAIL.size)
        file.seek(tail_start)
        tail = file.read()
        if len(tail) != _TAIL.size:
            raise ValueError("the file is shorter than a footer's tail")
        length, digest, magic = _TAIL.unpack(tail)
        n_bytes = tail_start - length
        if magic != _MAGIC or n_bytes < 0:
            raise ValueError("the file does not end with a description")
        file.seek(n_bytes)
        text = file.read(length)
    if hashlib.sha256(text).digest() != digest:
        raise ValueError("the description is damaged")
    meta: dict[str, Any] = json.loads(text)
    return meta, n_bytes


def check_bytes(path: Path, start: int, stop: int, crc32: int) -> None:
    """Raise ValueError where bytes of a file, up to 256 MiB, differ from their CRC-32."""
    if stop - start > _CHECKED_BYTES:
        return
    checksum = 0
    for block in blocks_of(FileText(path, start, stop)):
        checksum = zlib.crc32(block, checksum)
    if checksum != crc32:
        raise ValueError("the arrays are damaged")


def read_columns(
    path: Path, n_bytes: int, counts: Sequence[int], stop: int, crc32: int
) -> list[NDArray[np.int64]]:
    """Memory-map the integer columns of a file from ``n_bytes``, aligned, to ``stop``.

    Raises ValueError where the columns have other sizes, or as ``check_bytes`` does.
    """
    first, total = _aligned(n_bytes), sum(counts)
    if first + 8 * total != stop:
        raise ValueError("the columns differ in size from the description")
    check_bytes(path, first, stop, crc32)
    numbers: NDArray[Any] = np.zeros(0, dtype="<i8")  # empty: cannot be mapped
    if total:
        numbers = np.memmap(path, dtype="<i8", mode="r", offset=first, shape=(total,))
    return np.split(numbers.view(np.ndarray), np.cumsum(counts[:-1]))


def _aligned(n_bytes: int) -> int:
    """Round a number of bytes up to a multiple of 8, the alignment of arrays."""
    return -(-n_bytes // 8) * 8
