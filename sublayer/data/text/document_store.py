"""Many documents in one memory-mapped file of the cache: texts, their ends and their origins.

Records of JSON, Parquet or a hub are parsed and decompressed once, into such a file. A document is
then a number, and reading one costs a slice.
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
from typing import Any, BinaryIO, overload

import numpy as np
from numpy.typing import NDArray

from sublayer.counts import count
from sublayer.data.arrays import Ints
from sublayer.data.text.files import Document
from sublayer.files.cache_folder import replacing
from sublayer.files.json_footer import aligned, read_description, write_description

_CHECKED_BYTES = 256 << 20
_DIGEST_BYTES = 32
_NUMBER_BYTES = 8

RawDocument = tuple[int, bytes]
"""A document as it is read: the line or row where it begins, from 1, and its text."""
Origin = tuple[str, Callable[[], Iterator[RawDocument]]]
"""A source of documents: its name in messages, and their reader."""


class Records(Sequence[Document]):
    """The documents of a packed file, made when they are accessed.

    ``names`` are the files that they come from, in order. ``n_empty`` counts the documents without
    text, which are left out.

    Raises OSError, ValueError or KeyError where there is no such file or it is damaged; of more
    than 256 MiB of arrays the size alone is checked, and texts never are.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        meta, n_bytes = read_description(path)
        self._names = tuple(names)
        self._bounds: list[int] = meta["bounds"]
        self.n_empty: int = meta["n_empty"]
        self.identity: list[Any] = ["records", meta["sha256"]]
        first = aligned(meta["n_bytes"])
        n = meta["n_documents"]
        # A stop, a line and a digest for each document.
        n_array_bytes = n * (2 * _NUMBER_BYTES + _DIGEST_BYTES)
        if n_bytes != first + n_array_bytes or len(self._bounds) != len(self._names):
            raise ValueError("its size is not what it describes")
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        arrays = memoryview(self._data)[first:n_bytes]
        if len(arrays) <= _CHECKED_BYTES and zlib.crc32(arrays) != meta["crc32"]:
            raise ValueError("its arrays are damaged")
        n_number_bytes = _NUMBER_BYTES * n
        digests_start = 2 * n_number_bytes
        stops = arrays[:n_number_bytes]
        lines = arrays[n_number_bytes:digests_start]
        digests = arrays[digests_start:]
        self._stops: Ints = np.frombuffer(stops, dtype="<i8")
        self._lines: Ints = np.frombuffer(lines, dtype="<i8")
        self.digests: NDArray[np.bytes_] = np.frombuffer(digests, dtype=f"S{_DIGEST_BYTES}")

    def __len__(self) -> int:
        return len(self._stops)

    @overload
    def __getitem__(self, index: int) -> Document: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Document]: ...

    def __getitem__(self, index: int | slice) -> Document | Sequence[Document]:
        n_documents = len(self)
        if isinstance(index, slice):
            numbers = range(*index.indices(n_documents))
            return [_Record(self, number) for number in numbers]
        if not -n_documents <= index < n_documents:
            raise IndexError(index)
        return _Record(self, index % n_documents)

    def name(self, index: int) -> str:
        """Return a document's file and line, for messages."""
        number = bisect_right(self._bounds, index)
        name = self._names[number]
        line = self._lines[index]
        return f"{name}, document at line {line}"

    def text(self, index: int) -> bytes:
        """Return a document's text."""
        # Each document begins where the one before it ends.
        start = int(self._stops[index - 1]) if index else 0
        stop = int(self._stops[index])
        return self._data[start:stop]

    def digest(self, index: int) -> str:
        """Return the SHA-256 of a document's text."""
        # An array of bytes leaves out zeros at the end.
        digest = bytes(self.digests[index]).ljust(_DIGEST_BYTES, b"\0")
        return digest.hex()


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
    """Return the SHA-256 of each document, 32 bytes each; they sort as their hexadecimal forms."""
    if isinstance(documents, Records):
        return documents.digests
    digests = [bytes.fromhex(document.digest()) for document in documents]
    return np.array(digests, dtype=f"S{_DIGEST_BYTES}")


def identity_of(documents: Sequence[Document]) -> list[Any]:
    """Return what identifies documents, as JSON; it is equal only where their texts are."""
    if isinstance(documents, Records):
        return documents.identity
    return [document.digest() for document in documents]


def open_pack(
    path: Path, origins: Sequence[Origin], *, is_distinct: bool = False, keeps_blank: bool = False
) -> Records:
    """Open the packed documents of ``origins``; read and write them where there are none.

    What is damaged is read and written again. ``is_distinct`` keeps of equal documents the first.
    Documents without text are left out, counted, and said on standard error, unless it
    ``keeps_blank`` ones.

    Raises DataError where one cannot be read or the disk is full.
    """
    names = [name for name, _ in origins]
    try:
        return Records(path, names)
    except (OSError, ValueError, KeyError):
        _write(path, origins, is_distinct=is_distinct, keeps_blank=keeps_blank)
    return Records(path, names)


def _write(path: Path, origins: Sequence[Origin], *, is_distinct: bool, keeps_blank: bool) -> None:
    with replacing(path) as file:
        writer = _Writer(file, is_distinct)
        bounds = []
        n_empty = 0
        for name, documents in origins:
            n_empty_here = 0
            for line, text in documents():
                if keeps_blank or text.strip():
                    writer.add(line, text)
                else:
                    n_empty_here += 1
            bounds.append(len(writer.stops))
            n_empty += n_empty_here
            if n_empty_here:
                note = f"{name}: {count(n_empty_here, 'document')} without text left out\n"
                sys.stderr.write(note)
        writer.finish({"n_empty": n_empty, "bounds": bounds})


class _Writer:
    """Writes texts end to end, then their arrays and the description."""

    def __init__(self, file: BinaryIO, is_distinct: bool) -> None:
        self.stops = array("q")
        self._lines = array("q")
        self._file = file
        self._n_bytes = 0
        self._digests = bytearray()
        self._seen: set[bytes] | None = set() if is_distinct else None

    def add(self, line: int, text: bytes) -> None:
        digest = hashlib.sha256(text).digest()
        if self._seen is not None:
            if digest in self._seen:
                return
            self._seen.add(digest)
        self._file.write(text)
        self._n_bytes += len(text)
        self.stops.append(self._n_bytes)
        self._lines.append(line)
        self._digests += digest

    def finish(self, counts: dict[str, Any]) -> None:
        padding = aligned(self._n_bytes) - self._n_bytes
        self._file.write(b"\0" * padding)
        numbers = np.array([self.stops, self._lines], dtype="<i8")
        arrays = numbers.tobytes() + bytes(self._digests)
        self._file.write(arrays)
        # The documents' digests tell all that their texts would.
        identity = hashlib.sha256(self._digests)
        meta = {
            "n_bytes": self._n_bytes,
            "n_documents": len(self.stops),
            **counts,
            "sha256": identity.hexdigest(),
            "crc32": zlib.crc32(arrays),
        }
        write_description(self._file, meta)
