"""Local texts as documents of bytes: files, plain or compressed, folders and globs."""

import codecs
import glob
import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TypeVar

from sublayer.errors import DataError
from sublayer.files.cache_folder import cache_folder, content_key, file_digest, remembered
from sublayer.files.lines import (
    PACKED,
    FileText,
    changed,
    check_no_pointer,
    conversion,
    read_blocks,
    read_start,
    suffix_of,
    unpack,
    wide_encoding,
)
from sublayer.files.storage import as_typed, describe_absence, describe_url, expanded
from sublayer.numbers import count
from sublayer.tasks.records import WEB_PAGE, read_records

Text = bytes | FileText
"""Raw bytes; a file's are not copied into memory."""
RawDocument = tuple[int, Text]
"""Document as read: its first line or row, from 1, and its text."""
Row = TypeVar("Row")

PARQUET = ".parquet"
_HUB_NAME = re.compile(r"[\w-]+/[\w-]+")
_SMALL_BYTES = 4 << 20
"""Unpacked size up to which a compressed file is unpacked in memory each time."""
_LARGE_PACKED_BYTES = 1 << 20
"""Size from which findings in a compressed file are cached, as unpacking takes long."""
_DOCUMENTS = (".doc", ".docx", ".epub", ".odt", ".pdf", ".rtf")
"""Suffixes of documents, which other programs convert to text."""
_ARCHIVES = (".7z", PARQUET, ".rar", ".zip")
_TARS = (".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")
_SNIFFED_BYTES = 8000
"""Number of bytes read to tell text from binary files, as in git."""
_READ_BYTES = 1 << 16
_EMPTY = "is empty"
_OBJECT = re.compile(rb'\{\s*"[^"\n]*"\s*:')


@dataclass(frozen=True)
class MemoryDocument:
    """Text that is already in memory."""

    name: str
    text: bytes

    def read(self) -> Text:
        """Return the text."""
        return self.text

    def digest(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256(self.text).hexdigest()

    @property
    def n_bytes(self) -> int:
        """Size of the text."""
        return len(self.text)


@dataclass(frozen=True)
class FileDocument:
    """File, decompressed by its suffix; its bytes are the text, a byte-order mark included."""

    path: Path
    cache: Path
    """Folder in which the digests of large files are cached."""

    @property
    def name(self) -> str:
        """Path of the file."""
        return str(self.path)

    def read(self) -> Text:
        """Return the file's text; raise DataError if it is empty, binary, truncated or unreadable.

        A compressed file of more than 4 MiB of text is unpacked into the cache, once.
        """
        if not self.n_bytes:
            raise DataError(f"{self.path} is empty: name a file with text")
        with self._reading():
            return self._open()

    def digest(self) -> str:
        """SHA-256 of the file as it is stored."""
        return self._digested[0]

    @cached_property
    def n_bytes(self) -> int:
        """Size of the unpacked text, which is checked once; raise DataError if it is not text."""
        with self._reading():
            text = self._open()
            check_no_pointer(self.path, text[:64])
            at = text.find(b"\0")
        if at >= 0:
            raise DataError(
                f"{self.path}: byte {at:,} is zero, but a text has no zero bytes: remove them, as "
                f"in `tr -d '\\000' < {self.path.name} > clean-{self.path.name}`"
            )
        return len(text)

    def check_unchanged(self) -> None:
        """Raise DataError where the file changed since its digest was computed."""
        _, digested = self._digested
        with self._reading():
            if self._version() != digested:
                raise changed(self.path)

    @cached_property
    def _digested(self) -> tuple[str, tuple[int, int]]:
        """Digest of the file, and the version (size and time) for which it was computed."""
        with self._reading():
            version = self._version()
            return file_digest(self.path, self.cache), version

    def _open(self) -> Text:
        if self.path.suffix.lower() not in PACKED:
            return FileText(self.path)
        unpacked = self.cache / "unpacked" / content_key(self.digest(), self.path.suffix.lower())
        if not unpacked.is_file():
            small = unpack(self.path, unpacked, sha256=self.digest(), most_in_memory=_SMALL_BYTES)
            if small is not None:
                return small
        return FileText(unpacked)

    def _version(self) -> tuple[int, int]:
        status = self.path.stat()
        return status.st_size, status.st_mtime_ns

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(f"cannot read {self.path}: {error.strerror or error}") from error


def read_unchanged(
    files: Sequence[FileDocument], read: Callable[[], Iterator[Row]]
) -> Iterator[Row]:
    """Read the content of files; raise DataError if one changed since its digest was computed."""
    yield from read()
    for file in files:
        file.check_unchanged()


def check_there(entry: str) -> None:
    """Raise DataError where a path that is no glob names nothing; raise OSError."""
    path = expanded(entry)
    if path.exists() or glob.has_magic(entry):
        return
    if url := describe_url(entry):
        raise DataError(url)
    here = "" if path.is_absolute() else f", in {Path.cwd()}"
    hub = f"; hub:{entry} would be a data set of the Hugging Face hub"
    remedy = ": name another file or folder" + hub * bool(_HUB_NAME.fullmatch(entry))
    raise DataError(f"{describe_absence(entry)}{here}{remedy}")


def read_path(entry: str, cache: Path, *, has_parquet: bool = False) -> tuple[FileDocument, ...]:
    """Find the documents of a path: a file, or the files of a folder or a glob, sorted by path.

    Of a folder these are all files below it that are text (no zero byte near the start, as git
    decides), not empty and not hidden. ``~`` is the home folder; a relative path starts from the
    working directory. With ``has_parquet`` Parquet files are documents, too.

    Raises DataError where there is no such file, or no text in it.
    """
    path = expanded(entry)
    try:
        files = _find_files(path, has_parquet)
        if not files:
            check_there(entry)
        refusals = [f"{file} {why}" for file, why in files if why and not path.is_dir()]
        if refusals:
            raise DataError(refusals[0])
    except OSError as error:  # a file that disappears meanwhile, or an invalid name
        raise DataError(
            f"cannot read {error.filename or entry}: {error.strerror or error}"
        ) from error
    documents = tuple(FileDocument(file, cache) for file, why in files if not why)
    if not documents:
        raise DataError(
            f"{entry} has no text: name a folder or a glob with text files, plain or compressed"
            f" ({', '.join(PACKED)})"
        )
    return documents


def _find_files(path: Path, has_parquet: bool) -> list[tuple[Path, str]]:
    """List the files of a path, a folder or a glob, each with the reason why it is not read, if so.

    They are sorted by name, without hidden files below a folder. A path that exists is not a glob.
    """
    if path.is_dir():
        below = {file.relative_to(path): file for file in path.rglob("*") if file.is_file()}
        names = (name for name in below if not any(part.startswith(".") for part in name.parts))
        files = [below[name] for name in sorted(names, key=Path.as_posix)]
        return [
            (file, _refusal(file, has_parquet, is_named=False) if file.stat().st_size else _EMPTY)
            for file in files
        ]
    if path.exists():
        return [(path, _refusal(path, has_parquet))]
    matches = map(Path, sorted(glob.glob(str(path), recursive=True)))
    files = [file for file in matches if file.is_file() and file.stat().st_size]
    return [(file, _refusal(file, has_parquet)) for file in files]


def is_tar(path: Path) -> bool:
    """Check by name whether a file is a tar archive, compressed or not."""
    return path.name.lower().endswith(_TARS)


def is_parquet(path: Path) -> bool:
    """Check by name whether a file is Parquet."""
    return path.suffix.lower() == PARQUET


def check_text(path: Path, *, has_parquet: bool = False) -> None:
    """Raise DataError, with a remedy, for a file that is not text in UTF-8, by name or content.

    Of a compressed file the unpacked content decides.
    """
    if refusal := _refusal(path, has_parquet):
        raise DataError(f"{path} {refusal}")


def _refusal(path: Path, has_parquet: bool, *, is_named: bool = True) -> str:
    """Return the reason why a file is not read as text; empty if it is.

    Compressed files that the user did not name are not opened.
    """
    suffix = path.suffix.lower()
    if not path.is_file():
        return "is neither a file nor a folder: write its content to a file"
    if has_parquet and suffix == PARQUET:
        return ""
    if suffix in _DOCUMENTS:
        converted = ", as `pdftotext` does" if suffix == ".pdf" else ""
        return f"is a document ({suffix}), not plain text: convert it to text first{converted}"
    if suffix in _ARCHIVES or is_tar(path):
        return f"is an archive, not text: unpack it first ({', '.join(PACKED)} are read directly)"
    start = b"" if suffix in PACKED and not is_named else read_start(path, _SNIFFED_BYTES)
    if encoding := wide_encoding(start):
        return (
            f"is encoded as {encoding}, not UTF-8: convert it, as in "
            f"{conversion(path, encoding, '.txt')}"
        )
    if (at := start.find(b"\0")) >= 0:
        return (
            f"is a binary file, not text: its byte {at:,} is zero. Name a text file; the suffix "
            f"of a compressed one must be {', '.join(PACKED)}"
        )
    return ""


def list_files_left_out(entry: str, *, has_parquet: bool = False) -> list[Path]:
    """Return the files of a folder that are not read: binary files, archives and empty files.

    Hidden files are not listed. The list is empty if the entry is not a folder.
    """
    folder = expanded(entry)
    if not folder.is_dir():
        return []
    return [path for path, why in _find_files(folder, has_parquet) if why]


def describe_files(entry: str, *, seeks_records: bool, as_options: bool = False) -> list[str]:
    """Describe files of a path, a folder or a glob: those not UTF-8, and the first of records.

    Parquet files are left out. ``as_options`` names settings as options of commands. Raises
    DataError where a file cannot be read.
    """
    texts = [path for path, why in _find_files(expanded(entry), has_parquet=False) if not why]
    notes = [describe_encoding(texts)]
    if seeks_records:
        descriptions = (describe_records(file, as_options=as_options) for file in texts)
        notes += [next(filter(None, descriptions), None)]
    return [note for note in notes if note]


def describe_encoding(paths: Sequence[Path]) -> str | None:
    """Describe the files that are not UTF-8, with the place in the first; None if there are none.

    Raises DataError where a file cannot be read.
    """
    cache = cache_folder()
    bad = {}
    for path in paths:
        least = _LARGE_PACKED_BYTES if path.suffix.lower() in PACKED else None
        if at := remembered("utf-8", path, cache, _first_bad_byte, least):
            bad[path] = at
    if not bad:
        return None
    path, (offset, byte) = next(iter(bad.items()))
    files = f"{path} is" if len(bad) == 1 else f"{count(len(bad), 'file')}, first {path}, are"
    return (
        f"{files} not UTF-8: byte {offset:,} is 0x{byte:02x}. Bytes are read unchanged; if the "
        f"file is Latin-1, {conversion(path, 'LATIN1', '.txt')} converts it"
    )


def _first_bad_byte(path: Path) -> tuple[int, int] | None:
    """Return the position and value of the first byte that is not UTF-8, decompressed, or None."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    n_read = 0
    for block in chain(read_blocks(path), [b""]):
        n_read += len(block)
        try:
            decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            return n_read - len(error.object) + error.start, error.object[error.start]
    return None


def describe_records(path: Path, *, as_options: bool = False) -> str | None:
    """Return a note if a file of records is read as plain text, else None.

    Records are lines or a list of JSON with a text, a table, known by its suffix, or a web page.
    Raises DataError where the file cannot be read.
    """
    start = read_start(path, _READ_BYTES).removeprefix(codecs.BOM_UTF8).lstrip()
    if start.lower().startswith(WEB_PAGE):
        return (
            f"{path} is a web page, read as plain text with its tags: save its text, and name that "
            "file"
        )
    suffix = suffix_of(path)
    rule = "csv" if suffix in (".csv", ".tsv") else "json"
    setting = f"--documents {rule}" if as_options else f"data.documents={rule}"
    try:
        if rule == "csv":
            first = next((dict(record.values) for record in read_records(path, suffix)), None)
        else:
            text = start.decode("utf-8", "replace")
            line, _, rest = text.partition("\n")
            if text.startswith("["):
                # The first member of a list; lines with lists are not read.
                has_more = False
                with suppress(ValueError):
                    has_more = bool(json.loads(line) and rest.strip())
                first = None if has_more else json.JSONDecoder().raw_decode(text[1:].lstrip())[0]
            else:
                first = json.loads(line)
                first = first if isinstance(first, dict) else None
    except DataError:  # the reader of the table reports the error
        return None
    except (ValueError, RecursionError):
        if not _OBJECT.match(start):
            return None
        name, lines = shlex.quote(as_typed(str(path))), shlex.quote(f"lines-{path.stem}.jsonl")
        return (
            f"{path} holds JSON over several lines and is read as plain text: `jq -c . {name} > "
            f"{lines}` writes one object per line, and {setting} then reads only the texts"
        )
    texts = first if isinstance(first, dict) else {}
    texts = {name: value for name, value in texts.items() if isinstance(value, str)}
    if not texts and not isinstance(first, str):
        return None
    likeliest = max(texts, key=lambda name: len(texts[name]), default="")
    if texts and "text" not in texts and likeliest.isprintable():
        field = shlex.quote(likeliest)
        setting += f" --text-field {field}" if as_options else f" data.text_field={field}"
    return (
        f"{path} holds records, but is read as plain text, with the names of fields: {setting} "
        "reads only the texts"
    )


BOM = codecs.BOM_UTF8

_HEADER_BYTES = 64 << 10
_LICENCE_BYTES = 64 << 10
_CLOSING_BYTES = 2048
_CREDITS_BYTES = 1024
"""Size of text that suffices to recognize a paragraph of credits."""
_START = re.compile(
    rb"^[ \t]*\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG[^*]{0,400}\*\*\*[^\n]*(?:\n|\Z)"
    rb"|^[ \t]*\*+END[* ]{1,2}THE SMALL PRINT![^\n]*(?:\n[^\n]*\*END\*[^\n]*)?(?:\n|\Z)",
    re.MULTILINE | re.IGNORECASE,
)
_END = re.compile(
    rb"^[ \t]*\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG", re.MULTILINE | re.IGNORECASE
)
_CLOSING = re.compile(
    rb"^[ \t]*(?:\*+ *)?(?:This is the )?end of (?:the |this )?project gutenberg"
    rb"(?:'s|\xe2\x80\x99s)?(?: |$)",
    re.MULTILINE | re.IGNORECASE,
)
_CREDITS = re.compile(
    rb"\s*(?:(?:Produced|Prepared|Transcribed|Scanned|Updated) by|E-?text prepared by"
    rb"|This e-?(?:text|book) was (?:produced|prepared|created|transcribed))\b"
    rb"(?:[^\n]*\S[^\n]*(?:\n|\Z))+",
    re.IGNORECASE,
)


def body_range(text: Text) -> tuple[int, int]:
    """Return the byte range of the body of a Project Gutenberg file.

    Of any other text it is everything after a byte-order mark. The header and licence are left out
    if both are marked: by ``*** START OF THE PROJECT GUTENBERG EBOOK ... ***`` and ``*** END OF
    ...``, or by their older wordings: ``***START``, the end of the small print, and a line that
    begins with "End of Project Gutenberg's". A paragraph of credits after the header is left out as
    well.
    """
    first = len(BOM) if text[: len(BOM)] == BOM else 0
    start = None
    # The header ends with the small print or the start mark, whichever is last.
    for mark in _START.finditer(text[:_HEADER_BYTES], first):
        start = mark.end()
    if start is None:
        return first, len(text)
    stop = _stop(text, start)
    if stop is None:
        return first, len(text)
    size = _HEADER_BYTES
    while True:
        window = text[start : min(start + size, stop)]
        match = _CREDITS.match(window)
        end = match.end() if match else 0
        # A window of blank text, or of credits up to its end, may continue after it.
        is_open = end == len(window) if match else len(window.lstrip()) < _CREDITS_BYTES
        if start + size >= stop or not is_open:
            return start + end, stop
        size *= 2


def _stop(text: Text, start: int) -> int | None:
    least = max(start, len(text) - _LICENCE_BYTES)
    # One more byte shows whether a line begins there.
    window = max(0, least - 1)
    tail = text[window:]
    ends = [match.start() for match in _END.finditer(tail, least - window)]
    if not ends:
        closings = [match.start() for match in _CLOSING.finditer(tail, least - window)]
        return window + closings[-1] if closings else None
    # A closing line in words often precedes the mark.
    last = ends[-1]
    closing = _CLOSING.search(tail, max(start - window, last - _CLOSING_BYTES), last)
    if closing:
        return window + closing.start()
    return window + last
