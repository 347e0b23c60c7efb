"""Segment pairs: which sentences stand together in an example, in which order, and what is to be told of them."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sublayer.data.chunks import Chunks, Corpus, chunks_of, coins, sentence_corpus
from sublayer.data.draws import Purpose, below, branch, roots
from sublayer.data.segments import OUT_OF_ORDER, UNLABELLED, Drawn, PairRule, Pairs, kept_tokens, trimmed
from sublayer.errors import DataError

_BLOCK_SENTENCES = 1 << 18


def make_pairs(
    sentence_starts: NDArray[np.int64],
    document_starts: NDArray[np.int64],
    n_tokens: int,
    rule: PairRule,
    *,
    seed: int,
    epoch: int,
) -> Pairs:
    """Make the pairs of an epoch, in the order of the documents: a function of the arguments alone.

    ``sentence_starts`` [S] and ``document_starts`` [N] are ascending token positions from 0 on, each document's being a
    sentence's. What a document gives depends on its number and its sentences alone, but for a B from another one.

    Departures from the released code: another document is always found (there, after ten draws of the same one, B is
    from it), and chunks of a single sentence follow ``rule.alone``.

    Empty where no document gives a pair in this epoch. Raises DataError where there is no sentence, or no other
    document to take a B from.
    """
    corpus = sentence_corpus(sentence_starts, document_starts, n_tokens)
    n_documents = len(corpus.firsts) - 1
    if n_documents == 1 and rule.negatives == "others" and (rule.task == "nsp" or rule.alone == "negative"):
        what = "next-sentence pairs" if rule.task == "nsp" else "pairs for single sentences"
        raise DataError(f"{what} need two documents, and the text is one: separate its documents or add files")
    bits = roots(seed, Purpose.CHUNKS, epoch, n_documents)
    blocks = [_pairs(corpus, chunks_of(corpus, start, stop, bits, rule), rule) for start, stop in _blocks(corpus)]
    return Pairs(*(np.concatenate(column) for column in zip(*blocks, strict=True)))


def _blocks(corpus: Corpus) -> list[tuple[int, int]]:
    # Draws are made for every sentence: for so many at once, to bound the memory.
    n_sentences, n_documents = len(corpus.starts) - 1, len(corpus.firsts) - 1
    edges = np.searchsorted(corpus.firsts, np.arange(0, n_sentences, _BLOCK_SENTENCES))
    return list(pairwise(np.unique(np.append(edges, n_documents)).tolist()))


def _pairs(corpus: Corpus, chunks: Chunks, rule: PairRule) -> Pairs:
    is_alone = chunks.stop == chunks.first + 1
    if rule.alone == "drop":
        chunks, is_alone = chunks.where(~is_alone), is_alone[~is_alone]
    is_turned = coins(chunks.bits) & ~is_alone if rule.task != "none" else np.zeros_like(is_alone)
    label = np.where(is_alone | (rule.task == "none"), UNLABELLED, is_turned).astype(np.int8)
    starts = corpus.starts
    a_start, a_stop, b_stop = starts[chunks.first], starts[chunks.middle], starts[chunks.stop]
    pairs = Pairs(a_start, a_stop, a_stop.copy(), b_stop, label)
    if rule.task == "sop":
        pairs = _swap(pairs, is_turned)
    is_negative = (is_turned & (rule.task == "nsp")) | (is_alone & (rule.alone == "negative"))
    pairs = _with_negatives(pairs, corpus, chunks, is_negative, rule)
    return trimmed(pairs, *kept_tokens(pairs, rule.budget), chunks.bits)


def _swap(pairs: Pairs, is_swapped: NDArray[np.bool_]) -> Pairs:
    a_start, a_stop, b_start, b_stop, label = pairs
    return Pairs(
        np.where(is_swapped, b_start, a_start),
        np.where(is_swapped, b_stop, a_stop),
        np.where(is_swapped, a_start, b_start),
        np.where(is_swapped, a_stop, b_stop),
        label,
    )


def _with_negatives(
    pairs: Pairs, corpus: Corpus, chunks: Chunks, is_negative: NDArray[np.bool_], rule: PairRule
) -> Pairs:
    """Give some pairs a B from elsewhere: sentences up to what A leaves of the target, one at least."""
    chunks = chunks.where(is_negative)
    needed = np.maximum(chunks.target - (corpus.starts[chunks.middle] - corpus.starts[chunks.first]), 1)
    if len(corpus.firsts) > 2:
        first, last = _in_another_document(corpus, chunks)
    else:
        first, last = _in_the_same_document(corpus, chunks, rule.max_len)
    stop = np.minimum(np.searchsorted(corpus.starts, corpus.starts[first] + needed), last)
    pairs.b_start[is_negative] = corpus.starts[first]
    pairs.b_stop[is_negative] = corpus.starts[stop]
    pairs.label[is_negative] = np.where(stop > first, OUT_OF_ORDER, UNLABELLED)
    return pairs


def _in_another_document(corpus: Corpus, chunks: Chunks) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw the first sentence of each B, and give the end of its document."""
    others = below(branch(chunks.bits, Drawn.DOCUMENT), len(corpus.firsts) - 2)
    others += others >= chunks.document
    begin, end = corpus.firsts[others], corpus.firsts[others + 1]
    return begin + below(branch(chunks.bits, Drawn.SENTENCE), end - begin), end


def _in_the_same_document(corpus: Corpus, chunks: Chunks, distance: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw the first sentence of each B, ``distance`` tokens from A or else not beside it, and give where B must end.

    Where there is no such sentence, both are the end of the text.
    """
    n_sentences = len(corpus.starts) - 1
    before, after = _away(corpus, chunks, np.full(len(chunks.first), distance))
    is_near = before + n_sentences - after == 0
    before, after = _away(corpus, chunks, np.where(is_near, 1, distance))
    drawn = below(branch(chunks.bits, Drawn.SENTENCE), before + n_sentences - after)
    is_before = drawn < before
    return np.where(is_before, drawn, drawn - before + after), np.where(is_before, before, n_sentences)


def _away(corpus: Corpus, chunks: Chunks, distances: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give how many sentences end so many tokens before A begins, and the first that begins so many after its end."""
    a_start, a_stop = corpus.starts[chunks.first], corpus.starts[chunks.middle]
    before = np.searchsorted(corpus.starts, a_start - distances, side="right") - 1
    after = np.searchsorted(corpus.starts, a_stop + distances)
    return np.maximum(before, 0), np.minimum(after, len(corpus.starts) - 1)
