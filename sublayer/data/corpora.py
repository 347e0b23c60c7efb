"""Named corpora, fetched from their publishers and checked; sources of a recipe's texts.

SQuAD and RACE: ALBERT's development set, and watched texts. Source: Lan et al. 2020, sec. 4.2: "a
development set based on the development sets from SQuAD and RACE".

The 1 Billion Word Benchmark as released: 99 training and 50 held-out files of tokenized sentences.
Source: Chelba et al. 2013; the archive 1-billion-word-language-modeling-benchmark-r13output.tar.gz.
"""

import ast
import gc
import json
import os
import re
import shutil
import sys
import sysconfig
import tarfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from sublayer.config.data import HUB, INTRINSIC, WATCHED, DataConfig, Sources, source_names
from sublayer.data.text.documents import (
    AS_FILES,
    Document,
    HubSet,
    Reading,
    cache_documents,
    encoded,
    read_documents,
    read_files,
    sniffed_kind,
)
from sublayer.data.text.files import (
    FileDocument,
    MemoryDocument,
    RawDocument,
    check_there,
    is_tar,
    read_path,
)
from sublayer.data.text.ranges import SplitName
from sublayer.errors import ConfigError, DataError
from sublayer.files.cache_folder import (
    Download,
    content_key,
    corpus_folders,
    replacing,
    unzip,
)
from sublayer.files.lines import decoded
from sublayer.files.storage import expanded, new_folder, resolved


def read_passages(entries: Sequence[str], cache: Path) -> Sequence[Document]:
    """Return the distinct passages of SQuAD and RACE files, in the order of ``entries``.

    A passage that several questions share is one document. Raises DataError for any other file.
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

    Raises DataError with file and line for any other file.
    """
    yield from passages_of(file.name, bytes(file.read()[:]))


def passages_of(name: str, text: bytes) -> Iterator[RawDocument]:
    """Read the passages of a file's text, as ``passages`` does; errors name ``name``."""
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
            raise _neither(where, "no passage of SQuAD or RACE")
        for passage in texts:
            yield line, encoded(passage, where)


def _parsed(text: str, name: str, line: int) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _neither(f"{name}, line {line}", f"not JSON: {error}") from error


def _neither(where: str, why: str) -> DataError:
    return DataError(
        f"{where}: {why}; data.corpus = albert-intrinsic reads only files of SQuAD and RACE"
    )


# Addresses and checksums, from data sets of the Hugging Face hub.
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

    Files of SQuAD and RACE are read as passages, all others as documents by ``reading``. Raises
    DataError where the text is missing or damaged, or a corpus cannot be fetched.
    """
    if text in WATCHED:
        return fetched(text, cache, field="data.watch")
    if reading.rule in (None, "file") and not text.startswith(HUB):
        first, *_ = read_path(text, cache, has_parquet=True)
        start = bytes(first.read()[:_SNIFFED_BYTES]).lstrip()
        if start.startswith(b"{") and (b'"paragraphs"' in start or b'"article"' in start):
            return read_passages([text], cache)
    return read_documents(text, cache, reading)


def fetched(name: str, cache: Path, *, field: str) -> Sequence[Document]:
    """Return the documents of a corpus of ``WATCHED``; errors name ``field``.

    Raises DataError where the corpus cannot be fetched, or is damaged.
    """
    downloads = _DOWNLOADS[name]
    origins = []
    for download in downloads:
        target = cache / "corpora" / download.url.rpartition("/")[2]
        if not target.is_file():
            try:
                download.fetch(target)
            except DataError as error:
                instead = f"give another text, {field} = PATH"
                if field == "data.watch":
                    instead = (
                        f"give its file or folder, data.watch = {{{WATCHED[name]} = PATH}}, or "
                        "train without it, data.watch = []"
                    )
                raise DataError(f"{field} = {name}: {error}; {instead}") from None
        reader = partial(passages, FileDocument(target, cache))
        if download is _RACE:
            reader = partial(_race_passages, target)
        origins.append((name if len(downloads) == 1 else target.name, reader))
    checksums = [download.checksum for download in downloads]
    return cache_documents(name, origins, cache, name, *checksums, is_distinct=True)


def _race_passages(archive: Path) -> Iterator[RawDocument]:
    """Read the passages of RACE's development set, both parts, from its archive."""
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                is_passage = PurePosixPath(member.name).parent.parent == PurePosixPath(_RACE_DEV)
                source = opened.extractfile(member) if is_passage and member.isfile() else None
                if source is not None:
                    yield from passages_of(member.name, source.read())
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} is a damaged archive ({error}): delete it") from error


@dataclass(frozen=True)
class Source:
    """Source of texts: documents to split, or published splits."""

    name: str
    documents: Sequence[Document] = ()
    """Documents to be split; empty where there are ``published`` splits."""
    published: Mapping[SplitName, Sequence[Document]] = field(default_factory=dict)
    """Splits of the publisher, if any."""
    weight: float | None = None
    """Weight in draws for training, relative to other sources; None: the source's size."""


RELEASE = "1-billion-word-language-modeling-benchmark-r13output"
TRAINING = "training-monolingual.tokenized.shuffled"
HELD_OUT = "heldout-monolingual.tokenized.shuffled"

_TEST = "news.en.heldout-00000-"
_NAMES = {
    TRAINING: re.compile(r"news\.en-\d{5}-of-\d{5}"),
    HELD_OUT: re.compile(r"news\.en\.heldout-\d{5}-of-\d{5}"),
}


def find_release(path: Path) -> Path | None:
    """Return the folder of the release, ``path`` or a subfolder of it; None if there is none.

    The folder has the subfolders ``TRAINING`` and ``HELD_OUT``.
    """
    for folder in (path, path / RELEASE):
        if (folder / TRAINING).is_dir() and (folder / HELD_OUT).is_dir():
            return folder
    return None


def read_release(folder: Path, cache: Path) -> dict[SplitName, tuple[FileDocument, ...]]:
    """Return the published splits of the release.

    The test split is held-out file 0, the validation split the other held-out files. Raises
    DataError where a split's files are missing.
    """
    files = {
        name: [path for path in sorted((folder / name).iterdir()) if pattern.fullmatch(path.name)]
        for name, pattern in _NAMES.items()
    }
    held_out = files[HELD_OUT]
    splits: dict[SplitName, list[Path]] = {
        "train": files[TRAINING],
        "valid": [path for path in held_out if not path.name.startswith(_TEST)],
        "test": [path for path in held_out if path.name.startswith(_TEST)],
    }
    for split, paths in splits.items():
        if not paths:
            raise DataError(
                f"{folder} lacks the {split} files of lm1b: extract all of {RELEASE}.tar.gz again"
            )
    return {
        split: tuple(FileDocument(path, cache) for path in paths) for split, paths in splits.items()
    }


def extract_release(archive: Path, cache: Path) -> Path:
    """Extract the release's files from its archive into the cache, once, and return their folder.

    An archive with the same path, size and modification time is not extracted again. Nothing is
    written outside the folder.

    Raises DataError if the archive is damaged or is not the release, or if the folder cannot be
    written.
    """
    status = archive.stat()
    key = content_key(str(resolved(archive)), status.st_size, status.st_mtime_ns)
    folder = cache / "corpora" / f"lm1b-{key[:16]}"
    if folder.is_dir():
        return folder
    try:
        with new_folder(folder) as unfinished:
            with tarfile.open(archive) as opened:
                for member in opened:
                    path = PurePosixPath(member.name)
                    pattern = _NAMES.get(path.parent.name)
                    if pattern is None or not pattern.fullmatch(path.name) or not member.isfile():
                        continue
                    source = opened.extractfile(member)
                    assert source is not None, "a file has content"
                    # The file is named by the two matched names, never by its path in the archive.
                    (unfinished / path.parent.name).mkdir(exist_ok=True)
                    with (unfinished / path.parent.name / path.name).open("wb") as file:
                        shutil.copyfileobj(source, file, 1 << 20)
            if find_release(unfinished) is None:
                raise DataError(
                    f"{archive} is not the archive of the lm1b release: "
                    "unpack it and name its text files"
                )
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} is a damaged archive ({error}): fetch it again") from error
    except OSError as error:
        if not folder.is_dir():
            raise DataError(
                f"cannot extract {archive} to {folder}: {error.strerror or error}"
            ) from error
    return folder


@dataclass(frozen=True)
class PublishedFile:
    """Corpus of one file, published in a zip archive."""

    name: str
    """Name of the corpus, and of its file in the archive."""
    n_bytes: int
    """Size of the file; like ``md5``, not of the archive."""
    md5: str
    archive: Download

    def __call__(self, cache: Path, reading: Reading = AS_FILES) -> Source:
        """Find the file in SUBLAYER_DATA or the cache, or download it, or raise DataError."""
        return Source(self.name, (FileDocument(self._find(cache), cache),))

    def _find(self, cache: Path) -> Path:
        target = cache / "corpora" / self.name
        for folder in corpus_folders(cache):
            for path in (folder / self.name, folder / self.name / self.name):
                if not path.is_file():
                    continue
                if (n_bytes := path.stat().st_size) != self.n_bytes:
                    raise DataError(
                        f"{path} has {n_bytes:,} bytes, but {self.name} has {self.n_bytes:,}: put "
                        "the complete file there, or name a part of it in data.path"
                    )
                return path
            archive = folder / f"{self.name}.zip"
            if archive.is_file():
                return unzip(archive, self.name, target, md5=self.md5)
        archive = _downloaded(self.archive, target.with_name(f"{self.name}.zip"), self.name)
        unzip(archive, self.name, target, md5=self.md5)
        archive.unlink()
        return target


_BILLION_WORDS = Download(
    f"http://www.statmt.org/lm-benchmark/{RELEASE}.tar.gz",
    1_792_209_805,
    "sha256",
    "01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e",
)


def read_billion_words(
    cache: Path, reading: Reading = AS_FILES, archive: Download = _BILLION_WORDS
) -> Source:
    """Find the release of lm1b, its folder or archive, in SUBLAYER_DATA or the cache.

    If there is none, download it, or raise DataError.
    """
    name = f"{RELEASE}.tar.gz"
    release = None
    for folder in corpus_folders(cache):
        release = release or find_release(folder) or find_release(folder / "lm1b")
        if release is None and (folder / name).is_file():
            release = extract_release(folder / name, cache)
    if release is None:
        release = extract_release(_downloaded(archive, cache / "corpora" / name, name), cache)
    return Source("lm1b", published=read_release(release, cache))


@dataclass(frozen=True)
class PublishedRecords:
    """Corpus of many documents in many files: a folder, or a data set of the hub.

    Files are Parquet, JSON lines or WikiExtractor's articles; any other file is one document,
    unless ``data.documents`` sets another rule.
    """

    name: str
    hub: HubSet
    are_sentences: bool = False
    """Whether each record is a sentence. As the corpus does not mark the ends of documents,
    1,000 consecutive sentences make one."""
    sentence_files: tuple[str, ...] = ()
    """Files of one sentence per line, by the part of their names before the first dot."""

    held_out: str | None = None
    """Name of the data set's held-out split; None without one. In file names it is between the
    corpus and a dot: ``c4-validation.00000-of-00008.json.gz``."""

    def __call__(self, cache: Path, reading: Reading = AS_FILES) -> Source:
        """Find the folder in SUBLAYER_DATA or the cache, or fetch the data set.

        The first half of the held-out split is for validation, the second for the test. Raises
        DataError without a folder and a network, and where the folder lacks the training or the
        held-out files.
        """
        folders = [folder / self.name for folder in corpus_folders(cache)]
        folder = next(filter(Path.is_dir, folders), None)
        held_out: Sequence[Document] = ()
        if folder is not None:
            name = str(folder)
            files = read_path(name, cache, has_parquet=reading.has_parquet)
            marked = f"{self.name}-{self.held_out}."
            apart = [file for file in files if file.path.name.startswith(marked)]
            rest = [file for file in files if file not in apart]
            if self.held_out is not None:
                for part, pattern in ((apart, f"{marked}*"), (rest, f"{self.name}-train.*")):
                    if not part:
                        raise DataError(
                            f"{folder} has no file {pattern}, but {self.name} has a held-out "
                            "split: put all of its files there, or name the folder in data.path"
                        )
                held_out = self._read(f"{marked}* of {folder}", apart, cache, reading)
            training = self._read(name, rest, cache, reading)
        else:
            try:
                training = self.hub.documents(cache, reading, in_runs=self.are_sentences)
                if self.held_out is not None:
                    held_out = replace(self.hub, split=self.held_out).documents(cache, reading)
            except DataError as error:
                raise DataError(
                    f"data.corpus = {self.name}: {error}; or put the published files into "
                    f"{folders[0]}"
                ) from error
        if self.held_out is None:
            return Source(self.name, training)
        if len(held_out) < 2:
            raise DataError(
                f"the {self.held_out} split of {self.name} has fewer than two documents: "
                "validation and test need one each"
            )
        half = len(held_out) // 2
        splits: dict[SplitName, Sequence[Document]] = {
            "train": training,
            "valid": held_out[:half],
            "test": held_out[half:],
        }
        return Source(self.name, published=splits)

    def _read(
        self, name: str, files: Sequence[FileDocument], cache: Path, reading: Reading
    ) -> Sequence[Document]:
        kinds = [reading.rule or self._kind(file.path) for file in files]
        return read_files(name, files, kinds, cache, reading)

    def _kind(self, path: Path) -> str:
        kind = sniffed_kind(path)
        if self.are_sentences and kind in ("json", "parquet"):
            return f"{kind} runs"
        return "line runs" if path.name.partition(".")[0] in self.sentence_files else kind


def _downloaded(download: Download, target: Path, wanted: str) -> Path:
    try:
        return download.fetch(target)
    except DataError as error:
        folder = os.environ.get("SUBLAYER_DATA") or target.parent
        raise DataError(f"{error}: fetch it elsewhere and put {wanted} into {folder}") from error


_VERSION = 2
_LEAST_BYTES = 200_000
_SKIPPED_FOLDERS = {"__pycache__", "dist-packages", "idle_test", "site-packages", "test", "tests"}
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")
"""Line length in characters, without its end."""
_TOPICS = "pydoc_data/topics.py"
_INNER = ("body", "handlers", "orelse", "finalbody")
"""Fields that hold statements, in source order; the cases of a match are skipped."""


def python_prose(cache: Path, root: Path | None = None) -> tuple[MemoryDocument, ...]:
    """Collect the docstrings of the standard library and the topics of its manual.

    There is one document per module or topic. ``root`` is the library's folder, by default the
    running interpreter's. Modules are parsed, never imported; their tests are skipped, and
    duplicate docstrings are used once. Documents are sorted by name. The result is cached until the
    installation changes.

    Raises DataError where the prose has fewer than 200,000 characters, as in an installation
    without sources.
    """
    root = root or Path(sysconfig.get_path("stdlib"))
    files: list[tuple[str, Path]] = []
    for folder, folders, names in os.walk(root):
        folders[:] = set(folders) - _SKIPPED_FOLDERS
        paths = [Path(folder, name) for name in names if name.endswith(".py")]
        files += [(path.relative_to(root).as_posix(), path) for path in paths]
    files.sort()
    stamps = []
    for name, path in files:
        status = path.stat()
        stamps.append((name, status.st_size, status.st_mtime_ns))
    key = content_key(_VERSION, sys.version, str(root), stamps)
    cached = cache / "prose" / f"{key}.json"
    documents: list[tuple[str, str]] = []
    with suppress(OSError, ValueError):
        documents = json.loads(cached.read_bytes())
    if not documents:
        documents = _collect(files)
        if sum(len(text) for _, text in documents) < _LEAST_BYTES:
            raise DataError(
                f"data.corpus = python: {root} has no Python sources: give data.path instead"
            )
        with replacing(cached) as file:
            file.write(json.dumps(documents, ensure_ascii=False).encode())
    return tuple(MemoryDocument(name, text.encode()) for name, text in documents)


def _collect(files: list[tuple[str, Path]]) -> list[tuple[str, str]]:
    documents: list[tuple[str, str]] = []
    seen: set[str] = set()
    was_enabled = gc.isenabled()
    # Syntax trees are millions of objects: garbage collection would double the time.
    gc.disable()
    try:
        for name, path in files:
            tree = _parse(path)
            if name == _TOPICS:
                # The module is one dictionary: ``topics = {...}``.
                tables = [
                    statement.value
                    for statement in tree.body
                    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict)
                ]
                topics = chain.from_iterable(ast.literal_eval(table).items() for table in tables)
                documents += [(f"topic {name}", _printable(text) + "\n") for name, text in topics]
                continue
            docstrings = [text for text in dict.fromkeys(_docstrings(tree)) if text not in seen]
            seen.update(docstrings)
            if docstrings:
                documents.append((name, "\n\n".join(docstrings) + "\n"))
    finally:
        if was_enabled:
            gc.enable()
    return sorted(documents)


def _parse(path: Path) -> ast.Module:
    with warnings.catch_warnings():
        # Sources may have invalid escapes; a file that this Python cannot parse is not part of its
        # library's prose.
        warnings.simplefilter("ignore")
        try:
            return ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            return ast.Module([], [])


def _docstrings(tree: ast.AST) -> Iterator[str]:
    if isinstance(tree, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(tree)
        if text and text.strip():
            yield _printable(text)
    for branch in _INNER:
        for child in getattr(tree, branch, ()):
            yield from _docstrings(child)


def _printable(text: str) -> str:
    # Docstrings of codecs hold lone surrogates, invalid in UTF-8; one of Python 3.13's prompt holds
    # control characters.
    without_surrogates = text.encode("utf-8", "replace").decode()
    lines = (line.rstrip() for line in without_surrogates.splitlines())
    stripped = "\n".join(lines).strip("\n")
    return _CONTROL.sub("?", stripped)


def check_texts(data: DataConfig) -> None:
    """Raise DataError where ``data.path`` names a file or a folder that is not there; read none."""
    if data.is_parallel or data.tasks is not None:
        return
    for name in source_names(data.path):
        if not name.startswith(HUB):
            check_there(name)


def find_sources(
    path: Sources | None, corpus: Sources | None, cache: Path, reading: Reading = AS_FILES
) -> tuple[Source, ...]:
    """Find every text that ``data.path`` and ``data.corpus`` name, in order.

    The lm1b release, a folder or its archive, has its published splits. With the corpus
    albert-intrinsic, the path names its files. Raises ConfigError if neither names a text,
    DataError where a text cannot be read.
    """
    if path is not None and INTRINSIC in source_names(corpus):
        return (Source(INTRINSIC, read_passages(source_names(path), cache)),)
    texts: list[Source] = []
    for name, weight in _entries(path):
        folder = expanded(name)
        if folder.is_file() and is_tar(folder):
            folder = extract_release(folder, cache)
        if release := find_release(folder):
            texts.append(Source(name, published=read_release(release, cache), weight=weight))
        else:
            texts.append(Source(name, read_documents(name, cache, reading), weight=weight))
    for name, weight in _entries(corpus):
        texts.append(replace(CORPORA[name](cache, reading), weight=weight))
    if not texts:
        raise ConfigError(
            f"the recipe names no text: give data.path, or data.corpus as one of "
            f"{', '.join(CORPORA)}"
        )
    return tuple(texts)


def _entries(sources: Sources | None) -> list[tuple[str, float | None]]:
    if isinstance(sources, dict):
        return list(sources.items())
    return [(name, None) for name in source_names(sources)]


def _without_path(cache: Path, reading: Reading) -> Source:
    raise ConfigError(
        f"data.corpus = {INTRINSIC} reads files of SQuAD and RACE: name them in data.path"
    )


CORPORA: dict[str, Callable[[Path, Reading], Source]] = {
    "python": lambda cache, reading: Source("python", python_prose(cache)),
    # Sizes and checksums of both files are from mattmahoney.net/dc/textdata.html, those of the
    # archives from the files as served.
    "enwik8": PublishedFile(
        "enwik8",
        100_000_000,
        "a1fa5ffddb56f4953e226637dabbb36a",
        Download(
            "https://mattmahoney.net/dc/enwik8.zip",
            36_445_475,
            "sha256",
            "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
        ),
    ),
    "text8": PublishedFile(
        "text8",
        100_000_000,
        "3bea1919949baf155f99411df5fada7e",
        Download(
            "https://mattmahoney.net/dc/text8.zip",
            31_344_016,
            "sha256",
            "a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
        ),
    ),
    "lm1b": read_billion_words,
    "wikipedia": PublishedRecords("wikipedia", HubSet("wikimedia/wikipedia", "20231101.en")),
    # The data set's script was retired; the branch holds the hub's conversion of its data.
    "bookcorpus": PublishedRecords(
        "bookcorpus",
        HubSet("bookcorpus/bookcorpus", revision="refs/convert/parquet"),
        are_sentences=True,
        sentence_files=("books_large_p1", "books_large_p2"),
    ),
    "c4": PublishedRecords("c4", HubSet("allenai/c4", "en"), held_out="validation"),
    INTRINSIC: _without_path,
}
"""Reader of each corpus of ``sublayer.config.data.CORPORA``."""
