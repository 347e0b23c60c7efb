"""Files of the tokenizers library: read after a probe, and their properties."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tokenizers
from pydantic import Field

from sublayer.data.tokenizers.base import NotUtf8, decode_utf8, is_unused
from sublayer.data.tokenizers.probe import try_file
from sublayer.errors import DataError
from sublayer.files.lines import check_no_pointer
from sublayer.files.parsing import check_typed, parse_json, read_bytes

MAX_BYTES = 128 << 20
"""Of a tokenizer's file; the largest that are published have 33 MiB."""

_SPARE_IDS = 1 << 16

Built = TypeVar("Built")


def read_file(path: Path) -> bytes:
    """Read a tokenizer's file; raise DataError where it is unreadable or too large to be one."""
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is not a file: name a tokenizer's")
    try:
        data = read_bytes(path, DataError, max_bytes=MAX_BYTES)
    except FileNotFoundError as error:
        raise DataError(f"cannot read the tokenizer {path}: {error.strerror}") from None
    check_no_pointer(path, data[:64])
    return data


def read_text(path: Path) -> str:
    """Read a tokenizer's file as text; raise DataError as ``read_file`` does, or with the line."""
    try:
        return decode_utf8(read_file(path))
    except NotUtf8 as error:
        raise DataError(f"{path}, {error}") from None


def parse_merge(path: Path, number: int, line: str) -> tuple[str, str]:
    """Parse a line of merges, two pieces; raise DataError, with the line's number, otherwise."""
    pair = line.strip("\r ").split(" ")
    if len(pair) != 2 or not all(pair):
        raise DataError(
            f"{path}, line {number}: {line[:60]!r} is not a merge: two pieces divided by a space"
        )
    return pair[0], pair[1]


def read_library(data: bytes, name: str) -> tokenizers.Tokenizer:
    """Load the bytes of a ``tokenizer.json``; raise DataError, with ``name``, if they are not."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    what = f"{name} is not a tokenizer that the tokenizers library reads"
    try_file("tokenizers", data, what)
    return call_library(lambda: tokenizers.Tokenizer.from_str(data.decode()), what)


def library_of(content: dict[str, Any], name: str) -> tokenizers.Tokenizer:
    """Load the content of a ``tokenizer.json``; raise DataError where the library refuses it."""
    text = json.dumps(content, ensure_ascii=False)
    return read_library(text.encode(), name)


def read_merges(vocabulary: Path, merges: Path) -> dict[str, Any]:
    """Read GPT-2's original ``vocab.json`` and ``merges.txt`` as a ``tokenizer.json`` model.

    Raises DataError where one of them is not that, with the line of a merge.
    """
    pairs = [
        list(parse_merge(merges, number, line))
        for number, line in enumerate(read_text(merges).split("\n"), 1)
        if line.rstrip("\r") and not line.startswith("#version")
    ]
    return {"type": "BPE", "vocab": read_ids(vocabulary), "merges": pairs}


def read_ids(path: Path) -> dict[str, int]:
    """Read a ``vocab.json``, an object of pieces and their ids; raise DataError otherwise.

    Ids are distinct, from 0 on, and may have gaps, but not so many that they ask for memory beyond
    reason: twice the pieces and 65,536 more at most.
    """
    return check_ids(parse_json(read_file(path), str(path), DataError), str(path))


def check_ids(ids: Any, of: str) -> dict[str, int]:
    """Return pieces and their ids; raise DataError, with ``of``, where they are not as in a file.

    See ``read_ids``.
    """
    read = check_typed(ids, dict[str, Annotated[int, Field(ge=0)]], of, DataError)
    limit = 2 * len(read) + _SPARE_IDS
    if not read:
        raise DataError(f"{of} is damaged: it has no piece")
    owners: dict[int, str] = {}
    for piece, id_ in read.items():
        if id_ >= limit or owners.setdefault(id_, piece) != piece:
            raise DataError(
                f"{of} is damaged: {piece[:60]!r} has the id {id_}, and its {len(read):,} pieces "
                f"need distinct ids below {limit:,}"
            )
    return read


def call_library(call: Callable[[], Built], what: str) -> Built:
    """Call the library; raise DataError with ``what`` and its reason where it fails or panics."""
    try:
        return call()
    except BaseException as error:
        # The library raises Exception itself, and its panics are no Exception: no narrower clause
        # catches them.
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        text = str(error).strip() or "it gives no reason"
        first_line = text.splitlines()[0]
        raise DataError(f"{what}: {first_line[:200]}") from None


WORD_END = "</w>"
"""The end of a piece of GPT-1's that ends a word."""


AddedTokens = Sequence[dict[str, Any]]


def keeps_bytes(content: dict[str, Any], vocabulary: dict[str, int], parsed: AddedTokens) -> bool:
    """Return whether a tokenizer is byte-level BPE that loses nothing of any bytes.

    ``vocabulary`` has the added tokens, too; ``parsed`` are those that are looked for in a text. A
    step that is not known is taken to lose some.
    """
    model = content["model"]
    if (
        not has_fields(content, normalizer=None)
        or not has_fields(model, type="BPE")
        or model["continuing_subword_prefix"]
        or model["end_of_word_suffix"]
        or not _splits_bytes(content["pre_tokenizer"])
        or any(_strips_whitespace(token) for token in parsed)
    ):
        return False
    ids = set(vocabulary.values())
    if len(ids) < len(vocabulary):
        # Of two pieces with one id, only one can be decoded.
        return False
    added = {token["content"] for token in content["added_tokens"]}
    names = vocabulary.keys() - added
    characters = set().union(*names)
    # Every byte has an id, and pieces consist of bytes.
    has_all_bytes = names >= BYTE_NAMES.keys()
    has_only_bytes = characters <= BYTE_NAMES.keys()
    return has_all_bytes and has_only_bytes


def has_fields(step: dict[str, Any] | None, **values: Any) -> bool:
    """Return whether a part of a library's content is there and has all of some values."""
    return step is not None and all(step.get(name) == value for name, value in values.items())


def is_gpt1(content: dict[str, Any]) -> bool:
    """Return whether a tokenizer is GPT-1's with transformers' rules: BERT's words, and BPE on
    them whose pieces end in ``</w>`` where a word does.
    """
    model = content["model"]
    return (
        has_fields(model, type="BPE", end_of_word_suffix=WORD_END, fuse_unk=False)
        and not model["continuing_subword_prefix"]
        and model["unk_token"] is not None
        and has_fields(content["normalizer"], type="BertNormalizer")
        and has_fields(content["pre_tokenizer"], type="BertPreTokenizer")
    )


def _splits_bytes(pre_tokenizer: dict[str, Any] | None) -> bool:
    """Return whether text is mapped to bytes once, with nothing added or removed."""
    steps = _steps(pre_tokenizer)
    levels = [step for step in steps if step["type"] == "ByteLevel"]
    others = [step for step in steps if step["type"] in ("Split", "Digits")]
    return (
        len(levels) + len(others) == len(steps)
        and [step["add_prefix_space"] for step in levels].count(False) == 1
        and not any(has_fields(step, behavior="Removed") for step in others)
    )


def cuts_before_whitespace(content: dict[str, Any], parsed: AddedTokens) -> bool:
    """Return whether GPT-2's pattern alone divides words, so that none spans whitespace's begin.

    ``parsed`` are the added tokens that are looked for in a text.
    """
    steps = _steps(content["pre_tokenizer"])
    rules = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    has_rules = content["normalizer"] is None and len(steps) == 1 and has_fields(steps[0], **rules)
    return has_rules and not any(
        _strips_whitespace(token) or any(map(str.isspace, token["content"])) for token in parsed
    )


def _strips_whitespace(token: dict[str, Any]) -> bool:
    return bool(token["lstrip"] or token["rstrip"])


def _steps(pre_tokenizer: dict[str, Any] | None) -> list[dict[str, Any]]:
    if pre_tokenizer is None:
        return []
    if pre_tokenizer["type"] == "Sequence":
        return list(pre_tokenizer["pretokenizers"])
    return [pre_tokenizer]


def unknown_id(model: dict[str, Any], vocabulary: dict[str, int]) -> int | None:
    """Return the id of the unknown piece; None where the model names none that there is."""
    number = model.get("unk_id")
    if isinstance(number, int) and number in vocabulary.values():
        return number  # Unigram's; the others name it
    name = model.get("unk_token")
    if name is None:
        return None
    return vocabulary.get(name)


def special_ids(
    vocabulary: dict[str, int], names: dict[str, int], unk_id: int | None
) -> tuple[int, ...]:
    """List the ids of special, unused and unknown pieces, ascending; ``names`` are special."""
    unused = {id_ for name, id_ in vocabulary.items() if is_unused(name)}
    unknown = set() if unk_id is None else {unk_id}
    return tuple(sorted({*names.values(), *unused, *unknown}))


def text_content(content: dict[str, Any]) -> dict[str, Any]:
    """Return a Unigram file's content without its special tokens: it finds them in no text.

    All ids stay. A special token that is one of the model's pieces loses its name there, and the
    library looks for no piece without one.
    """
    pieces: list[list[Any]] = list(content["model"]["vocab"])
    others = []
    for token in content["added_tokens"]:
        if token["special"] and token["id"] < len(pieces):
            _, score = pieces[token["id"]]
            pieces[token["id"]] = ["", score]
        else:
            others.append(token)
    model = {**content["model"], "vocab": pieces}
    return {**content, "model": model, "added_tokens": others, "post_processor": None}


def _byte_characters() -> dict[str, int]:
    # GPT-2's alphabet: printable bytes stand for themselves, the others for characters from 256 on.
    ascii_printable = range(33, 127)
    latin_printable = (*range(161, 173), *range(174, 256))  # 173 is the soft hyphen
    printable = [*ascii_printable, *latin_printable]
    others = [byte for byte in range(256) if byte not in printable]
    names = {}
    for byte in printable:
        names[chr(byte)] = byte
    for code, byte in enumerate(others, start=256):
        names[chr(code)] = byte
    return names


BYTE_NAMES = _byte_characters()
"""The character that names each byte in byte-level vocabularies, to the byte."""
