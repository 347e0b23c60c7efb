"""Passages of SQuAD and RACE: ALBERT's development set, and watched texts.

Source: Lan et al. 2020, sec. 4.2: "a development set based on the development sets from SQuAD and
RACE".
"""

import json
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from sublayer.config.data import HUB, INTRINSIC, WATCHED
from sublayer.data.text.documents import Document, Reading, cache_documents, read_documents
from sublayer.data.text.files import FileDocument, RawDocument, read_path
from sublayer.data.text.records import encoded
from sublayer.errors import DataError
from sublayer.files.download import Download, fetch
from sublayer.files.lines import decoded


def read_passages(entries: Sequence[str], cache: Path) -> Sequence[Document]:
    """Return the distinct passages of SQuAD and RACE files, in the order of ``entries``.

    A passage that several questions share is one document. Raises DataError at any other file.
    """
    files: list[FileDocument] = []
    for entry in entries:
        files.extend(read_path(entry, cache))
    identity = ("passages", [file.digest() for file in files])
    origins = [(file.name, partial(passages, file)) for file in files]
    return cache_documents(INTRINSIC, origins, cache, *identity, is_distinct=True)


def passages(file: FileDocument) -> Iterator[RawDocument]:
    """Read the passages of a file of SQuAD 1.1 or 2.0, or of RACE.

    SQuAD files are JSON, with all passages at line 1; RACE files have JSON objects, one per file or
    line.

    Raises DataError with file and line where it is neither.
    """
    yield from passages_of(file.name, bytes(file.read()[:]))


def passages_of(name: str, text: bytes) -> Iterator[RawDocument]:
    """Read the passages of such a file's text, as ``passages`` does; errors name ``name``."""
    try:
        records = [(1, json.loads(text))]
    except (ValueError, RecursionError):
        lines = [(line, data) for line, data in enumerate(text.split(b"\n"), 1) if data.strip()]
        records = [(line, _parsed(decoded(name, line, data), name, line)) for line, data in lines]
    for line, record in records:
        where = f"{name}, line {line}"
        try:
            if isinstance(record, dict) and isinstance(record.get("data"), list):
                listed = [article["paragraphs"] for article in record["data"]]
                is_whole = all(isinstance(paragraphs, list) for paragraphs in listed)
                texts = [part["context"] for part in chain(*listed)] if is_whole else [None]
            else:
                texts = [record["article"]]
        except (KeyError, TypeError):
            texts = [None]
        if not all(isinstance(passage, str) for passage in texts):
            raise _neither(where, "no passage of either")
        for passage in texts:
            yield line, encoded(passage, where)


def _parsed(text: str, name: str, line: int) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _neither(f"{name}, line {line}", f"not JSON: {error}") from error


def _neither(where: str, why: str) -> DataError:
    return DataError(
        f"{where}: {why}; data.corpus = albert-intrinsic reads SQuAD's JSON files and RACE's files"
    )


# Addresses and checksums as datasets of the Hugging Face hub record them.
_SQUAD = Download(
    "https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v1.1.json",
    4_854_279,
    "sha256",
    "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
)
_RACE = Download(
    "http://www.cs.cmu.edu/~glai1/data/race/RACE.tar.gz",
    25_443_329,
    "sha256",
    "b2769cc9fdc5c546a693300eb9a966cec6870bd349fbc44ed5225f8ad33006e5",
)
_DOWNLOADS = {"squad-dev": (_SQUAD,), "race-dev": (_RACE,), INTRINSIC: (_SQUAD, _RACE)}
_SNIFFED_BYTES = 1 << 16
_RACE_DEV = "RACE/dev"


def read_watched(text: str, cache: Path, reading: Reading) -> Sequence[Document]:
    """Return the documents of a watched text: a corpus of ``WATCHED``, or a path.

    Files of SQuAD and RACE are read as their passages, all others as ``reading`` says. Raises
    DataError where it is missing, damaged or, for a corpus, cannot be fetched.
    """
    if text in WATCHED:
        return fetched(text, cache, field="data.watch")
    if reading.rule in (None, "file") and _has_passages(text, cache):
        return read_passages([text], cache)
    return read_documents(text, cache, reading)


def fetched(name: str, cache: Path, *, field: str) -> Sequence[Document]:
    """Return the documents of a corpus of ``WATCHED``; errors name ``field``.

    Raises DataError where it cannot be fetched, or is damaged.
    """
    downloads = _DOWNLOADS[name]
    origins = []
    for download in downloads:
        target = cache / "corpora" / download.url.rpartition("/")[2]
        if not target.is_file():
            try:
                fetch(download, target)
            except DataError as error:
                raise DataError(f"{field} = {name}: {error}; {_instead(name, field)}") from None
        reader = partial(passages, FileDocument(target, cache))
        if download is _RACE:
            reader = partial(_race_passages, target)
        origins.append((name if len(downloads) == 1 else target.name, reader))
    checksums = [download.checksum for download in downloads]
    return cache_documents(name, origins, cache, name, *checksums, is_distinct=True)


def _instead(name: str, field: str) -> str:
    if field != "data.watch":
        return f"give another text, {field} = PATH"
    return (
        f"give its file or folder, data.watch = {{{WATCHED[name]} = PATH}}, or train without, "
        "data.watch = []"
    )


def _race_passages(archive: Path) -> Iterator[RawDocument]:
    """Read the passages of RACE's development set, of both its parts, from its archive."""
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                is_passage = PurePosixPath(member.name).parent.parent == PurePosixPath(_RACE_DEV)
                source = opened.extractfile(member) if is_passage and member.isfile() else None
                if source is not None:
                    yield from passages_of(member.name, source.read())
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} is a damaged archive ({error}): delete it") from error


def _has_passages(path: str, cache: Path) -> bool:
    """Check whether a path's first file begins as one of SQuAD or RACE."""
    if path.startswith(HUB):
        return False
    files = read_path(path, cache, has_parquet=True)
    start = bytes(files[0].read()[:_SNIFFED_BYTES]).lstrip()
    is_object = start.startswith(b"{")
    return is_object and (b'"paragraphs"' in start or b'"article"' in start)
