"""Properties of a ``tokenizer.json``: whether it keeps bytes, its special ids, where it cuts."""

from collections.abc import Sequence
from typing import Any

from sublayer.data.tokenizers.base import is_unused

WORD_END = "</w>"
"""What a piece of GPT-1's that ends a word ends in."""


AddedTokens = Sequence[dict[str, Any]]


def keeps_bytes(content: dict[str, Any], vocabulary: dict[str, int], parsed: AddedTokens) -> bool:
    """Return whether a tokenizer is byte-level BPE that loses nothing of any bytes.

    ``vocabulary`` has the added tokens, too; ``parsed`` are those that are looked for in a text. A
    step that is not known is taken to lose some.
    """
    model = content["model"]
    if model["type"] != "BPE" or content["normalizer"] is not None:
        return False
    if model["continuing_subword_prefix"] or model["end_of_word_suffix"]:
        return False
    if not _splits_bytes(content["pre_tokenizer"]):
        return False
    if any(_strips_whitespace(token) for token in parsed):
        return False
    ids = set(vocabulary.values())
    if len(ids) < len(vocabulary):
        # Of two pieces with one id, only one can be decoded.
        return False
    added = {token["content"] for token in content["added_tokens"]}
    names = vocabulary.keys() - added
    characters = set().union(*names)
    # Every byte has an id of its own, and no piece has a character that is no byte.
    has_all_bytes = names >= BYTE_NAMES.keys()
    has_only_bytes = characters <= BYTE_NAMES.keys()
    return has_all_bytes and has_only_bytes


def is_gpt1(content: dict[str, Any]) -> bool:
    """Return whether a tokenizer is GPT-1's with transformers' rules: BERT's words, and BPE on
    them whose pieces end in ``</w>`` where a word does.
    """
    model = content["model"]
    if model["type"] != "BPE" or model["end_of_word_suffix"] != WORD_END:
        return False
    if model["continuing_subword_prefix"] or model["unk_token"] is None or model["fuse_unk"]:
        return False
    normalizer, pre_tokenizer = content["normalizer"], content["pre_tokenizer"]
    if normalizer is None or normalizer["type"] != "BertNormalizer":
        return False
    return pre_tokenizer is not None and pre_tokenizer["type"] == "BertPreTokenizer"


def _splits_bytes(pre_tokenizer: dict[str, Any] | None) -> bool:
    """Return whether text is mapped to bytes once, with nothing added or removed."""
    n_byte_levels = 0
    for step in _steps(pre_tokenizer):
        kind = step["type"]
        if kind == "ByteLevel":
            if not step["add_prefix_space"]:
                n_byte_levels += 1
        elif kind == "Split":
            if step["behavior"] == "Removed":
                return False
        elif kind != "Digits":
            return False
    return n_byte_levels == 1


def cuts_before_whitespace(content: dict[str, Any], parsed: AddedTokens) -> bool:
    """Return whether GPT-2's pattern alone divides words, so that none spans whitespace's begin.

    ``parsed`` are the added tokens that are looked for in a text.
    """
    steps = _steps(content["pre_tokenizer"])
    if content["normalizer"] is not None or len(steps) != 1:
        return False
    (step,) = steps
    if step["type"] != "ByteLevel":
        return False
    if step["add_prefix_space"] or not step["use_regex"]:
        return False
    for token in parsed:
        has_whitespace = any(map(str.isspace, token["content"]))
        if has_whitespace or _strips_whitespace(token):
            return False
    return True


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
    special = set(names.values())
    for name, id_ in vocabulary.items():
        if is_unused(name):
            special.add(id_)
    if unk_id is not None:
        special.add(unk_id)
    return tuple(sorted(special))


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
