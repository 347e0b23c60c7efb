"""Local text: files, plain or packed, folders and globs, as documents of raw bytes."""

import glob
import hashlib
import json
import re
import shlex
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sublayer.counts import count
from sublayer.data.cache import content_key, file_digest
from sublayer.errors import DataError
from sublayer.files.cache_folder import cache_folder, replacing
from sublayer.files.file_text import FileText
from sublayer.files.lines import (
    PACKED,
    changed,
    check_no_pointer,
    conversion,
    read_blocks,
    read_start,
    unpack,
    wide_encoding,
)
from sublayer.files.paths import as_typed, expanded
from sublayer.files.storage import describe_absence
from sublayer.tasks.records import WEB_PAGE, read_records, suffix_of

_SNIFFED_BYTES = 8000
"""As many as git reads to tell text from binary files."""
_READ_BYTES = 1 << 16
_LARGE_BYTES, _LARGE_PACKED = 64 << 20, 1 << 20
_OBJECT = re.compile(rb'\{\s*"[^"\n]*"\s*:')


def is_text(path: Path) -> bool:
    """Return whether a plain file has no zero byte near its start, as git decides."""
    return b"\0" not in read_start(path, _SNIFFED_BYTES)


def check_text(path: Path) -> None:
    """Raise DataError, with what to do, for a file that is binary, or text in UTF-16 or UTF-32.

    Compressed files are judged by their content.
    """
    start = read_start(path, _SNIFFED_BYTES)
    encoding = wide_encoding(start)
    if encoding is not None:
        raise DataError(
            f"{path} is text in {encoding}, of which UTF-8 is read: convert it, as in "
            f"{conversion(path, encoding, '.txt')}"
        )
    at = start.find(b"\0")
    if at >= 0:
        raise DataError(
            f"{path} is a binary file, not text: its byte {at:,} is zero. Name a file of text; the "
            f"name of a compressed one ends in {', '.join(PACKED)}"
        )


def describe_encoding(paths: Sequence[Path]) -> str | None:
    """Say in a line that files are not UTF-8, and where first; None where all are.

    Raises DataError where one cannot be read.
    """
    bad = {path: at for path in paths if (at := _first_bad_byte(path)) is not None}
    if not bad:
        return None
    path, (place, byte) = next(iter(bad.items()))
    which = path if len(bad) == 1 else f"{count(len(bad), 'file')}, the first of which is {path},"
    verb = "is" if len(bad) == 1 else "are"
    return (
        f"{which} {verb} not UTF-8: byte {place:,} is 0x{byte:02x}. Bytes are read as they are; if "
        f"it is Latin-1, {conversion(path, 'LATIN1', '.txt')} converts it"
    )


def _first_bad_byte(path: Path) -> tuple[int, int] | None:
    """Return where a file, unpacked, is first not UTF-8, and the byte there; None: nowhere.

    Of a large file, once for each version of it.
    """
    status = path.stat()
    if status.st_size < (_LARGE_PACKED if path.suffix.lower() in PACKED else _LARGE_BYTES):
        return _find_bad_byte(path)
    key = content_key("utf-8", str(path.resolve()), status.st_size, status.st_mtime_ns)
    known = cache_folder() / "encodings" / key
    if not known.is_file():
        with replacing(known) as file:
            file.write(json.dumps(_find_bad_byte(path)).encode())
    try:
        place, byte = json.loads(known.read_bytes())
    except (TypeError, ValueError):
        return None
    return place, byte


def _find_bad_byte(path: Path) -> tuple[int, int] | None:
    place = 0
    rest = b""
    for block in read_blocks(path):
        data = rest + block
        try:
            data.decode()
            rest = b""
        except UnicodeDecodeError as error:
            if not error.reason.startswith("unexpected end"):
                return place + error.start, data[error.start]
            rest = data[error.start :]  # a character that the next block ends
        place += len(data) - len(rest)
    return (place, rest[0]) if rest else None


def describe_records(path: Path, *, as_options: bool = False) -> str | None:
    """Say in a line that a file holds records, read as they are; None where it does not.

    They are lines or a list of JSON with a text, a table, known by its suffix, or a web page.
    Raises DataError where it cannot be read.
    """
    start = read_start(path, _READ_BYTES).removeprefix(BOM_UTF8).lstrip()
    if start.lower().startswith(WEB_PAGE):
        return f"{path} is a web page, read as it is, tags too: save its text, and name that"
    suffix, is_list = suffix_of(path), start[:1] == b"["
    rule = "csv" if suffix in (".csv", ".tsv") else "json"
    setting = f"--documents {rule}" if as_options else f"data.documents={rule}"
    if rule == "csv":
        what, beside = "a table", "its header and all columns"
        try:
            first = next((dict(record.values) for record in read_records(path, suffix)), None)
        except DataError:  # who reads the table names the fault
            return None
    else:
        what, beside = "lines of JSON", "field names and brackets"
        if is_list:
            what, beside = "a list of JSON", "brackets and quotes"
        try:
            first = _first_record(start, is_list=is_list)
        except (ValueError, RecursionError):
            return _describe_object(path, start, setting)
    texts = first if isinstance(first, dict) else {}
    texts = {name: value for name, value in texts.items() if isinstance(value, str)}
    if not texts and not (is_list and isinstance(first, str)):
        return None
    likeliest = max(texts, key=lambda name: len(texts[name]), default="")
    if texts and "text" not in texts and likeliest.isprintable():
        field = shlex.quote(likeliest)
        setting += f" --text-field {field}" if as_options else f" data.text_field={field}"
    return f"{path} holds {what}, read as they are, {beside} too: {setting} reads the texts alone"


def _describe_object(path: Path, start: bytes, setting: str) -> str | None:
    """Say in a line that a file is JSON over several lines; None for any other."""
    if not _OBJECT.match(start):
        return None
    name, lines = shlex.quote(as_typed(str(path))), shlex.quote(f"lines-{path.stem}.jsonl")
    return (
        f"{path} holds JSON over several lines, read as it is: `jq -c . {name} > {lines}` writes "
        f"an object a line, of which {setting} reads the texts alone"
    )


def _first_record(start: bytes, *, is_list: bool) -> Any:
    text = start.decode("utf-8", "replace")
    line, _, rest = text.partition("\n")
    if not is_list:
        return json.loads(line)
    with suppress(ValueError):
        if json.loads(line) and rest.strip():
            return None  # lines of lists, of which none is read
    value, _ = json.JSONDecoder().raw_decode(text[1:].lstrip())
    return value


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
_DOCUMENTS = (".doc", ".docx", ".epub", ".odt", ".pdf", ".rtf")
"""Suffixes of word processors and readers, whose files other programs save as text."""
_ARCHIVES = (*_DOCUMENTS, ".7z", PARQUET, ".rar", ".zip")
_TARS = (".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")


class Document(Protocol):
    """A piece of text that is never on both sides of a split unless it is the only one."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    def read(self) -> Text:
        """Return all of its bytes; raise DataError where they cannot be read."""

    def digest(self) -> str:
        """SHA-256 of the bytes that it is read from."""

    @property
    def n_bytes(self) -> int:
        """Size of its text; raise DataError as ``read`` does."""


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
        try:
            text = self._read()
            self._check(text)
        except OSError as error:
            raise DataError(f"cannot read {self.path}: {error.strerror or error}") from error
        return text

    def digest(self) -> str:
        """SHA-256 of the file as it is stored."""
        return self._digested[0]

    @property
    def n_bytes(self) -> int:
        """Size of the text, unpacked."""
        return len(self.read())

    def check_unchanged(self) -> None:
        """Raise DataError where the file is another one than its digest was computed of."""
        _, digested = self._digested
        try:
            now = _version(self.path)
        except OSError as error:
            raise DataError(f"cannot read {self.path}: {error.strerror or error}") from error
        if now != digested:
            raise changed(self.path)

    @cached_property
    def _digested(self) -> tuple[str, tuple[int, int]]:
        """The file's digest, and the version that it was computed of."""
        try:
            version = _version(self.path)
            return file_digest(self.path, self.cache), version
        except OSError as error:
            raise DataError(f"cannot read {self.path}: {error.strerror or error}") from error

    def _read(self) -> Text:
        if self.path.suffix.lower() not in PACKED:
            return FileText(self.path)
        unpacked = self.cache / "unpacked" / content_key(self.digest(), self.path.suffix.lower())
        if not unpacked.is_file():
            small = unpack(self.path, unpacked, sha256=self.digest(), most_in_memory=_SMALL_BYTES)
            if small is not None:
                return small
        return FileText(unpacked)

    def _check(self, text: Text) -> None:
        # Once: a large text is read again and again, a part at a time.
        if self._known_good:
            return
        if len(text) == 0:
            raise DataError(f"{self.path} is empty: name a file with text")
        check_no_pointer(self.path, text[:64])
        at = text.find(b"\0")
        if at >= 0:
            raise DataError(
                f"{self.path}: byte {at:,} is zero, which no text has. Remove such bytes, as in "
                f"`tr -d '\\000' < {self.path.name} > clean-{self.path.name}`"
            )
        self._known_good.append(_version(self.path))

    @cached_property
    def _known_good(self) -> list[tuple[int, int]]:
        """The version of the file that was looked through; empty before."""
        return []


def read_unchanged(
    files: Sequence[FileDocument], read: Callable[[], Iterator[Row]]
) -> Iterator[Row]:
    """Read what files hold; raise DataError if one changed since its digest was computed."""
    yield from read()
    for file in files:
        file.check_unchanged()


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


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def read_path(entry: str, cache: Path, *, has_parquet: bool = False) -> tuple[FileDocument, ...]:
    """Find the documents of a path: a file, or those of a folder or a glob in order of paths.

    Of a folder, every file below it that is text (no zero byte near its start, as git decides), is
    not empty and is not hidden. ``~`` is the home folder; a relative path starts from the working
    directory. ``has_parquet``: Parquet files are documents, too.

    Raises DataError where there is no such file, or no text in it.
    """
    path = expanded(entry)
    try:
        if path.is_dir():
            below = _files_below(path, has_parquet)
            files = [FileDocument(file, cache) for file, is_read in below if is_read]
        elif path.is_file():
            _check_file(path, has_parquet=has_parquet)
            return (FileDocument(path, cache),)
        elif path.exists():
            raise DataError(f"{entry} is no file and no folder: write what it gives into a file")
        elif glob.has_magic(entry):
            files = _matches(str(path), cache, has_parquet=has_parquet)
        else:
            raise DataError(_missing(entry, path))
    except OSError as error:  # one that goes away meanwhile, or a name that no system takes
        raise DataError(
            f"cannot read {error.filename or entry}: {error.strerror or error}"
        ) from error
    if not files:
        raise DataError(
            f"{entry} has no text: name a folder or a glob with text files, plain or packed"
            f" ({', '.join(PACKED)})"
        )
    return tuple(files)


def _missing(entry: str, path: Path) -> str:
    """Say that there is no file of a name, with the likely remedy."""
    if _URL.match(entry):
        return (
            f"{entry} is an address, and only files are read: download it, as in `curl -LO "
            f"{entry}`, and name the file"
        )
    message = describe_absence(entry)
    if not path.is_absolute():
        message += f", in {Path.cwd()}"
    if _HUB_NAME.fullmatch(entry):
        message += f"; hub:{entry} would be a data set of the Hugging Face hub"
    return message


def is_tar(path: Path) -> bool:
    """Return whether a file is a tar archive, compressed or not, by its name."""
    return path.name.lower().endswith(_TARS)


def is_parquet(path: Path) -> bool:
    """Return whether a file is a Parquet file, by its name."""
    return path.suffix.lower() == PARQUET


def list_files_left_out(entry: str, *, has_parquet: bool = False) -> list[Path]:
    """Return the files of a folder that are not read: binary ones, archives and empty ones.

    Hidden ones are not among them. Of anything else than a folder it is none.
    """
    folder = expanded(entry)
    if not folder.is_dir():
        return []
    return [path for path, is_read in _files_below(folder, has_parquet) if not is_read]


def describe_files(entry: str, *, seeks_records: bool, as_options: bool = False) -> list[str]:
    """Say of the files of a path, a folder or a glob which are not UTF-8, and if they hold records.

    Parquet is no text. ``as_options`` names settings as options of commands. Raises DataError where
    one cannot be read.
    """
    path = expanded(entry)
    if path.is_dir():
        texts = [file for file, is_read in _files_below(path, has_parquet=False) if is_read]
    else:
        paths = (
            [path] if path.is_file() else map(Path, sorted(glob.glob(str(path), recursive=True)))
        )
        texts = [file for file in paths if file.is_file() and _is_text(file, has_parquet=False)]
    notes = [describe_encoding(texts)]
    if seeks_records:
        descriptions = (describe_records(file, as_options=as_options) for file in texts)
        notes += [next(filter(None, descriptions), None)]
    return [note for note in notes if note]


def _matches(pattern: str, cache: Path, *, has_parquet: bool) -> list[FileDocument]:
    files: dict[Path, FileDocument] = {}
    for match in sorted(glob.glob(pattern, recursive=True)):
        path = Path(match)
        if path.is_file() and path.stat().st_size:
            _check_file(path, has_parquet=has_parquet)
            files[path] = FileDocument(path, cache)
    return list(files.values())


def _files_below(folder: Path, has_parquet: bool) -> Iterator[tuple[Path, bool]]:
    """Yield the files below a folder that are not hidden, by name, and whether each is read."""

    def relative(path: Path) -> str:
        return path.relative_to(folder).as_posix()

    for path in sorted(folder.rglob("*"), key=relative):
        parts = path.relative_to(folder).parts
        if any(part.startswith(".") for part in parts) or not path.is_file():
            continue  # hidden, or in a hidden folder
        yield path, bool(path.stat().st_size) and _is_text(path, has_parquet)


def _is_text(path: Path, has_parquet: bool) -> bool:
    suffix = path.suffix.lower()
    if suffix == PARQUET:
        return has_parquet
    if suffix in _ARCHIVES or is_tar(path):
        return False
    if suffix in PACKED:
        return True
    return is_text(path)


def _check_file(path: Path, *, has_parquet: bool) -> None:
    if has_parquet and is_parquet(path):
        return
    suffix = path.suffix.lower()
    if suffix in _DOCUMENTS:
        converted = ", as `pdftotext` does" if suffix == ".pdf" else ""
        raise DataError(
            f"{path} is a document ({suffix}), not plain text: convert it to text first{converted}"
        )
    if suffix in _ARCHIVES or is_tar(path):
        raise DataError(
            f"{path} is packed, not text: unpack it first ({', '.join(PACKED)} are read as they "
            "are)"
        )
    check_text(path)


BOM = b"\xef\xbb\xbf"

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
    """Return where the body of a Project Gutenberg file starts and stops, in bytes.

    Of any other text, that is all but a byte-order mark. Its header and licence are left out where
    both are marked: ``*** START OF THE PROJECT GUTENBERG EBOOK ... ***`` and ``*** END OF ...``, in
    their older wordings too: ``***START``, the end of the small print, and a line that begins with
    "End of Project Gutenberg's". With the header goes the paragraph after it that names who made
    the file.
    """
    first = len(BOM) if text[: len(BOM)] == BOM else 0
    start = None
    # Of small print and a start, whichever comes last is where the header ends.
    for match in _START.finditer(text[:_HEADER_BYTES], first):
        start = match.end()
    if start is None:
        return first, len(text)
    stop = _stop(text, start)
    if stop is None:
        return first, len(text)
    return start + _n_credits(text, start, stop), stop


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


def _n_credits(text: Text, start: int, stop: int) -> int:
    """Count the bytes of the paragraph that names who made the file, where one stands there."""
    size = _HEADER_BYTES
    while True:
        window = text[start : min(start + size, stop)]
        match = _CREDITS.match(window)
        end = match.end() if match else 0
        # A blank text up to there, or credits that do not end there, may go on behind it.
        is_open = end == len(window) if match else len(window.lstrip()) < _CREDITS_BYTES
        if start + size >= stop or not is_open:
            return end
        size *= 2
