"""The passages of SQuAD and RACE, on which ALBERT's pre-training is measured.

Source: Lan et al. 2020, sec. 4.2: "a development set based on the development sets from SQuAD and
RACE".
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sublayer.config.texts import INTRINSIC
from sublayer.data.text.documents import cache_documents
from sublayer.data.text.files import Document, FileDocument, RawDocument, read_path
from sublayer.data.text.records import encoded
from sublayer.errors import DataError
from sublayer.files.lines import decoded

_NO_CONTEXT = "data without paragraphs that have a context"


def read_passages(entries: Sequence[str], cache: Path) -> Sequence[Document]:
    """Return the distinct passages of SQuAD's and RACE's files, in the order of ``entries``.

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

    SQuAD's files are JSON, whose passages are all said to be of line 1; RACE's are JSON objects,
    one a file or one a line.

    Raises DataError with file and line where it is neither.
    """
    yield from passages_of(file.name, bytes(file.read()[:]))


def passages_of(name: str, text: bytes) -> Iterator[RawDocument]:
    """Read the passages of the text of such a file, as ``passages`` does, under a name."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        yield from _lines(name, text)
        return
    if isinstance(whole, dict) and isinstance(whole.get("data"), list):
        for passage in _contexts(whole["data"], name):
            yield 1, passage
    else:
        yield 1, _article(whole, name, 1)


def _lines(name: str, text: bytes) -> Iterator[RawDocument]:
    for line, data in enumerate(text.split(b"\n"), 1):
        if not data.strip():
            continue
        decoded(name, line, data)
        try:
            record = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise _neither(name, line, f"not JSON: {error}") from error
        yield line, _article(record, name, line)


def _article(record: Any, name: str, line: int) -> bytes:
    article = record.get("article") if isinstance(record, dict) else None
    if not isinstance(article, str):
        raise _neither(name, line, "no article")
    return encoded(article, name, line)


def _contexts(articles: list[Any], name: str) -> Iterator[bytes]:
    for article in articles:
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        if not isinstance(paragraphs, list):
            raise _neither(name, 1, _NO_CONTEXT)
        for paragraph in paragraphs:
            context = paragraph.get("context") if isinstance(paragraph, dict) else None
            if not isinstance(context, str):
                raise _neither(name, 1, _NO_CONTEXT)
            yield encoded(context, name, 1)


def _neither(name: str, line: int, why: str) -> DataError:
    return DataError(
        f"{name}, line {line}: {why}; "
        "data.corpus = albert-intrinsic reads SQuAD's JSON files and RACE's files"
    )
