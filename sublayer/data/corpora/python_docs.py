"""The built-in corpus: documentation of the running Python installation; no network needed."""

import ast
import gc
import json
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sublayer.data.cache import content_key
from sublayer.data.text.files import MemoryDocument
from sublayer.errors import DataError
from sublayer.files.cache_folder import replacing

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
    running interpreter's. Modules are parsed, never imported; their tests are left out, and a
    docstring that occurs again is taken once. Documents are in order of their names. The result is
    cached until the installation changes.

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
    documents = _read_cached(cached)
    if documents is None:
        with _no_garbage_collection():
            documents = _collect(files)
        n_characters = sum(len(text) for _, text in documents)
        if n_characters < _LEAST_BYTES:
            raise DataError(
                f"data.corpus = python: {root} has no Python sources to read; "
                "give data.path instead"
            )
        content = json.dumps(documents, ensure_ascii=False)
        with replacing(cached) as file:
            file.write(content.encode())
    return tuple(MemoryDocument(name, text.encode()) for name, text in documents)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    # Syntax trees are millions of objects, and each collection looks at all of PyTorch's too: twice
    # the time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


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
    for name, path in files:
        tree = _parse(path)
        if tree is None:
            continue
        if name == _TOPICS:
            documents.extend(_topics(tree))
            continue
        distinct = dict.fromkeys(_docstrings(tree))
        docstrings = [text for text in distinct if text not in seen]
        seen.update(docstrings)
        if docstrings:
            text = "\n\n".join(docstrings)
            documents.append((name, text + "\n"))
    return sorted(documents)


def _parse(path: Path) -> ast.Module | None:
    with warnings.catch_warnings():
        # Other people's invalid escapes; and a file that this Python cannot parse holds no prose of
        # it.
        warnings.simplefilter("ignore")
        try:
            return ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            return None


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
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Dict):
            continue
        topics = ast.literal_eval(statement.value)
        for name, text in topics.items():
            document = _printable(text) + "\n"
            yield f"topic {name}", document


def _printable(text: str) -> str:
    # Docstrings of codecs hold lone surrogates, which no UTF-8 has; one of Python 3.13's prompt has
    # control characters.
    without_surrogates = text.encode("utf-8", "replace").decode()
    lines = (line.rstrip() for line in without_surrogates.splitlines())
    stripped = "\n".join(lines).strip("\n")
    return _CONTROL.sub("?", stripped)


def _read_cached(path: Path) -> list[tuple[str, str]] | None:
    try:
        documents = json.loads(path.read_bytes())
        return [(str(name), str(text)) for name, text in documents]
    except (OSError, ValueError):
        return None
