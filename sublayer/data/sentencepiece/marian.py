"""Marian's vocabulary: a SentencePiece model per language with shared ids."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.data.arrays import Ints, TokenIds
from sublayer.data.sentencepiece.model import open_model, packed, unpacked
from sublayer.data.subwords.library import read_file, read_ids
from sublayer.data.tokenizers.base import (
    SPECIAL_NAMES,
    Tokenizer,
    after_newline,
    decode_utf8,
    read_value,
)
from sublayer.data.tokenizers.words import SPACE
from sublayer.errors import DataError

SOURCE, TARGET, NAMES = "source.spm", "target.spm", "vocab.json"
_UNKNOWN = "<unk>"
_CODE = (">>", "<<")
"""Around the name of the language to translate into, at the begin of a source."""


def has_paired_models(folder: Path) -> bool:
    """Return whether a folder has the three files of Marian's vocabulary."""
    return all((folder / name).is_file() for name in (SOURCE, TARGET, NAMES))


class PairedModels(Tokenizer):
    """Tokenizer with a SentencePiece model per language; decodes the second.

    ``encode`` is of the first language, ``encode_targets`` and ``decode`` are of the second. A
    piece that the table of ``names``, by id, does not have is unknown. A leading ``>>...<<`` is one
    piece: the target language of a multilingual model. Source: transformers, ``MarianTokenizer``.

    Departure: names of special ids, where they occur in a text, are text.

    Raises DataError where ``names`` has no ``<unk>``, or a model is damaged.
    """

    kind = "sentencepiece-pair"
    is_lossless = False

    def __init__(self, source: bytes, target: bytes, names: Sequence[str]) -> None:
        self.source_model = source
        self.target_model = target
        self.names = tuple(names)
        self._source = open_model(source, SOURCE)
        self._target = open_model(target, TARGET)
        self._ids = {name: id_ for id_, name in enumerate(self.names)}
        if _UNKNOWN not in self._ids:
            raise DataError(f"the vocabulary has no {_UNKNOWN}")
        self.vocab_size = len(self.names)
        self.unk_id = self._ids[_UNKNOWN]
        self._set_special(self._ids)
        special = {self.unk_id, *(getattr(self, key) for key in SPECIAL_NAMES)} - {None}
        self.special_ids = tuple(sorted(special))
        texts = [
            "" if id_ in special else name.replace(SPACE, " ") for id_, name in enumerate(names)
        ]
        self._set_pieces([text.encode() for text in texts])

    @classmethod
    def read(cls, folder: Path) -> "PairedModels":
        """Read a folder's ``source.spm``, ``target.spm`` and ``vocab.json``, or raise DataError."""
        source = read_file(folder / SOURCE)
        target = read_file(folder / TARGET)
        names = _by_id(folder / NAMES)
        try:
            return cls(source, target, names)
        except DataError as error:
            raise DataError(f"{folder}: {error}") from error

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> "PairedModels":
        """Build from ``content``; raise DataError, without a path, where it is damaged."""
        names = read_value(content.get("names"), list[str])
        source = unpacked(content.get("source"))
        target = unpacked(content.get("target"))
        return cls(source, target, names)

    def encode(self, text: bytes) -> TokenIds:
        """Encode UTF-8 of the first language; raise NotUtf8, a DataError, at the first bad byte."""
        return self._encoded(text, self._source)

    def encode_targets(self, texts: Sequence[bytes]) -> list[TokenIds]:
        """Encode texts of the second language; raise NotUtf8 as ``encode`` does."""
        return [self._encoded(text, self._target) for text in texts]

    def _decode(self, ids: Ints) -> bytes:
        # Text of the second language; empty for special ids, ``⁇`` for the unknown.
        silent = set(self.special_ids) - {self.unk_id}
        names = [self.names[id_] for id_ in ids.tolist() if id_ not in silent]
        text = str(self._target.decode_pieces(names))
        return text.replace(SPACE, " ").strip().encode()

    def cut(self, text: bytes, near: int) -> int:
        """Cut after a newline, though a line is no unit here: pairs are never cut."""
        return after_newline(text, near)

    def content(self) -> dict[str, Any]:
        """Return both models in base64, and the names of all ids."""
        source, target = packed(self.source_model), packed(self.target_model)
        return self._described(names=list(self.names), source=source, target=target)

    def _encoded(self, text: bytes, model: Any) -> TokenIds:
        code, rest = _divide_code(decode_utf8(text))
        rest_pieces = model.encode(rest, out_type=str)
        pieces = [*code, *rest_pieces]
        ids = [self._ids.get(piece, self.unk_id) for piece in pieces]
        return np.array(ids, dtype=np.int32)


def _divide_code(text: str) -> tuple[list[str], str]:
    """Split a leading language code, if any, from a text."""
    begin, end = _CODE
    code, mark, rest = text.partition(end)
    if not (text.startswith(begin) and mark):
        return [], text
    return [code + mark], rest


def _by_id(path: Path) -> list[str]:
    ids = read_ids(path)
    n_pieces = len(ids)
    last = n_pieces - 1
    if max(ids.values()) != last:
        raise DataError(f"{path}: the ids of its {n_pieces:,} pieces are not 0 to {last:,}")
    return sorted(ids, key=ids.__getitem__)
