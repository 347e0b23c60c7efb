"""GPT-1's tokenizer: published text rules or others, its vocabulary read or trained."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from sublayer.config.data import GPT1, Normalization
from sublayer.data.tokenizers.base import (
    ExtendedTokenizer,
    RaggedIds,
    Tokenizer,
    decode_utf8,
    read_text,
    read_value,
)
from sublayer.data.tokenizers.library import call_library, check_ids, parse_merge, read_ids
from sublayer.data.tokenizers.subword import SubwordTokenizer, count_words, words_by
from sublayer.data.tokenizers.word_bpe import END, ended_text, train_ended
from sublayer.errors import ConfigError, DataError, extra_module
from sublayer.files.arrays import Ints, TokenIds

NEWLINE = "\n"
"""The word for the line ends between two lines with text."""

_REPLACED = str.maketrans({"—": "-", "–": "-", "―": "-", "…": "...", "´": "'"})
# Without the backslash, which the published pattern fails to escape, and so loses.
_APART = re.compile(r'([-~!";?+,)(/*\[\]}{|_])\1*')
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_SPACES = re.compile(r"[^\S\n]+")
_LINE_ENDS = re.compile(r" ?\n[ \n]*")

# Printable ASCII and tabs without the ampersand of HTML entities: ftfy changes nothing here except
# a carriage return before a newline.
_PLAIN = re.compile(r"([\t -%'-~]*)(\r?\n)?")
_PLAIN_BYTES = re.compile(rb"[\t -%'-~]*\r?")
_SPACE = re.compile(r"(?<=[a-z]) (?=[a-z])")
_SPACE_BYTES = re.compile(rb"(?<=[a-z]) (?=[a-z])")
"""Spaces between two letters a to z."""

_BLOCK_CHARACTERS = 64 << 10
_SEARCHED_BYTES = 256 << 10
_EXTRA = "GPT-1's published text rules"


Words = tuple[list[str], Ints]


def words_of(text: str) -> Iterator[Words]:
    """Divide a text into lowercase words by the published rules, a bounded part at a time.

    A part is a pair of ``distinct`` words and ``numbers``: its words, in order, are ``distinct[n]``
    for each ``n`` of ``numbers``.

    Raises DataError without ftfy or spaCy. Source: openai/finetune-transformer-lm,
    ``text_utils.py``; spaCy's English tokenizer, as ``spacy.blank("en")`` has it.
    """
    return divide(standardise(mend(text)))


def divide(standard: str) -> Iterator[Words]:
    """Divide a standardised text as ``words_of`` does; raise DataError without spaCy."""
    tokenizer, strings, lower = _spacy()
    for block in _bounded_blocks(standard):
        if block == NEWLINE:
            yield [NEWLINE], np.zeros(1, dtype=np.int64)
            continue
        hashes, numbers = np.unique(tokenizer(block).to_array([lower]), return_inverse=True)
        words = map(strings.__getitem__, hashes.tolist())
        # A line end keeps its space; only whitespace tokens contain whitespace.
        distinct = [NEWLINE if word.isspace() else word for word in words]
        yield distinct, numbers.reshape(-1)


def mend(text: str) -> str:
    """Mend a text like ``ftfy.fix_text``, which is called only for lines that it may change.

    It undoes wrong encodings, straightens curled quotes, decodes HTML entities up to the first line
    with a ``<``, and so on. Raises DataError without ftfy.
    """
    return "".join(mended for _, mended in mend_lines(text))


def mend_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line of a text, with its newline, and its mended form."""
    ftfy = extra_module("ftfy", _EXTRA, "spacy")
    before_tag = ftfy.TextFixerConfig(explain=False)
    after_tag = ftfy.TextFixerConfig(explain=False, unescape_html=False)
    has_tag = False
    for line in _LINE.findall(text):
        if plain := _PLAIN.fullmatch(line):
            mended_line = plain[1] + ("\n" if plain[2] else "")
        else:
            mended_line = ftfy.fix_text(line, after_tag if has_tag else before_tag)
        yield line, mended_line
        has_tag = has_tag or "<" in line


def standardise(text: str) -> str:
    """Set punctuation apart, and reduce whitespace to single spaces and spaced newlines.

    Dashes become hyphens, an ellipsis three full stops, an acute accent an apostrophe. A run of one
    of ``-~!";?+,)(/*[]}{|_`` gets a space on either side.
    """
    apart = _APART.sub(r" \g<0> ", text.translate(_REPLACED))
    # In this order both take linear time.
    spaced = _SPACES.sub(" ", apart)
    return _LINE_ENDS.sub(" \n ", spaced).strip()


def cut(text: bytes, near: int) -> int:
    """Return a late position up to ``near`` where a cut changes no word; 0 without one.

    The cut is before a space between two letters a to z, in a line that ftfy does not change, and
    before the first ``<``, which affects the rest of the text.
    """
    tag = text.find(b"<", 0, near)
    end = near if tag < 0 else tag
    start = max(0, end - _SEARCHED_BYTES)
    while (newline := text.rfind(b"\n", start, end)) >= 0:
        begin = text.rfind(b"\n", start, newline) + 1
        if begin == 0 < start:
            # The beginning of that line is unknown.
            return 0
        line = text[begin:newline]
        places = [match.start() for match in _SPACE_BYTES.finditer(line)]
        if places and _PLAIN_BYTES.fullmatch(line):
            return begin + places[-1]
        end = newline
    return 0


def _bounded_blocks(text: str) -> Iterator[str]:
    """Cut a standardised text between words: at newlines, which are separate blocks, or in a long
    line between letters.
    """
    start = 0
    while len(text) - start > _BLOCK_CHARACTERS:
        newline = text.rfind("\n", start, start + _BLOCK_CHARACTERS)
        if newline < 0:
            end = start + _BLOCK_CHARACTERS + 1
            places = [match.start() for match in _SPACE.finditer(text, start + 1, end)]
            if not places:
                break
            position = places[-1]
            yield text[start:position]
            start = position + 1
        else:
            yield text[start : newline - 1]
            yield NEWLINE
            start = newline + 2
    if start < len(text):
        yield text[start:]


@cache
def _spacy() -> tuple[Any, Any, Any]:
    """Return spaCy's English tokenizer, its strings by hash, and its number of ``lower``."""
    spacy = extra_module("spacy", _EXTRA, "spacy")
    attributes = extra_module("spacy.attrs", _EXTRA, "spacy")
    pipeline = spacy.blank("en")
    return pipeline.tokenizer, pipeline.vocab.strings, attributes.LOWER


UNKNOWN = "<unk>"
LINE_END = f"{NEWLINE}{END}"
"""The piece of a line end."""

Merge = tuple[str, str]

# Special tokens of transformers and fine-tuning: <unk>, [PAD], _start_.
_SPECIAL = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]|_[a-z]+_")


@dataclass(frozen=True)
class Gpt1Vocabulary:
    """Ids of pieces, which end in ``</w>`` at the end of a word, and merges in order.

    ``<unk>`` is the unknown piece. Other special pieces, which no merge makes, have no text.
    """

    ids: Mapping[str, int]
    merges: tuple[Merge, ...]

    @property
    def special(self) -> list[str]:
        """Pieces without text."""
        return unmade(self.ids, self.merges)

    def with_normalization(self, normalization: Normalization) -> Tokenizer:
        """Build the tokenizer of a vocabulary with named text rules.

        ``transformers`` are the rules of its OpenAIGPTTokenizer: BERT's words, in lower case and
        without accents; newlines are spaces.
        """
        if normalization == "published":
            return Gpt1Tokenizer(self)
        return SubwordTokenizer(self.transformers_library())

    def transformers_library(self) -> tokenizers.Tokenizer:
        """Build the ``tokenizers`` library's form of a vocabulary, with transformers' rules."""
        library = tokenizers.Tokenizer(self._model())
        library.normalizer = normalizers.BertNormalizer(lowercase=True)
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        library.decoder = decoders.BPEDecoder(suffix=END)
        library.add_special_tokens(self.special)
        return library

    def _model(self) -> models.BPE:
        merges: list[Merge] = list(self.merges)
        return call_library(
            lambda: models.BPE(
                dict(self.ids), merges, unk_token=UNKNOWN, end_of_word_suffix=END, fuse_unk=False
            ),
            "the tokenizers library cannot use GPT-1's merges",
        )

    def count_differences(
        self, text: bytes
    ) -> "tuple[dict[str, dict[str, int]], int, int, Counter[tuple[Parts, Parts]]]":
        """Count the differences between the published rules and transformers' on a text.

        Returns, by rules, the numbers of tokens, of unknown tokens and of line ends (none by
        transformers' rules); the number of whitespace-separated words, where a line in which ftfy
        changes that number counts as one word; the number of words that the two rules treat
        differently; and counts of the published words with their replacements by transformers'
        rules.

        Raises DataError without ftfy or spaCy, and where the text is not UTF-8.
        """
        # Whitespace-separated words, raw and as ftfy mends them.
        pairs: Counter[tuple[str, str]] = Counter()
        for line, mended in mend_lines(decode_utf8(text)):
            written, corrected = line.split(), mended.split()
            if len(written) == len(corrected):
                pairs.update(zip(written, corrected, strict=True))
            else:
                pairs[" ".join(written), " ".join(corrected)] += 1
        library = self.transformers_library()
        changes: Counter[tuple[Parts, Parts]] = Counter()
        n_different = 0
        for (raw, mended), count in pairs.items():
            words = [
                distinct[number]
                for distinct, numbers in divide(standardise(mended))
                for number in numbers.tolist()
            ]
            published = [word for word in words if word != NEWLINE]
            transformers = list(words_by(library, raw))
            if published == transformers:
                continue
            n_different += count
            matcher = SequenceMatcher(None, published, transformers, autojunk=False)
            for kind, start, end, other_start, other_end in matcher.get_opcodes():
                if kind != "equal":
                    others = tuple(transformers[other_start:other_end])
                    changes[tuple(published[start:end]), others] += count
        tokens: dict[str, dict[str, int]] = {}
        normalizations: tuple[Normalization, ...] = ("published", "transformers")
        for normalization in normalizations:
            tokenizer = self.with_normalization(normalization)
            ids = tokenizer.encode(text)
            tokens[normalization] = {
                "tokens": len(ids),
                "unknown": int(np.sum(ids == tokenizer.unk_id)),
                "line_ends": int(np.sum(ids == self.ids.get(LINE_END))),
            }
        return tokens, pairs.total(), n_different, changes


def unmade(ids: Mapping[str, int], merges: Sequence[Merge]) -> list[str]:
    """List the pieces that are neither a character nor made by a merge."""
    made = {left + right for left, right in merges}
    return [piece for piece in ids if piece not in made and len(piece.removesuffix(END)) != 1]


def check_vocabulary(
    ids: Mapping[str, int], merges: Sequence[Merge], of: str, made_by: str
) -> None:
    """Raise DataError where a vocabulary and merges do not belong together.

    ``of`` names the vocabulary, and ``made_by`` the merges; their lines are numbered from 2.
    """
    if UNKNOWN not in ids:
        raise DataError(f"{of} has no {UNKNOWN}, GPT-1's unknown piece")
    seen: set[Merge] = set()
    for number, merge in enumerate(merges, 2):
        left, right = merge
        if merge in seen or not {left, right, left + right} <= ids.keys():
            raise DataError(
                f"{made_by}, line {number}: {left!r} and {right!r} were merged before, or need a "
                f"piece that {of} lacks: give files that belong together"
            )
        seen.add(merge)
    for piece in unmade(ids, merges):
        if not _SPECIAL.fullmatch(piece):
            raise DataError(
                f"{of} has {piece[:60]!r}, which no merge of {made_by} makes: they are of "
                "different versions, or the merges are cut short"
            )


class Gpt1Tokenizer(Tokenizer):
    """GPT-1's BPE on the lowercase words of the published rules.

    A line end between lines of text is a word, with the piece ``\\n</w>`` where the vocabulary has
    it. Text that the vocabulary lacks becomes ``<unk>``, an id per character. Source:
    openai/finetune-transformer-lm, ``text_utils.py``.

    Departure: a pair's occurrences are merged one by one, not all at once. The two differ only
    where a merge makes a symbol that an earlier merge takes; none of the published merges does so.

    Encoding raises DataError without ftfy or spaCy; decoding does not.
    """

    kind = GPT1
    is_lossless = False

    def __init__(self, vocabulary: Gpt1Vocabulary) -> None:
        self.vocabulary = vocabulary
        ids = vocabulary.ids
        self.vocab_size = max(ids.values()) + 1
        self.unk_id = ids[UNKNOWN]
        names = {name: ids[name] for name in vocabulary.special}
        self.special_ids = tuple(sorted(names.values()))
        self._set_special(names)
        # Without rules that divide text: its input is divided into words already.
        self._library = tokenizers.Tokenizer(vocabulary._model())
        pieces = [""] * self.vocab_size
        for piece, id_ in ids.items():
            pieces[id_] = "" if piece in names else piece
        self._texts = [NEWLINE if piece == LINE_END else ended_text(piece) for piece in pieces]
        self._set_pieces([piece.removesuffix(END).encode() for piece in pieces])

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> "Gpt1Tokenizer":
        """Build from ``content``; raise DataError, without a path, where it is damaged."""
        ids = check_ids(content.get("ids"), "its vocabulary")
        merges = read_value(content.get("merges"), tuple[Merge, ...])
        check_vocabulary(ids, merges, "its vocabulary", "its merges")
        return cls(Gpt1Vocabulary(ids, merges))

    def encode(self, text: bytes) -> TokenIds:
        """Encode UTF-8; raise NotUtf8, a DataError, at the first byte that is not."""
        decoded = decode_utf8(text)
        numbers_of_words: dict[str, int] = {}
        parts = [np.empty(0, dtype=np.int32)]
        for distinct, numbers in words_of(decoded):
            # A word that is new in the text gets the next number.
            in_text = [
                numbers_of_words.setdefault(word, len(numbers_of_words)) for word in distinct
            ]
            parts.append(np.array(in_text, dtype=np.int32)[numbers])
        encodings = self._library.encode_batch_fast(
            list(numbers_of_words), add_special_tokens=False
        )
        return RaggedIds([encoding.ids for encoding in encodings]).take(np.concatenate(parts))

    def _decode(self, ids: Ints) -> bytes:
        # Words with a space after each; special ids have no text.
        texts = map(self._texts.__getitem__, ids.tolist())
        return "".join(texts).encode()

    def cut(self, text: bytes, near: int) -> int:
        """Cut in a line that the rules do not change, before a space between letters."""
        return cut(text, near)

    def content(self) -> dict[str, Any]:
        """Return the pieces with their ids, and the merges."""
        merges = [list(merge) for merge in self.vocabulary.merges]
        return self._described(ids=dict(self.vocabulary.ids), merges=merges)


def renormalized(tokenizer: Tokenizer, path: Path, normalization: Normalization) -> Tokenizer:
    """Return the tokenizer of a file with other, named text rules.

    Raises ConfigError where its kind is not GPT-1's.
    """
    if isinstance(tokenizer, ExtendedTokenizer):
        return tokenizer.around(renormalized(tokenizer.vocabulary, path, normalization))
    vocabulary = vocabulary_of(tokenizer)
    if vocabulary is None:
        raise ConfigError(
            f"data.normalization = {normalization} needs GPT-1's tokenizer, but {path} is of kind "
            f"{tokenizer.kind}: leave it out"
        )
    check_vocabulary(vocabulary.ids, vocabulary.merges, str(path), str(path))
    return vocabulary.with_normalization(normalization)


def vocabulary_of(tokenizer: Tokenizer) -> Gpt1Vocabulary | None:
    """Return the vocabulary of a GPT-1 tokenizer, without added ids; None for other kinds."""
    if isinstance(tokenizer, ExtendedTokenizer):
        return vocabulary_of(tokenizer.vocabulary)
    if isinstance(tokenizer, Gpt1Tokenizer):
        return tokenizer.vocabulary
    if not (isinstance(tokenizer, SubwordTokenizer) and tokenizer.kind == GPT1):
        return None
    model = tokenizer.library_content["model"]
    merges = tuple((left, right) for left, right in model["merges"])
    return Gpt1Vocabulary(model["vocab"], merges)


def train_gpt1(
    texts: Iterable[bytes],
    *,
    vocab_size: int | None = None,
    n_merges: int | None = None,
    normalization: Normalization = "published",
) -> Tokenizer:
    """Train ``n_merges`` merges, or the most that fit ``vocab_size``, which includes every id.

    Ids, in the published order: ``<unk>``, characters, their forms at the end of a word, the
    results of the merges, and, with the published rules, the line end. Short texts may give fewer
    merges.

    Raises ConfigError where ``vocab_size`` is too small for the text's characters; NotUtf8, a
    DataError, where a text is not UTF-8; DataError where there is no text, or ftfy or spaCy is
    missing.
    """
    if normalization == "published":
        words: Counter[str] = Counter()
        for distinct, numbers in (part for text in texts for part in words_of(decode_utf8(text))):
            counts = np.bincount(numbers, minlength=len(distinct))
            words.update(dict(zip(distinct, counts.tolist(), strict=True)))
        last = [LINE_END]
    else:
        nothing = Gpt1Vocabulary({UNKNOWN: 0}, ())
        words = count_words(texts, nothing.transformers_library())
        last = []
    # The line end is whitespace, which no piece of a word contains.
    words = Counter({word: count for word, count in words.items() if word != NEWLINE})
    trained = train_ended(words, GPT1, 1 + len(last), vocab_size, n_merges)
    pieces = (UNKNOWN, *trained.pieces, *last)
    ids = {piece: id_ for id_, piece in enumerate(pieces)}
    return Gpt1Vocabulary(ids, trained.merges).with_normalization(normalization)


_VERSION_LINE = "#version: 0.2"
_RELEASED = re.compile(r"encoder_bpe_(\d+)\.json")
_RELEASED_MERGES = re.compile(r"vocab_(\d+)\.bpe")
_VOCABULARY, _MERGES = "vocab.json", "merges.txt"

Files = tuple[Path, Path]
"""A vocabulary and its merges."""


def find_pair(path: Path) -> Files | None:
    """Find a vocabulary and its merges by the path of either file, or of their folder.

    They are ``encoder_bpe_N.json`` and ``vocab_N.bpe``, GPT-1's released names, or else
    ``vocab.json`` and ``merges.txt``, GPT-2's or GPT-1's. None without files of these names. Raises
    DataError where one file lacks the other, or a folder has several of GPT-1's released pairs.
    """
    folder = path if path.is_dir() else path.parent
    names = sorted(file.name for file in path.iterdir()) if path.is_dir() else [path.name]
    released = [name for name in names if _number(name) is not None]
    if len({_number(name) for name in released}) > 1:
        raise DataError(f"{path} has {released[0]} and {released[-1]}: name the file to read")
    if released:
        number = _number(released[0])
        pair = f"encoder_bpe_{number}.json", f"vocab_{number}.bpe"
    elif {_VOCABULARY, _MERGES} & set(names):
        pair = _VOCABULARY, _MERGES
    else:
        return None
    vocabulary, merges = (folder / name for name in pair)
    for file, other in ((vocabulary, merges), (merges, vocabulary)):
        if file.is_file() and not other.is_file():
            raise DataError(
                f"{file} lacks {other.name} next to it: put a vocabulary and its merges into one "
                "folder"
            )
    return vocabulary, merges


def read_pair(files: Files) -> Tokenizer:
    """Read a vocabulary and its merges: GPT-1's, with the published text rules, or GPT-2's.

    Raises DataError where a file is damaged, with its line, where GPT-1's merges have another
    version, or where the two do not belong together.
    """
    vocabulary, merges = files
    ids = read_ids(vocabulary)
    # In GPT-1's vocabulary, unlike GPT-2's, a word's last piece ends in a mark.
    ends_words = 4 * sum(piece.endswith(END) for piece in ids) > len(ids)
    if not ends_words and _number(vocabulary.name) is None:
        return SubwordTokenizer.read_merges(vocabulary, merges)
    pairs = tuple(_read_merges(merges))
    check_vocabulary(ids, pairs, str(vocabulary), str(merges))
    return Gpt1Tokenizer(Gpt1Vocabulary(ids, pairs))


def _number(name: str) -> str | None:
    match = _RELEASED.fullmatch(name) or _RELEASED_MERGES.fullmatch(name)
    return None if match is None else match[1]


def _read_merges(path: Path) -> Iterator[Merge]:
    first, *lines = read_text(path).removeprefix("\ufeff").rstrip("\r\n").split("\n")
    if first.rstrip("\r") != _VERSION_LINE:
        raise DataError(
            f"{path}, line 1: {first[:60]!r} is not {_VERSION_LINE!r}, the only version of GPT-1's "
            "merges that can be read"
        )
    for number, line in enumerate(lines, 2):
        yield parse_merge(path, number, line)


Parts = tuple[str, ...]
