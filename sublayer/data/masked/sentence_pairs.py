"""Pairs of single sentences, as Macaron BERT was trained on."""

import numpy as np

from sublayer.data.arrays import Ints
from sublayer.data.counter_rng import Bits, Purpose, binomial, fork, seeds
from sublayer.data.masked.chunks import sentence_corpus
from sublayer.data.masked.segments import IN_ORDER, OUT_OF_ORDER, Drawn, PairRule, Pairs, trim
from sublayer.errors import DataError


def pairs_of_sentences(
    sentence_starts: Ints, n_tokens: int, max_len: int = 384, *, seed: int, epoch: int
) -> Pairs:
    """Pair each sentence but the last with the next one or, for a random half, with another.

    ``sentence_starts`` [S] are ascending token positions from 0 on; the pairs are S - 1, a pure
    function of seed and epoch.

    The next sentences of that half are shuffled among it. The label is 0 wherever B is the next
    sentence, by chance too, else 1. Documents play no part. Pairs stand in the order of A. What
    exceeds ``max_len`` less three special tokens is cut: from the longer one until they are equal,
    then from each by flips of a coin; and from head and tail of each by further flips.

    Source: Macaron BERT, Lu et al. 2019; as released. Departures: its label is 1 where B is next;
    special tokens are never cut; a sentence is never cut to nothing (there, one that is cut at its
    head alone is).

    Raises DataError where there are fewer than two sentences, ConfigError where ``max_len`` is
    below 5.
    """
    budget = PairRule("nsp", max_len).budget
    one_document = sentence_starts[:1]
    starts = sentence_corpus(sentence_starts, one_document, n_tokens).starts  # [S+1]
    n_pairs = len(starts) - 2
    if n_pairs == 0:
        raise DataError("next-sentence pairs need two sentences, and the text has one: add text")
    bits = seeds(seed, Purpose.SENTENCES, epoch, n_pairs)
    second = _shuffle_half(bits)  # [P], as all below
    is_next = second == np.arange(1, n_pairs + 1)
    label = np.where(is_next, IN_ORDER, OUT_OF_ORDER).astype(np.int8)
    pairs = Pairs(
        a_start=starts[:-2],
        a_stop=starts[1:-1],
        b_start=starts[second],
        b_stop=starts[second + 1],
        label=label,
    )
    a_length, b_length = _trimmed_lengths(pairs, budget, bits)
    return trim(pairs, a_length, b_length, bits)


def _shuffle_half(bits: Bits) -> Ints:
    """Return each pair's second sentence: the next one, but permuted among a random half."""
    n_pairs = len(bits)
    order = np.argsort(bits, kind="stable")
    moved = order[: n_pairs // 2]
    second = np.arange(1, n_pairs + 1)
    # The chosen pairs, in the order of the text, take each other's second sentences at random.
    second[np.sort(moved)] = moved + 1
    return second


def _trimmed_lengths(pairs: Pairs, budget: int, bits: Bits) -> tuple[Ints, Ints]:
    a_length = pairs.a_length
    b_length = pairs.b_length
    shorter = np.minimum(a_length, b_length)
    # What is left to cut once both are equally long; neither may lose all that it has.
    excess = np.maximum(2 * shorter - budget, 0)
    most = shorter - 1
    share_bits = fork(bits, Drawn.SHARE)
    a_cut = binomial(share_bits, excess)
    a_cut = np.clip(a_cut, excess - most, most)
    b_cut = excess - a_cut
    longest = budget - shorter + excess
    a_trimmed = np.minimum(a_length, longest) - a_cut
    b_trimmed = np.minimum(b_length, longest) - b_cut
    return a_trimmed, b_trimmed
