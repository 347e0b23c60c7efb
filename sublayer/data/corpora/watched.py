"""Texts that are watched: the development sets of SQuAD and RACE, or what a path names."""

import tarfile
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from sublayer.config.text.corpora import HUB
from sublayer.config.text.watched import WATCHED
from sublayer.data.corpora.albert_intrinsic import passages, passages_of, read_passages
from sublayer.data.corpora.download import Download, fetch
from sublayer.data.text.document_store import RawDocument
from sublayer.data.text.documents import Reading, cache_documents, read_documents
from sublayer.data.text.files import Document, FileDocument, read_path
from sublayer.errors import DataError

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
_SNIFFED_BYTES = 1 << 16
_RACE_DEV = "RACE/dev"


def read_watched(text: str, cache: Path, reading: Reading) -> Sequence[Document]:
    """Return the documents of a text that is watched: a corpus of ``WATCHED``, or a path.

    Files of SQuAD and RACE are read as their passages, all others as ``reading`` says. Raises
    DataError where it is missing, damaged or, for a corpus, cannot be fetched.
    """
    if text in WATCHED:
        return _fetched(text, cache)
    if reading.rule in (None, "file") and _has_passages(text, cache):
        return read_passages([text], cache)
    return read_documents(text, cache, reading)


def _fetched(name: str, cache: Path) -> Sequence[Document]:
    download = _SQUAD if name == "squad-dev" else _RACE
    target = cache / "corpora" / download.url.rpartition("/")[2]
    if not target.is_file():
        try:
            fetch(download, target)
        except DataError as error:
            raise DataError(
                f"data.watch = {name}: {error}; give its file or folder, data.watch = "
                f"{{{WATCHED[name]} = PATH}}, or train without, data.watch = []"
            ) from None
    reader = partial(passages, FileDocument(target, cache))
    if name == "race-dev":
        reader = partial(_race_passages, target)
    origins = [(name, reader)]
    return cache_documents(name, origins, cache, name, download.checksum, is_distinct=True)


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
    """Return whether the first file of a path is of SQuAD or RACE, by how it begins."""
    if path.startswith(HUB):
        return False
    files = read_path(path, cache, has_parquet=True)
    start = bytes(files[0].read()[:_SNIFFED_BYTES]).lstrip()
    is_object = start.startswith(b"{")
    return is_object and (b'"paragraphs"' in start or b'"article"' in start)
