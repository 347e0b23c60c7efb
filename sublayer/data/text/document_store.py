"""Many documents in one file of the cache: texts, their ends and their origins.

Records of JSON, Parquet or a hub are parsed and decompressed once, into such a file. A document is
then a number, and reading one costs a slice. No text and no array of the file is held in memory.
"""

import hashlib
import sys
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Self, overload

import numpy as np
from numpy.typing import NDArray

from sublayer.counts import count
from sublayer.data.arrays import Ints
from sublayer.data.text.files import Document, Place, Text
from sublayer.files.cache_folder import held_in_cache, lock_of, replacing
from sublayer.files.file_array import FileArray
from sublayer.files.file_text import FileText
from sublayer.files.json_footer import aligned, read_description, write_description

_CHECKED_BYTES = 256 << 20
_DIGEST_BYTES = 32
_NUMBER_BYTES = 8
_BLOCK_BYTES = 1 << 20

RawDocument = tuple[int, Text]
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
        self._path = path
        self._names = tuple(names)
        self._bounds: list[int] = meta["bounds"]
        self.n_empty: int = meta["n_empty"]
        self.identity: list[Any] = ["records", meta["sha256"]]
        first = aligned(meta["n_bytes"])
        self._n_documents: int = meta["n_documents"]
        n = self._n_documents
        # A stop, a line and a digest for each document.
        n_array_bytes = n * (2 * _NUMBER_BYTES + _DIGEST_BYTES)
        if n_bytes != first + n_array_bytes or len(self._bounds) != len(self._names):
            raise ValueError("its size is not what it describes")
        arrays = FileText(path, first, n_bytes)
        if len(arrays) <= _CHECKED_BYTES and _crc32(arrays) != meta["crc32"]:
            raise ValueError("its arrays are damaged")
        lines_start = first + n * _NUMBER_BYTES
        digests_start = lines_start + n * _NUMBER_BYTES
        self._text = FileText(path, 0, meta["n_bytes"])
        self._stops = FileArray(path, "<i8", first, n)
        self._lines = FileArray(path, "<i8", lines_start, n)
        self._digests = FileArray(path, f"S{_DIGEST_BYTES}", digests_start, n)

    def __len__(self) -> int:
        return self._n_documents

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
        _, start, stop = self.place(index)
        return self._text[start:stop]

    def place(self, index: int) -> Place:
        """Return the packed file, and where in it a document's text begins and ends."""
        # Each document begins where the one before it ends.
        start = int(self._stops[index - 1]) if index else 0
        return self._path, start, int(self._stops[index])

    def digest(self, index: int) -> str:
        """Return the SHA-256 of a document's text."""
        # An array of bytes leaves out zeros at the end.
        digest = bytes(self._digests[index]).ljust(_DIGEST_BYTES, b"\0")
        return digest.hex()

    def digests(self, start: int, stop: int) -> NDArray[np.bytes_]:
        """Return the SHA-256 of the documents from ``start`` to before ``stop``, or to the last."""
        return self._digests.read(start, stop)

    def sizes(self, start: int, stop: int) -> Ints:
        """Return the bytes of the documents from ``start`` to before ``stop``, or to the last."""
        before = self._stops[start - 1] if start else 0
        return np.diff(self._stops.read(start, stop), prepend=before)


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

    def place(self) -> Place:
        return self.records.place(self.index)


def digests_of(documents: Sequence[Document], start: int, stop: int) -> NDArray[np.bytes_]:
    """Return the SHA-256 of documents ``start`` to ``stop``, 32 bytes each.

    They sort as their hexadecimal forms.
    """
    if isinstance(documents, Records):
        return documents.digests(start, stop)
    digests = [bytes.fromhex(document.digest()) for document in documents[start:stop]]
    return np.array(digests, dtype=f"S{_DIGEST_BYTES}")


def sizes_of(documents: Sequence[Document], start: int, stop: int) -> Ints:
    """Return the bytes of documents ``start`` to ``stop``."""
    if isinstance(documents, Records):
        return documents.sizes(start, stop)
    sizes = [len(document.read()) for document in documents[start:stop]]
    return np.array(sizes, dtype=np.int64)


def identity_of(documents: Sequence[Document]) -> list[Any]:
    """Return what identifies documents, as JSON; it is equal only where their texts are."""
    if isinstance(documents, Records):
        return documents.identity
    return [document.digest() for document in documents]


def open_pack(
    path: Path, origins: Sequence[Origin], *, is_distinct: bool = False, keeps_blank: bool = False
) -> Records:
    """Open the packed documents of ``origins``; read and write them where there are none.

    What is damaged is read and written again; of several processes one does, and the others wait.
    ``is_distinct`` keeps of equal documents the first. Documents without text are left out,
    counted, and said on standard error, unless it ``keeps_blank`` ones.

    Raises DataError where one cannot be read or the disk is full.
    """
    names = [name for name, _ in origins]
    try:
        return Records(path, names)
    except (OSError, ValueError, KeyError):
        pass
    with held_in_cache(lock_of(path), f"reads the documents of {_named(names)}"):
        try:
            return Records(path, names)
        except (OSError, ValueError, KeyError):
            _write(path, origins, is_distinct=is_distinct, keeps_blank=keeps_blank)
    return Records(path, names)


def _named(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {count(len(names) - 1, 'other')}"


def _write(path: Path, origins: Sequence[Origin], *, is_distinct: bool, keeps_blank: bool) -> None:
    with replacing(path) as file, _Writer(file, path.parent, is_distinct) as writer:
        bounds = []
        n_empty = 0
        for name, documents in origins:
            n_empty_here = 0
            for line, text in documents():
                if keeps_blank or _has_text(text):
                    writer.add(line, text)
                else:
                    n_empty_here += 1
            bounds.append(writer.n_documents)
            n_empty += n_empty_here
            if n_empty_here:
                note = f"{name}: {count(n_empty_here, 'document')} without text left out\n"
                sys.stderr.write(note)
        writer.finish({"n_empty": n_empty, "bounds": bounds})


def _has_text(text: Text) -> bool:
    return any(block.strip() for block in _blocks(text))


def _blocks(text: Text) -> Iterator[bytes]:
    return (
        text[start : start + _BLOCK_BYTES] for start in range(0, max(1, len(text)), _BLOCK_BYTES)
    )


def _crc32(text: Text) -> int:
    crc = 0
    for block in _blocks(text):
        crc = zlib.crc32(block, crc)
    return crc


class _Writer:
    """Writes texts end to end, then their arrays, which wait in files, and the description."""

    def __init__(self, file: BinaryIO, folder: Path, is_distinct: bool) -> None:
        self.n_documents = 0
        self._file = file
        self._n_bytes = 0
        # The documents' digests tell all that their texts would.
        self._identity = hashlib.sha256()
        self._seen: set[bytes] | None = set() if is_distinct else None
        with ExitStack() as stack:
            # Of stops, lines and digests.
            self._columns: list[BinaryIO] = [
                stack.enter_context(TemporaryFile(dir=folder, prefix=".arrays.")) for _ in range(3)
            ]
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def add(self, line: int, text: Text) -> None:
        hashed = hashlib.sha256()
        for block in _blocks(text):
            hashed.update(block)
        digest = hashed.digest()
        if self._seen is not None:
            if digest in self._seen:
                return
            self._seen.add(digest)
        for block in _blocks(text):
            self._file.write(block)
        self._n_bytes += len(text)
        self.n_documents += 1
        values = (
            self._n_bytes.to_bytes(_NUMBER_BYTES, "little"),
            line.to_bytes(_NUMBER_BYTES, "little"),
            digest,
        )
        for column, value in zip(self._columns, values, strict=True):
            column.write(value)
        self._identity.update(digest)

    def finish(self, counts: dict[str, Any]) -> None:
        padding = aligned(self._n_bytes) - self._n_bytes
        self._file.write(b"\0" * padding)
        crc = 0
        for column in self._columns:
            column.seek(0)
        for block in chain.from_iterable(map(_read_blocks, self._columns)):
            self._file.write(block)
            crc = zlib.crc32(block, crc)
        meta = {
            "n_bytes": self._n_bytes,
            "n_documents": self.n_documents,
            **counts,
            "sha256": self._identity.hexdigest(),
            "crc32": crc,
        }
        write_description(self._file, meta)


def _read_blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK_BYTES):
        yield block
