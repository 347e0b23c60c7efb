"""A shard's file: its description, and its columns as they are joined."""

import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sublayer.data.arrays import Ints
from sublayer.data.shards.text_sum import TextSum
from sublayer.files.file_text import FileText
from sublayer.files.json_footer import aligned, read_description


class EncodedPart(NamedTuple):
    """What a shard's file holds; starts count from the shard's first token."""

    meta: dict[str, Any]
    text: TextSum
    """Of the raw bytes that were encoded."""
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
    return EncodedPart(meta, TextSum(**meta["text"]), ids, all_starts[:n_documents], sentences)


def remove_others(folder: Path) -> int:
    """Remove shards' files that are damaged or of another version; return how many there were."""
    n_removed = 0
    for path in folder.glob("*.shard"):
        try:
            meta, _ = read_description(path)
            is_known = "text" in meta
        except (OSError, ValueError):
            is_known = False
        if not is_known:
            path.unlink(missing_ok=True)
            n_removed += 1
    return n_removed


def is_part_of(path: Path, text: TextSum) -> bool:
    """Return whether a shard of this very text was encoded into a file that is whole."""
    try:
        return read_part(path).text == text
    except (OSError, ValueError, KeyError, TypeError):
        return False
