"""Tokenizers by name and by file."""

from collections.abc import Callable, Iterable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tokenizers

from sublayer.config.data import is_codes_file
from sublayer.data.bilingual import BilingualTokenizer
from sublayer.data.characters import ByteTokenizer, CharacterTokenizer
from sublayer.data.codes import find_dictionary, read_codes
from sublayer.data.library_files import read_file
from sublayer.data.moses import MosesTokenizer
from sublayer.data.normalize import AS_WRITTEN
from sublayer.data.paired_models import PairedModels, has_paired_models
from sublayer.data.sides import Side
from sublayer.data.subword import SubwordTokenizer
from sublayer.data.unigram import UnigramTokenizer
from sublayer.data.vocabulary import FORMAT, VERSION, Tokenizer
from sublayer.data.word_bpe import WordBpeTokenizer
from sublayer.data.wordpiece import read_wordpiece, train_wordpiece
from sublayer.errors import ConfigError, DataError
from sublayer.parsing import parse_json

__all__ = ["Tokenizer", "load_tokenizer", "train_tokenizer"]

DEFAULT_SIZES = {"bpe": 8192, "unigram": 30_000, "wordpiece": 30_000, "word-bpe": 10_000}
"""Ids of a vocabulary that is trained, where the recipe names no size; GPT-2's, ALBERT's, BERT's and fairseq's kind."""

DEFAULT_MERGES = 32_640
"""Merges of moses-bpe where the recipe names no size: Macaron BERT as released."""

_TRAINED = ("bytes", "characters", "bpe", "unigram", "wordpiece", "moses-bpe", "word-bpe")
_FILES = ("tokenizer.json", "spiece.model", "vocab.txt")


def train_tokenizer(
    kind: str, texts: Iterable[bytes], *, vocab_size: int | None = None, keeps_text: bool = False
) -> Tokenizer:
    """Make a tokenizer of a kind from texts, which are pieces of a training split.

    Kinds: bytes, characters, bpe, unigram, wordpiece, moses-bpe, word-bpe. ``vocab_size`` counts every id; unset, it is
    8192 for bpe, 10,000 for word-bpe, 30,000 for unigram and wordpiece, what 32,640 merges make for moses-bpe, and
    every character for characters. ``keeps_text``: unigram keeps capitals and accents, which what a model writes needs,
    and ALBERT's does not. Raises ConfigError for an unknown kind or a size that is too small, DataError for
    texts that are not UTF-8 where the kind is neither bytes nor bpe.
    """
    size = vocab_size or DEFAULT_SIZES.get(kind, 0)
    if kind == "bytes":
        return ByteTokenizer()
    if kind == "characters":
        return CharacterTokenizer.train(texts, vocab_size=vocab_size)
    if kind == "bpe":
        return SubwordTokenizer.train(texts, vocab_size=size)
    if kind == "unigram":
        return UnigramTokenizer.train(texts, vocab_size=size, normalization=AS_WRITTEN if keeps_text else None)
    if kind == "wordpiece":
        return train_wordpiece(texts, vocab_size=size)
    if kind == "word-bpe":
        return WordBpeTokenizer.train(texts, vocab_size=size)
    if kind == "moses-bpe":
        return MosesTokenizer.train(texts, vocab_size=vocab_size, n_merges=DEFAULT_MERGES)
    raise ConfigError(f"data.tokenizer = {kind!r} cannot be trained; it is one of {', '.join(_TRAINED)}")


def trainer_version(kind: str) -> str:
    """Give the version of the library that trains a kind: another may give another vocabulary."""
    libraries = {"unigram": "sentencepiece", "moses-bpe": "sacremoses"}
    found = [tokenizers.__version__]
    if kind in libraries and find_spec(libraries[kind]) is not None:
        found.append(version(libraries[kind]))
    return " ".join(found)


def load_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer: a file, or a folder that has one.

    A file is a ``tokenizer.json``, ours or the ``tokenizers`` library's, a SentencePiece ``.model``, BERT's
    ``vocab.txt``, or subword-nmt's or fastBPE's codes, with the ids of fairseq's dictionary where one is beside them
    (``dict.txt``, ``dict.LANGUAGE.txt``). A folder may have GPT-2's original ``vocab.json`` and ``merges.txt`` instead;
    where it has ALBERT's ``spiece.model`` and the library's copy of it, the original is read; and Marian's
    ``source.spm``, ``target.spm`` and ``vocab.json`` before any other.
    Raises DataError where there is none, or it is not what it should be.
    """
    if path.is_dir():
        return _of_folder(path)
    if path.suffix == ".model":
        return UnigramTokenizer.read(path)
    if path.suffix == ".txt":
        return read_wordpiece(path)
    if is_codes_file(path.name):
        return read_codes(path, find_dictionary(path.parent))
    data = read_file(path)
    if FORMAT.encode() in data:
        content = _parsed(data, path)
        return _own(content, path) if content.get("format") == FORMAT else SubwordTokenizer.from_bytes(data, path)
    try:
        return SubwordTokenizer.from_bytes(data, path)
    except DataError:
        _parsed(data, path)  # of what is no JSON at all the library says less
        raise


def has_tokenizer(folder: Path) -> bool:
    """Tell whether a folder holds a tokenizer's published files and no model of ours."""
    if not folder.is_dir() or (folder / "config.json").is_file():
        return False
    return has_paired_models(folder) or _found(folder) is not None


def _found(folder: Path) -> Path | None:
    named = [folder / name for name in _FILES if (folder / name).is_file()]
    models = sorted(folder.glob("*.model"))
    if not named and len(models) > 1:
        raise DataError(f"{folder} has {models[0].name} and {models[1].name}: name the file to read")
    return next(iter([*named, *models]), None)


def _of_folder(folder: Path) -> Tokenizer:
    if has_paired_models(folder):
        return PairedModels.read(folder)
    found = _found(folder)
    if found is None:
        return _original(folder)
    tokenizer = load_tokenizer(found)
    original = folder / "spiece.model"
    if tokenizer.kind == "unigram" and isinstance(tokenizer, SubwordTokenizer) and original.is_file():
        # The library's copy differs in few numbers; a model with ids of its own beyond the original's has no other.
        read = UnigramTokenizer.read(original)
        return read if read.vocab_size == tokenizer.vocab_size else tokenizer
    return tokenizer


def _original(folder: Path) -> Tokenizer:
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    if not (vocabulary.is_file() and merges.is_file()):
        raise DataError(
            f"{folder} has no tokenizer.json, nor vocab.json with merges.txt, nor a SentencePiece .model, nor vocab.txt"
        )
    return SubwordTokenizer.read_merges(vocabulary, merges)


def _parsed(data: bytes, path: Path) -> dict[str, Any]:
    content = parse_json(data, f"the tokenizer {path}", DataError)
    if not isinstance(content, dict):
        raise DataError(f"{path} is not a tokenizer: it holds no JSON object")
    return content


def _own(content: dict[str, Any], path: Path) -> Tokenizer:
    if content.get("version") != VERSION:
        raise DataError(f"{path} is of version {content.get('version')!r}, this program reads {VERSION}: update it")
    kind, characters = content.get("kind"), content.get("characters")
    if kind == "bytes":
        return ByteTokenizer()
    if kind == "characters" and isinstance(characters, list) and _are_characters(characters):
        return CharacterTokenizer("".join(characters))
    readers: dict[str, Callable[[dict[str, Any]], Tokenizer]] = {
        "unigram": UnigramTokenizer.from_content,
        "moses-bpe": MosesTokenizer.from_content,
        "word-bpe": WordBpeTokenizer.from_content,
        "sentencepiece-pair": PairedModels.from_content,
        "bilingual": lambda found: _bilingual(found, path),
    }
    read = readers.get(str(kind))
    if read is None:
        raise DataError(f"{path} is not a tokenizer of bytes or characters: it is damaged, or of a newer version")
    try:
        return read(content)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _bilingual(content: dict[str, Any], path: Path) -> Tokenizer:
    inner = content.get("vocabulary")
    if not isinstance(inner, dict):
        raise DataError("its vocabulary is missing: it is damaged")
    vocabulary = _own(inner, path) if inner.get("format") == FORMAT else SubwordTokenizer.from_content(inner, path)
    return BilingualTokenizer(
        vocabulary, Side.from_content(content.get("source")), Side.from_content(content.get("target"))
    )


def _are_characters(characters: list[Any]) -> bool:
    is_each = all(isinstance(each, str) and len(each) == 1 and not "\ud800" <= each <= "\udfff" for each in characters)
    return is_each and len(set(characters)) == len(characters)
