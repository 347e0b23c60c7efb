"""Files of the ``tokenizers`` library, read only when a process of their own has read them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import tokenizers

from sublayer.data.probe import try_file
from sublayer.data.vocabulary import NotUtf8, decode_utf8
from sublayer.errors import DataError
from sublayer.parsing import parse_json, read_bytes

MAX_BYTES = 128 << 20
"""Of a tokenizer's file; the largest that are published have 33 MiB."""

_SPARE_IDS = 1 << 16

Built = TypeVar("Built")


def read_file(path: Path) -> bytes:
    """Read a tokenizer's file. Raises DataError where it cannot be read, or is too large to be one."""
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is not a file: name a tokenizer's")
    try:
        return read_bytes(path, DataError, max_bytes=MAX_BYTES)
    except FileNotFoundError as error:
        raise DataError(f"cannot read the tokenizer {path}: {error.strerror}") from None


def read_library(data: bytes, name: str) -> tokenizers.Tokenizer:
    """Read the bytes of a ``tokenizer.json``. Raises DataError, by its ``name``, where the library does not."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    what = f"{name} is not a tokenizer that the tokenizers library reads"
    try_file("tokenizers", data, what)
    return call_library(lambda: tokenizers.Tokenizer.from_str(data.decode()), what)


def library_of(content: dict[str, Any], name: str) -> tokenizers.Tokenizer:
    """Make what the content of a ``tokenizer.json`` says. Raises DataError where the library does not take it."""
    return read_library(json.dumps(content, ensure_ascii=False).encode(), name)


def read_merges(vocabulary: Path, merges: Path) -> dict[str, Any]:
    """Read GPT-2's original ``vocab.json`` and ``merges.txt``, as the model of a ``tokenizer.json``.

    Raises DataError, with the line, where one of them is not that.
    """
    try:
        text = decode_utf8(read_file(merges))
    except NotUtf8 as error:
        raise DataError(f"{merges}, {error}") from None
    pairs = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("#version") or not line.rstrip("\r"):
            continue
        pair = line.rstrip("\r").split(" ")
        if len(pair) != 2 or not all(pair):
            raise DataError(f"{merges}, line {number}: {line[:60]!r} is not a merge: two pieces divided by a space")
        pairs.append(pair)
    return {"type": "BPE", "vocab": read_ids(vocabulary), "merges": pairs}


def read_ids(path: Path) -> dict[str, int]:
    """Read a ``vocab.json``: an object of pieces and their ids. Raises DataError where it is not that."""
    ids = parse_json(read_file(path), str(path), DataError)
    if not isinstance(ids, dict) or not ids:
        raise DataError(f"{path} is not an object of pieces and their ids")
    by_id: dict[int, str] = {}
    for piece, id_ in ids.items():
        if type(id_) is not int or not 0 <= id_ < 2 * len(ids) + _SPARE_IDS:
            shown = f"{piece[:60]!r} is {str(id_)[:60]}"
            raise DataError(f"{path}: the id of {shown}, which is no id of one of {len(ids):,} pieces")
        if id_ in by_id:
            raise DataError(f"{path}: {by_id[id_][:60]!r} and {piece[:60]!r} have the same id, {id_}")
        by_id[id_] = piece
    return ids


def call_library(call: Callable[[], Built], what: str) -> Built:
    """Call the library. Raises DataError that says ``what`` where it fails, by an error or by a panic of its own."""
    try:
        return call()
    except BaseException as error:
        # The library raises Exception itself, and its panics are no Exception: no narrower clause catches them.
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        reason = (str(error).strip() or "it gives no reason").splitlines()[0]
        raise DataError(f"{what}: {reason[:200]}") from None
