"""A shard's file: its description, and its columns as they are joined."""

import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sublayer.data.arrays import Ints
from sublayer.files.file_text import FileText
from sublayer.files.json_footer import aligned, read_description


class EncodedPart(NamedTuple):
    """What a shard's file holds; starts count from the shard's first token."""

    meta: dict[str, Any]
    ids: bytes
    document_starts: Ints
    sentence_starts: Ints


def read_part(path: Path) -> EncodedPart:
    """Read a shard's file; raise ValueError, KeyError or OSError where it is not whole."""
    meta, n_bytes = read_description(path)
    n_ids = meta["n_tokens"] * np.dtype(meta["dtype"]).itemsize
    text = FileText(path)
    ids = text[:n_ids]
    starts = text[aligned(n_ids) : n_bytes]
    if zlib.crc32(ids) != meta["crc32"] or zlib.crc32(starts) != meta["starts_crc32"]:
        raise ValueError("it is damaged")
    n_documents = meta["n_documents"]
    all_starts: Ints = np.frombuffer(starts, dtype="<i8")
    sentences = all_starts[n_documents + meta["n_sources"] :]
    return EncodedPart(meta, ids, all_starts[:n_documents], sentences)


def is_whole_part(path: Path) -> bool:
    """Return whether a shard was encoded into a file that is whole."""
    try:
        read_part(path)
    except (OSError, ValueError, KeyError):
        return False
    return True
