"""Files of arrays that end in a JSON description: what is written last makes them valid.

The description carries a checksum of its own, so a file cut short anywhere is told from a whole
one.
"""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any, BinaryIO

from sublayer.files.storage import open_file

_MAGIC = b"SUBLAYER"
_TAIL = struct.Struct("<Q32s8s")
"""What a file ends in: the description's length in bytes, its SHA-256, and the magic word."""


def write_description(file: BinaryIO, meta: dict[str, Any]) -> None:
    """End a file with its description.

    ``file`` stands behind the last of its arrays. Raises TypeError for what JSON cannot hold.
    """
    text = json.dumps(meta).encode()
    digest = hashlib.sha256(text).digest()
    tail = _TAIL.pack(len(text), digest, _MAGIC)
    file.write(text + tail)


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
    actual = hashlib.sha256(text).digest()
    if actual != digest:
        raise ValueError("its description is damaged")
    meta: dict[str, Any] = json.loads(text)
    return meta, n_bytes


def aligned(n_bytes: int) -> int:
    """Round a number of bytes up to a multiple of 8, so that any array may begin there."""
    n_words = -(-n_bytes // 8)  # rounded up
    return n_words * 8
