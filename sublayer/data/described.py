"""Files of arrays that end in a JSON description: what is written last makes them valid.

The description carries a checksum of its own, so a file cut short anywhere is told from a whole one.
"""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any, BinaryIO

_MAGIC = b"SUBLAYER"
_TAIL = struct.Struct("<Q32s8s")


def write_description(file: BinaryIO, meta: dict[str, Any]) -> None:
    """End a file with its description."""
    text = json.dumps(meta).encode()
    file.write(text + _TAIL.pack(len(text), hashlib.sha256(text).digest(), _MAGIC))


def read_description(path: Path) -> tuple[dict[str, Any], int]:
    """Give a file's description and the number of bytes before it. Raises ValueError where there is none."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _TAIL.size))
        tail = file.read()
        if len(tail) != _TAIL.size:
            raise ValueError("shorter than its tail")
        length, digest, magic = _TAIL.unpack(tail)
        if magic != _MAGIC or length + _TAIL.size > size:
            raise ValueError("it does not end in a description")
        n_bytes = size - _TAIL.size - length
        file.seek(n_bytes)
        text = file.read(length)
    if hashlib.sha256(text).digest() != digest:
        raise ValueError("its description is damaged")
    meta: dict[str, Any] = json.loads(text)
    return meta, n_bytes


def aligned(n_bytes: int) -> int:
    """Round a number of bytes up to a multiple of 8."""
    return -(-n_bytes // 8) * 8
