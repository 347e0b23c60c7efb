"""Kinds of files by their bytes: text or binary, its encoding, records that are read as text."""

import json
import re
import shlex
from codecs import BOM_UTF8
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sublayer.counts import count
from sublayer.data.cache import content_key
from sublayer.errors import DataError
from sublayer.files.cache_folder import cache_folder, replacing
from sublayer.files.lines import PACKED, conversion, read_blocks, read_start, wide_encoding
from sublayer.files.paths import as_typed
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

    Compressed files are judged by what is in them.
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
        except DataError:  # who reads the table says what is wrong
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
