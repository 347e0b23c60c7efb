"""The passages of SQuAD and RACE, on which ALBERT's pre-training is measured.

Source: Lan et al. 2020, sec. 4.2: "a development set based on the development sets from SQuAD and RACE".
"""

import json
from collections.abc import Iterator
from typing import Any

from sublayer.data.lines import decoded
from sublayer.data.pack import Found
from sublayer.data.records import encoded
from sublayer.data.text import FileDocument
from sublayer.errors import DataError


def passages(file: FileDocument) -> Iterator[Found]:
    """Read the passages of a file of SQuAD (JSON, 1.1 or 2.0) or of RACE (JSON objects, one or one a line).

    Raises DataError with file and line where it is neither.
    """
    text = bytes(file.read()[:])
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        yield from _lines(file, text)
        return
    if isinstance(whole, dict) and isinstance(whole.get("data"), list):
        yield from ((1, passage) for passage in _contexts(whole["data"], file))
    else:
        yield 1, _article(whole, file, 1)


def _lines(file: FileDocument, text: bytes) -> Iterator[Found]:
    for line, data in enumerate(text.split(b"\n"), 1):
        if not data.strip():
            continue
        decoded(file.name, line, data)
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise _neither(file, line, f"not JSON: {error}") from error
        yield line, _article(found, file, line)


def _article(found: Any, file: FileDocument, line: int) -> bytes:
    if not isinstance(found, dict) or not isinstance(found.get("article"), str):
        raise _neither(file, line, "no article")
    return encoded(found["article"], file.name, line)


def _contexts(articles: list[Any], file: FileDocument) -> Iterator[bytes]:
    for article in articles:
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        for paragraph in paragraphs if isinstance(paragraphs, list) else [None]:
            if not isinstance(paragraph, dict) or not isinstance(paragraph.get("context"), str):
                raise _neither(file, 1, "data without paragraphs that have a context")
            yield encoded(paragraph["context"], file.name, 1)


def _neither(file: FileDocument, line: int, why: str) -> DataError:
    return DataError(
        f"{file.name}, line {line}: {why}; data.corpus = albert-intrinsic reads SQuAD's JSON files and RACE's files"
    )
