"""Local text: files, plain or compressed, folders and globs, as documents of bytes."""

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
from sublayer.files.storage import as_typed, describe_absence, expanded
from sublayer.numbers import count
from sublayer.tasks.records import WEB_PAGE, read_records

Text = bytes | FileText
"""Raw bytes, of a file without a copy in memory."""
RawDocument = tuple[int, Text]
"""A document as it is read: the line or row where it begins, from 1, and its text."""
Row = TypeVar("Row")

PARQUET = ".parquet"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HUB_NAME = re.compile(r"[\w-]+/[\w-]+")
_SMALL_BYTES = 4 << 20
"""A compressed file that becomes no more is unpacked in memory each time."""
_LARGE_PACKED_BYTES = 1 << 20
"""Size from which findings in a compressed file are remembered, as unpacking takes long."""
_DOCUMENTS = (".doc", ".docx", ".epub", ".odt", ".pdf", ".rtf")
"""Suffixes of word processors and readers, whose files other programs save as text."""
_ARCHIVES = (".7z", PARQUET, ".rar", ".zip")
_TARS = (".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")
_SNIFFED_BYTES = 8000
"""As many as git reads to tell text from binary files."""
_READ_BYTES = 1 << 16
_EMPTY = "is empty"
_OBJECT = re.compile(rb'\{\s*"[^"\n]*"\s*:')


@dataclass(frozen=True)
class MemoryDocument:
    """A text that is in memory already."""

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
    """A file, decompressed by its suffix; its bytes are the text, a byte-order mark included."""

    path: Path
    cache: Path
    """The folder where the digests of large files are kept."""

    @property
    def name(self) -> str:
        """The file's path."""
        return str(self.path)

    def read(self) -> Text:
        """Return the file's text; raise DataError if it is empty, binary, cut or unreadable.

        A compressed file that becomes more than 4 MiB is unpacked into the cache, once.
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
        """Size of the text, unpacked and looked through once; raise DataError if it is no text."""
        with self._reading():
            text = self._open()
            check_no_pointer(self.path, text[:64])
            at = text.find(b"\0")
        if at >= 0:
            raise DataError(
                f"{self.path}: byte {at:,} is zero, which no text has. Remove such bytes, as in "
                f"`tr -d '\\000' < {self.path.name} > clean-{self.path.name}`"
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
        """The file's digest, and the version that it was computed of."""
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
    """Read files' content; raise DataError if one changed since its digest was computed."""
    yield from read()
    for file in files:
        file.check_unchanged()


def check_there(entry: str) -> None:
    """Raise DataError where a path that is no glob names nothing; raise OSError."""
    path = expanded(entry)
    if path.exists() or glob.has_magic(entry):
        return
    if _URL.match(entry):
        raise DataError(
            f"{entry} is an address, and only files are read: download it, as in `curl "
            f"-LO {entry}`, and name the file"
        )
    here = "" if path.is_absolute() else f", in {Path.cwd()}"
    hub = f"; hub:{entry} would be a data set of the Hugging Face hub"
    remedy = ": name another file or folder" + hub * bool(_HUB_NAME.fullmatch(entry))
    raise DataError(f"{describe_absence(entry)}{here}{remedy}")


def read_path(entry: str, cache: Path, *, has_parquet: bool = False) -> tuple[FileDocument, ...]:
    """Find the documents of a path: a file, or those of a folder or a glob in order of paths.

    Of a folder, every file below it that is text (no zero byte near its start, as git decides), is
    not empty and is not hidden. ``~`` is the home folder; a relative path starts from the working
    directory. ``has_parquet``: Parquet files are documents, too.

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
    except OSError as error:  # one that goes away meanwhile, or a name that no system takes
        raise DataError(
            f"cannot read {error.filename or entry}: {error.strerror or error}"
        ) from error
    documents = tuple(FileDocument(file, cache) for file, why in files if not why)
    if not documents:
        raise DataError(
            f"{entry} has no text: name a folder or a glob with text files, plain or packed"
            f" ({', '.join(PACKED)})"
        )
    return documents


def _find_files(path: Path, has_parquet: bool) -> list[tuple[Path, str]]:
    """List the files of a path, a folder or a glob, each with why it is not read, if so.

    They are in order of their names; hidden ones below a folder are left out. A path that exists is
    no glob.
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
    """Raise DataError, with what to do, for a file that is not text in UTF-8 by name or content.

    Compressed files are judged by their content.
    """
    if refusal := _refusal(path, has_parquet):
        raise DataError(f"{path} {refusal}")


def _refusal(path: Path, has_parquet: bool, *, is_named: bool = True) -> str:
    """Return why a file is not read as text; empty where it is.

    Compressed files not named by the user are not opened.
    """
    suffix = path.suffix.lower()
    if not path.is_file():
        return "is no file and no folder: write what it gives into a file"
    if has_parquet and suffix == PARQUET:
        return ""
    if suffix in _DOCUMENTS:
        converted = ", as `pdftotext` does" if suffix == ".pdf" else ""
        return f"is a document ({suffix}), not plain text: convert it to text first{converted}"
    if suffix in _ARCHIVES or is_tar(path):
        return f"is packed, not text: unpack it first ({', '.join(PACKED)} are read as they are)"
    start = b"" if suffix in PACKED and not is_named else read_start(path, _SNIFFED_BYTES)
    if encoding := wide_encoding(start):
        return (
            f"is encoded as {encoding}, not UTF-8: convert it, as in "
            f"{conversion(path, encoding, '.txt')}"
        )
    if (at := start.find(b"\0")) >= 0:
        return (
            f"is a binary file, not text: its byte {at:,} is zero. Name a file of text; the name "
            f"of a compressed one ends in {', '.join(PACKED)}"
        )
    return ""


def list_files_left_out(entry: str, *, has_parquet: bool = False) -> list[Path]:
    """Return the files of a folder that are not read: binary ones, archives and empty ones.

    Hidden ones are not listed. Anything but a folder has none.
    """
    folder = expanded(entry)
    if not folder.is_dir():
        return []
    return [path for path, why in _find_files(folder, has_parquet) if why]


def describe_files(entry: str, *, seeks_records: bool, as_options: bool = False) -> list[str]:
    """Note which files of a path, a folder or a glob are not UTF-8, and the first with records.

    Parquet is no text. ``as_options`` names settings as options of commands. Raises DataError where
    one cannot be read.
    """
    texts = [path for path, why in _find_files(expanded(entry), has_parquet=False) if not why]
    notes = [describe_encoding(texts)]
    if seeks_records:
        descriptions = (describe_records(file, as_options=as_options) for file in texts)
        notes += [next(filter(None, descriptions), None)]
    return [note for note in notes if note]


def describe_encoding(paths: Sequence[Path]) -> str | None:
    """Note that files are not UTF-8, and the place in the first; None where all are.

    Raises DataError where one cannot be read.
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
        f"{files} not UTF-8: byte {offset:,} is 0x{byte:02x}. Bytes are read as they are; if "
        f"it is Latin-1, {conversion(path, 'LATIN1', '.txt')} converts it"
    )


def _first_bad_byte(path: Path) -> tuple[int, int] | None:
    """Return position and value of a file's first invalid UTF-8 byte, decompressed, or None."""
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

    They are lines or a list of JSON with a text, a table, known by its suffix, or a web page.
    Raises DataError where it cannot be read.
    """
    start = read_start(path, _READ_BYTES).removeprefix(codecs.BOM_UTF8).lstrip()
    if start.lower().startswith(WEB_PAGE):
        return (
            f"{path} is a web page, read as plain text with its tags: save its text, and name that"
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
                # The first member of a list; lists in lines are not read.
                has_more = False
                with suppress(ValueError):
                    has_more = bool(json.loads(line) and rest.strip())
                first = None if has_more else json.JSONDecoder().raw_decode(text[1:].lstrip())[0]
            else:
                first = json.loads(line)
                first = first if isinstance(first, dict) else None
    except DataError:  # who reads the table names the fault
        return None
    except (ValueError, RecursionError):
        if not _OBJECT.match(start):
            return None
        name, lines = shlex.quote(as_typed(str(path))), shlex.quote(f"lines-{path.stem}.jsonl")
        return (
            f"{path} holds JSON over several lines and is read as plain text: `jq -c . {name} > "
            f"{lines}` writes one object a line, and {setting} then reads only the texts"
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
        f"{path} holds records, read as plain text with the names of their fields: {setting} reads "
        "only the texts"
    )


BOM = codecs.BOM_UTF8

_HEADER_BYTES = 64 << 10
_LICENCE_BYTES = 64 << 10
_CLOSING_BYTES = 2048
_CREDITS_BYTES = 1024
"""More than the words take by which such a paragraph is known."""
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

    For any other text, all but a byte-order mark. The header and licence are left out where both
    are marked: ``*** START OF THE PROJECT GUTENBERG EBOOK ... ***`` and ``*** END OF ...``, in
    their older wordings too: ``***START``, the end of the small print, and a line that begins with
    "End of Project Gutenberg's". With the header goes the paragraph after it that names who made
    the file.
    """
    first = len(BOM) if text[: len(BOM)] == BOM else 0
    start = None
    # Of small print and a start, whichever comes last is where the header ends.
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
        # A blank text up to there, or credits that do not end there, may go on behind it.
        is_open = end == len(window) if match else len(window.lstrip()) < _CREDITS_BYTES
        if start + size >= stop or not is_open:
            return start + end, stop
        size *= 2


def _stop(text: Text, start: int) -> int | None:
    least = max(start, len(text) - _LICENCE_BYTES)
    # One byte more shows whether a line begins there.
    window = max(0, least - 1)
    tail = text[window:]
    ends = [match.start() for match in _END.finditer(tail, least - window)]
    if not ends:
        closings = [match.start() for match in _CLOSING.finditer(tail, least - window)]
        return window + closings[-1] if closings else None
    # The title is often closed once more, in words, right before the mark.
    last = ends[-1]
    closing = _CLOSING.search(tail, max(start - window, last - _CLOSING_BYTES), last)
    if closing:
        return window + closing.start()
    return window + last
