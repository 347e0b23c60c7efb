"""Plain, gzip and zstd files, decompressed while they are read: by line, or whole within memory."""

import codecs
import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from shutil import disk_usage
from typing import IO, TYPE_CHECKING, cast

import zstandard

from sublayer.errors import DataError
from sublayer.files.cache_folder import held_in_cache, lock_of, replacing
from sublayer.system.memory import total_memory

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

_LONGEST_WINDOW = 1 << 31
_LONGEST_LINE = 256 << 20
_BLOCK_BYTES = 1 << 20
# Packed bytes taken at once, which may become thirty thousand times as many.
_PACKED_BYTES = 1 << 13


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number, from 1, its end included.

    Files are plain, gzip or zstd, by their suffix.

    Raises DataError where the file cannot be read, is damaged or truncated, or has a line of 256
    MiB or more.
    """
    with _opened(path) as file:
        lines = iter(lambda: file.readline(_LONGEST_LINE), b"")
        for line, data in enumerate(lines, 1):
            if len(data) == _LONGEST_LINE:
                raise DataError(
                    f"{path}, line {line}: longer than {_LONGEST_LINE >> 20} MiB, which no line is"
                )
            yield line, data


def read_start(path: Path, n_bytes: int) -> bytes:
    """Return the first bytes of a file, decompressed; raise DataError as ``read_lines`` does."""
    with _opened(path) as file:
        return file.read(n_bytes)


def unpacked(path: Path) -> bytes:
    """Decompress a file; raise DataError as ``read_lines`` does, or where memory cannot hold it."""
    most = _most_bytes()
    whole = io.BytesIO()
    for block in _blocks(path):
        whole.write(block)
        if whole.tell() > most:
            raise DataError(
                f"{path} becomes more than {most / (1 << 30):.1f} GiB, "
                "half of the memory here: decompress it into a file, "
                "which is read without a copy in memory"
            )
    return whole.getvalue()


def unpack(path: Path, target: Path, *, sha256: str, most_in_memory: int) -> bytes | None:
    """Decompress a file: return what is no more than ``most_in_memory``, else write ``target``.

    ``target`` is of the cache. Of several processes one writes it, and the others wait.

    Raises DataError as ``read_lines`` does, where the file has another hash than ``sha256``, and
    where it becomes more than half of what is free beside ``target``, or that cannot be written.
    """
    packed = hashlib.sha256()
    blocks = _blocks(path, packed.update)
    start = io.BytesIO()
    for block in blocks:
        start.write(block)
        if start.tell() > most_in_memory:
            break
    else:
        if packed.hexdigest() != sha256:
            raise changed(path)
        return start.getvalue()
    with held_in_cache(lock_of(target), f"unpacks {path}"):
        if target.is_file():
            return None
        with replacing(target) as file:
            most = _most_on_disk(target.parent)
            for block in chain([start.getvalue()], blocks):
                file.write(block)
                if file.tell() > most:
                    raise DataError(
                        f"{path} becomes more than {most / (1 << 30):.1f} GiB, half of what is "
                        "free in the cache: set SUBLAYER_CACHE to a folder with room, or "
                        "decompress it yourself"
                    )
            if packed.hexdigest() != sha256:
                raise changed(path)
    return None


def changed(name: Path | str) -> DataError:
    """Build the error of a file that is another one than when reading it began."""
    return DataError(
        f"{name} changed while it was read: leave it as it is, and run the command again"
    )


def _blocks(path: Path, hear: Callable[[bytes], None] | None = None) -> Iterator[bytes]:
    with _opened(path, hear) as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def decoded(path: Path | str, line: int, text: bytes) -> str:
    """Decode a line, numbered from 1, without a byte order mark before the first.

    Raises DataError with file and line where it is not UTF-8.
    """
    if line == 1:
        text = text.removeprefix(codecs.BOM_UTF8)
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {line}: byte 0x{text[error.start]:02x} is not UTF-8: mend or convert it"
        ) from error


@contextmanager
def _opened(path: Path, hear: Callable[[bytes], None] | None = None) -> Iterator[IO[bytes]]:
    """Open a file by its suffix; ``hear`` is given what is read of it, packed as it is."""
    kind = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix.lower(), "plain")
    try:
        with _Heard(path, hear) as stored, _reader(stored, kind) as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise DataError(
            f"{path} is damaged {kind} ({error}): fetch or compress it again"
        ) from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def _reader(stored: "_Heard", kind: str) -> IO[bytes]:
    if kind == "gzip":
        return cast(IO[bytes], gzip.open(stored))
    if kind == "zstd":
        return cast(IO[bytes], io.BufferedReader(_Zstd(stored)))
    return io.BufferedReader(stored)


def _most_bytes() -> int:
    # Half of the memory; where the system does not say how much there is, half of 8 GiB.
    return (total_memory() or 8 << 30) // 2


def _most_on_disk(folder: Path) -> int:
    return disk_usage(folder).free // 2


class _Heard(io.FileIO):
    """A file, whose bytes are heard as they are read."""

    def __init__(self, path: Path, hear: Callable[[bytes], None] | None) -> None:
        super().__init__(path)
        self._hear = hear

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if self._hear is not None:
            self._hear(data)
        return data

    def readinto(self, buffer: "Buffer") -> int:
        n_bytes = super().readinto(buffer)
        if self._hear is not None:
            self._hear(bytes(memoryview(buffer).cast("B")[:n_bytes]))
        return n_bytes


class _Zstd(io.RawIOBase):
    """Iterate over the frames of a zstd file.

    The library's own reader takes a truncated file for a whole one.
    """

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._packed = b""
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "Buffer") -> int:
        view = memoryview(buffer).cast("B")
        while not self._ready and self._decompress():
            pass
        n_bytes = min(len(view), len(self._ready))
        view[:n_bytes] = self._ready[:n_bytes]
        self._ready = self._ready[n_bytes:]
        return n_bytes

    def _decompress(self) -> bool:
        """Read more bytes; return False at the end of the file."""
        packed = self._packed or self._file.read(_PACKED_BYTES)
        if not packed:
            if self._frame is not None:
                raise EOFError("truncated zstd")
            return False
        if self._frame is None:
            decompressor = zstandard.ZstdDecompressor(max_window_size=_LONGEST_WINDOW)
            self._frame = decompressor.decompressobj()
        self._ready = self._frame.decompress(packed)
        self._packed = b""
        if self._frame.eof:
            # Another frame may follow.
            self._packed = self._frame.unused_data
            self._frame = None
        return True

    def close(self) -> None:
        self._file.close()
        super().close()
