"""The pieces of a shard as ids in a file: the stored split itself, or a part of it."""

import hashlib
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any, BinaryIO

import numpy as np

from sublayer.data.arrays import AnyInts, TokenIds
from sublayer.data.shards.cutting import Piece
from sublayer.data.shards.figures import Figures, finish
from sublayer.data.shards.text_sum import TextSum
from sublayer.data.text.sentences import TextUnit, sentences_of
from sublayer.data.tokenizers.added_tokens import marks_pattern
from sublayer.data.tokenizers.base import NotUtf8, Tokenizer, count_characters

_BATCH_SENTENCES = 1024
"""Sentences or pairs that are encoded at a time."""
_BATCH_BYTES = 256 << 10
"""Bytes of sentences after which a batch ends: libraries take a hundred times as much for them."""


class ShardEncoder:
    """Encodes pieces and writes their ids, an end id between documents.

    Where the text is divided into ``unit``, each sentence is encoded on its own, and those and
    documents without tokens are dropped; of pairs, those with a side without tokens. Ids take two
    bytes where the vocabulary has less than 65,536 of them, else four.
    """

    def __init__(
        self, file: BinaryIO, tokenizer: Tokenizer, unit: TextUnit, *, is_first: bool
    ) -> None:
        """Begin with an end id, if documents have one, unless the shard ``is_first``."""
        fits_two_bytes = tokenizer.vocab_size < 1 << 16
        self._dtype: np.dtype[Any] = np.dtype("<u2" if fits_two_bytes else "<u4")
        self.figures = Figures(self._dtype.str, has_sentences=unit != "none")
        self.text = TextSum()
        """Of the raw bytes that were read; pairs are not counted."""
        self._file = file
        self._tokenizer = tokenizer
        self._marks = marks_pattern(tokenizer.marks)
        self._unit = unit
        self._is_first = is_first
        self._document_starts = array("q")
        self._sentence_starts = array("q")
        self._of_pairs = hashlib.sha256()
        self._gives: list[bool] = []
        """Whether each piece gave tokens."""

    def add_all(self, pieces: Iterable[Piece]) -> None:
        """Encode pieces; raise DataError, with file and line, where one cannot be encoded."""
        if self._unit == "pair":
            self._add_pairs(pieces)
            return
        for piece in pieces:
            first = self.figures.n_tokens
            if self._unit == "none":
                self._add(piece)
            else:
                self._add_sentences(piece)
            self._gives.append(self.figures.n_tokens > first)

    def close_whole(self, sha256: str) -> None:
        """End the file as that of the whole split, of whose bytes ``sha256`` is.

        Of pairs it is of the words of both sides of those that were kept, a side a line.
        """
        if self._unit == "pair":
            sha256 = self._of_pairs.hexdigest()
        finish(self._file, self._counted(), self._columns(), sha256)

    def close_part(self) -> None:
        """End the file as a part of a split."""
        figures = self._counted()
        more = {
            "n_characters": figures.n_characters,
            "source_starts": figures.source_starts,
            "edges": [self._gives[0], self._gives[-1]],
            "text": asdict(self.text),
        }
        finish(self._file, figures, self._columns(), "", **more)

    def _counted(self) -> Figures:
        self.figures.n_documents = len(self._document_starts)
        self.figures.n_sentences = len(self._sentence_starts)
        return self.figures

    def _columns(self) -> list[list[bytes]]:
        source_starts = list(self.figures.source_starts.values())
        columns = (self._document_starts, source_starts, self._sentence_starts)
        return [[np.array(each, dtype="<i8").tobytes()] for each in columns]

    def _begin_document(self, source: int, position: int) -> None:
        self._document_starts.append(position)
        self.figures.source_starts.setdefault(str(source), position)

    def _add(self, piece: Piece) -> None:
        part = piece.part
        end_id = self._tokenizer.end_id
        if piece.begins:
            if end_id is not None and (self._document_starts or not self._is_first):
                self._append(np.array([end_id]))
            self._begin_document(piece.source, self.figures.n_tokens)
        # Cut only where a cut changes no id, so that chunks give the ids of the whole.
        for start, chunk in part.chunks(self._tokenizer.cut):
            self.text.add(chunk)
            try:
                ids = self._tokenizer.encode(chunk)
            except NotUtf8 as error:
                raise part.not_utf8(start + error.position) from error
            self._count(chunk, ids)
            self._append(ids)

    def _add_sentences(self, piece: Piece) -> None:
        assert self._unit != "none", "the text is divided into sentences"
        first = self.figures.n_tokens
        for sentences in sentences_of(piece.part, self._unit, self.text.add):
            for batch in _sentence_batches(sentences):
                self._add_batch(batch)
        if self.figures.n_tokens > first:
            self._begin_document(piece.source, first)
        elif piece.begins and piece.ends:
            self.figures.n_dropped_documents += 1

    def _add_pairs(self, pieces: Iterable[Piece]) -> None:
        for batch in _batched(pieces):
            # The words of both sides; the texts as they were read follow, and are not encoded.
            documents = [piece.part.document.read()[:].split(b"\n") for piece in batch]
            source_texts = [lines[0] for lines in documents]
            target_texts = [lines[1] for lines in documents]
            sources = self._tokenizer.encode_many(source_texts)
            targets = self._tokenizer.encode_targets(target_texts)
            rows = zip(batch, source_texts, target_texts, sources, targets, strict=True)
            for piece, source_text, target_text, source, target in rows:
                if not (len(source) and len(target)):
                    self.figures.n_dropped_documents += 1
                    continue
                first = self.figures.n_tokens
                self._begin_document(piece.source, first)
                self._sentence_starts.append(first)
                self._sentence_starts.append(first + len(source))
                for text, ids in ((source_text, source), (target_text, target)):
                    self._of_pairs.update(text + b"\n")
                    self._count(text, ids)
                self._append(np.concatenate([source, target]))

    def _add_batch(self, sentences: list[bytes]) -> None:
        # A long text is encoded a part at a time where its tokenizer can, those together are not.
        is_one = len(sentences) == 1
        encode = self._tokenizer.encode
        encoded = [encode(sentences[0])] if is_one else self._tokenizer.encode_many(sentences)
        stored = []
        start = self.figures.n_tokens
        for text, ids in zip(sentences, encoded, strict=True):
            if not len(ids):
                self.figures.n_dropped_sentences += 1
                continue
            self._sentence_starts.append(start)
            self._count(text, ids)
            stored.append(ids)
            start += len(ids)
        if stored:
            self._append(np.concatenate(stored))

    def _count(self, text: bytes, ids: TokenIds) -> None:
        figures = self.figures
        figures.n_bytes += len(text)
        if self._marks is not None:
            found = Counter(mark.decode() for mark in self._marks.findall(text))
            figures.count_marks(found)
        if self._tokenizer.is_lossless:
            return
        figures.n_characters += int(count_characters([text])[0])
        if figures.is_lossless:
            figures.is_lossless = _is_exact(self._tokenizer, text, ids)

    def _append(self, ids: AnyInts) -> None:
        data = ids.astype(self._dtype).tobytes()
        self._file.write(data)
        self.figures.crc32 = zlib.crc32(data, self.figures.crc32)
        self.figures.n_tokens += len(ids)


def _is_exact(tokenizer: Tokenizer, text: bytes, ids: TokenIds) -> bool:
    # Lengths are compared first: decoding takes longer.
    n_bytes = int(tokenizer.token_bytes[ids].sum())
    return n_bytes == len(text) and tokenizer.decode(ids) == text


def _sentence_batches(sentences: Iterable[str]) -> Iterator[list[bytes]]:
    """Yield sentences as bytes, so many that a batch is small; a long one is alone."""
    batch: list[bytes] = []
    n_bytes = 0
    for sentence in sentences:
        text = sentence.encode()
        if batch and (n_bytes + len(text) > _BATCH_BYTES or len(batch) == _BATCH_SENTENCES):
            yield batch
            batch = []
            n_bytes = 0
        batch.append(text)
        n_bytes += len(text)
    if batch:
        yield batch


def _batched(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    rest = iter(pieces)
    while batch := list(islice(rest, _BATCH_SENTENCES)):
        yield batch
