"""A split's text cut into shards, which are encoded one by one and give the ids of the whole."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sublayer.data.shards.text_sum import TextSum
from sublayer.data.text.document_range import Cut, DocumentRange, chunk_stops
from sublayer.data.text.files import Text
from sublayer.data.text.sentences import TextUnit, sentence_stops

SHARD_BYTES = 32 << 20
"""Bytes of text after which a shard ends, at the next place where it may."""
_MOST_PIECES = 1 << 15
"""Documents, or parts of them, after which it ends as well."""
_BLOCK_BYTES = 1 << 20

Sources = Sequence[Sequence[DocumentRange]]
"""The ranges of the documents of each source."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a document: all that is encoded of it, or up to where a cut changes no id."""

    part: DocumentRange
    source: int
    """The number of the source that the document is of."""
    begins: bool
    """Whether what is encoded of the document begins here, rather than goes on."""
    ends: bool
    """Whether it ends here."""


@dataclass(frozen=True)
class Shard:
    """Pieces that follow each other in a split."""

    number: int
    pieces: Iterable[Piece]
    text: TextSum
    """Of the raw bytes of the pieces; of pairs, of nothing."""
    sha256: str
    """Of the raw bytes of the split up to the end of the shard."""


def cut_shards(
    sources: Sources, cut: Cut, unit: TextUnit, shard_bytes: int = SHARD_BYTES
) -> Iterator[Shard]:
    """Cut the documents of sources into shards, one at least: a function of the text alone.

    ``cut`` is the tokenizer's, ``unit`` what a document is divided into. Pairs are one shard, whose
    bytes are neither counted nor hashed: which of them are kept is known where they are encoded.
    """
    if unit == "pair":
        return iter([Shard(0, _whole_pieces(sources), TextSum(), "")])
    return _cut(sources, cut, unit, shard_bytes)


def _whole_pieces(sources: Sources) -> Iterator[Piece]:
    for number, ranges in enumerate(sources):
        for part in ranges:
            yield Piece(part, number, begins=True, ends=True)


def _cut(sources: Sources, cut: Cut, unit: TextUnit, shard_bytes: int) -> Iterator[Shard]:
    hashed = hashlib.sha256()
    pieces: list[Piece] = []
    number = 0
    summed = TextSum()
    for source, ranges in enumerate(sources):
        for part in ranges:
            text = part.document.read()
            last = len(text) if part.stop is None else part.stop
            start = position = part.start
            for stop in _stops(part, text, last, cut, unit):
                for low in range(position, stop, _BLOCK_BYTES):
                    block = text[low : min(low + _BLOCK_BYTES, stop)]
                    hashed.update(block)
                    summed.add(block)
                position = stop
                is_full = summed.n_bytes >= shard_bytes or len(pieces) >= _MOST_PIECES
                if not is_full and stop < last:
                    continue
                piece = part
                if start > part.start or stop < last:
                    piece = DocumentRange(part.document, start, stop)
                pieces.append(Piece(piece, source, start == part.start, stop == last))
                start = stop
                if is_full:
                    yield Shard(number, pieces, summed, hashed.hexdigest())
                    pieces = []
                    summed = TextSum()
                    number += 1
    if pieces or not number:
        yield Shard(number, pieces, summed, hashed.hexdigest())


def _stops(part: DocumentRange, text: Text, last: int, cut: Cut, unit: TextUnit) -> Iterator[int]:
    """Yield where a range may be cut, ascending, and its end."""
    if unit == "none":
        stops = chunk_stops(part.document.name, text, part.start, last, cut)
    else:
        stops = sentence_stops(part, text, unit)
    yield from (stop for stop in stops if part.start < stop < last)
    yield last
