"""BERT's WordPiece: trained here, or read from a published ``vocab.txt``."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unicodedata import category

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from sublayer.data.subwords.library import read_text
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.subwords.word_bpe import alphabet_of, count_merges, train_merges
from sublayer.data.tokenizers.base import NO_TEXT, decode_utf8
from sublayer.data.tokenizers.settings import CONFIG_NAME, read_settings
from sublayer.errors import DataError
from sublayer.system.stages import note

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

_CONTINUES = "##"
_LONGEST_WORD, _LONGEST_KEPT = 100, 1000
"""Characters of a word at most; a longer one is unknown."""
_SPECIAL = re.compile(r"\[[^\[\]\s]+\]|<[^<>\s]+>")
"""Names of special ids."""
_UNKNOWNS = ("[UNK]", "<unk>")
_NAMES = (*SPECIALS, "<pad>", "<unk>", "<cls>", "<sep>", "<mask>", "<s>", "</s>")
_RULES = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


def train_wordpiece(
    texts: Iterable[bytes],
    *,
    vocab_size: int,
    keep_accents: bool | None = None,
    lowercase: bool | None = None,
) -> SubwordTokenizer:
    """Train BERT's uncased vocabulary; ``vocab_size`` counts every id.

    ``keep_accents`` and ``lowercase`` replace its rules for text. With ``keep_accents`` True no
    character is dropped, nor a word of up to 1,000 characters unknown for its length: BERT's are
    beyond 100, which languages without spaces exceed. Short texts may hold fewer pieces.
    Ids: ``[PAD]``, ``[UNK]``, ``[CLS]``, ``[SEP]``, ``[MASK]``, characters, those that continue a
    word, merges.

    Raises ConfigError where the characters of the text do not fit in; NotUtf8, a DataError, where a
    text is not UTF-8; DataError where there is no text.

    Source: Devlin et al. 2019, sec. 3; the ``tokenizers`` library's normaliser, division into words
    and merges.
    """
    rules: dict[str, Any] = {}
    if keep_accents is not None:
        rules["strip_accents"] = not keep_accents
    if keep_accents:
        rules["clean_text"] = False
    if lowercase is not None:
        rules["lowercase"] = lowercase
    longest = _LONGEST_KEPT if keep_accents else _LONGEST_WORD
    library = _library({name: id_ for id_, name in enumerate(SPECIALS)}, rules, longest)
    words = count_words(texts, library)
    alphabet = alphabet_of(words)
    # Each character is a piece, and another where it continues a word.
    least = len(SPECIALS) + 2 * len(alphabet)
    n_merges = count_merges("wordpiece", vocab_size, least)
    if all(category(character)[0] in "CZ" for character in alphabet):
        raise DataError(NO_TEXT)
    trained = train_merges(words, alphabet, n_merges=n_merges, inner=_CONTINUES)
    pieces = (*SPECIALS, *trained.pieces)
    vocabulary = {piece: id_ for id_, piece in enumerate(pieces)}
    return SubwordTokenizer(_library(vocabulary, rules, longest))


def read_wordpiece(path: Path) -> SubwordTokenizer:
    """Read a published ``vocab.txt``: one piece in each line, in order of the ids.

    A ``tokenizer_config.json`` beside it says how a text is normalised; settings that it leaves out
    are as in transformers' BertTokenizer: letters are lowered and accents stripped, which a note
    says of a vocabulary with capitals. Raises DataError where the file is damaged, with its line.
    """
    vocabulary = _numbered(read_text(path), path)
    rules = bert_rules(path.parent)
    # Special names may be in capitals where no piece is.
    capitals = (
        name for name in vocabulary if name != name.lower() and not _SPECIAL.fullmatch(name)
    )
    if "lowercase" not in rules and (cased := next(capitals, None)) is not None:
        note(
            f"{path} says nothing of capitals: texts are read in lower case, as transformers' "
            f"BertTokenizer does, though it has pieces such as {cased[:60]!r}; "
            f'{{"do_lower_case": false}} in a {CONFIG_NAME} beside it keeps capitals'
        )
    return SubwordTokenizer(_library(vocabulary, rules))


def _numbered(text: str, path: Path) -> dict[str, int]:
    if not text:
        raise DataError(f"{path} is empty: a vocabulary has one piece in each line")
    lines = text.removesuffix("\n").split("\n")
    pieces = [line.removesuffix("\r") for line in lines]
    if not any(name in pieces for name in _UNKNOWNS):
        raise DataError(
            f"{path} is not a tokenizer: none of its lines is [UNK], as one of BERT's vocab.txt is"
        )
    vocabulary: dict[str, int] = {}
    for number, piece in enumerate(pieces):
        if piece in vocabulary:
            first = vocabulary[piece] + 1
            raise DataError(
                f"{path}, line {number + 1}: "
                f"{piece!r} is in line {first} too, and a piece has one id"
            )
        vocabulary[piece] = number
    return vocabulary


def bert_rules(folder: Path) -> dict[str, Any]:
    """Read the rules of BERT's normaliser in ``tokenizer_config.json``, by the library's names.

    Raises DataError where one is none.
    """
    settings = read_settings(folder)
    rules: dict[str, Any] = {}
    for name, rule in _RULES.items():
        value = settings.get(name)
        if value is None:
            continue
        if not isinstance(value, bool):
            raise DataError(f"{folder / CONFIG_NAME}: {name} = {value!r} must be true or false")
        rules[rule] = value
    return rules


def _library(
    vocabulary: dict[str, int], rules: dict[str, Any], longest: int = _LONGEST_WORD
) -> tokenizers.Tokenizer:
    unknown = next(name for name in _UNKNOWNS if name in vocabulary)
    model = models.WordPiece(vocabulary, unk_token=unknown, max_input_chars_per_word=longest)
    library = tokenizers.Tokenizer(model)
    library.normalizer = normalizers.BertNormalizer(**rules)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(prefix=_CONTINUES, cleanup=False)
    special = [name for name in _NAMES if name in vocabulary]
    library.add_special_tokens(special)
    return library


def count_words(texts: Iterable[bytes], library: tokenizers.Tokenizer) -> Counter[str]:
    """Count the words that a library's rules, which divide at spaces, make of texts.

    Raises NotUtf8, a DataError, where a text is not UTF-8.
    """
    # What spaces separate is divided further once, and not each time it occurs.
    chunks: Counter[str] = Counter()
    for text in texts:
        decoded = decode_utf8(text)
        chunks.update(decoded.split(" "))
    words: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for word in words_by(library, chunk):
            words[word] += count
    return words


def words_by(library: tokenizers.Tokenizer, text: str) -> Iterator[str]:
    """Yield the words that a library's rules make of a text."""
    assert library.normalizer is not None and library.pre_tokenizer is not None, (
        "WordPiece divides text into words"
    )
    normal = library.normalizer.normalize_str(text)
    return (word for word, _ in library.pre_tokenizer.pre_tokenize_str(normal))
