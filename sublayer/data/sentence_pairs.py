"""Pairs of single sentences, as Macaron BERT was trained on."""

import numpy as np
from numpy.typing import NDArray

from sublayer.data.chunks import sentence_corpus
from sublayer.data.draws import Bits, Purpose, branch, heads, roots
from sublayer.data.segments import IN_ORDER, OUT_OF_ORDER, Drawn, PairRule, Pairs, trimmed
from sublayer.errors import DataError


def pairs_of_sentences(
    sentence_starts: NDArray[np.int64], n_tokens: int, max_len: int = 384, *, seed: int, epoch: int
) -> Pairs:
    """Pair each sentence but the last with the next or, a random half of them, with a random next of that half.

    The label is 0 wherever B is the next sentence, by chance too, else 1. Documents play no part. Pairs stand in the
    order of A. What exceeds ``max_len`` less three special tokens is cut: from the longer one until they are equal,
    then from each by flips of a coin; and from head and tail of each by further flips.

    Source: Macaron BERT, Lu et al. 2019; as released. Departures: its label is 1 where B is next; special tokens are
    never cut; a sentence is never cut to nothing (there, one that is cut at its head alone is).

    Raises DataError where there are fewer than two sentences, ConfigError where ``max_len`` is below 5.
    """
    budget = PairRule("nsp", max_len).budget
    starts = sentence_corpus(sentence_starts, sentence_starts[:1], n_tokens).starts
    n_pairs = len(starts) - 2
    if n_pairs == 0:
        raise DataError("next-sentence pairs need two sentences, and the text has one: add text")
    bits = roots(seed, Purpose.SENTENCES, epoch, n_pairs)
    moved = np.argsort(bits, kind="stable")[: n_pairs // 2]
    second = np.arange(1, n_pairs + 1)
    second[np.sort(moved)] = moved + 1
    label = np.where(second == np.arange(1, n_pairs + 1), IN_ORDER, OUT_OF_ORDER).astype(np.int8)
    pairs = Pairs(starts[:-2], starts[1:-1], starts[second], starts[second + 1], label)
    return trimmed(pairs, *_kept_tokens(pairs, budget, bits), bits)


def _kept_tokens(pairs: Pairs, budget: int, bits: Bits) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    a_length, b_length = pairs.a_stop - pairs.a_start, pairs.b_stop - pairs.b_start
    shared = np.minimum(a_length, b_length)
    # What is left to cut where both are equally long; neither may give all that it has.
    rest = np.maximum(2 * shared - budget, 0)
    a_cut = np.clip(heads(branch(bits, Drawn.SHARE), rest), rest - shared + 1, shared - 1)
    longest = budget - shared + rest
    return np.minimum(a_length, longest) - a_cut, np.minimum(b_length, longest) - (rest - a_cut)
