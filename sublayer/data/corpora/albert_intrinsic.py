"""The passages of SQuAD and RACE, on which ALBERT's pre-training is measured.

Source: Lan et al. 2020, sec. 4.2: "a development set based on the development sets from SQuAD and
RACE".
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sublayer.config.text.corpora import INTRINSIC
from sublayer.data.text.document_store import RawDocument
from sublayer.data.text.documents import cache_documents
from sublayer.data.text.files import Document, FileDocument, read_path
from sublayer.data.text.lines import decoded
from sublayer.data.text.records import encoded
from sublayer.errors import DataError

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
    text = bytes(file.read()[:])
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        yield from _lines(file, text)
        return
    if isinstance(whole, dict) and isinstance(whole.get("data"), list):
        for passage in _contexts(whole["data"], file):
            yield 1, passage
    else:
        yield 1, _article(whole, file, 1)


def _lines(file: FileDocument, text: bytes) -> Iterator[RawDocument]:
    for line, data in enumerate(text.split(b"\n"), 1):
        if not data.strip():
            continue
        decoded(file.name, line, data)
        try:
            record = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise _neither(file, line, f"not JSON: {error}") from error
        yield line, _article(record, file, line)


def _article(record: Any, file: FileDocument, line: int) -> bytes:
    article = record.get("article") if isinstance(record, dict) else None
    if not isinstance(article, str):
        raise _neither(file, line, "no article")
    return encoded(article, file.name, line)


def _contexts(articles: list[Any], file: FileDocument) -> Iterator[bytes]:
    for article in articles:
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        if not isinstance(paragraphs, list):
            raise _neither(file, 1, _NO_CONTEXT)
        for paragraph in paragraphs:
            context = paragraph.get("context") if isinstance(paragraph, dict) else None
            if not isinstance(context, str):
                raise _neither(file, 1, _NO_CONTEXT)
            yield encoded(context, file.name, 1)


def _neither(file: FileDocument, line: int, why: str) -> DataError:
    return DataError(
        f"{file.name}, line {line}: {why}; "
        "data.corpus = albert-intrinsic reads SQuAD's JSON files and RACE's files"
    )
