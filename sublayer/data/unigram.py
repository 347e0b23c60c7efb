"""SentencePiece vocabularies with ALBERT's treatment of text: trained here, or read from a published model."""

from collections.abc import Iterable
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.data.library_files import read_file
from sublayer.data.normalize import Normalization
from sublayer.data.sentencepiece_model import open_model, packed, parse_model, unpacked
from sublayer.data.unigram_training import train_pieces
from sublayer.data.vocabulary import (
    FORMAT,
    VERSION,
    Tokenizer,
    after_newline,
    count_characters,
    decode_utf8,
    find_special,
)
from sublayer.data.words import SPACE, Ragged, begins_word
from sublayer.errors import DataError


class UnigramTokenizer(Tokenizer):
    """A SentencePiece model, and what is done to a text before and after it.

    Each line is encoded on its own, as ALBERT's data have one sentence in each. A piece that ends in a digit and a
    comma is divided, so that the comma stands alone. Names of special ids, where they occur in a text, are text.
    Source: google-research/albert, ``tokenization.py``; words: ``create_pretraining_data.py``.

    Departure: what is left of a divided piece is looked up without the mark of a space that it did not have, as in
    the release under Python 2; under Python 3 the release keeps the mark. No piece of ALBERT's vocabulary shows it.
    """

    kind = "unigram"
    is_lossless = False
    has_words = True

    def __init__(self, model: bytes, normalization: Normalization | None = None) -> None:
        self._model = model
        self._processor = open_model(model)
        self.vocab_size = self._processor.get_piece_size()
        ids = range(self.vocab_size)
        self.names: list[str] = self._processor.id_to_piece(list(ids))
        controls = [id_ for id_ in ids if self._processor.is_control(id_) or self._processor.is_unused(id_)]
        self.unk_id = int(self._processor.unk_id())
        self.special_ids = tuple(sorted({*controls, self.unk_id}))
        special = find_special({self.names[id_]: id_ for id_ in controls})
        self.pad_id, self.cls_id, self.sep_id, self.mask_id = special.values()
        self.normalization = normalization or Normalization.of(self._texts(), is_masked=self.mask_id is not None)
        pieces = self._find_pieces()
        self.token_bytes = np.array([len(piece) for piece in pieces], dtype=np.int64)
        self.token_characters = count_characters(pieces)

    @classmethod
    def train(
        cls, texts: Iterable[bytes], *, vocab_size: int, normalization: Normalization | None = None
    ) -> "UnigramTokenizer":
        """Train ALBERT's vocabulary; ``vocab_size`` counts every id, and short texts may hold fewer pieces.

        ``normalization`` replaces its rules for text.

        Raises ConfigError where the characters of the text do not fit in, NotUtf8, a DataError, where a text is not.
        """
        rules = normalization or Normalization()
        lines = (line for text in texts for line in rules.lines(decode_utf8(text)))
        return cls(train_pieces(lines, vocab_size=vocab_size), rules)

    @classmethod
    def read(cls, path: Path) -> "UnigramTokenizer":
        """Read a published model. Raises DataError where it is none.

        A ``tokenizer_config.json`` beside it says how a text is normalised; without one its pieces do: letters are
        lowered if none is a capital, accents are stripped if none has any.
        """
        model, rules = read_file(path), Normalization.read(path.parent)
        try:
            return cls(model, rules)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> "UnigramTokenizer":
        """Make what ``content`` gave. Raises DataError, without a path, where it is damaged."""
        return cls(unpacked(content), Normalization.from_content(content))

    @property
    def model(self) -> bytes:
        """The file that SentencePiece reads, usually called ``spiece.model``."""
        return self._model

    @property
    def charsmap(self) -> bytes:
        """SentencePiece's own table of normalisation, compiled; empty where the model has none."""
        return bytes(parse_model(self._model).normalizer_spec.precompiled_charsmap)

    @property
    def is_plain(self) -> bool:
        """Whether it divides as a unigram model of words with a space before them does, without bytes."""
        model = parse_model(self._model)
        trainer, normalizer = model.trainer_spec, model.normalizer_spec
        is_usual = normalizer.add_dummy_prefix and normalizer.remove_extra_whitespaces and normalizer.escape_whitespaces
        is_divided = is_usual and not (trainer.byte_fallback or trainer.treat_whitespace_as_suffix)
        return bool(is_divided and trainer.model_type == trainer.UNIGRAM)

    def scores(self) -> list[tuple[str, float]]:
        """Give each piece with its log-probability."""
        return [(name, float(self._processor.get_score(id_))) for id_, name in enumerate(self.names)]

    def encode(self, text: bytes) -> NDArray[np.int32]:
        """Turn UTF-8 into ids. Raises NotUtf8, a DataError, at the first byte that is not."""
        lines = self.normalization.lines(decode_utf8(text))
        found = np.fromiter(chain.from_iterable(self._processor.encode(lines)), dtype=np.int32)
        return self._divided.take(found) if self.normalization.divide_digit_commas else found

    def _decode(self, ids: NDArray[np.int64]) -> bytes:
        # Text as it was normalised, without line ends; special ids have none, the unknown has ``⁇``.
        return str(self._processor.decode(ids.tolist())).encode()

    def cut(self, text: bytes, near: int) -> int:
        """Cut after a newline, since each line is encoded on its own."""
        return after_newline(text, near)

    def starts_word(self, ids: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Tell which ids begin a word: after a space, punctuation, and what has other characters than a to z."""
        begins: NDArray[np.bool_] = self._begins_word[ids]
        return begins

    def content(self) -> dict[str, Any]:
        """Give the normalisation, and the model in base64."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            **self.normalization.content(),
            **packed(self._model),
        }

    @cached_property
    def _begins_word(self) -> NDArray[np.bool_]:
        begins = np.array([begins_word(name) for name in self.names])
        begins[list(self.special_ids)] = True
        return begins

    @cached_property
    def _divided(self) -> Ragged:
        return Ragged([self._divide(id_, name) for id_, name in enumerate(self.names)])

    def _divide(self, id_: int, name: str) -> list[int]:
        if not (len(name) > 1 and name[-1] == "," and name[-2].isdigit()) or id_ in self.special_ids:
            return [id_]
        pieces = self._processor.encode(name[:-1].replace(SPACE, ""), out_type=str)
        if not name.startswith(SPACE) and pieces[0].startswith(SPACE):
            pieces = [piece for piece in (pieces[0].removeprefix(SPACE), *pieces[1:]) if piece]
        return [int(self._processor.piece_to_id(piece)) for piece in (*pieces, ",")]

    def _texts(self) -> list[str]:
        special = set(self.special_ids)
        return [name for id_, name in enumerate(self.names) if id_ not in special]

    def _find_pieces(self) -> list[bytes]:
        special = set(self.special_ids)
        pieces = []
        for id_, name in enumerate(self.names):
            if self._processor.is_byte(id_):
                pieces.append(bytes([int(name[3:-1], 16)]))
            else:
                pieces.append(b"" if id_ in special else name.replace(SPACE, " ").encode())
        return pieces
