"""The lines of a file, plain, gzip or zstd, decompressed as they are read."""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import zstandard

from sublayer.errors import DataError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

_LONGEST_WINDOW = 1 << 31
_BLOCK_BYTES = 1 << 17


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Give each line with its number, from 1, its end included.

    Raises DataError where the file cannot be read, or is damaged or truncated.
    """
    try:
        with _opened(path) as file:
            yield from enumerate(file, 1)
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise DataError(f"{path} is damaged ({error}): fetch or compress it again") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def decoded(path: Path | str, line: int, text: bytes) -> str:
    """Decode a line, from 1, without a byte order mark before the first.

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


def _opened(path: Path) -> IO[bytes]:
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return cast(IO[bytes], gzip.open(path))
    if suffix == ".zst":
        return cast(IO[bytes], io.BufferedReader(_Zstd(path)))
    return path.open("rb")


class _Zstd(io.RawIOBase):
    """The frames of a zstd file, one after the other; the library's own reader takes a cut file for a whole one."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
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
        """Make more bytes ready; False at the end of the file."""
        packed = self._packed or self._file.read(_BLOCK_BYTES)
        if not packed:
            if self._frame is not None:
                raise EOFError("truncated zstd")
            return False
        if self._frame is None:
            self._frame = zstandard.ZstdDecompressor(max_window_size=_LONGEST_WINDOW).decompressobj()
        self._ready = self._frame.decompress(packed)
        self._packed = b""
        if self._frame.eof:
            self._packed, self._frame = self._frame.unused_data, None
        return True

    def close(self) -> None:
        self._file.close()
        super().close()
