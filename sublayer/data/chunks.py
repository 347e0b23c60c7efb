"""Chunks: runs of consecutive sentences of a document that fill a target length, each divided into A and B."""

from bisect import bisect_left
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sublayer.data.draws import Bits, branch, uniform
from sublayer.data.segments import Drawn, PairRule
from sublayer.errors import DataError


class Corpus(NamedTuple):
    """Where sentences start, in tokens [S+1], and documents, in sentences [N+1]; both with the end as their last."""

    starts: NDArray[np.int64]
    firsts: NDArray[np.int64]


class Chunks(NamedTuple):
    """Chunks [P]: A is the sentences from ``first`` to ``middle``, B those to ``stop``; ``target`` is in tokens."""

    first: NDArray[np.int64]
    middle: NDArray[np.int64]
    stop: NDArray[np.int64]
    target: NDArray[np.int64]
    document: NDArray[np.int64]
    bits: Bits

    def where(self, chosen: NDArray[np.bool_]) -> "Chunks":
        """Take some of the chunks."""
        first, middle, stop, target, document = (column[chosen] for column in self[:5])
        return Chunks(first, middle, stop, target, document, self.bits[chosen])


def sentence_corpus(sentence_starts: NDArray[np.int64], document_starts: NDArray[np.int64], n_tokens: int) -> Corpus:
    """Number the sentences that documents begin with. Raises DataError where there is no sentence."""
    if n_tokens == 0 or len(sentence_starts) == 0:
        raise DataError("no sentences to make pairs of: the text is empty")
    starts = np.append(sentence_starts, n_tokens).astype(np.int64)
    firsts = np.searchsorted(starts, document_starts)
    assert starts[0] == 0 and (np.diff(starts) > 0).all(), "sentences must be ascending and begin with 0"
    assert np.array_equal(starts[firsts], document_starts), "each document must begin with a sentence"
    firsts = np.append(firsts, len(sentence_starts))
    assert firsts[0] == 0 and (np.diff(firsts) > 0).all(), "documents must be ascending and begin with 0"
    return Corpus(starts, firsts)


def chunks_of(corpus: Corpus, start: int, stop: int, document_bits: Bits, rule: PairRule) -> Chunks:
    """Divide documents ``start`` to ``stop`` into chunks, and each chunk into A and B."""
    firsts = corpus.firsts[start : stop + 1]
    documents = np.repeat(np.arange(start, stop), np.diff(firsts))  # [S], as all below: of each sentence
    numbers = np.arange(firsts[0], firsts[-1]) - corpus.firsts[documents]
    bits = branch(document_bits[documents], numbers)
    drawn = bits if rule.target_per == "example" else branch(document_bits[documents], 0)
    targets = _targets(uniform(branch(drawn, Drawn.TARGET)), rule)
    cuts = uniform(branch(bits, Drawn.CUT))
    is_put_back = coins(bits) if rule.task == "nsp" else np.zeros(len(bits), dtype=np.bool_)
    begun, stops = _walk(corpus.starts, firsts, targets, cuts, is_put_back)
    chosen = begun - firsts[0]
    middle = begun + 1 + (cuts[chosen] * (stops - begun - 1)).astype(np.int64)
    return Chunks(begun, middle, stops, targets[chosen], documents[chosen], bits[chosen])


def _targets(drawn: NDArray[np.float64], rule: PairRule) -> NDArray[np.int64]:
    targets = np.full(len(drawn), rule.budget)
    short = drawn < rule.p_short
    # Below p_short, a uniform number over p_short is uniform again.
    targets[short] = 2 + (drawn[short] / rule.p_short * (rule.budget - 1)).astype(np.int64)
    return targets


def coins(bits: Bits) -> NDArray[np.bool_]:
    """Flip the coin of each chunk: whether it is to be swapped, or to have another B."""
    return uniform(branch(bits, Drawn.COIN)) < 0.5


def _walk(
    starts: NDArray[np.int64],
    firsts: NDArray[np.int64],
    targets: NDArray[np.int64],
    cuts: NDArray[np.float64],
    is_put_back: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the first sentence of each chunk and the one after its last.

    ``targets``, ``cuts`` and ``is_put_back`` are of the sentences from ``firsts[0]`` on. Where B is put back, the next
    chunk begins with it.
    """
    edges, bounds = starts.data, firsts.tolist()
    target_of, cut_of, puts_back = targets.data, cuts.data, is_put_back.data
    begun, stops = [], []
    for first, last in pairwise(bounds):
        sentence = first
        while sentence < last:
            place = sentence - bounds[0]
            target = target_of[place]
            # A sentence has a token at least: no more than target of them are needed.
            stop = bisect_left(edges, edges[sentence] + target, sentence + 1, min(last, sentence + target))
            begun.append(sentence)
            stops.append(stop)
            sentence = sentence + 1 + int(cut_of[place] * (stop - sentence - 1)) if puts_back[place] else stop
    return np.array(begun, dtype=np.int64), np.array(stops, dtype=np.int64)
