"""Named corpora, and the sources of a recipe's paths and corpora."""

import ast
import gc
import json
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sublayer.config.data import INTRINSIC, Sources, source_names
from sublayer.data.corpora.passages import read_passages
from sublayer.data.corpora.published import (
    RELEASE,
    PublishedFile,
    PublishedRecords,
    PublishedRelease,
    Source,
    extract_release,
    find_release,
    read_release,
)
from sublayer.data.text.documents import AS_FILES, Reading, read_documents
from sublayer.data.text.files import MemoryDocument, is_tar
from sublayer.data.text.records import HubSet
from sublayer.errors import ConfigError, DataError
from sublayer.files.cache_folder import content_key, replacing
from sublayer.files.download import Download
from sublayer.files.storage import expanded

_VERSION = 2
_LEAST_BYTES = 200_000
_SKIPPED_FOLDERS = {"__pycache__", "dist-packages", "idle_test", "site-packages", "test", "tests"}
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")
"""All but the end of a line."""
_TOPICS = "pydoc_data/topics.py"
_INNER = ("body", "handlers", "orelse", "finalbody")
"""Fields that hold statements, in the order of the source; the cases of a match are left out."""


def python_prose(cache: Path, root: Path | None = None) -> tuple[MemoryDocument, ...]:
    """Collect the docstrings of the standard library and the topics of its manual.

    There is one document per module or topic. ``root`` is the library's folder, by default the
    running interpreter's. Modules are parsed, never imported; their tests are left out, and
    duplicate docstrings are taken once. Documents are in order of their names. The result is cached
    until the installation changes.

    Raises DataError where the installation has no sources: they give less than 200,000 characters.
    """
    root = root or Path(sysconfig.get_path("stdlib"))
    files = sorted(_modules(root))
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
                f"data.corpus = python: {root} has no Python sources to read; "
                "give data.path instead"
            )
        with replacing(cached) as file:
            file.write(json.dumps(documents, ensure_ascii=False).encode())
    return tuple(MemoryDocument(name, text.encode()) for name, text in documents)


def _modules(root: Path) -> Iterator[tuple[str, Path]]:
    for folder, folders, names in os.walk(root):
        folders[:] = set(folders) - _SKIPPED_FOLDERS
        for name in names:
            if name.endswith(".py"):
                path = Path(folder, name)
                yield path.relative_to(root).as_posix(), path


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
                documents.extend(_topics(tree))
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
        # Other people's invalid escapes; and a file that this Python cannot parse holds no prose of
        # it.
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
    for field in _INNER:
        children = getattr(tree, field, ())
        for child in children:
            yield from _docstrings(child)


def _topics(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for statement in tree.body:
        # The module is one dictionary: ``topics = {...}``.
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            for name, text in ast.literal_eval(statement.value).items():
                yield f"topic {name}", _printable(text) + "\n"


def _printable(text: str) -> str:
    # Docstrings of codecs hold lone surrogates, which no UTF-8 has; one of Python 3.13's prompt has
    # control characters.
    without_surrogates = text.encode("utf-8", "replace").decode()
    lines = (line.rstrip() for line in without_surrogates.splitlines())
    stripped = "\n".join(lines).strip("\n")
    return _CONTROL.sub("?", stripped)


def find_sources(
    path: Sources | None, corpus: Sources | None, cache: Path, reading: Reading = AS_FILES
) -> tuple[Source, ...]:
    """Find every text that ``data.path`` and ``data.corpus`` name, in order.

    A path with the layout of the lm1b release, or its archive, has the published split. With the
    corpus albert-intrinsic, the path names its files. Raises ConfigError if neither names one,
    DataError where one cannot be read.
    """
    if path is not None and INTRINSIC in source_names(corpus):
        return (Source(INTRINSIC, read_passages(source_names(path), cache)),)
    texts = [replace(_read(name, cache, reading), weight=weight) for name, weight in _entries(path)]
    texts += [
        replace(CORPORA[name](cache, reading), weight=weight) for name, weight in _entries(corpus)
    ]
    if not texts:
        raise ConfigError(
            f"there is no text: give data.path, or data.corpus as one of {', '.join(CORPORA)}"
        )
    return tuple(texts)


def _entries(sources: Sources | None) -> list[tuple[str, float | None]]:
    if isinstance(sources, dict):
        return list(sources.items())
    return [(name, None) for name in source_names(sources)]


def _read(name: str, cache: Path, reading: Reading) -> Source:
    path = expanded(name)
    if path.is_file() and is_tar(path):
        path = extract_release(path, cache)
    release = find_release(path)
    if release is not None:
        return Source(name, published=read_release(release, cache))
    return Source(name, read_documents(name, cache, reading))


def _without_path(cache: Path, reading: Reading) -> Source:
    raise ConfigError(
        f"data.corpus = {INTRINSIC} needs data.path: the files of SQuAD and RACE that it reads"
    )


CORPORA: dict[str, Callable[[Path, Reading], Source]] = {
    "python": lambda cache, reading: Source("python", python_prose(cache)),
    # Both: sizes and checksums from mattmahoney.net/dc/textdata.html, and of the archives as
    # served.
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
    "lm1b": PublishedRelease(
        Download(
            f"http://www.statmt.org/lm-benchmark/{RELEASE}.tar.gz",
            1_792_209_805,
            "sha256",
            "01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e",
        )
    ),
    "wikipedia": PublishedRecords("wikipedia", HubSet("wikimedia/wikipedia", "20231101.en")),
    # Its script was retired; the branch holds the hub's conversion of it.
    "bookcorpus": PublishedRecords(
        "bookcorpus",
        HubSet("bookcorpus/bookcorpus", revision="refs/convert/parquet"),
        are_sentences=True,
        sentence_files=("books_large_p1", "books_large_p2"),
    ),
    "c4": PublishedRecords("c4", HubSet("allenai/c4", "en"), held_out="validation"),
    INTRINSIC: _without_path,
}
"""The reader of each corpus of ``sublayer.config.data.CORPORA``."""
