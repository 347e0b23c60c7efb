"""GPT-1's vocabulary and merges in two files, as released and as transformers writes them."""

import re
from collections.abc import Iterator
from pathlib import Path

from sublayer.data.gpt1.tokenizer import Gpt1Tokenizer
from sublayer.data.gpt1.vocabulary import Gpt1Vocabulary, Merge, check_vocabulary, ends_words
from sublayer.data.subwords.library_files import read_file, read_ids
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers.base import NotUtf8, Tokenizer, decode_utf8
from sublayer.errors import DataError

_VERSION_LINE = "#version: 0.2"
_RELEASED = re.compile(r"encoder_bpe_(\d+)\.json")
_RELEASED_MERGES = re.compile(r"vocab_(\d+)\.bpe")
_VOCABULARY, _MERGES = "vocab.json", "merges.txt"

Files = tuple[Path, Path]
"""A vocabulary and its merges."""


def find_pair(path: Path) -> Files | None:
    """Find a vocabulary and its merges by the name of either, or of a folder of theirs.

    They are ``encoder_bpe_N.json`` and ``vocab_N.bpe``, as GPT-1's were released, of which a folder
    may have one pair, or else ``vocab.json`` and ``merges.txt``, GPT-2's or GPT-1's. None where
    there is no file of these names. Raises DataError where one is without the other.
    """
    if not path.is_dir():
        return _released(path) or _original(path)
    names = sorted(each.name for each in path.iterdir() if _number(each.name) is not None)
    numbers = {_number(name) for name in names}
    if len(numbers) > 1:
        raise DataError(f"{path} has {names[0]} and {names[-1]}: name the file to read")
    if names:
        return _released(path / names[0])
    has_original = (path / _VOCABULARY).is_file() or (path / _MERGES).is_file()
    return _original(path / _VOCABULARY) if has_original else None


def read_pair(files: Files) -> Tokenizer:
    """Read a vocabulary and its merges: GPT-1's, with the published text rules, or GPT-2's.

    Raises DataError where they are not that.
    """
    vocabulary, merges = files
    is_released = _number(vocabulary.name) is not None
    if is_released or ends_words(read_ids(vocabulary)):
        return Gpt1Tokenizer(read_published(vocabulary, merges))
    return SubwordTokenizer.read_merges(vocabulary, merges)


def read_published(vocabulary: Path, merges: Path) -> Gpt1Vocabulary:
    """Read GPT-1's vocabulary and its merges.

    Raises DataError where one is damaged, with its line, where the merges are of another version,
    or where the two do not belong together.
    """
    ids = read_ids(vocabulary)
    pairs = tuple(_read_merges(merges))
    check_vocabulary(ids, pairs, str(vocabulary), str(merges))
    return Gpt1Vocabulary(ids, pairs)


def _released(path: Path) -> Files | None:
    number = _number(path.name)
    if number is None:
        return None
    files = path.with_name(f"encoder_bpe_{number}.json"), path.with_name(f"vocab_{number}.bpe")
    return _both(*files)


def _original(path: Path) -> Files | None:
    if path.name not in (_VOCABULARY, _MERGES):
        return None
    return _both(path.with_name(_VOCABULARY), path.with_name(_MERGES))


def _both(vocabulary: Path, merges: Path) -> Files:
    for file, other in ((vocabulary, merges), (merges, vocabulary)):
        if file.is_file() and not other.is_file():
            raise DataError(
                f"{file} is without {other.name}: a vocabulary and its merges belong together, put "
                "both into one folder"
            )
    return vocabulary, merges


def _number(name: str) -> str | None:
    match = _RELEASED.fullmatch(name) or _RELEASED_MERGES.fullmatch(name)
    return None if match is None else match[1]


def _read_merges(path: Path) -> Iterator[Merge]:
    try:
        text = decode_utf8(read_file(path))
    except NotUtf8 as error:
        raise DataError(f"{path}, {error}") from None
    first, *lines = text.removeprefix("\ufeff").rstrip("\r\n").split("\n")
    if first.rstrip("\r") != _VERSION_LINE:
        raise DataError(
            f"{path}, line 1: {first[:60]!r} is not {_VERSION_LINE!r}: GPT-1's merges are of that "
            "version, and no other is read"
        )
    for number, line in enumerate(lines, 2):
        pair = line.rstrip("\r").split(" ")
        if len(pair) != 2 or not all(pair):
            raise DataError(
                f"{path}, line {number}: {line[:60]!r} is not a merge: "
                "two pieces divided by a space"
            )
        left, right = pair
        yield left, right
