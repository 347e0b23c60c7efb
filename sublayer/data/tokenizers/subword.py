"""Tokenizers of the tokenizers library: byte-level BPE and WordPiece trained here, or any file."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from unicodedata import category

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from sublayer.config.data import GPT1
from sublayer.data.tokenizers.base import (
    NO_TEXT,
    SPACE,
    SPECIAL_NAMES,
    NotUtf8,
    Tokenizer,
    WordCache,
    begins_word,
    decode_utf8,
    find_sentinels,
    is_unused,
    read_roles,
    read_text,
    read_value,
    split_words,
)
from sublayer.data.tokenizers.library import (
    call_library,
    library_of,
    parse_merge,
    read_ids,
    read_library,
)
from sublayer.data.tokenizers.settings import CONFIG_NAME, read_settings
from sublayer.data.tokenizers.word_bpe import END as WORD_END
from sublayer.data.tokenizers.word_bpe import alphabet_of, count_merges, train_merges
from sublayer.errors import ConfigError, DataError
from sublayer.files.arrays import AnyInts, Bools, Ints, TokenIds
from sublayer.system.terminal import note

_BATCH_CHARACTERS = 64 << 10
_SEARCHED_BYTES = 64 << 10
_BEFORE_SPACES = re.compile(r"\s*\S+(?:[^\S \n]\s*\S+)*|\s+")
"""A part of a text that ends before a space or newline that follows another character."""


def before_whitespace(text: bytes, near: int) -> int:
    """Return a late position up to ``near`` where whitespace follows other text; 0 without one.

    GPT-2's pattern never joins a character to the whitespace after it, nor looks ahead beyond
    whitespace. Up to byte 9 of ``one two three`` the position is 7. Newlines are preferred, and
    only the last 64 KiB are searched. The text has a byte after ``near``, or ends there.
    """
    start = max(0, near - _SEARCHED_BYTES)
    window = text[start : near + 1].decode("utf-8", "surrogateescape")
    position = _last_break(window, len(window))
    if not position:
        return 0
    before = window[:position].encode("utf-8", "surrogateescape")
    return start + len(before)


def _last_break(text: str, near: int) -> int:
    # Python's whitespace includes the pattern's, and more: other characters are whitespace to
    # neither.
    for mark in ("\n", " "):
        position = text.rfind(mark, 1, near + 1)
        while position > 0 and text[position - 1].isspace():
            position = text.rfind(mark, 1, position)
        if position > 0:
            return position
    return 0


def batches(text: str, size: int = _BATCH_CHARACTERS) -> Iterator[str]:
    """Cut a text before whitespace into parts of bounded size; the uncuttable rest is one part.

    A text of at most ``size`` characters is one part; an empty text has no parts.
    """
    start = 0
    while len(text) - start > size:
        # One more character shows whether whitespace follows the cut.
        window = text[start : start + size + 1]
        n_characters = _last_break(window, size)
        if not n_characters:
            break
        yield window[:n_characters]
        start += n_characters
    if start < len(text):
        yield text[start:]


# GPT-2's alphabet: printable bytes are their own characters, the others characters from 256 on; 173
# is the soft hyphen.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_UNPRINTABLE = [byte for byte in range(256) if byte not in _PRINTABLE]
BYTE_NAMES = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(code): byte for code, byte in enumerate(_UNPRINTABLE, start=256)
}
"""Bytes, by the characters that represent them in byte-level vocabularies."""


AddedTokens = Sequence[dict[str, Any]]


def _has_fields(step: dict[str, Any] | None, **values: Any) -> bool:
    """Return whether a step of a library's pipeline exists and has all of the values."""
    return step is not None and all(step.get(name) == value for name, value in values.items())


def _is_gpt1(content: dict[str, Any]) -> bool:
    """Return whether a tokenizer is GPT-1's with transformers' rules: BERT's words, and BPE with
    ``</w>`` at the end of a word's last piece.
    """
    model = content["model"]
    return (
        _has_fields(model, type="BPE", end_of_word_suffix=WORD_END, fuse_unk=False)
        and not model["continuing_subword_prefix"]
        and model["unk_token"] is not None
        and _has_fields(content["normalizer"], type="BertNormalizer")
        and _has_fields(content["pre_tokenizer"], type="BertPreTokenizer")
    )


def _steps(step: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """Return the steps of a part of a library's pipeline; ``name`` lists those of a sequence."""
    if step is None:
        return []
    return list(step[name]) if step["type"] == "Sequence" else [step]


def _pre_tokenizing_steps(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the steps that divide a normalised text into words."""
    return _steps(content["pre_tokenizer"], "pretokenizers")


def _keeps_bytes(content: dict[str, Any], vocabulary: dict[str, int], parsed: AddedTokens) -> bool:
    """Return whether a tokenizer is byte-level BPE that preserves any bytes it is given.

    Its normalizer may have changed them. ``vocabulary`` includes the added tokens; ``parsed`` are
    the added tokens matched in a text. An unknown step counts as lossy.
    """
    model = content["model"]
    steps = _pre_tokenizing_steps(content)
    levels = [step for step in steps if step["type"] == "ByteLevel"]
    others = [step for step in steps if step["type"] in ("Split", "Digits")]
    # Text is mapped to bytes once, with nothing added or removed.
    splits_bytes = (
        len(levels) + len(others) == len(steps)
        and [step["add_prefix_space"] for step in levels].count(False) == 1
        and not any(_has_fields(step, behavior="Removed") for step in others)
    )
    if (
        not _has_fields(model, type="BPE")
        or model["continuing_subword_prefix"]
        or model["end_of_word_suffix"]
        or not splits_bytes
        or any(token["lstrip"] or token["rstrip"] for token in parsed)
    ):
        return False
    if len(set(vocabulary.values())) < len(vocabulary):
        # If two pieces share an id, only one of them can be decoded.
        return False
    names = vocabulary.keys() - {token["content"] for token in content["added_tokens"]}
    # Every byte has an id, and pieces consist of bytes.
    return names >= BYTE_NAMES.keys() and set().union(*names) <= BYTE_NAMES.keys()


def _count_separators(content: dict[str, Any]) -> int:
    """Count the equal tokens that a tokenizer's file puts between two texts, at least 1."""
    for step in _steps(content["post_processor"], "processors"):
        if step["type"] == "RobertaProcessing":
            return 2
        if step["type"] == "TemplateProcessing":
            parts = [(part.get("SpecialToken") or part["Sequence"])["id"] for part in step["pair"]]
            between = parts[parts.index("A") + 1 : parts.index("B")]
            return len(between) if len(set(between)) == 1 else 1
    return 1


def _marks_spaces(content: dict[str, Any]) -> bool:
    """Return whether pieces have SentencePiece's mark for the space before a word."""
    steps = _steps(content["decoder"], "decoders")
    marked = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    has_mark = any(step["type"] == "Metaspace" or step == marked for step in steps)
    return has_mark and content["model"]["type"] in ("BPE", "Unigram")


def _find_splitter(
    content: dict[str, Any], parsed: AddedTokens
) -> Callable[[str], list[str]] | None:
    """Return the function that splits a text into independently encoded words, or None.

    Under BERT's rules whitespace ends every word: the normaliser changes characters one by one,
    except combining marks, which never combine with whitespace. Under GPT-2's pattern alone, no
    word crosses the start of whitespace. ``parsed`` are the added tokens matched in a text; they
    must not contain whitespace. None for other rules.
    """
    has_space = any(any(map(str.isspace, token["content"])) for token in parsed)
    if (
        (content["model"]["type"] == "WordPiece" or _is_gpt1(content))
        and (content["normalizer"] is None or content["normalizer"]["type"] == "BertNormalizer")
        and _has_fields(content["pre_tokenizer"], type="BertPreTokenizer")
        and not has_space
    ):
        return split_words
    steps = _pre_tokenizing_steps(content)
    rules = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    if (
        (content["normalizer"] is None or _has_fields(content["normalizer"], type="NFC"))
        and len(steps) == 1
        and _has_fields(steps[0], **rules)
        and not has_space
        and not any(token["lstrip"] or token["rstrip"] for token in parsed)
    ):
        return _BEFORE_SPACES.findall
    return None


END = "<|endoftext|>"
MARKED = "marked"
"""The kind of our file that wraps a library's, with the reading of special tokens."""
_ENDS = (END, "<|end_of_text|>", "</s>", "<eos>")
_SPAN_CHARACTERS = 1 << 19
_NOT_UTF8 = re.compile("([\udc80-\udcff]+)")
_BYTE = re.compile("<0x([0-9A-F]{2})>")
"""Names of pieces that stand for a byte."""
_ESCAPE = 0xDC00
"""``surrogateescape`` represents byte b by the character with code 0xDC00 + b."""


class SubwordTokenizer(Tokenizer):
    """A tokenizer in the file format of the ``tokenizers`` library.

    Byte-level BPE that keeps every byte (GPT-2's, and those trained here) is lossless: bytes that
    are not UTF-8 become single-byte ids. Any other tokenizer is marked as lossy; each of its ids
    counts as the bytes of its piece, or else as those that it decodes to on its own. Special tokens
    with the names of T5's sentinels are sentinels.

    ``reads_marks``: the name of a special token in a text is read as that token; otherwise it is
    encoded as text. Tokens read so count as text, except an end, padding, unknown, masking's
    tokens and sentinels. ``roles`` name the tokens for the end, padding and so on, where they do
    not have their usual names.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        reads_marks: bool | None = None,
        roles: Mapping[str, str] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self.file_padding: str | None = (tokenizer.padding or {}).get("pad_token")
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = not reads_marks
        self.reads_marks = reads_marks
        if isinstance(tokenizer.model, models.BPE):
            tokenizer.model.dropout = None
        content: dict[str, Any] = json.loads(tokenizer.to_str())
        self._content = content
        added = tokenizer.get_added_tokens_decoder()
        names = {token.content: id_ for id_, token in added.items() if token.special}
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        model = content["model"]
        self.kind = GPT1 if _is_gpt1(content) else str(model["type"]).lower()
        self.vocab_size = max(vocabulary.values()) + 1
        end_ids = (names[name] for name in _ENDS if name in names)
        self.end_id = next(end_ids, None)
        # A unigram model gives the id of its unknown piece; other models give its name.
        self.unk_id = model.get("unk_id")
        if not isinstance(self.unk_id, int) or self.unk_id not in vocabulary.values():
            self.unk_id = vocabulary.get(model.get("unk_token"))
        self.marks = names
        parsed = [token for token in content["added_tokens"] if reads_marks or not token["special"]]
        self._is_bytes = _keeps_bytes(content, vocabulary, parsed)
        self.is_lossless = self._is_bytes and content["normalizer"] is None
        self._set_special(names)
        self.n_separators = _count_separators(content)
        self.sentinel_ids = find_sentinels(names)
        if self.sentinel_ids:
            # T5's end closes inputs and targets, and does not separate documents.
            self.end_id = None
        self.roles = self._set_roles(roles or {}, vocabulary)
        controls = names
        if reads_marks:
            ids = {self.end_id, self.start_id, *(getattr(self, role) for role in SPECIAL_NAMES)}
            ids.update(self.sentinel_ids)
            controls = {name: id_ for name, id_ in names.items() if id_ in ids}
        unused = {id_ for name, id_ in vocabulary.items() if is_unused(name)}
        unknown = set() if self.unk_id is None else {self.unk_id}
        self.special_ids = tuple(sorted({*controls.values(), *unused, *unknown}))
        self._encoder = tokenizer
        if self.sentinel_ids and model["type"] == "Unigram" and not reads_marks:
            # T5's special tokens are pieces, so its model would find them in a text. Pieces with an
            # empty name are never found, and all ids stay.
            pieces: list[list[Any]] = list(model["vocab"])
            others = []
            for token in content["added_tokens"]:
                if token["special"] and token["id"] < len(pieces):
                    pieces[token["id"]] = ["", pieces[token["id"]][1]]
                else:
                    others.append(token)
            nameless = {**content, "model": {**model, "vocab": pieces}, "added_tokens": others}
            nameless["post_processor"] = None
            self._encoder = library_of(nameless, "the tokenizer without its sentinels")
            self._encoder.encode_special_tokens = True
        prefix = model.get("continuing_subword_prefix")
        self._starts: Callable[[str], bool] | None = None
        if model["type"] == "Unigram":
            self._starts = begins_word
        elif model["type"] == "WordPiece" and prefix:
            self._starts = lambda piece: not piece.startswith(prefix)
        self.has_words = self._starts is not None
        self.names = [""] * self.vocab_size
        for name, id_ in vocabulary.items():
            self.names[id_] = name
        self._byte_ids = {
            BYTE_NAMES[name]: id_ for name, id_ in vocabulary.items() if name in BYTE_NAMES
        }
        self._marks_spaces = _marks_spaces(content)
        self._pieces = self._find_pieces(vocabulary, set(self.special_ids))
        self._set_pieces(self._pieces)
        for id_ in self.sentinel_ids:
            self._pieces[id_] = self.names[id_].encode()
        if self._marks_spaces:
            self.inner_pieces = self._pieces
        self._split = _find_splitter(content, parsed)
        self._words = WordCache()

    @classmethod
    def train(cls, texts: Iterable[bytes], *, vocab_size: int) -> "SubwordTokenizer":
        """Train byte-level BPE of GPT-2's kind.

        ``vocab_size`` includes the 256 bytes and the end of a document. Short texts may give fewer
        merges. Bytes that are not UTF-8 are skipped.

        Raises ConfigError where ``vocab_size`` is below 257. Source: Radford et al. 2019, sec. 2.2;
        the library's trainer.
        """
        if vocab_size < 257:
            raise ConfigError(
                f"data.vocab_size = {vocab_size} is too small for bpe: bytes and the end take 257"
            )
        trained = _byte_level(models.BPE())
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        utf_8 = (part for text in texts for part in _parts(text)[::2])
        trained.train_from_iterator((span for part in utf_8 for span in batches(part)), trainer)
        return cls(trained)

    @classmethod
    def from_bytes(cls, data: bytes, path: Path) -> "SubwordTokenizer":
        """Build from the bytes of a library file; raise DataError if they are invalid."""
        return cls(read_library(data, str(path)))

    @classmethod
    def from_content(cls, content: dict[str, Any], path: Path) -> "SubwordTokenizer":
        """Build from a file's ``content``; raise DataError if it is invalid."""
        if content.get("kind") != MARKED:
            return cls(library_of(content, str(path)))
        reads_marks, roles = read_roles(content)
        inner = read_value(content.get("vocabulary"), dict[str, Any])
        return cls(library_of(inner, str(path)), reads_marks=reads_marks, roles=roles)

    @classmethod
    def read_merges(cls, vocabulary: Path, merges: Path) -> "SubwordTokenizer":
        """Read GPT-2's original ``vocab.json`` and ``merges.txt``.

        Raises DataError where one of them is invalid, with the line of a merge.
        """
        pairs = [
            list(parse_merge(merges, number, line))
            for number, line in enumerate(read_text(merges).split("\n"), 1)
            if line.rstrip("\r") and not line.startswith("#version")
        ]
        model = {"type": "BPE", "vocab": read_ids(vocabulary), "merges": pairs}
        content = {"version": "1.0", "model": model}
        library = library_of(content, str(vocabulary))
        return cls(_byte_level(library.model))

    def encode(self, text: bytes) -> TokenIds:
        """Encode bytes; raise NotUtf8, a DataError, if a lossy tokenizer gets invalid UTF-8."""
        parts = _parts(text)
        if len(parts) > 1 and not self.is_lossless:
            first_bad = len(parts[0].encode())
            raise NotUtf8(text, first_bad)
        ids = [np.empty(0, dtype=np.int32)]
        for index, part in enumerate(parts):
            if index % 2:
                bytes_ = [self._byte_ids[ord(character) - _ESCAPE] for character in part]
                ids.append(np.array(bytes_, dtype=np.int32))
                continue
            # In parts: the words of a whole text take many times its memory.
            for span in batches(part, _SPAN_CHARACTERS) if self._split else [part]:
                ids += self._encode_texts([span])
        return np.concatenate(ids)

    def encode_many(self, texts: Sequence[bytes]) -> list[TokenIds]:
        """Encode each of several texts; all at once, where all are UTF-8."""
        try:
            return self._encode_texts([text.decode("utf-8") for text in texts])
        except UnicodeDecodeError:
            return super().encode_many(texts)

    def _encode_texts(self, texts: list[str]) -> list[TokenIds]:
        if self._split is None:
            return [np.array(ids, dtype=np.int32) for ids in self._encode_each(texts)]
        return self._words.encode_many(list(map(self._split, texts)), self._encode_each)

    def encode_with_spans(self, text: str) -> tuple[TokenIds, Ints]:
        """Encode a text; return its ids and their spans, ``[T, 2]``.

        Starts and ends are in characters of the text before normalisation.
        """
        encoding = call_library(
            lambda: self._encoder.encode(text, add_special_tokens=False),
            "the tokenizer cannot encode this text",
        )
        spans = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        return np.array(encoding.ids, dtype=np.int32), spans

    def cut(self, text: bytes, near: int) -> int:
        """Cut before whitespace, which ends a word in GPT-2's and BERT's patterns; 0 for others."""
        if self._split is None:
            return 0
        return before_whitespace(text, near)

    def starts_word(self, ids: AnyInts) -> Bools:
        """Return which ids begin a word; raise ConfigError unless it is WordPiece or unigram."""
        if self._starts is None:
            return super().starts_word(ids)
        return self._begins_word[ids]

    def content(self) -> dict[str, Any]:
        """Return the library's description, within ours where ``reads_marks`` or roles are set."""
        if not self.reads_marks and not self.roles:
            return self._content
        return {**self._marked_content(), "reads_marks": bool(self.reads_marks)}

    def _marked_content(self) -> dict[str, Any]:
        fields = {"reads_marks": self.reads_marks, "roles": self.roles}
        return self._described(**fields, vocabulary=self._content) | {"kind": MARKED}

    def serialize(self, *, is_kept: bool = False) -> bytes:
        """Return the bytes of its file: the library's format where that is complete."""
        if self.reads_marks is None and not self.roles and not is_kept:
            return self.library_file
        return json.dumps(self._marked_content(), ensure_ascii=False, indent=1).encode() + b"\n"

    @property
    def library_content(self) -> dict[str, Any]:
        """The library's description."""
        return self._content

    @property
    def library_file(self) -> bytes:
        """The file that the ``tokenizers`` library reads."""
        return str(self._tokenizer.to_str(pretty=True)).encode()

    def replaced(
        self,
        content: dict[str, Any] | None = None,
        *,
        reads_marks: bool | None,
        roles: Mapping[str, str] | None = None,
    ) -> "SubwordTokenizer":
        """Return a copy with another ``reads_marks``, and another ``content`` where given.

        Raises DataError where the library refuses the content.
        """
        library = library_of(content or self._content, "the tokenizer with its added tokens")
        return SubwordTokenizer(
            library, reads_marks=reads_marks, roles=self.roles if roles is None else roles
        )

    @cached_property
    def _spaced(self) -> list[bytes]:
        """The text of each id of GPT-1's kind, with a space after a word's last piece."""
        return [
            piece + b" " if piece and name.endswith(WORD_END) else piece
            for piece, name in zip(self._pieces, self.names, strict=True)
        ]

    @cached_property
    def _begins_word(self) -> Bools:
        assert self._starts is not None, "there are words"
        begins = np.array([self._starts(name) for name in self.names])
        begins[list(self.special_ids)] = True
        return begins

    def _encode_each(self, words: list[str]) -> list[list[int]]:
        encodings = call_library(
            lambda: self._encoder.encode_batch_fast(words, add_special_tokens=False),
            "the tokenizer cannot encode this text",
        )
        return [encoding.ids for encoding in encodings]

    def _decode(self, ids: Ints) -> bytes:
        # Special tokens have no text, except sentinels.
        if self.kind == GPT1:
            return b"".join(map(self._spaced.__getitem__, ids.tolist()))
        if self._is_bytes:
            return b"".join(map(self._pieces.__getitem__, ids.tolist()))
        if not self.reads_marks and not np.isin(ids, self.sentinel_ids).any():
            return self._decode_text(ids.tolist()).encode()
        silent = set(self.special_ids).difference(self.sentinel_ids)
        written = [id_ for id_ in ids.tolist() if id_ not in silent]
        return self._decode_text(written, skips_special=False).encode()

    def _decode_text(self, ids: list[int], *, skips_special: bool = True) -> str:
        text = call_library(
            lambda: self._tokenizer.decode(ids, skip_special_tokens=skips_special),
            "the tokenizer cannot decode these ids",
        )
        return str(text)

    def _find_pieces(self, vocabulary: dict[str, int], special: set[int]) -> list[bytes]:
        added = self._tokenizer.get_added_tokens_decoder()
        mark = self._content["model"].get("continuing_subword_prefix")
        pieces = [b""] * self.vocab_size  # special ids keep empty pieces
        for name, id_ in vocabulary.items():
            if id_ in special:
                continue
            if id_ in added:
                pieces[id_] = added[id_].content.encode()
            elif self._is_bytes:
                pieces[id_] = bytes(BYTE_NAMES[character] for character in name)
            elif mark and name.startswith(mark):
                pieces[id_] = name.removeprefix(mark).encode()
            elif self._marks_spaces and (byte := _BYTE.fullmatch(name)):
                pieces[id_] = bytes([int(byte[1], 16)])
            elif self._marks_spaces:
                pieces[id_] = name.replace(SPACE, " ").encode()
            else:
                pieces[id_] = self._decode_text([id_]).encode()
        return pieces


def _byte_level(model: models.Model) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if tokenizer.token_to_id(END) is not None:
        tokenizer.add_special_tokens([END])
    return tokenizer


def _parts(text: bytes) -> list[str]:
    # Alternately text and escaped bytes that are not UTF-8, beginning with text.
    escaped = text.decode("utf-8", "surrogateescape")
    return _NOT_UTF8.split(escaped)


SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

_CONTINUES = "##"
_LONGEST_WORD, _LONGEST_KEPT = 100, 1000
"""The most characters of a word; a longer word is unknown."""
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
    """Train BERT's uncased vocabulary; ``vocab_size`` includes every id.

    ``keep_accents`` and ``lowercase`` replace its text rules. With ``keep_accents`` True no
    character is dropped, and words of up to 1,000 characters are known: BERT's limit is 100, which
    languages without spaces exceed. Short texts may give fewer pieces.
    Ids: ``[PAD]``, ``[UNK]``, ``[CLS]``, ``[SEP]``, ``[MASK]``, characters, characters that
    continue a word, merges.

    Raises ConfigError where ``vocab_size`` is too small for the text's characters; NotUtf8, a
    DataError, where a text is not UTF-8; DataError where there is no text.

    Source: Devlin et al. 2019, sec. 3; the ``tokenizers`` library's normaliser, word splitting and
    merges.
    """
    rules: dict[str, Any] = {}
    if keep_accents is not None:
        rules["strip_accents"] = not keep_accents
    if keep_accents:
        rules["clean_text"] = False
    if lowercase is not None:
        rules["lowercase"] = lowercase
    longest = _LONGEST_KEPT if keep_accents else _LONGEST_WORD
    library = _wordpiece({name: id_ for id_, name in enumerate(SPECIALS)}, rules, longest)
    words = count_words(texts, library)
    alphabet = alphabet_of(words)
    # Each character is a piece, and a second one where it continues a word.
    least = len(SPECIALS) + 2 * len(alphabet)
    n_merges = count_merges("wordpiece", vocab_size, least)
    if all(category(character)[0] in "CZ" for character in alphabet):
        raise DataError(NO_TEXT)
    trained = train_merges(words, alphabet, n_merges=n_merges, inner=_CONTINUES)
    pieces = (*SPECIALS, *trained.pieces)
    vocabulary = {piece: id_ for id_, piece in enumerate(pieces)}
    return SubwordTokenizer(_wordpiece(vocabulary, rules, longest))


def read_wordpiece(path: Path) -> SubwordTokenizer:
    """Read a published ``vocab.txt``: one piece per line, in order of the ids.

    A ``tokenizer_config.json`` next to it decides how a text is normalised. Its defaults are those
    of transformers' BertTokenizer, which lowercases and strips accents; a note reports this for a
    vocabulary with capitals. Raises DataError where the file is damaged, with its line.
    """
    text = read_text(path)
    if not text:
        raise DataError(f"{path} is empty: a vocabulary has one piece per line")
    lines = text.removesuffix("\n").split("\n")
    pieces = [line.removesuffix("\r") for line in lines]
    if not any(name in pieces for name in _UNKNOWNS):
        raise DataError(f"{path} is not a tokenizer: it has no line [UNK], unlike BERT's vocab.txt")
    vocabulary: dict[str, int] = {}
    for number, piece in enumerate(pieces):
        if piece in vocabulary:
            first = vocabulary[piece] + 1
            raise DataError(
                f"{path}, line {number + 1}: {piece!r} repeats line {first}: a piece has one id"
            )
        vocabulary[piece] = number
    rules = bert_rules(path.parent)
    # Special tokens have names in capitals even in an uncased vocabulary.
    capitals = (
        name for name in vocabulary if name != name.lower() and not _SPECIAL.fullmatch(name)
    )
    if "lowercase" not in rules and (cased := next(capitals, None)) is not None:
        note(
            f"{path} has no setting for capitals: texts are lowercased, as by transformers' "
            f"BertTokenizer, though it has pieces such as {cased[:60]!r}; "
            f'{{"do_lower_case": false}} in a {CONFIG_NAME} next to it keeps capitals'
        )
    return SubwordTokenizer(_wordpiece(vocabulary, rules))


def bert_rules(folder: Path) -> dict[str, Any]:
    """Read BERT's rules by the library's names; raise DataError for one that is no bool."""
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


def _wordpiece(
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
    """Count the words of texts by a library's rules, which always split at spaces.

    Raises NotUtf8, a DataError, where a text is not UTF-8.
    """
    # Each distinct chunk between spaces is split into words only once.
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
    """Yield the words of a text by a library's rules."""
    assert library.normalizer is not None and library.pre_tokenizer is not None, (
        "WordPiece divides text into words"
    )
    normal = library.normalizer.normalize_str(text)
    return (word for word, _ in library.pre_tokenizer.pre_tokenize_str(normal))
