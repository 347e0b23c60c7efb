"""Pairs of segments: which sentences form an example, in which order, and with which label."""

from itertools import pairwise

import numpy as np

from sublayer.data.arrays import Bools, Ints
from sublayer.data.counter_rng import Purpose, below, fork, seeds
from sublayer.data.masked.chunks import Chunks, Corpus, chunks_of, coins, sentence_corpus
from sublayer.data.masked.segments import (
    OUT_OF_ORDER,
    UNLABELLED,
    Drawn,
    PairRule,
    Pairs,
    trim,
    trimmed_lengths,
)
from sublayer.errors import DataError

_BLOCK_SENTENCES = 1 << 18


def make_pairs(
    sentence_starts: Ints,
    document_starts: Ints,
    n_tokens: int,
    rule: PairRule,
    *,
    seed: int,
    epoch: int,
) -> Pairs:
    """Form the pairs of an epoch, in the order of the documents: a pure function.

    ``sentence_starts`` [S] and ``document_starts`` [N] are ascending token positions from 0 on,
    each document's being a sentence's. What a document gives depends on its number and its
    sentences alone, but for a B from another one.

    Departures from the released code: B is always from another document (there, after ten draws of
    the same one, B is from it), and chunks of a single sentence follow ``rule.alone``.

    Empty where no document gives a pair in this epoch.

    Raises DataError where there is no sentence, or no other document to take a B from and the rule
    asks for one.
    """
    corpus = sentence_corpus(sentence_starts, document_starts, n_tokens)
    if corpus.n_documents == 1:
        _check_negatives(rule)
    bits = seeds(seed, Purpose.CHUNKS, epoch, corpus.n_documents)
    blocks = []
    for start, stop in _blocks(corpus):
        chunks = chunks_of(corpus, start, stop, bits, rule)
        pairs = _pairs(corpus, chunks, rule)
        blocks.append(pairs)
    columns = zip(*blocks, strict=True)
    joined = map(np.concatenate, columns)
    return Pairs(*joined)


def _check_negatives(rule: PairRule) -> None:
    """Raise DataError where a rule takes a B from another document than the only one."""
    if rule.negatives != "others":
        return
    if rule.task == "nsp":
        what = "next-sentence pairs"
    elif rule.alone == "negative":
        what = "pairs for single sentences"
    else:
        return
    raise DataError(
        f"{what} need two documents, and the training split has one with sentences: separate its "
        "documents or add files"
    )


def _blocks(corpus: Corpus) -> list[tuple[int, int]]:
    """Return ranges of documents; draws are made for every sentence: blocks bound the memory."""
    sentences = np.arange(0, corpus.n_sentences, _BLOCK_SENTENCES)
    documents = np.searchsorted(corpus.firsts, sentences)
    # A document with more sentences than a block is one boundary several times.
    bounds = np.unique(np.append(documents, corpus.n_documents))
    return list(pairwise(bounds.tolist()))


def _pairs(corpus: Corpus, chunks: Chunks, rule: PairRule) -> Pairs:
    # All are of each pair [P].
    n_sentences = chunks.stop - chunks.first
    is_alone = n_sentences == 1
    if rule.alone == "drop":
        chunks = chunks.where(~is_alone)
        is_alone = is_alone[~is_alone]
    if rule.task == "none":
        is_turned = np.zeros_like(is_alone)
        label = np.full(len(is_alone), UNLABELLED, dtype=np.int8)
    else:
        is_turned = coins(chunks.bits) & ~is_alone
        label = np.where(is_alone, UNLABELLED, is_turned).astype(np.int8)
    a_stop = corpus.starts[chunks.middle]
    pairs = Pairs(
        a_start=corpus.starts[chunks.first],
        a_stop=a_stop,
        # A copy: negatives are written into it.
        b_start=a_stop.copy(),
        b_stop=corpus.starts[chunks.stop],
        label=label,
    )
    is_negative = np.zeros_like(is_alone)
    if rule.task == "sop":
        pairs = _swap(pairs, is_turned)
    elif rule.task == "nsp":
        is_negative |= is_turned
    if rule.alone == "negative":
        is_negative |= is_alone
    pairs = _with_negatives(pairs, corpus, chunks, is_negative, rule)
    a_length, b_length = trimmed_lengths(pairs, rule.budget)
    return trim(pairs, a_length, b_length, chunks.bits)


def _swap(pairs: Pairs, is_swapped: Bools) -> Pairs:
    a_start, a_stop, b_start, b_stop, label = pairs
    return Pairs(
        a_start=np.where(is_swapped, b_start, a_start),
        a_stop=np.where(is_swapped, b_stop, a_stop),
        b_start=np.where(is_swapped, a_start, b_start),
        b_stop=np.where(is_swapped, a_stop, b_stop),
        label=label,
    )


def _with_negatives(
    pairs: Pairs, corpus: Corpus, chunks: Chunks, is_negative: Bools, rule: PairRule
) -> Pairs:
    """Replace the B of negative pairs: whole sentences, up to the target with A, one at least."""
    starts = corpus.starts
    # All are of each negative pair.
    chunks = chunks.where(is_negative)
    a_length = starts[chunks.middle] - starts[chunks.first]
    needed = np.maximum(chunks.target - a_length, 1)
    if corpus.n_documents > 1:
        first, limit = _in_another_document(corpus, chunks)
    else:
        first, limit = _in_the_same_document(corpus, chunks, rule.max_len)
    b_start = starts[first]
    filled = np.searchsorted(starts, b_start + needed)
    stop = np.minimum(filled, limit)
    pairs.b_start[is_negative] = b_start
    pairs.b_stop[is_negative] = starts[stop]
    pairs.label[is_negative] = np.where(stop > first, OUT_OF_ORDER, UNLABELLED)
    return pairs


def _in_another_document(corpus: Corpus, chunks: Chunks) -> tuple[Ints, Ints]:
    """Draw the first sentence of each B; return it and the end of its document."""
    document_bits = fork(chunks.bits, Drawn.DOCUMENT)
    others = below(document_bits, corpus.n_documents - 1)
    # A's own document is skipped, so that each of the others is as likely.
    others += others >= chunks.document
    begin = corpus.firsts[others]
    end = corpus.firsts[others + 1]
    sentence_bits = fork(chunks.bits, Drawn.SENTENCE)
    first = begin + below(sentence_bits, end - begin)
    return first, end


def _in_the_same_document(corpus: Corpus, chunks: Chunks, distance: int) -> tuple[Ints, Ints]:
    """Draw the first sentence of each B; return it and where B must end.

    It is ``distance`` tokens from A or, where there is none so far away, not beside it. Where there
    is no such sentence, both are the end of the text.
    """
    n_sentences = corpus.n_sentences
    n_chunks = len(chunks.first)
    distances = np.full(n_chunks, distance)
    before, after = _away(corpus, chunks, distances)
    n_far = before + n_sentences - after
    distances = np.where(n_far == 0, 1, distance)
    before, after = _away(corpus, chunks, distances)
    n_far = before + n_sentences - after
    # One of them all: those before A, then those after it.
    sentence_bits = fork(chunks.bits, Drawn.SENTENCE)
    drawn = below(sentence_bits, n_far)
    is_before = drawn < before
    first = np.where(is_before, drawn, drawn - before + after)
    limit = np.where(is_before, before, n_sentences)
    return first, limit


def _away(corpus: Corpus, chunks: Chunks, distances: Ints) -> tuple[Ints, Ints]:
    """Return how many sentences end ``distances`` tokens before A, and the first so far after."""
    a_start = corpus.starts[chunks.first]
    a_stop = corpus.starts[chunks.middle]
    latest_end = a_start - distances
    earliest_start = a_stop + distances
    before = np.searchsorted(corpus.starts, latest_end, side="right") - 1
    after = np.searchsorted(corpus.starts, earliest_start)
    # Negative where A is that near the begin of the text, and beyond the last near its end.
    return np.maximum(before, 0), np.minimum(after, corpus.n_sentences)
