"""Marian's vocabulary: a SentencePiece model for each language, whose pieces have their ids in one table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.data.library_files import read_file, read_ids
from sublayer.data.sentencepiece_model import open_model, packed, unpacked
from sublayer.data.vocabulary import (
    FORMAT,
    VERSION,
    Tokenizer,
    after_newline,
    count_characters,
    decode_utf8,
    find_special,
)
from sublayer.data.words import SPACE
from sublayer.errors import DataError

SOURCE, TARGET, NAMES = "source.spm", "target.spm", "vocab.json"
_UNKNOWN = "<unk>"
_CODE = (">>", "<<")
"""Around the name of the language to translate into, at the begin of a source."""


def has_paired_models(folder: Path) -> bool:
    """Tell whether a folder has the three files of Marian's vocabulary."""
    return all((folder / name).is_file() for name in (SOURCE, TARGET, NAMES))


class PairedModels(Tokenizer):
    """Texts of one language to ids by its own SentencePiece model, and so of another; ids of the second to text.

    ``encode`` is of the first language, ``encode_targets`` and ``decode`` are of the second. A piece that the table of
    ``names``, by id, does not have is unknown. What stands between ``>>`` and ``<<`` before a text is one piece: the
    language to translate into, where a model knows several. Source: transformers, ``MarianTokenizer``.

    Departure: names of special ids, where they occur in a text, are text.
    """

    kind = "sentencepiece-pair"
    is_lossless = False

    def __init__(self, source: bytes, target: bytes, names: Sequence[str]) -> None:
        self.source_model, self.target_model, self.names = source, target, tuple(names)
        self._source, self._target = open_model(source, SOURCE), open_model(target, TARGET)
        self._ids = {name: id_ for id_, name in enumerate(self.names)}
        if _UNKNOWN not in self._ids:
            raise DataError(f"the vocabulary has no {_UNKNOWN}")
        self.vocab_size, self.unk_id = len(self.names), self._ids[_UNKNOWN]
        self.pad_id, self.cls_id, self.sep_id, self.mask_id = find_special(self._ids).values()
        special = {self.unk_id, self.pad_id, self.cls_id, self.sep_id, self.mask_id}
        self.special_ids = tuple(sorted(id_ for id_ in special if id_ is not None))
        pieces = [b"" if id_ in special else name.replace(SPACE, " ").encode() for id_, name in enumerate(self.names)]
        self.token_bytes = np.array([len(piece) for piece in pieces], dtype=np.int64)
        self.token_characters = count_characters(pieces)

    @classmethod
    def read(cls, folder: Path) -> "PairedModels":
        """Read ``source.spm``, ``target.spm`` and ``vocab.json`` of a folder. Raises DataError where one is damaged."""
        source, target = (read_file(folder / name) for name in (SOURCE, TARGET))
        names = _by_id(folder / NAMES)
        try:
            return cls(source, target, names)
        except DataError as error:
            raise DataError(f"{folder}: {error}") from error

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> "PairedModels":
        """Make what ``content`` gave. Raises DataError, without a path, where it is damaged."""
        names = content.get("names")
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise DataError("its table of pieces is damaged")
        return cls(unpacked(content.get("source")), unpacked(content.get("target")), names)

    def encode(self, text: bytes) -> NDArray[np.int32]:
        """Turn UTF-8 of the first language into ids. Raises NotUtf8, a DataError, at the first byte that is not."""
        return self._encoded(text, self._source)

    def encode_targets(self, texts: Sequence[bytes]) -> list[NDArray[np.int32]]:
        """Turn texts of the second language into ids."""
        return [self._encoded(text, self._target) for text in texts]

    def _decode(self, ids: NDArray[np.int64]) -> bytes:
        # Text of the second language; special ids have none, the unknown has ``⁇``.
        silent = set(self.special_ids) - {self.unk_id}
        names = [self.names[id_] for id_ in ids.tolist() if id_ not in silent]
        return str(self._target.decode_pieces(names)).replace(SPACE, " ").strip().encode()

    def cut(self, text: bytes, near: int) -> int:
        """Cut after a newline, though a line is no unit here: pairs are never cut."""
        return after_newline(text, near)

    def content(self) -> dict[str, Any]:
        """Give both models in base64, and the names of all ids."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "names": list(self.names),
            "source": packed(self.source_model),
            "target": packed(self.target_model),
        }

    def _encoded(self, text: bytes, model: Any) -> NDArray[np.int32]:
        code, rest = _divide_code(decode_utf8(text))
        pieces = [*code, *model.encode(rest, out_type=str)]
        return np.array([self._ids.get(piece, self.unk_id) for piece in pieces], dtype=np.int32)


def _divide_code(text: str) -> tuple[list[str], str]:
    begin, end = _CODE
    place = text.find(end) if text.startswith(begin) else -1
    return ([], text) if place < 0 else ([text[: place + len(end)]], text[place + len(end) :])


def _by_id(path: Path) -> list[str]:
    ids = read_ids(path)
    if max(ids.values()) != len(ids) - 1:
        raise DataError(f"{path}: the ids of its {len(ids):,} pieces are not 0 to {len(ids) - 1:,}")
    return sorted(ids, key=ids.__getitem__)
