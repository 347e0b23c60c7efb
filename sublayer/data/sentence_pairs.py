"""Pairs of segments: chunks of sentences, divided, labelled and trimmed to fit."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sublayer.data.counter_rng import Bits, Purpose, below, binomial, fork, seeds, uniform
from sublayer.errors import DataError
from sublayer.files.arrays import Bools, Ints

N_SPECIAL = 3
"""Number of special tokens in an input: one before A, one after A, one after B."""

UNLABELLED, IN_ORDER, OUT_OF_ORDER = -1, 0, 1
"""Labels: unlabelled; B follows A; A and B are swapped, or B is from elsewhere."""


class Drawn(IntEnum):
    """Random draws of an example, each from a fork of its seed.

    Seeded runs depend on the numbers, so that a new draw must be added at the end.
    """

    TARGET = 0
    CUT = 1
    COIN = 2
    DOCUMENT = 3
    SENTENCE = 4
    SHARE = 5
    TRIM_A = 6
    TRIM_B = 7


@dataclass(frozen=True)
class PairRule:
    """Rule that makes pairs and labels from chunks of consecutive sentences.

    A chunk is filled up to a target: ``max_len`` less three special tokens, or, with ``p_short``, a
    uniform length from 2 tokens to that.

    Source: Lan et al. 2020, sec. 3.1; Devlin et al. 2019, appendix A.2; as released.
    """

    task: Literal["none", "nsp", "sop"]
    """Negative pairs, half of all: ``sop`` swaps A and B, ``nsp`` takes B from another document;
    ``none`` keeps all pairs in order, unlabelled."""
    max_len: int = 512
    """Maximum length of an example in tokens, special ones included; at least 5."""
    p_short: float = 0.1
    target_per: Literal["example", "document"] = "example"
    """Frequency of drawing a target length: for each example, or once per document and epoch
    (ALBERT as released)."""
    alone: Literal["keep", "negative", "drop"] = "keep"
    """Example of a chunk of a single sentence: A alone, unlabelled; a pair with a B from another
    document (ALBERT as released, in both tasks: in ``sop`` its topic gives the label away); or
    none."""
    negatives: Literal["others", "anywhere"] = "others"
    """Origin of a random B in a corpus of one document: ``anywhere`` takes it from elsewhere in the
    document, at least ``max_len`` tokens from A if possible; ``others`` is an error there."""

    @property
    def budget(self) -> int:
        """Maximum number of tokens of A and B together."""
        return self.max_len - N_SPECIAL


class Pairs(NamedTuple):
    """Examples as ranges of token positions [P].

    A is first in the input; B may be empty.
    """

    a_start: Ints
    a_stop: Ints
    b_start: Ints
    b_stop: Ints
    label: NDArray[np.int8]
    """0 if B follows A, 1 if they are swapped or B is from elsewhere; -1: not predicted."""

    @property
    def n_pairs(self) -> int:
        """Number of examples."""
        return len(self.label)

    @property
    def a_length(self) -> Ints:
        """Lengths of A in tokens [P]."""
        return self.a_stop - self.a_start

    @property
    def b_length(self) -> Ints:
        """Lengths of B in tokens [P]."""
        return self.b_stop - self.b_start

    def trimmed_lengths(self, budget: int) -> tuple[Ints, Ints]:
        """Compute the lengths of A and B, [P] each, after tokens are dropped from the longer one.

        Tokens are dropped one at a time, from B at equal lengths, until ``budget`` tokens of both
        remain. Source: Lan et al. 2020, as released; without its loop.
        """
        half = budget // 2
        # Each side gets half, A the odd token, plus the tokens that the other side leaves unused.
        a_limit = np.maximum(budget - half, budget - self.b_length)
        b_limit = np.maximum(half, budget - self.a_length)
        a_length = np.minimum(self.a_length, a_limit)
        b_length = np.minimum(self.b_length, b_limit)
        return a_length, b_length

    def trim(self, a_length: Ints, b_length: Ints, bits: Bits) -> "Pairs":
        """Trim segments to lengths [P], tokens from the front or the back by a flip of a coin."""
        # Number of tokens dropped from the front.
        a_start = self.a_start + binomial(fork(bits, Drawn.TRIM_A), self.a_length - a_length)
        b_start = self.b_start + binomial(fork(bits, Drawn.TRIM_B), self.b_length - b_length)
        return Pairs(a_start, a_start + a_length, b_start, b_start + b_length, self.label)


class Corpus(NamedTuple):
    """Starts of sentences and documents, and the end of the last."""

    starts: Ints
    """First token of each sentence, and the end of the text: [S+1]."""
    firsts: Ints
    """First sentence of each document, and the number of sentences: [N+1]."""

    @property
    def n_sentences(self) -> int:
        """Number of sentences."""
        return len(self.starts) - 1

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return len(self.firsts) - 1

    def chunks(self, start: int, stop: int, document_bits: Bits, rule: PairRule) -> "Chunks":
        """Divide documents ``start`` to ``stop`` into chunks, and each chunk into A and B.

        Sentences are taken until the target is reached. A has the first of them and a uniform
        number of the others, B the last at least. ``document_bits`` [N] are the seeds of all
        documents, of which a sentence's are forked: the chunks of a document depend on no other.

        Source: Devlin et al. 2019, as released: where B comes from elsewhere (``nsp``), the chunk's
        B sentences are put back, and begin the next chunk.
        """
        document_firsts = self.firsts[start : stop + 1]
        first_sentence = int(document_firsts[0])
        # All arrays below are per sentence [S], since a chunk may begin with any.
        documents = np.repeat(np.arange(start, stop), np.diff(document_firsts))
        numbers = np.arange(first_sentence, document_firsts[-1]) - self.firsts[documents]
        bits = fork(document_bits[documents], numbers)
        is_shared = rule.target_per == "document"
        drawn = uniform(
            fork(fork(document_bits[documents], 0) if is_shared else bits, Drawn.TARGET)
        )
        is_short = drawn < rule.p_short
        targets = np.full(len(drawn), rule.budget)
        # Below p_short, a uniform number divided by p_short is uniform again.
        beyond_2 = drawn[is_short] / rule.p_short * (rule.budget - 1)
        targets[is_short] = 2 + beyond_2.astype(np.int64)
        cuts = uniform(fork(bits, Drawn.CUT))
        is_put_back = coins(bits) if rule.task == "nsp" else np.zeros(len(bits), dtype=np.bool_)
        # Memory views: array elements are several times slower in a Python loop.
        edges, target_of, cut_of, puts_back = (
            array.data for array in (self.starts, targets, cuts, is_put_back)
        )
        chunk_firsts: list[int] = []
        chunk_stops: list[int] = []
        for document_start, document_end in pairwise(document_firsts.tolist()):
            first = document_start
            while first < document_end:
                index = first - first_sentence
                target = target_of[index]
                # A sentence has at least one token: at most ``target`` sentences are needed.
                limit = min(document_end, first + target)
                full = edges[first] + target
                past = bisect_left(edges, full, first + 1, limit)
                chunk_firsts.append(first)
                chunk_stops.append(past)
                # Where B is put back, the next chunk begins with it.
                n_kept = 1 + int(cut_of[index] * (past - first - 1))
                first = first + n_kept if puts_back[index] else past
        # All arrays from here on are per chunk [P].
        firsts = np.array(chunk_firsts, dtype=np.int64)
        stops = np.array(chunk_stops, dtype=np.int64)
        chosen = firsts - first_sentence
        n_more_in_a = (cuts[chosen] * (stops - firsts - 1)).astype(np.int64)
        return Chunks(
            first=firsts,
            middle=firsts + 1 + n_more_in_a,
            stop=stops,
            target=targets[chosen],
            document=documents[chosen],
            bits=bits[chosen],
        )

    def pairs(self, chunks: "Chunks", rule: PairRule) -> Pairs:
        """Make a pair of each chunk, where the rule has one."""
        # All arrays are per pair [P].
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
        a_stop = self.starts[chunks.middle]
        pairs = Pairs(
            a_start=self.starts[chunks.first],
            a_stop=a_stop,
            # A copy: negatives are written into it.
            b_start=a_stop.copy(),
            b_stop=self.starts[chunks.stop],
            label=label,
        )
        if rule.task == "sop":
            pairs = Pairs(
                a_start=np.where(is_turned, pairs.b_start, pairs.a_start),
                a_stop=np.where(is_turned, pairs.b_stop, pairs.a_stop),
                b_start=np.where(is_turned, pairs.a_start, pairs.b_start),
                b_stop=np.where(is_turned, pairs.a_stop, pairs.b_stop),
                label=label,
            )
        is_negative = is_turned & (rule.task == "nsp") | is_alone & (rule.alone == "negative")
        # The B of a negative pair is full sentences, up to the target with A, at least one. All are
        # of each negative pair.
        negatives = chunks.where(is_negative)
        starts = self.starts
        a_length = starts[negatives.middle] - starts[negatives.first]
        needed = np.maximum(negatives.target - a_length, 1)
        sentence_bits = fork(negatives.bits, Drawn.SENTENCE)
        if self.n_documents > 1:
            others = below(fork(negatives.bits, Drawn.DOCUMENT), self.n_documents - 1)
            # A's document is skipped: all others are equally likely.
            others += others >= negatives.document
            begin, limit = self.firsts[others], self.firsts[others + 1]
            first = begin + below(sentence_bits, limit - begin)
        else:
            first, limit = self._in_the_same_document(negatives, sentence_bits, rule.max_len)
        b_start = starts[first]
        stop = np.minimum(np.searchsorted(starts, b_start + needed), limit)
        pairs.b_start[is_negative] = b_start
        pairs.b_stop[is_negative] = starts[stop]
        pairs.label[is_negative] = np.where(stop > first, OUT_OF_ORDER, UNLABELLED)
        return pairs.trim(*pairs.trimmed_lengths(rule.budget), chunks.bits)

    def _in_the_same_document(
        self, chunks: "Chunks", bits: Bits, distance: int
    ) -> tuple[Ints, Ints]:
        """Draw each B's first sentence from A's own document; return it and a limit for B's end.

        B is at least ``distance`` tokens away from A or, if impossible, not adjacent to it. Where
        there is no such sentence, both are the end of the text.
        """
        a_start, a_stop = self.starts[chunks.first], self.starts[chunks.middle]

        def away(distances: Ints | int) -> tuple[Ints, Ints]:
            """Count the sentences at such distances before A; find the first one after A."""
            before = np.searchsorted(self.starts, a_start - distances, side="right") - 1
            after = np.searchsorted(self.starts, a_stop + distances)
            # Negative where A is near the text's beginning, past the last sentence near its end.
            return np.maximum(before, 0), np.minimum(after, self.n_sentences)

        before, after = away(distance)
        has_none = before + self.n_sentences == after
        before, after = away(np.where(has_none, 1, distance))
        # A number among all candidates: those before A, then those after it.
        drawn = below(bits, before + self.n_sentences - after)
        is_before = drawn < before
        first = np.where(is_before, drawn, drawn - before + after)
        return first, np.where(is_before, before, self.n_sentences)


class Chunks(NamedTuple):
    """Chunks [P]: A is sentences ``first`` to ``middle``, B those to ``stop``.

    B is empty where the chunk is a single sentence.
    """

    first: Ints
    middle: Ints
    stop: Ints
    target: Ints
    """Target length in tokens; the chunk's last sentence may exceed it."""
    document: Ints
    """Number of the chunk's document."""
    bits: Bits
    """Seed of the chunk, of which its draws are forked."""

    def where(self, chosen: Bools) -> "Chunks":
        """Return the chosen chunks."""
        columns: Iterator[Any] = (column[chosen] for column in self)
        return Chunks(*columns)


def sentence_corpus(sentence_starts: Ints, document_starts: Ints, n_tokens: int) -> Corpus:
    """Convert the starts of documents to sentence numbers.

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


def coins(bits: Bits) -> Bools:
    """Flip a fair coin per chunk: True makes a negative pair, swapped or with another B."""
    return uniform(fork(bits, Drawn.COIN)) < 0.5


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

    ``sentence_starts`` [S] and ``document_starts`` [N] are ascending token positions from 0 on;
    every start of a document is one of a sentence. The pairs of a document depend only on its
    number and its sentences, except for a B from another document.

    Departures from the released code: B is always from another document (there, after ten draws of
    the same one, B is from it), and chunks of a single sentence follow ``rule.alone``.

    Empty where no document gives a pair in this epoch.

    Raises DataError where there is no sentence, or where the rule takes a B from another document
    and there is none.
    """
    corpus = sentence_corpus(sentence_starts, document_starts, n_tokens)
    has_negatives = rule.task == "nsp" or rule.alone == "negative"
    if corpus.n_documents == 1 and has_negatives and rule.negatives == "others":
        raise DataError(
            "pairs with a text from another document need two documents with sentences, and the "
            "training split has one: separate its documents or add files"
        )
    bits = seeds(seed, Purpose.CHUNKS, epoch, corpus.n_documents)
    # Draws are made for every sentence: blocks of documents bound the memory.
    firsts = np.arange(0, corpus.n_sentences, _BLOCK_SENTENCES)
    # A document longer than a block repeats its boundary.
    bounds = np.unique([*np.searchsorted(corpus.firsts, firsts), corpus.n_documents])
    blocks = [
        corpus.pairs(corpus.chunks(start, stop, bits, rule), rule)
        for start, stop in pairwise(bounds.tolist())
    ]
    return Pairs(*map(np.concatenate, zip(*blocks, strict=True)))


def pairs_of_sentences(
    sentence_starts: Ints, n_tokens: int, max_len: int = 384, *, seed: int, epoch: int
) -> Pairs:
    """Pair each sentence but the last with the next one or, for a random half, with a random one.

    ``sentence_starts`` [S] are ascending token positions from 0 on; the pairs are S - 1, a pure
    function of seed and epoch.

    That half's next sentences are shuffled among its pairs. The label is 0 wherever B is the next
    sentence, even by chance, else 1. Boundaries of documents are ignored. Pairs are in the order of
    A. Tokens beyond ``max_len`` less three special tokens are cut: from the longer sentence until
    both are equally long, then from either by flips of a coin; further flips choose between head
    and tail.

    Source: Macaron BERT, Lu et al. 2019; as released. Departures: there the label is 1 where B is
    next; here special tokens are never cut, and no sentence is cut to nothing (there, one that is
    cut only at its head may be).

    Raises DataError where there are fewer than two sentences.
    """
    budget = PairRule("nsp", max_len).budget
    starts = sentence_corpus(sentence_starts, sentence_starts[:1], n_tokens).starts  # [S+1]
    n_pairs = len(starts) - 2
    if n_pairs == 0:
        raise DataError("next-sentence pairs need two sentences, and the text has one: add text")
    bits = seeds(seed, Purpose.SENTENCES, epoch, n_pairs)
    # Second sentence of each pair [P]: the next one; the pairs of a random half, in the order of
    # the text, exchange theirs at random.
    moved = np.argsort(bits, kind="stable")[: n_pairs // 2]
    following = np.arange(1, n_pairs + 1)
    second = following.copy()
    second[np.sort(moved)] = moved + 1
    pairs = Pairs(
        a_start=starts[:-2],
        a_stop=starts[1:-1],
        b_start=starts[second],
        b_stop=starts[second + 1],
        label=np.where(second == following, IN_ORDER, OUT_OF_ORDER).astype(np.int8),
    )
    shorter = np.minimum(pairs.a_length, pairs.b_length)
    # Number of tokens still to cut once lengths are equal; neither side may become empty.
    excess = np.maximum(2 * shorter - budget, 0)
    most = shorter - 1
    a_cut = np.clip(binomial(fork(bits, Drawn.SHARE), excess), excess - most, most)
    longest = budget - shorter + excess
    a_length = np.minimum(pairs.a_length, longest) - a_cut
    b_length = np.minimum(pairs.b_length, longest) - (excess - a_cut)
    return pairs.trim(a_length, b_length, bits)
