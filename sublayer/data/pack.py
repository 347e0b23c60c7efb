"""Many documents in one file of the cache: texts end to end, mapped, with where each stops and what it is.

Records of JSON, Parquet or a hub are parsed and decompressed once, into such a file. A document is then a number, and
reading one costs a slice.
"""

import hashlib
import mmap
import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from sublayer.data.cache import replacing
from sublayer.data.described import aligned, read_description, write_description
from sublayer.data.text import Document

_CHECKED_BYTES = 256 << 20
_DIGEST_BYTES = 32

Found = tuple[int, bytes]
"""A document as it is found: the line or row where it begins, from 1, and its text."""
Origin = tuple[str, Callable[[], Iterator[Found]]]
"""What holds documents: its name in messages, and how they are read."""


class Records(Sequence[Document]):
    """The documents of a pack, made when they are asked for; ``names`` are what holds them, in order.

    ``n_empty`` counts the documents without text, which are left out.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        meta, n_bytes = read_description(path)
        self._names = tuple(names)
        self._bounds: list[int] = meta["bounds"]
        self.n_empty: int = meta["n_empty"]
        self.identity: list[Any] = ["records", meta["sha256"]]
        first, n = aligned(meta["n_bytes"]), meta["n_documents"]
        if first + n * (16 + _DIGEST_BYTES) != n_bytes or len(self._bounds) != len(self._names):
            raise ValueError("its size is not what it describes")
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        arrays = memoryview(self._data)[first:n_bytes]
        if len(arrays) <= _CHECKED_BYTES and zlib.crc32(arrays) != meta["crc32"]:
            raise ValueError("its arrays are damaged")
        self._stops: NDArray[np.int64] = np.frombuffer(arrays[: 8 * n], dtype="<i8")
        self._lines: NDArray[np.int64] = np.frombuffer(arrays[8 * n : 16 * n], dtype="<i8")
        self.digests: NDArray[np.bytes_] = np.frombuffer(arrays[16 * n :], dtype=f"S{_DIGEST_BYTES}")

    def __len__(self) -> int:
        return len(self._stops)

    @overload
    def __getitem__(self, index: int) -> Document: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Document]: ...

    def __getitem__(self, index: int | slice) -> Document | Sequence[Document]:
        if isinstance(index, slice):
            return [_Record(self, each) for each in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return _Record(self, index % len(self))

    def name(self, index: int) -> str:
        """Say where a document was found."""
        return f"{self._names[bisect_right(self._bounds, index)]}, document at line {self._lines[index]}"

    def text(self, index: int) -> bytes:
        """Give a document's text."""
        start = int(self._stops[index - 1]) if index else 0
        return self._data[start : int(self._stops[index])]

    def digest(self, index: int) -> str:
        """Give the SHA-256 of a document's text."""
        return bytes(self.digests[index]).ljust(_DIGEST_BYTES, b"\0").hex()


@dataclass(frozen=True, slots=True)
class _Record:
    records: Records
    index: int

    @property
    def name(self) -> str:
        return self.records.name(self.index)

    def read(self) -> bytes:
        return self.records.text(self.index)

    def digest(self) -> str:
        return self.records.digest(self.index)


def digests_of(documents: Sequence[Document]) -> NDArray[np.bytes_]:
    """Give the SHA-256 of each document, 32 bytes each; in order they sort as their hexadecimal forms do."""
    if isinstance(documents, Records):
        return documents.digests
    found = [bytes.fromhex(document.digest()) for document in documents]
    return np.array(found, dtype=f"S{_DIGEST_BYTES}")


def identity_of(documents: Sequence[Document]) -> list[Any]:
    """Say what documents are made of: JSON."""
    if isinstance(documents, Records):
        return documents.identity
    return [document.digest() for document in documents]


def open_pack(
    path: Path, origins: Sequence[Origin], *, is_distinct: bool = False, keeps_blank: bool = False
) -> Records:
    """Open the pack of what ``origins`` hold; where there is none, or a damaged one, read them and write it.

    ``is_distinct`` keeps of equal documents the first. Documents without text are left out, counted, and said on
    standard error, unless it ``keeps_blank`` ones.

    Raises DataError where one cannot be read or the disk is full.
    """
    names = [name for name, _ in origins]
    try:
        return Records(path, names)
    except (OSError, ValueError, KeyError):
        _write(path, origins, is_distinct=is_distinct, keeps_blank=keeps_blank)
    return Records(path, names)


def _write(path: Path, origins: Sequence[Origin], *, is_distinct: bool, keeps_blank: bool) -> None:
    stops, lines, bounds, n_empty, n_bytes = array("q"), array("q"), [], 0, 0
    digests = bytearray()
    seen: set[bytes] = set()
    with replacing(path) as file:
        for name, documents in origins:
            n_here = 0
            for line, text in documents():
                if not keeps_blank and not text.strip():
                    n_here += 1
                    continue
                digest = hashlib.sha256(text).digest()
                if is_distinct and digest in seen:
                    continue
                seen.update([digest] if is_distinct else ())
                file.write(text)
                n_bytes += len(text)
                stops.append(n_bytes)
                lines.append(line)
                digests += digest
            bounds.append(len(stops))
            n_empty += n_here
            if n_here:
                sys.stderr.write(f"{name}: {n_here:,} document(s) without text are left out\n")
        file.write(b"\0" * (aligned(n_bytes) - n_bytes))
        arrays = np.array([stops, lines], dtype="<i8").tobytes() + bytes(digests)
        file.write(arrays)
        meta = {"n_bytes": n_bytes, "n_documents": len(stops), "n_empty": n_empty, "bounds": bounds}
        sums = {"sha256": hashlib.sha256(digests).hexdigest(), "crc32": zlib.crc32(arrays)}
        write_description(file, meta | sums)
