"""Tokenizers by name and by file."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sublayer.data.characters import ByteTokenizer, CharacterTokenizer
from sublayer.data.subword import SubwordTokenizer
from sublayer.data.vocabulary import FORMAT, VERSION, Tokenizer
from sublayer.errors import ConfigError, DataError

__all__ = ["Tokenizer", "load_tokenizer", "train_tokenizer"]

DEFAULT_BPE_SIZE = 8192


def train_tokenizer(kind: str, texts: Iterable[bytes], *, vocab_size: int | None = None) -> Tokenizer:
    """Make a tokenizer of a kind (bytes, characters, bpe) from texts, which are pieces of a training split.

    ``vocab_size`` counts every id; unset, it is 8192 for bpe and every character for characters.
    Raises ConfigError for an unknown kind, DataError for texts that are not UTF-8 where characters are asked.
    """
    if kind == "bytes":
        return ByteTokenizer()
    if kind == "characters":
        return CharacterTokenizer.train(texts, vocab_size=vocab_size)
    if kind == "bpe":
        return SubwordTokenizer.train(texts, vocab_size=vocab_size or DEFAULT_BPE_SIZE)
    raise ConfigError(f"data.tokenizer = {kind!r} cannot be trained; it is one of bytes, characters, bpe")


def load_tokenizer(path: Path) -> Tokenizer:
    """Read a ``tokenizer.json``, ours or the ``tokenizers`` library's; or a folder that has one.

    A folder with GPT-2's original ``vocab.json`` and ``merges.txt`` will do too.
    Raises DataError where there is none, or it is not what it should be.
    """
    if path.is_dir() and not (path / "tokenizer.json").is_file():
        return _original(path)
    if path.is_dir():
        path = path / "tokenizer.json"
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read the tokenizer {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise DataError(f"{path} is not a tokenizer: it is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} is not a tokenizer: it holds no JSON object")
    return _own(content, path) if content.get("format") == FORMAT else SubwordTokenizer.read(path)


def _original(folder: Path) -> Tokenizer:
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    if not (vocabulary.is_file() and merges.is_file()):
        raise DataError(f"{folder} has no tokenizer.json, nor vocab.json with merges.txt")
    return SubwordTokenizer.read_merges(vocabulary, merges)


def _own(content: dict[str, Any], path: Path) -> Tokenizer:
    if content.get("version") != VERSION:
        raise DataError(f"{path} is of version {content.get('version')!r}, this program reads {VERSION}: update it")
    kind, characters = content.get("kind"), content.get("characters")
    if kind == "bytes":
        return ByteTokenizer()
    if kind == "characters" and isinstance(characters, list) and _are_characters(characters):
        return CharacterTokenizer("".join(characters))
    raise DataError(f"{path} is not a tokenizer of bytes or characters: it is damaged, or of a newer version")


def _are_characters(characters: list[Any]) -> bool:
    is_each = all(isinstance(each, str) and len(each) == 1 and not "\ud800" <= each <= "\udfff" for each in characters)
    return is_each and len(set(characters)) == len(characters)
