"""Chunks: runs of a document's sentences that fill a target length, each divided into A and B."""

from bisect import bisect_left
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sublayer.data.arrays import Bools, Floats, Ints
from sublayer.data.counter_rng import Bits, fork, uniform
from sublayer.data.masked.segments import Drawn, PairRule
from sublayer.errors import DataError


class Corpus(NamedTuple):
    """Where sentences and documents start, and where the last of them ends."""

    starts: Ints
    """Of each sentence its first token, and the end of the text: [S+1]."""
    firsts: Ints
    """Of each document its first sentence, and the number of sentences: [N+1]."""

    @property
    def n_sentences(self) -> int:
        """Number of sentences."""
        return len(self.starts) - 1

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return len(self.firsts) - 1


class Chunks(NamedTuple):
    """Chunks [P]: A is sentences ``first`` to ``middle``, B those to ``stop``.

    B is empty where the chunk is a single sentence.
    """

    first: Ints
    middle: Ints
    stop: Ints
    target: Ints
    """Length in tokens to which the chunk was filled; its last sentence may exceed it."""
    document: Ints
    """Number of the document that it is of."""
    bits: Bits
    """Its seed, of which all is forked that is drawn for it."""

    def where(self, chosen: Bools) -> "Chunks":
        """Return the chosen chunks."""
        return Chunks(
            first=self.first[chosen],
            middle=self.middle[chosen],
            stop=self.stop[chosen],
            target=self.target[chosen],
            document=self.document[chosen],
            bits=self.bits[chosen],
        )


def sentence_corpus(sentence_starts: Ints, document_starts: Ints, n_tokens: int) -> Corpus:
    """Number the sentences that documents begin with.

    ``sentence_starts`` [S] and ``document_starts`` [N] are ascending token positions from 0 on.

    Raises DataError where there is no sentence.
    """
    if n_tokens == 0 or len(sentence_starts) == 0:
        raise DataError("no sentences to make pairs of: the text is empty")
    starts = np.append(sentence_starts, n_tokens).astype(np.int64)  # [S+1]
    assert _ascends_from_0(starts), "sentences must be ascending and begin with 0"
    firsts = np.searchsorted(starts, document_starts)  # [N]
    begin_with_sentence = np.array_equal(starts[firsts], document_starts)
    assert begin_with_sentence, "each document must begin with a sentence"
    firsts = np.append(firsts, len(sentence_starts))  # [N+1]
    assert _ascends_from_0(firsts), "documents must be ascending and begin with 0"
    return Corpus(starts, firsts)


def _ascends_from_0(numbers: Ints) -> bool:
    steps = np.diff(numbers)
    return bool(numbers[0] == 0 and (steps > 0).all())


def chunks_of(corpus: Corpus, start: int, stop: int, document_bits: Bits, rule: PairRule) -> Chunks:
    """Divide documents ``start`` to ``stop`` into chunks, and each chunk into A and B.

    Sentences are taken until the target is reached. A has the first of them and a uniform number
    of the others, B the last at least. ``document_bits`` [N] are the seeds of all documents, of
    which a sentence's are forked: what a document gives depends on no other.

    Source: Devlin et al. 2019, as released: where B is to come from elsewhere (``nsp``), what the
    chunk had for B is put back, and the next chunk begins with it.
    """
    document_firsts = corpus.firsts[start : stop + 1]
    first_sentence = document_firsts[0]
    # All below are of each sentence [S]: a chunk may begin with any.
    n_in_document = np.diff(document_firsts)
    documents = np.repeat(np.arange(start, stop), n_in_document)
    sentences = np.arange(first_sentence, document_firsts[-1])
    numbers = sentences - corpus.firsts[documents]
    bits = fork(document_bits[documents], numbers)
    target_bits = bits
    if rule.target_per == "document":
        target_bits = fork(document_bits[documents], 0)
    targets = _draw_targets(target_bits, rule)
    cuts = uniform(fork(bits, Drawn.CUT))
    is_put_back = np.zeros(len(bits), dtype=np.bool_)
    if rule.task == "nsp":
        is_put_back = coins(bits)
    # From here on they are of each chunk [P].
    firsts, stops = _walk(corpus.starts, document_firsts, targets, cuts, is_put_back)
    chosen = firsts - first_sentence
    n_more = stops - firsts - 1
    n_more_in_a = (cuts[chosen] * n_more).astype(np.int64)
    return Chunks(
        first=firsts,
        middle=firsts + 1 + n_more_in_a,
        stop=stops,
        target=targets[chosen],
        document=documents[chosen],
        bits=bits[chosen],
    )


def _draw_targets(bits: Bits, rule: PairRule) -> Ints:
    drawn = uniform(fork(bits, Drawn.TARGET))
    targets = np.full(len(drawn), rule.budget)
    is_short = drawn < rule.p_short
    # Below p_short, a uniform number divided by p_short is uniform again.
    redrawn = drawn[is_short] / rule.p_short
    beyond_2 = redrawn * (rule.budget - 1)
    targets[is_short] = 2 + beyond_2.astype(np.int64)
    return targets


def coins(bits: Bits) -> Bools:
    """Flip the fair coin of each chunk: whether it is to be swapped, or to have another B."""
    return uniform(fork(bits, Drawn.COIN)) < 0.5


def _walk(
    starts: Ints,
    firsts: Ints,
    targets: Ints,
    cuts: Floats,
    is_put_back: Bools,
) -> tuple[Ints, Ints]:
    """Return the first sentence of each chunk and the one after its last.

    ``targets``, ``cuts`` and ``is_put_back`` are of the sentences from ``firsts[0]`` on. Where B is
    put back, the next chunk begins with it.
    """
    # Memory views: an element of an array costs several times as much in a Python loop.
    edges = starts.data
    target_of = targets.data
    cut_of = cuts.data
    puts_back = is_put_back.data
    bounds = firsts.tolist()
    offset = bounds[0]
    chunk_firsts = []
    chunk_stops = []
    for document_start, document_end in pairwise(bounds):
        first = document_start
        while first < document_end:
            index = first - offset
            target = target_of[index]
            # A sentence has a token at least: no more than target of them are needed.
            limit = min(document_end, first + target)
            full = edges[first] + target
            stop = bisect_left(edges, full, first + 1, limit)
            chunk_firsts.append(first)
            chunk_stops.append(stop)
            if puts_back[index]:
                n_more = stop - first - 1
                n_more_in_a = int(cut_of[index] * n_more)
                first += 1 + n_more_in_a
            else:
                first = stop
    firsts_of_chunks = np.array(chunk_firsts, dtype=np.int64)
    stops_of_chunks = np.array(chunk_stops, dtype=np.int64)
    return firsts_of_chunks, stops_of_chunks
