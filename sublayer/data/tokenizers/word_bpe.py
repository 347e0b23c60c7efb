"""BPE with end-of-word pieces: trained, applied to words, read from subword-nmt's files."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import tokenizers
from pydantic import Field
from tokenizers import models, pre_tokenizers, trainers

from sublayer.data.tokenizers.base import (
    Tokenizer,
    WordCache,
    after_newline,
    decode_utf8,
    read_fields,
    read_file,
    read_text,
    read_value,
)
from sublayer.data.tokenizers.library import parse_merge
from sublayer.errors import ConfigError, DataError
from sublayer.files.arrays import AnyInts, Bools, Ints, TokenIds

N_CHARACTERS = 1000
"""The number of most frequent characters that become pieces, as in the library's BERT recipe."""

_BATCH_CHARACTERS = 64 << 10


Piece = Annotated[str, Field(pattern=r"^[^\n]+$")]


@dataclass(frozen=True)
class Merges:
    """Pieces in order of their ids, and the merges that made them."""

    pieces: tuple[Piece, ...]
    """Characters, then the results of merges, with word marks."""
    merges: tuple[tuple[Piece, Piece], ...]
    """Pairs of neighbours, in the order of merging in training."""


def count_merges(kind: str, vocab_size: int, least: int) -> int:
    """Count the merges that fit a vocabulary with ``least`` other ids.

    Raises ConfigError where ``vocab_size`` is below ``least``.
    """
    if vocab_size < least:
        raise ConfigError(
            f"data.vocab_size = {vocab_size} is too small for {kind}: "
            f"the text's characters and the special ids take {least}"
        )
    return vocab_size - least


def symbols_of(merges: Iterable[Sequence[str]]) -> set[str]:
    """Collect the parts and results of all merges."""
    symbols: set[str] = set()
    for left, right in merges:
        symbols.update((left, right, left + right))
    return symbols


def alphabet_of(words: Mapping[str, int]) -> list[str]:
    """List the most frequent characters of counted words, at most ``N_CHARACTERS``, by code."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    # Ties go to the lowest codes, whatever the order of the words.
    by_frequency = sorted(counts, key=lambda character: (-counts[character], character))
    return sorted(by_frequency[:N_CHARACTERS])


def train_merges(
    words: Mapping[str, int], alphabet: list[str], *, n_merges: int, inner: str = "", end: str = ""
) -> Merges:
    """Train up to ``n_merges`` merges on counted words without whitespace.

    ``inner`` precedes every piece but a word's first (WordPiece's ``##``), ``end`` follows its last
    (subword-nmt's ``</w>``). The first pieces are the alphabet's characters, then their marked
    forms, whether or not the words have them. Other characters are in no piece. Short texts give
    fewer merges.
    """
    # The library numbers marked characters in the random order of a hash table, and breaks ties by
    # number; characters that are listed are numbered in order.
    initial_pieces = [*alphabet, *(f"{inner}{character}{end}" for character in alphabet)]
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=len(initial_pieces) + n_merges,
        special_tokens=initial_pieces,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    # Set afterwards, since the library does not accept None.
    if inner:
        trainer.continuing_subword_prefix = inner
    if end:
        trainer.end_of_word_suffix = end
    trained.train_from_iterator(_repeated(words), trainer)
    vocabulary = trained.get_vocab(with_added_tokens=False)
    # The library exposes merges only in its file.
    merges = json.loads(trained.to_str())["model"]["merges"]
    return Merges(
        tuple(sorted(vocabulary, key=vocabulary.__getitem__)),
        tuple((left, right) for left, right in merges),
    )


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    # The library counts words itself, so each is repeated by its count.
    for word, count in words.items():
        size = max(1, _BATCH_CHARACTERS // (len(word) + 1))
        for start in range(0, count, size):
            yield f"{word} " * min(size, count - start)


END = "</w>"
"""The suffix of a piece that ends a word."""

# Names that no word can have, since none holds a newline.
_APART, _UNKNOWN = "\n", "\n\n"


def ended_text(piece: str) -> str:
    """Return the text of a piece, with a space where it ends a word."""
    return f"{piece.removesuffix(END)} " if piece.endswith(END) else piece


def train_ended(
    words: Mapping[str, int], kind: str, n_others: int, vocab_size: int | None, n_merges: int | None
) -> Merges:
    """Train merges with an end of word: ``n_merges``, or the most that fit ``vocab_size``.

    ``n_others`` is the number of ids other than characters and merges. Raises ConfigError where
    ``vocab_size`` is too small for the text's characters, DataError where there is no text.
    """
    alphabet = alphabet_of(words)
    if not alphabet:
        raise DataError("there is no text to train a tokenizer on: give a longer one")
    if vocab_size is not None:
        n_merges = count_merges(kind, vocab_size, n_others + 2 * len(alphabet))
    assert n_merges is not None, "the number of merges is given, or follows from the size"
    return train_merges(words, alphabet, n_merges=n_merges, end=END)


class BpeEncoder:
    """Segments words by merges, always applying the earliest merge of training.

    Pieces have ids from ``first_id`` on; other symbols of the merges are ``unk_id``. A word's last
    character carries the end of word from the start; where ``is_apart``, the end is a separate
    symbol until a merge joins it (subword-nmt before 0.2), and if none does, it belongs to the
    piece before it. Source: Sennrich et al. 2016 (1508.07909), sec. 3.2.

    Departure: a pair's occurrences are merged one by one, not all at once. The two differ only
    where a merge makes a symbol that an earlier merge takes, in words with several occurrences of
    the pair.
    """

    def __init__(self, trained: Merges, *, first_id: int, unk_id: int, is_apart: bool) -> None:
        end = _APART if is_apart else END

        def rename(symbol: str) -> str:
            return symbol.removesuffix(END) + end if symbol.endswith(END) else symbol

        piece_ids = {rename(piece): id_ for id_, piece in enumerate(trained.pieces, first_id)}
        merges = [(rename(left), rename(right)) for left, right in trained.merges]
        made = [(left, right, left + right) for left, right in merges]
        symbols = dict.fromkeys(chain.from_iterable(made))  # in the order of the merges
        if is_apart:
            symbols.setdefault(_APART)
        # Symbols of the merges that are not pieces are numbered after the pieces, and become
        # unknown.
        self._first_other = first_id + len(trained.pieces)
        others = [symbol for symbol in symbols if symbol not in piece_ids]
        numbers = {_UNKNOWN: unk_id, **piece_ids}
        numbers |= {symbol: id_ for id_, symbol in enumerate(others, self._first_other)}
        self._has_others = bool(others)
        self._unk_id = unk_id
        model = models.BPE(numbers, merges, unk_token=_UNKNOWN)
        self._apart = numbers[_APART] if is_apart else None
        self._ended: dict[int, int] = {}
        """The id of each symbol joined with the end of word, by its id; only if ``is_apart``."""
        if is_apart:
            self._ended = {
                id_: piece_ids.get(symbol + end, unk_id) for symbol, id_ in numbers.items()
            }
        else:
            model.end_of_word_suffix = END
        # Without a rule that splits text: its input is split into words already.
        self._library = tokenizers.Tokenizer(model)

    def __call__(self, words: Sequence[str]) -> list[list[int]]:
        """Return the ids of each word; words are non-empty and contain no newline."""
        if self._apart is not None:
            words = [word + _APART for word in words]
        encodings = self._library.encode_batch_fast(words, add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        if self._apart is not None:
            # A separate end of word joins the symbol before it.
            rows = [
                [*row[:-2], self._ended[row[-2]]] if row[-1] == self._apart else row for row in rows
            ]
        if self._has_others:
            rows = [
                [self._unk_id if id_ >= self._first_other else id_ for id_ in row] for row in rows
            ]
        return rows


NO_RULES: Mapping[str, bool] = MappingProxyType({})
SplitWords = Callable[[str], list[list[str]]]

APART = "0.1"
"""The version of subword-nmt's codes before 0.2, with the end of a word as a separate symbol."""
CODES = (APART, "0.2")
"""The versions of subword-nmt's codes."""


class WordBpeTokenizer(Tokenizer):
    """BPE merges with an end of word, line by line; the whitespace between words is not kept.

    A word begins after a piece that ends a word, after a special id, and at the first id of a
    sequence. Source: Sennrich et al. 2016 (1508.07909). Special ids are in fairseq's order; then
    characters and merges are in the order of training, where fairseq sorts pieces by count.
    ``codes`` is the version of subword-nmt's file that the merges were read from (see
    ``read_codes``); the results of such merges need not all be pieces. None: the merges were
    trained here, and all of their results are pieces.
    """

    kind = "word-bpe"
    specials: ClassVar[tuple[str, ...]] = ("<s>", "<pad>", "</s>", "<unk>")
    rule_names: ClassVar[tuple[str, ...]] = ()
    """Text rules that a vocabulary may be trained with."""
    is_lossless = False
    has_words = True

    def __init__(
        self, merges: Merges, codes: str | None = None, rules: Mapping[str, bool] = NO_RULES
    ) -> None:
        self._merges = merges
        self._codes = codes
        self._rules = dict(rules)
        n_specials = len(self.specials)
        self.vocab_size = n_specials + len(merges.pieces)
        self.special_ids = tuple(range(n_specials))
        self.unk_id = self.specials.index("<unk>")
        self._set_special({name: id_ for id_, name in enumerate(self.specials)})
        self._encode_each = BpeEncoder(
            merges, first_id=n_specials, unk_id=self.unk_id, is_apart=self.is_apart
        )
        # By id, special ids first: they have no text, and a word begins after each.
        pieces = [*[""] * n_specials, *merges.pieces]
        ends_word = [id_ < n_specials or piece.endswith(END) for id_, piece in enumerate(pieces)]
        self._ends_word = np.array(ends_word)
        self._texts = [ended_text(piece) for piece in pieces]
        self._set_pieces([piece.removesuffix(END).encode() for piece in pieces])

    @classmethod
    def train(
        cls,
        texts: Iterable[bytes],
        *,
        vocab_size: int | None = None,
        n_merges: int | None = None,
        rules: Mapping[str, bool] = NO_RULES,
    ) -> Self:
        """Train ``n_merges`` merges, or the most that fit ``vocab_size``, which includes every id.

        ``rules``, by the names of ``rule_names``, replace the text rules. Short texts may give
        fewer merges. Raises ConfigError where ``vocab_size`` is too small for the text's
        characters; NotUtf8, a DataError, where a text is not UTF-8; DataError where there is no
        text.
        """
        divide = cls.words_of(rules)
        words = Counter(
            word for text in texts for line in divide(decode_utf8(text)) for word in line
        )
        merges = train_ended(words, cls.kind, len(cls.specials), vocab_size, n_merges)
        return cls(merges, rules=rules)

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> Self:
        """Build from ``content``; raise DataError, without a path, where it is damaged."""
        merges = read_fields(content, Merges)
        codes = content.get("codes")
        if codes is not None and codes not in CODES:
            raise DataError(f"its merges are of codes = {codes!r}: update the program")
        distinct = set(merges.pieces)
        has_all = codes is not None or symbols_of(merges.merges) <= distinct
        if len(distinct) < len(merges.pieces) or not has_all:
            raise DataError("its merges do not make its pieces: it is damaged")
        rules = {name: content[name] for name in cls.rule_names if name in content}
        return cls(merges, codes, read_value(rules, dict[str, bool]))

    def encode(self, text: bytes) -> TokenIds:
        """Encode UTF-8; raise NotUtf8, a DataError, at the first byte that is not."""
        lines = self._divide(decode_utf8(text))
        words = list(chain.from_iterable(lines))
        return WordCache().encode(words, self._encode_each)

    def _decode(self, ids: Ints) -> bytes:
        # Words with a space after each; special ids have no text.
        texts = map(self._texts.__getitem__, ids.tolist())
        return "".join(texts).encode()

    def cut(self, text: bytes, near: int) -> int:
        """Cut after a newline: lines are encoded separately."""
        return after_newline(text, near)

    def starts_word(self, ids: AnyInts) -> Bools:
        """Return which ids begin a word: the first, special ids, and those after a word's last."""
        is_after_last = self._ends_word[ids[:-1]]
        is_special = ids[1:] < len(self.specials)
        starts = np.ones(len(ids), dtype=np.bool_)
        starts[1:] = is_after_last | is_special
        return starts

    def content(self) -> dict[str, Any]:
        """Return the pieces after the special ids, the merges, and the version of the codes."""
        codes = {} if self._codes is None else {"codes": self._codes}
        merges = [list(merge) for merge in self._merges.merges]
        pieces = list(self._merges.pieces)
        return self._described(**codes, **self._rules, pieces=pieces, merges=merges)

    @property
    def pieces(self) -> list[str]:
        """The pieces in order, after the special ids; a word's last piece ends in ``</w>``."""
        return list(self._merges.pieces)

    @property
    def merges(self) -> list[tuple[str, str]]:
        """The merges in their order."""
        return list(self._merges.merges)

    @property
    def made(self) -> set[str]:
        """The parts and results of all merges."""
        return symbols_of(self._merges.merges)

    @property
    def is_apart(self) -> bool:
        """True where the end of a word is a separate symbol until merged: codes of version 0.1."""
        return self._codes == APART

    @classmethod
    def words_of(cls, rules: Mapping[str, bool] = NO_RULES) -> SplitWords:
        """Return the function that splits a text into the words of its lines."""
        return lambda text: [line.split() for line in text.split("\n")]

    @cached_property
    def _divide(self) -> SplitWords:
        return self.words_of(self._rules)


_HEADER = "#version:"
_INNER = "@@"
"""subword-nmt's suffix of a piece that does not end its word."""

Merge = tuple[str, str]


def read_codes(
    codes: Path, dictionary: Path | None = None, *, kind: type[WordBpeTokenizer] = WordBpeTokenizer
) -> WordBpeTokenizer:
    """Read the merges of subword-nmt (0.1, 0.2) or fastBPE, one per line.

    With fairseq's ``dictionary``, the ids are the dictionary's, and other symbols of the merges are
    unknown. Without one, the ids after the special ones are the characters of the merges, each also
    with an end of word, and the results of the merges. ``kind`` is the tokenizer's class, which
    splits a text into words.

    Raises DataError where a file cannot be read, with its line where one is malformed.
    """
    lines = _lines(codes)
    first = lines[0] if lines else ""
    version = APART
    n_header_lines = 0
    has_counts = False
    if first.startswith(_HEADER):
        n_header_lines = 1
        version = first.removeprefix(_HEADER).strip()
        if version not in CODES:
            raise DataError(
                f"{codes}, line 1: codes of version {version!r} cannot be read, only those of "
                f"{' and '.join(CODES)}"
            )
    elif len(first.split(" ")) == 3:
        # fastBPE counts each merge, and has no header.
        has_counts = True
        version = CODES[-1]
    merges: dict[Merge, None] = {}
    for number, line in enumerate(lines[n_header_lines:], n_header_lines + 1):
        pair, _, n_times = line.strip("\r ").rpartition(" ") if has_counts else (line, "", "0")
        if not n_times.isdecimal():
            raise DataError(
                f"{codes}, line {number}: {line[:60]!r} is not a merge: two pieces and a count, "
                "separated by spaces"
            )
        merges.setdefault(parse_merge(codes, number, pair))
    if not any(right.endswith(END) for _, right in merges):
        raise DataError(
            f"{codes} has no merge with an end of word, {END}: "
            "it is empty, or not from subword-nmt or fastBPE "
            "(for GPT-2's merges.txt, name its folder)"
        )
    pieces: dict[str, None] = {}
    if dictionary is None:
        bare = (piece.removesuffix(END) for merge in merges for piece in merge)
        singles = sorted(set(chain.from_iterable(bare)))
        merged = [left + right for left, right in merges]
        # Where the end of a word stays separate, the piece before it still ends the word.
        apart = [piece.removesuffix(END) + END for piece in merged] if version == APART else []
        ended = (single + END for single in singles)
        pieces = dict.fromkeys([*singles, *ended, *merged, *apart])
    else:
        for number, line in enumerate(_lines(dictionary), 1):
            name, _, count = line.rstrip("\r ").rpartition(" ")
            if not name or not count.isdecimal():
                raise DataError(
                    f"{dictionary}, line {number}: {line!r} is not a piece and its count"
                )
            is_inner = name.endswith(_INNER) and name != _INNER
            piece = name.removesuffix(_INNER) if is_inner else name + END
            if piece in pieces or name in kind.specials:
                raise DataError(f"{dictionary}, line {number}: {name!r} is a repeated piece")
            pieces[piece] = None
    return kind(Merges(tuple(pieces), tuple(merges)), version)


def find_dictionary(folder: Path) -> Path | None:
    """Find fairseq's dictionary in a folder; None without one.

    It is ``dict.txt``, or ``dict.LANGUAGE.txt`` for both languages. Raises DataError where two
    differ.
    """
    dictionaries = sorted({*folder.glob("dict.txt"), *folder.glob("dict.*.txt")})
    if not dictionaries:
        return None
    first, *others = dictionaries
    for other in others:
        if read_file(other) != read_file(first):
            raise DataError(
                f"{first} and {other.name} differ, "
                "but a translator has one vocabulary for both languages: "
                "keep a joined dictionary next to the codes, or none"
            )
    return first


def _lines(path: Path) -> list[str]:
    text = read_text(path)
    return text.rstrip("\n").split("\n") if text.strip() else []
