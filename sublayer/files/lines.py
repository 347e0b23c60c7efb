"""Bytes of files: slices read on access; lines and blocks of plain or compressed files."""

import bz2
import codecs
import gzip
import io
import lzma
import os
import shlex
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from shutil import disk_usage
from typing import IO, Any, overload

from sublayer.errors import DataError, extra_module
from sublayer.files.cache_folder import held_in_cache, lock_of, replacing
from sublayer.files.storage import (
    as_typed,
    describe_absence,
    open_file,
    open_regular,
    sha256_of,
)
from sublayer.system.machine import total_memory

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_KINDS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz", ".zip": "zip"}
PACKED = tuple(name for name in _KINDS if name != ".zip")
"""Suffixes of compressed files, which are decompressed when read."""
PACKED_TABLES = tuple(_KINDS)
"""Suffixes of compressed tables, archives of a single file included."""
_LONGEST_LINE = 256 << 20
_POINTER = b"version https://git-lfs.github.com/spec/"
"""Beginning of a Git LFS pointer, which replaces a file that was not fetched."""
_FEWEST_BYTES = 8
"""Minimum number of bytes to guess an encoding from."""
_UNPACKERS = {".gz": "zcat", ".zst": "zstdcat", ".bz2": "bzcat", ".xz": "xzcat"}
_OPENERS: dict[str, Any] = {
    "gzip": gzip.open,
    "bzip2": bz2.open,
    "xz": lzma.open,
}
_BLOCK_BYTES = 1 << 20
_HELD_LINE_BYTES = 1000
"""Memory overhead in bytes of a line that is kept, such as a row of a table."""
_DAMAGED = (
    *(EOFError, gzip.BadGzipFile, zlib.error, zstd.ZstdError, lzma.LZMAError, zipfile.BadZipFile),
    NotImplementedError,  # an unsupported zip method
)
# `zstd --long=31` needs the maximum window, 2 GiB.
_WINDOW = zstd.DecompressionParameter.window_log_max
_LONGEST_WINDOW: dict[int, int] = {_WINDOW: _WINDOW.bounds()[1]}
_SHOWN_REASON = 200
_BUFFER_BYTES = 1 << 20
"""Number of bytes of a column read at a time, instead of a full row group."""


class FileText:
    """Bytes of a file from ``start`` up to, not including, ``stop``, or to the end.

    Slices are read on access, so that a text of any size takes no memory.

    Raises OSError where the file cannot be opened. A slice raises DataError where the file was
    truncated.
    """

    def __init__(self, path: Path, start: int = 0, stop: int | None = None) -> None:
        self._path = path
        self._start = start
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = open_regular(path, flags)
        end = os.fstat(self._descriptor).st_size if stop is None else stop
        self._n_bytes = end - start

    def __del__(self) -> None:
        """Close the file."""
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def __len__(self) -> int:
        return self._n_bytes

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> bytes: ...

    def __getitem__(self, index: int | slice) -> int | bytes:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._n_bytes)
            assert step == 1, "a slice of a text must have step 1"
            return self._read(start, stop)
        if not -self._n_bytes <= index < self._n_bytes:
            raise IndexError(index)
        start = index % self._n_bytes
        return self._read(start, start + 1)[0]

    def find(self, mark: bytes) -> int:
        """Return the first index of ``mark``, as ``bytes.find`` does; -1 if there is none."""
        n_more = len(mark) - 1
        for start in range(0, self._n_bytes, _BLOCK_BYTES):
            position = self[start : start + _BLOCK_BYTES + n_more].find(mark)
            if position >= 0:
                return start + position
        return -1

    def rfind(self, mark: bytes, start: int, stop: int) -> int:
        """Return the last index of ``mark`` from ``start`` to ``stop``; -1 if there is none."""
        n_more = len(mark) - 1
        while start < stop:
            first = max(start, stop - _BLOCK_BYTES)
            position = self[first:stop].rfind(mark)
            if position >= 0:
                return first + position
            if first == start:
                break
            stop = first + n_more
        return -1

    def _read(self, start: int, stop: int) -> bytes:
        parts = []
        position = start
        os.lseek(self._descriptor, self._start + start, os.SEEK_SET)
        while position < stop:
            part = os.read(self._descriptor, stop - position)
            if not part:
                raise DataError(
                    f"{self._path} became shorter while it was read: run the command again without "
                    "changing it"
                )
            parts.append(part)
            position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def blocks_of(text: bytes | FileText, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Yield a text from ``start`` to ``stop`` in blocks of at most 1 MiB."""
    end = len(text) if stop is None else stop
    for low in range(start, end, _BLOCK_BYTES):
        yield text[low : min(low + _BLOCK_BYTES, end)]


def count_line_ends(text: bytes | FileText, stop: int) -> int:
    """Count the newlines of a text before position ``stop``."""
    return sum(block.count(b"\n") for block in blocks_of(text, 0, stop))


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield lines, ends included, with their numbers from 1.

    By its suffix a file is plain, gzip, zstd, bzip2, xz or a zip archive of one file.

    Raises DataError where the file cannot be read, is damaged or truncated, or has a line of 256
    MiB or more.
    """
    with _opened(path) as file:
        for line, data in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
            if len(data) == _LONGEST_LINE:
                raise DataError(
                    f"{path}, line {line}: longer than the maximum of {_LONGEST_LINE >> 20} MiB"
                )
            yield line, data


def held_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield lines as ``read_lines`` does, for callers that keep all lines in memory.

    Also raises DataError where a compressed file takes more than half of the memory.
    """
    most = _most_bytes() if path.suffix.lower() in _KINDS else sys.maxsize
    held = 0
    for line, data in read_lines(path):
        held += len(data) + _HELD_LINE_BYTES
        if held > most:
            raise DataError(
                f"{path} decompresses to more lines than half of the memory holds, from line "
                f"{line:,} on: decompress it, and divide it into several files"
            )
        yield line, data


def text_lines(path: Path, most: int | None = None) -> list[str]:
    """Return the lines of a file, at most ``most``, as text without line ends.

    Raises DataError as ``held_lines`` and ``decoded`` do.
    """
    lines = islice(held_lines(path), most)
    return [decoded(path, line, data).rstrip("\r\n") for line, data in lines]


def read_start(path: Path, n_bytes: int) -> bytes:
    """Return the first bytes of a file, decompressed; raise DataError as ``read_lines`` does."""
    with _opened(path) as file:
        return file.read(n_bytes)


def check_no_pointer(path: Path, start: bytes) -> None:
    """Raise DataError where a file is a Git LFS pointer."""
    if start.startswith(_POINTER):
        raise DataError(
            f"{path} is a pointer of Git LFS, not the file itself: fetch the file by `git lfs "
            "pull` in its repository"
        )


def wide_encoding(start: bytes) -> str | None:
    """Return the encoding of a text that begins like UTF-16 or UTF-32; otherwise None."""
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # Other data may begin with these bytes; a text has a space, line end or wide punctuation.
        text = start.decode("utf-16", "ignore")
        if set(text) & set(" \r\n\u3000\u3001\u3002") or (text and text.isascii()):
            return "UTF-16"
    # Without a byte order mark: in Latin text every second byte, and no other, is zero.
    if len(start) < _FEWEST_BYTES:
        return None
    even, odd = (part.count(0) / len(part) for part in (start[::2], start[1::2]))
    if odd > 0.8 and even < 0.1:
        return "UTF-16LE"
    return "UTF-16BE" if even > 0.8 and odd < 0.1 else None


def conversion(path: Path, encoding: str, suffix: str | None = None) -> str:
    """Return the command that converts a file, compressed or not, to UTF-8.

    The converted file gets ``suffix``; None keeps the suffix.
    """
    unpacker = _UNPACKERS.get(path.suffix.lower())
    name = path.stem if unpacker else path.name
    target = f"utf8-{name if suffix is None else Path(name).stem + suffix}"
    convert = f"iconv -f {encoding} -t UTF-8"
    source, target = shlex.quote(as_typed(str(path))), shlex.quote(target)
    if unpacker:
        return f"`{unpacker} {source} | {convert} > {target}`"
    return f"`{convert} {source} > {target}`"


def unpacked(path: Path) -> bytes:
    """Decompress a file; raise DataError as ``read_lines`` does, or where memory is too small."""
    remedy = "half of the memory: decompress it into a file, which is read without a copy in memory"
    return b"".join(_within(path, read_blocks(path), _most_bytes(), remedy))


def _within(path: Path, blocks: Iterable[bytes], most: int, remedy: str) -> Iterator[bytes]:
    """Yield blocks of a file; raise DataError, with a remedy, beyond ``most`` bytes."""
    n_bytes = 0
    for block in blocks:
        n_bytes += len(block)
        if n_bytes > most:
            raise DataError(
                f"{path} decompresses to more than {most / (1 << 30):.1f} GiB, {remedy}"
            )
        yield block


def unpack(path: Path, target: Path, *, sha256: str, most_in_memory: int) -> bytes | None:
    """Decompress a file: return up to ``most_in_memory`` bytes, write a larger one to ``target``.

    ``target`` is in the cache; of several processes one writes it, and the others wait.

    Raises DataError as ``read_lines`` does, where the file's hash differs from ``sha256``, where
    the content takes more than half of the free disk space, and where ``target`` cannot be written.
    """
    blocks = read_blocks(path)
    start = io.BytesIO()
    for block in blocks:
        start.write(block)
        if start.tell() > most_in_memory:
            break
    else:
        _check_hash(path, sha256)
        return start.getvalue()
    with held_in_cache(lock_of(target), f"unpacks {path}"):
        if target.is_file():
            return None
        with replacing(target) as file:
            remedy = (
                "half of the free disk space of the cache: set SUBLAYER_CACHE to a folder with "
                "room, or decompress the file yourself"
            )
            most = disk_usage(target.parent).free // 2
            for block in _within(path, chain([start.getvalue()], blocks), most, remedy):
                file.write(block)
            _check_hash(path, sha256)
    return None


def _check_hash(path: Path, sha256: str) -> None:
    if sha256_of(path) != sha256:
        raise changed(path)


def changed(name: Path | str) -> DataError:
    """Build the error for a file that changed while it was read."""
    return DataError(f"{name} changed while it was read: run the command again without changing it")


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield a file in blocks of at most 1 MiB, decompressed; raise as ``read_lines`` does."""
    with _opened(path) as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def decoded(path: Path | str, line: int, text: bytes) -> str:
    """Decode a line, numbered from 1, dropping a byte order mark from the first.

    Raises DataError with file and line where it is not UTF-8.
    """
    if line == 1:
        text = text.removeprefix(codecs.BOM_UTF8)
    encoding = wide_encoding(text) if line == 1 else None
    if encoding is not None and isinstance(path, Path):
        raise DataError(
            f"{path} is encoded as {encoding}, not UTF-8: convert it, as in "
            f"{conversion(path, encoding)}"
        )
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = text[error.start]
        remedy = "convert it to UTF-8"
        if isinstance(path, Path):
            remedy = f"if the file is Latin-1, {conversion(path, 'LATIN1')} converts it"
        raise DataError(f"{path}, line {line}: byte 0x{byte:02x} is not UTF-8: {remedy}") from error


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file by its suffix."""
    kind = _KINDS.get(path.suffix.lower(), "plain")
    with _naming(path, kind), open_file(path) as packed:
        check_no_pointer(path, packed.peek(len(_POINTER)))
        file: IO[bytes] = packed
        if kind in _OPENERS:
            file = _OPENERS[kind](packed)
        elif kind == "zip":
            archive = zipfile.ZipFile(packed)
            file = archive.open(_only_member(archive, path))
        # An empty file has no frames; the library considers it truncated.
        elif kind == "zstd" and packed.peek(1):
            frames: Any = zstd.ZstdFile(packed, options=_LONGEST_WINDOW)
            file = io.BufferedReader(frames)
        with file:
            yield file


@contextmanager
def _naming(path: Path, kind: str) -> Iterator[None]:
    """Raise DataError, with the file, where it is damaged or cannot be read."""
    try:
        yield
    except OSError as error:
        is_damaged = isinstance(error, gzip.BadGzipFile) or (kind, error.errno) == ("bzip2", None)
        if isinstance(error, FileNotFoundError):
            raise DataError(f"{describe_absence(path)}: name another file") from error
        if not is_damaged:
            raise DataError(f"cannot read {path}: {error.strerror or error}") from error
        raise _damaged(path, kind, error) from error
    except _DAMAGED as error:
        raise _damaged(path, kind, error) from error


def _damaged(path: Path, kind: str, error: Exception) -> DataError:
    return DataError(f"{path} is a damaged {kind} file ({error}): fetch or compress it again")


def archived_name(path: Path) -> str:
    """Return the name of the only file of a zip archive.

    Raises DataError where the archive has no file or several, is encrypted, or is not a zip
    archive.
    """
    with _naming(path, "zip"), open_file(path) as file, zipfile.ZipFile(file) as archive:
        return _only_member(archive, path).filename


def suffix_of(path: Path) -> str:
    """Return the lower-case suffix of a file's name, without that of its compression: ``.tsv``."""
    name = path.name.lower()
    for suffix in PACKED_TABLES:
        name = name.removesuffix(suffix)
    if path.suffix.lower() == ".zip" and not Path(name).suffix and path.is_file():
        return Path(archived_name(path).lower()).suffix
    return Path(name).suffix


def _only_member(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    members = [
        member
        for member in archive.infolist()
        if not member.is_dir() and not Path(member.filename).name.startswith(".")
    ]
    if len(members) != 1:
        raise DataError(
            f"{path} has {len(members):,} files, but only an archive of one file is read: unpack "
            "it, and name the file"
        )
    if members[0].flag_bits & 1:
        raise DataError(f"{path} is encrypted: unpack it, and name the file")
    return members[0]


def _most_bytes() -> int:
    # Half of the memory, or of 8 GiB if its size is unknown.
    return (total_memory() or 8 << 30) // 2


@contextmanager
def parquet_file(path: Path) -> Iterator[Any]:
    """Open a Parquet file.

    Raises DataError where pyarrow is not installed or the file is damaged, even while it is read.
    """
    parquet = extra_module("pyarrow.parquet", "Parquet files")
    arrow = import_module("pyarrow")
    with suppress(OSError), path.open("rb") as raw:
        check_no_pointer(path, raw.read(64))
    try:
        with parquet.ParquetFile(path, buffer_size=_BUFFER_BYTES) as file:
            yield file
    except (arrow.ArrowException, OSError, MemoryError, ValueError, OverflowError) as error:
        # pyarrow's error depends on the damage: damaged sizes request more memory than exists, and
        # damaged dates are in years that Python does not support.
        text = str(error) or type(error).__name__
        reason = text.splitlines()[0][:_SHOWN_REASON]
        raise DataError(f"{path} is a damaged Parquet file ({reason}): fetch it again") from error


def python_value(value: Any, path: Path, row: int) -> Any:
    """Convert a Parquet value to Python; raise DataError, with the row, for text not in UTF-8."""
    try:
        return value.as_py()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(
            f"{path}, row {row}: byte 0x{byte:02x} is not UTF-8: write the file again with texts "
            "in UTF-8"
        ) from None
