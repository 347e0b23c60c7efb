"""Files of the tokenizers library: read after a probe, and checked."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tokenizers
from pydantic import Field

from sublayer.data.tokenizers.base import read_file
from sublayer.data.tokenizers.probe import try_file
from sublayer.errors import DataError
from sublayer.files.parsing import check_typed, parse_json

_SPARE_IDS = 1 << 16

Built = TypeVar("Built")


def parse_merge(path: Path, number: int, line: str) -> tuple[str, str]:
    """Parse a line of merges, two pieces; raise DataError, with the line's number, otherwise."""
    pair = line.strip("\r ").split(" ")
    if len(pair) != 2 or not all(pair):
        raise DataError(
            f"{path}, line {number}: {line[:60]!r} is not a merge: two pieces separated by a space"
        )
    return pair[0], pair[1]


def read_library(data: bytes, name: str) -> tokenizers.Tokenizer:
    """Load the bytes of a ``tokenizer.json``; raise DataError, with ``name``, for other bytes."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    what = f"{name} is not a tokenizer of the tokenizers library"
    try_file("tokenizers", data, what)
    return call_library(lambda: tokenizers.Tokenizer.from_str(data.decode()), what)


def library_of(content: dict[str, Any], name: str) -> tokenizers.Tokenizer:
    """Load the content of a ``tokenizer.json``; raise DataError where the library refuses it."""
    text = json.dumps(content, ensure_ascii=False)
    return read_library(text.encode(), name)


def read_ids(path: Path) -> dict[str, int]:
    """Read a ``vocab.json``, a JSON object of pieces and ids; raise DataError for anything else.

    Ids are distinct, from 0 on, and may have gaps, but stay below twice the number of pieces plus
    65,536, to bound the memory.
    """
    return check_ids(parse_json(read_file(path), str(path), DataError), str(path))


def check_ids(ids: Any, of: str) -> dict[str, int]:
    """Return pieces and their ids; raise DataError, with ``of``, where they are invalid.

    See ``read_ids``.
    """
    read = check_typed(ids, dict[str, Annotated[int, Field(ge=0)]], of, DataError)
    limit = 2 * len(read) + _SPARE_IDS
    if not read:
        raise DataError(f"{of} is damaged: it has no pieces")
    owners: dict[int, str] = {}
    for piece, id_ in read.items():
        if id_ >= limit or owners.setdefault(id_, piece) != piece:
            raise DataError(
                f"{of} is damaged: {piece[:60]!r} has the id {id_}, but its {len(read):,} pieces "
                f"need distinct ids below {limit:,}"
            )
    return read


def call_library(call: Callable[[], Built], what: str) -> Built:
    """Call the library; raise DataError with ``what`` and its reason where it fails or panics."""
    try:
        return call()
    except BaseException as error:
        # The library raises plain Exception, and its panics derive from BaseException alone: no
        # narrower clause catches both.
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        text = str(error).strip() or "it gives no reason"
        first_line = text.splitlines()[0]
        raise DataError(f"{what}: {first_line[:200]}") from None
