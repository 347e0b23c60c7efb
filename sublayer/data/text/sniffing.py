"""What a file's first bytes tell: whether it is text, and in which encoding."""

import codecs
import shlex
from pathlib import Path

from sublayer.errors import DataError
from sublayer.files.lines import read_start
from sublayer.files.parsing import parse_json

_SNIFFED_BYTES = 8000
"""As many as git reads to tell text from binary files."""
_READ_BYTES = 1 << 16
_FEWEST_BYTES = 8
"""Of fewer nothing is guessed."""
_UTF_32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_KINDS: dict[bytes, str] = {
    b"%PDF-": "a PDF file",
    b"PK\x03\x04": "a zip archive, as .docx, .epub and .odt are",
    b"\x1f\x8b": "compressed with gzip: name it .gz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: name it .zst",
    b"BZh": "compressed with bzip2: name it .bz2",
    b"\xfd7zXZ\x00": "compressed with xz: name it .xz",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"GIF8": "a picture",
    b"\x7fELF": "a program",
    b"\xd0\xcf\x11\xe0": "a Word, Excel or PowerPoint file",
    b"{\\rtf": "a file of rich text",
    b"SQLite format 3\x00": "a database",
    b"PAR1": "a Parquet file: name it .parquet",
}
"""By the bytes that files of a kind begin with."""


def is_text(path: Path) -> bool:
    """Return whether a plain file has no zero byte near its start, as git decides."""
    return b"\0" not in _start_of(path)[:_SNIFFED_BYTES]


def check_text(path: Path) -> None:
    """Raise DataError, with what to do, for a file that is binary, or text in UTF-16 or UTF-32.

    Compressed files are judged by what is in them.
    """
    start = _start_of(path)[:_SNIFFED_BYTES]
    encoding = _wide_encoding(start)
    if encoding is not None:
        raise DataError(
            f"{path} is text in {encoding}, of which UTF-8 is read: convert it, as in "
            f"`iconv -f {encoding} -t UTF-8 {path.name} > utf8-{path.stem}.txt`"
        )
    for magic, kind in _KINDS.items():
        if start.startswith(magic):
            raise DataError(f"{path} is not text but {kind}{_advice(kind)}")
    at = start.find(b"\0")
    if at >= 0:
        raise DataError(
            f"{path} is a binary file, not text: its byte {at:,} is zero. Name a file of text"
        )


def describe_encoding(path: Path) -> str | None:
    """Say in a line that a file is not UTF-8, as its first 64 KiB show; None where they are.

    Raises DataError where it cannot be read.
    """
    start = _start_of(path)
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(start)  # a character may be cut at the end
    except UnicodeDecodeError as error:
        byte = start[error.start]
        return (
            f"{path} is not UTF-8: byte {error.start:,} is 0x{byte:02x}. Its bytes are read as "
            "they are; if it is Latin-1, "
            f"`iconv -f LATIN1 -t UTF-8 {path.name} > utf8-{path.stem}.txt` converts it"
        )
    return None


def describe_records(path: Path) -> str | None:
    """Say in a line that a file is of lines of JSON, read as they are; None where it is not.

    Its first line tells, if it is an object that has a text. Raises DataError where it cannot be
    read.
    """
    line, _, _ = _start_of(path).partition(b"\n")
    try:
        first = parse_json(line, str(path), DataError)
    except DataError:
        return None
    if not isinstance(first, dict):
        return None
    texts = [name for name, value in first.items() if isinstance(value, str)]
    if not texts:
        return None
    longest = max(texts, key=lambda name: len(first[name]))
    field = "" if "text" in texts else f" data.text_field={shlex.quote(longest)}"
    return (
        f"{path} holds lines of JSON, which are read as they are, field names and brackets too: "
        f"data.documents=json{field} reads the text of each line alone"
    )


def _start_of(path: Path) -> bytes:
    return read_start(path, _READ_BYTES)


def _wide_encoding(start: bytes) -> str | None:
    if start.startswith(_UTF_32):
        return "UTF-32"
    if start.startswith(_UTF_16) and _has_wide_spaces(start):
        return "UTF-16"
    # Without a mark: of Latin letters every second byte is zero, on one side alone.
    even, odd = start[::2], start[1::2]
    if len(start) < _FEWEST_BYTES:
        return None
    if _share_of_zeros(odd) > 0.8 and _share_of_zeros(even) < 0.1:
        return "UTF-16LE"
    if _share_of_zeros(even) > 0.8 and _share_of_zeros(odd) < 0.1:
        return "UTF-16BE"
    return None


def _has_wide_spaces(start: bytes) -> bool:
    """Return whether bytes are UTF-16 with a space, an end of a line, or a wide mark: as text is.

    Bytes of anything else may begin as UTF-16 does.
    """
    text = start.decode("utf-16", "ignore")
    return bool(set(text) & set(" \r\n\u3000\u3001\u3002")) or (bool(text) and text.isascii())


def _share_of_zeros(values: bytes) -> float:
    return values.count(0) / len(values)


def _advice(kind: str) -> str:
    return "" if ":" in kind else ": name a file of text, or save it as one"
