"""Sub-word tokenizers of the ``tokenizers`` library: byte-level BPE trained here, or any file it reads."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers, trainers

from sublayer.data.library_files import call_library, library_of, read_file, read_library, read_merges
from sublayer.data.vocabulary import NotUtf8, Tokenizer, count_characters, find_special, is_unused
from sublayer.data.words import divides_at_whitespace, encode_words, split_words, word_starts
from sublayer.errors import ConfigError

END = "<|endoftext|>"
_ENDS = (END, "<|end_of_text|>", "</s>", "<eos>")
_BATCH_CHARACTERS = 64 << 10
_SEARCHED_BYTES = 64 << 10
_NOT_UTF8 = re.compile("([\udc80-\udcff]+)")


class SubwordTokenizer(Tokenizer):
    """A tokenizer in the file format of the ``tokenizers`` library.

    Byte-level BPE that keeps every byte (GPT-2's, and those trained here) is lossless on any bytes: what is not UTF-8
    becomes single-byte ids. Any other is marked as lossy; its ids count as the bytes that each alone decodes to.
    The text of a special token, where it occurs, is encoded as text.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True
        if isinstance(tokenizer.model, models.BPE):
            tokenizer.model.dropout = None
        self._content: dict[str, Any] = json.loads(tokenizer.to_str())
        added = self._tokenizer.get_added_tokens_decoder()
        names = {token.content: id_ for id_, token in added.items() if token.special}
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.kind = str(self._content["model"]["type"]).lower()
        self.vocab_size = max(vocabulary.values()) + 1
        self.end_id = next((names[name] for name in _ENDS if name in names), None)
        self.unk_id = _unknown_id(self._content["model"], vocabulary)
        self.is_lossless = _keeps_bytes(self._content, vocabulary)
        self.special_ids = _special_ids(vocabulary, names, self.unk_id)
        self.pad_id, self.cls_id, self.sep_id, self.mask_id = find_special(names).values()
        self._starts = word_starts(self._content)
        self.has_words = self._starts is not None
        found = {id_: name for name, id_ in vocabulary.items()}
        self.names = [found.get(id_, "") for id_ in range(self.vocab_size)]
        self._pieces = self._find_pieces(vocabulary, set(self.special_ids))
        self.token_bytes = np.array([len(piece) for piece in self._pieces], dtype=np.int64)
        self.token_characters = count_characters(self._pieces)
        self._byte_ids = {BYTE_NAMES[name]: id_ for name, id_ in vocabulary.items() if name in BYTE_NAMES}
        self._is_divided = divides_at_whitespace(self._content)
        self._can_cut = self._is_divided or _cuts_before_whitespace(self._content)

    @classmethod
    def train(cls, texts: Iterable[bytes], *, vocab_size: int) -> "SubwordTokenizer":
        """Train byte-level BPE of GPT-2's kind; ``vocab_size`` counts the 256 bytes and the end of a document.

        Short texts may hold fewer merges. What is not UTF-8 is left out.
        Source: Radford et al. 2019, sec. 2.2; the library's trainer.
        """
        if vocab_size < 257:
            raise ConfigError(f"data.vocab_size = {vocab_size} is too small for bpe: 257 are bytes and the end")
        trained = _byte_level(models.BPE())
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        spans = (span for text in texts for part in _parts(text)[::2] for span in _batches(part))
        trained.train_from_iterator(spans, trainer)
        return cls(trained)

    @classmethod
    def read(cls, path: Path) -> "SubwordTokenizer":
        """Read what the ``tokenizers`` library wrote to a file. Raises DataError if it did not."""
        return cls.from_bytes(read_file(path), path)

    @classmethod
    def from_bytes(cls, data: bytes, path: Path) -> "SubwordTokenizer":
        """Make what the library wrote, found in a file. Raises DataError if it did not write it."""
        return cls(read_library(data, str(path)))

    @classmethod
    def from_content(cls, content: dict[str, Any], path: Path) -> "SubwordTokenizer":
        """Make what ``content`` gave, found in a file. Raises DataError if it is not that."""
        return cls(library_of(content, str(path)))

    @classmethod
    def read_merges(cls, vocabulary: Path, merges: Path) -> "SubwordTokenizer":
        """Read GPT-2's original files. Raises DataError if they are not that."""
        read = library_of({"version": "1.0", "model": read_merges(vocabulary, merges)}, str(vocabulary))
        return cls(_byte_level(read.model))

    def encode(self, text: bytes) -> NDArray[np.int32]:
        """Turn bytes into ids. Raises NotUtf8, a DataError, if the tokenizer is lossy and they are not UTF-8."""
        parts = _parts(text)
        if len(parts) > 1 and not self.is_lossless:
            raise NotUtf8(text, len(parts[0].encode()))
        found = [np.empty(0, dtype=np.int32)]
        for index, part in enumerate(parts):
            found.extend(self._encode_bytes(part) if index % 2 else self._encode_text(part))
        return np.concatenate(found)

    def encode_many(self, texts: Sequence[bytes]) -> list[NDArray[np.int32]]:
        """Turn each of several texts into ids, as ``encode`` does one; together, where all are UTF-8."""
        try:
            decoded = [text.decode("utf-8") for text in texts]
        except UnicodeDecodeError:
            return super().encode_many(texts)
        return [np.array(ids, dtype=np.int32) for ids in self._encode_each(decoded)]

    def cut(self, text: bytes, near: int) -> int:
        """Cut before whitespace, where GPT-2's pattern and BERT's end a word; nowhere if words end otherwise."""
        return before_whitespace(text, near) if self._can_cut else 0

    def starts_word(self, ids: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Tell which ids begin a word. Raises ConfigError unless it is WordPiece or unigram."""
        return super().starts_word(ids) if self._starts is None else self._begins_word[ids]

    def content(self) -> dict[str, Any]:
        """Give the library's own description."""
        return self._content

    def serialize(self) -> bytes:
        """Give the file that the ``tokenizers`` library reads."""
        return str(self._tokenizer.to_str(pretty=True)).encode()

    @cached_property
    def _begins_word(self) -> NDArray[np.bool_]:
        assert self._starts is not None, "there are words"
        begins = np.array([self._starts(name) for name in self.names])
        begins[list(self.special_ids)] = True
        return begins

    def _encode_text(self, text: str) -> list[NDArray[np.int32]]:
        if self._is_divided:
            return [encode_words(split_words(text), self._encode_each)]
        spans = list(_batches(text)) if self._can_cut else [text]
        return [np.array(ids, dtype=np.int32) for ids in self._encode_each(spans)]

    def _encode_each(self, words: list[str]) -> list[list[int]]:
        encodings = call_library(
            lambda: self._tokenizer.encode_batch_fast(words, add_special_tokens=False),
            "the tokenizer cannot encode this text",
        )
        return [encoding.ids for encoding in encodings]

    def _decode(self, ids: NDArray[np.int64]) -> bytes:
        # Those of special tokens have no bytes.
        if self.is_lossless:
            return b"".join(map(self._pieces.__getitem__, ids.tolist()))
        return self._decode_text(ids.tolist()).encode()

    def _decode_text(self, ids: list[int]) -> str:
        return str(call_library(lambda: self._tokenizer.decode(ids), "the tokenizer cannot decode these ids"))

    def _encode_bytes(self, escaped: str) -> list[NDArray[np.int32]]:
        return [np.array([self._byte_ids[ord(each) - 0xDC00] for each in escaped], dtype=np.int32)]

    def _find_pieces(self, vocabulary: dict[str, int], special: set[int]) -> list[bytes]:
        added = {id_: token.content for id_, token in self._tokenizer.get_added_tokens_decoder().items()}
        mark = self._content["model"].get("continuing_subword_prefix")
        pieces = [b""] * self.vocab_size
        for name, id_ in vocabulary.items():
            if id_ in special:
                continue
            if id_ in added:
                pieces[id_] = added[id_].encode()
            elif self.is_lossless:
                pieces[id_] = bytes(BYTE_NAMES[character] for character in name)
            elif mark and name.startswith(mark):
                pieces[id_] = name.removeprefix(mark).encode()
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


def before_whitespace(text: bytes, near: int) -> int:
    """Give a late position up to ``near`` where whitespace follows something else; 0 if there is none close by.

    GPT-2's pattern never joins a character to whitespace after it, and looks no further ahead than at whitespace.
    """
    start = max(0, near - _SEARCHED_BYTES)
    window = text[start : near + 1].decode("utf-8", "surrogateescape")
    found = _last_break(window, len(window))
    return start + len(window[:found].encode("utf-8", "surrogateescape")) if found else 0


def _last_break(text: str, near: int) -> int:
    # Python calls more characters whitespace than the pattern does: what is not is not for either.
    for mark in ("\n", " "):
        place = text.rfind(mark, 1, near + 1)
        while place > 0 and text[place - 1].isspace():
            place = text.rfind(mark, 1, place)
        if place > 0:
            return place
    return 0


def _batches(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > _BATCH_CHARACTERS:
        size = _last_break(text[start : start + _BATCH_CHARACTERS + 1], _BATCH_CHARACTERS)
        if not size:
            break
        yield text[start : start + size]
        start += size
    if start < len(text):
        yield text[start:]


def _parts(text: bytes) -> list[str]:
    # Text, then alternately bytes that are not UTF-8, escaped, and text.
    return _NOT_UTF8.split(text.decode("utf-8", "surrogateescape"))


def _keeps_bytes(content: dict[str, Any], vocabulary: dict[str, int]) -> bool:
    model, added = content["model"], content["added_tokens"]
    names = vocabulary.keys() - {token["content"] for token in added}
    return (
        model["type"] == "BPE"
        and len(set(vocabulary.values())) == len(vocabulary)
        and not (model["continuing_subword_prefix"] or model["end_of_word_suffix"])
        and content["normalizer"] is None
        and _splits_bytes(content["pre_tokenizer"])
        and names >= BYTE_NAMES.keys()
        and all(character in BYTE_NAMES for name in names for character in name)
        and not any(token["lstrip"] or token["rstrip"] for token in added if not token["special"])
    )


def _splits_bytes(pre_tokenizer: dict[str, Any] | None) -> bool:
    steps = _steps(pre_tokenizer)
    return sum(step["type"] == "ByteLevel" and not step["add_prefix_space"] for step in steps) == 1 and all(
        step["type"] in ("ByteLevel", "Digits") or (step["type"] == "Split" and step["behavior"] != "Removed")
        for step in steps
    )


def _cuts_before_whitespace(content: dict[str, Any]) -> bool:
    steps = _steps(content["pre_tokenizer"])
    return (
        content["normalizer"] is None
        and len(steps) == 1
        and steps[0]["type"] == "ByteLevel"
        and steps[0]["use_regex"]
        and not steps[0]["add_prefix_space"]
        and not any(
            token["lstrip"] or token["rstrip"] or any(map(str.isspace, token["content"]))
            for token in content["added_tokens"]
            if not token["special"]
        )
    )


def _unknown_id(model: dict[str, Any], vocabulary: dict[str, int]) -> int | None:
    # Unigram's is a number; the others name it.
    name = model.get("unk_token")
    return None if name is None else vocabulary.get(name)


def _special_ids(vocabulary: dict[str, int], names: dict[str, int], unk_id: int | None) -> tuple[int, ...]:
    unused = {id_ for name, id_ in vocabulary.items() if is_unused(name)}
    unknown = set() if unk_id is None else {unk_id}
    return tuple(sorted({*names.values(), *unused, *unknown}))


def _steps(pre_tokenizer: dict[str, Any] | None) -> list[dict[str, Any]]:
    if pre_tokenizer is None:
        return []
    return list(pre_tokenizer["pretokenizers"]) if pre_tokenizer["type"] == "Sequence" else [pre_tokenizer]


def _byte_characters() -> dict[str, int]:
    # GPT-2's alphabet: printable bytes stand for themselves, the others for characters from 256 on.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTE_NAMES = _byte_characters()
"""The character that names each byte in byte-level vocabularies, to the byte."""
