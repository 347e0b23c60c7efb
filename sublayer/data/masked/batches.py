"""Masked examples of a text, and their batches: a pure function of (seed, step)."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch

from sublayer.counts import count
from sublayer.data.arrays import Ints
from sublayer.data.counter_rng import Epochs, Purpose, generator, random_order
from sublayer.data.masked.masking import Example, MaskRule, MaskVocabulary, mask_tokens, pack
from sublayer.data.masked.pairs import (
    N_SPECIAL,
    UNLABELLED,
    PairRule,
    Pairs,
    make_pairs,
    pairs_of_sentences,
)
from sublayer.data.packing import PackedBatch
from sublayer.data.parallel.batches import BatchRule
from sublayer.data.store import Split
from sublayer.data.tokenizers.base import check_masking

_SOURCE = 1 << 48
"""Offset between the seeds of a mixture's sources, which draw independently."""


@dataclass(frozen=True)
class PairSettings:
    """Settings of masked examples: sentence pairs, masks, and their repetition."""

    pairs: PairRule
    masks: MaskRule
    vocabulary: MaskVocabulary
    unit: Literal["chunks", "sentences"] = "chunks"
    """Pairs are parts of chunks, by the rule, or single sentences, of which the rule's task and
    length count."""
    static_copies: int | None = None
    """Number of passes after which pairs and masks repeat; None: never."""
    steps: BatchRule | None = None
    """Rule by which the pairs of a pass fill steps by their tokens; None: a step has as many pairs
    as it is asked for."""


class _Pass(NamedTuple):
    """The examples of a pass in text order, and their order of use."""

    pairs: Pairs
    order: Ints
    step_ends: Ints
    """End of each step in that order, of steps that are filled with tokens."""


class ExampleSource:
    """Examples of a text, pass after pass, in a new order per pass.

    The text is the tokens of a split from ``start`` to ``stop``; ``number`` is the source's, from
    0, so that sources draw independently. Positions count examples in the endless sequence of
    passes, from 0.

    What finds an example raises DataError where no pass has one, or the text has no sentence, or no
    second document to take a B from.
    """

    def __init__(
        self,
        split: Split,
        start: int,
        stop: int,
        settings: PairSettings,
        *,
        seed: int,
        number: int = 0,
    ) -> None:
        assert split.sentence_starts is not None, "the text was stored as sentences"
        self._seed = seed + number * _SOURCE
        self._ids = split.ids
        self._tokenizer = split.tokenizer
        self._settings = settings
        self._start = start
        self._stop = stop
        self._sentences = _starts_within(split.sentence_starts, start, stop)
        self._documents = _starts_within(split.document_starts, start, stop)
        self._step_ends = [0]
        """The number of steps before each pass, and after the last that was planned for one."""
        self._passes = Epochs(
            self._make_pass,
            lambda plan: plan.pairs.n_pairs,
            "no document gives a pair of sentences: each chunk is a single one; keep those "
            "(objective.single_sentence = keep), or add text",
            same=self._copy,
        )

    def passes(self, n_examples: int) -> int:
        """Count the examples of the fewest full passes that give ``n_examples``, at least one."""
        epoch, _ = self._passes.locate(max(n_examples - 1, 0))
        return self._passes.ends[epoch + 1]

    def step(self, step: int) -> range:
        """Return the positions of the examples of a step, 0-based, that is filled with tokens."""
        ends = self._step_ends
        while step >= ends[-1]:
            ends.append(ends[-1] + len(self._passes.plan(len(ends) - 1).step_ends))
        epoch = bisect_right(ends, step) - 1
        bounds = [0, *self._passes.plan(epoch).step_ends.tolist()]
        index = step - ends[epoch]
        first = self._passes.start(epoch)
        return range(first + bounds[index], first + bounds[index + 1])

    def length(self, position: int) -> int:
        """Count the tokens of an example, special ones included."""
        _, pairs, index = self._find(position)
        n_first, n_second = int(pairs.a_length[index]), int(pairs.b_length[index])
        return n_first + n_second + (N_SPECIAL if n_second else N_SPECIAL - 1)

    def start(self, position: int) -> int:
        """Return the position of an example's first segment in the text."""
        _, pairs, index = self._find(position)
        return self._start + int(pairs.a_start[index])

    def example(self, position: int) -> Example:
        """Build an example: a pure function of the seed and its position."""
        epoch, pairs, index = self._find(position)
        # Pairs count from the beginning of the source.
        first, second = (
            np.asarray(self._ids[self._start + start[index] : self._start + stop[index]])
            for start, stop in ((pairs.a_start, pairs.a_stop), (pairs.b_start, pairs.b_stop))
        )
        # The class token, A, an end, B, an end [T]; the first segment includes its end.
        end = [self._tokenizer.sep_id]
        parts: list[Any] = [
            [self._tokenizer.cls_id],
            first,
            end,
            second,
            end if len(second) else [],
        ]
        ids = np.concatenate(parts).astype(np.int64)
        segments = (np.arange(len(ids)) >= len(first) + 2).astype(np.int64)
        rule = self._settings.masks
        starts_word = None if rule.unit == "token" else self._tokenizer.starts_word(ids)
        draws = generator(self._seed, Purpose.MASKS, self._copy(epoch), index)
        masked = mask_tokens(ids, starts_word, rule, self._settings.vocabulary, draws)
        return Example(
            ids=masked.ids,
            segments=segments,
            positions=masked.positions,
            targets=masked.targets,
            label=int(pairs.label[index]),
        )

    def _find(self, position: int) -> tuple[int, Pairs, int]:
        """Return the pass of an example, the pass' pairs, and the index among them."""
        epoch, index_in_pass = self._passes.locate(position)
        pairs, order, _ = self._passes.plan(epoch)
        return epoch, pairs, int(order[index_in_pass])

    def _make_pass(self, epoch: int) -> _Pass:
        settings = self._settings
        n_tokens = self._stop - self._start
        draws = {"seed": self._seed, "epoch": self._copy(epoch)}
        if settings.unit == "chunks":
            pairs = make_pairs(self._sentences, self._documents, n_tokens, settings.pairs, **draws)
        else:
            max_len = settings.pairs.max_len
            pairs = pairs_of_sentences(self._sentences, n_tokens, max_len, **draws)
            if settings.pairs.task != "nsp":
                pairs = pairs._replace(label=np.full_like(pairs.label, UNLABELLED))
        if settings.steps is None:
            order = random_order(self._seed, Purpose.EXAMPLE_ORDER, epoch, pairs.n_pairs)
            return _Pass(pairs, order, step_ends=np.zeros(0, dtype=np.int64))
        lengths = pairs.a_length + pairs.b_length + N_SPECIAL
        # Of a single side, which the rule takes for both.
        steps = settings.steps.steps(np.stack([lengths, lengths], 1), seed=self._seed, epoch=epoch)
        return _Pass(pairs, np.concatenate(steps), np.cumsum([len(step) for step in steps]))

    def _copy(self, epoch: int) -> int:
        """Return the pass whose pairs and masks a pass reuses: itself, if not static."""
        copies = self._settings.static_copies
        return epoch if copies is None else epoch % copies


def _starts_within(starts: Ints, start: int, stop: int) -> Ints:
    """Return the starts within a source, relative to its beginning."""
    first, last = np.searchsorted(starts, (start, stop))
    within = starts[first:last]
    # Not copied at offset 0: it may be memory-mapped.
    return within - start if start else within


_MANY_SINGLE = 0.1
"""Share of the documents that is said to have a single sentence."""


def count_single_sentences(split: Split) -> tuple[int, int]:
    """Count a split's documents of a single sentence, and all documents."""
    assert split.sentence_starts is not None, "the text was stored as sentences"
    firsts = np.searchsorted(split.sentence_starts, split.document_starts)
    n_sentences = np.diff(firsts, append=len(split.sentence_starts))
    return int((n_sentences == 1).sum()), len(split.document_starts)


class PairBatches:
    """Batches of ``batch_sequences`` examples, packed into rows of at most ``context`` tokens.

    Every example of a pass is used once before the next pass begins. In a weighted mixture each
    source has separate passes, and its share of every stretch of examples. Where the settings fill
    steps by tokens, which weighted mixtures do not support, the number of examples per step
    follows, and a pass begins with a step.

    Raises ConfigError where the vocabulary lacks tokens of masked objectives. Methods raise
    DataError where a source has no example.
    """

    lengths_vary: ClassVar[bool] = False

    def __init__(
        self, split: Split, settings: PairSettings, *, context: int, batch_sequences: int, seed: int
    ) -> None:
        check_masking(split.tokenizer, f"the tokenizer of {' and '.join(split.sources)}")
        pad_id = split.tokenizer.pad_id
        assert pad_id is not None, "a checked vocabulary has padding"
        self.split = split
        self.context = context
        self.batch_sequences = batch_sequences
        self._pad_id = pad_id
        self._rule = settings.pairs
        self._is_of_sentences = settings.unit == "sentences"
        self._fills_steps = settings.steps is not None
        bounds, weights = split.drawn
        # Shares of the examples left by earlier sources: the last takes all.
        self._shares = weights / np.cumsum(weights[::-1])[::-1]
        self._sources = [
            ExampleSource(split, start, stop, settings, seed=seed, number=number)
            for number, (start, stop) in enumerate(pairwise(bounds.tolist()))
        ]

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Return rows ``rank``, ``rank + world``, ... of the global batch of a step (0-based).

        Where a step has fewer examples than processes, those without one get the first, uncounted.
        """
        positions = self._positions(step)
        if rank < len(positions):
            return self.examples(positions[rank::world])
        (first,) = self.make(positions[:1])
        nothing = np.zeros(0, dtype=np.int64)
        first = replace(first, positions=nothing, targets=nothing, label=UNLABELLED)
        batch = self.packed([first])
        return replace(batch, weights=torch.zeros_like(batch.weights))

    def n_tokens(self, step: int) -> int:
        """Count the tokens of the global batch, with special ones, without padding."""
        return sum(source.length(at) for source, at in self._located(self._positions(step)))

    def notes(self) -> list[str]:
        """Report the number of single-sentence documents, where many or omitted."""
        if self._rule.task == "none" or self._is_of_sentences:
            return []
        n_single, n_documents = count_single_sentences(self.split)
        is_dropped = self._rule.alone == "drop"
        if not n_single or (not is_dropped and n_single < _MANY_SINGLE * n_documents):
            return []
        happens = "are left out" if is_dropped else "give no pair in order"
        return [
            f"{n_single:,} of {count(n_documents, 'document')} of the train split have one "
            f"sentence, and {happens}"
        ]

    def examples(self, positions: range) -> PackedBatch:
        """Return the examples at positions of the endless row of passes."""
        return self.packed(self.make(positions))

    def make(self, positions: range) -> list[Example]:
        """Make the examples at positions of the endless row of passes, one by one."""
        return [source.example(at) for source, at in self._located(positions)]

    def packed(self, examples: Sequence[Example]) -> PackedBatch:
        """Pack examples into rows of at most ``context`` tokens."""
        return pack(examples, width=self.context, pad_id=self._pad_id)

    def documents(self, positions: range) -> list[int]:
        """Return the number of the document in which each example begins."""
        starts = [source.start(position) for source, position in self._located(positions)]
        documents: list[int] = self.split.documents_at(np.array(starts, dtype=np.int64)).tolist()
        return documents

    def n_in_passes(self, n_examples: int) -> int:
        """Count the examples of the fewest full passes over the first source that give as many."""
        return self._sources[0].passes(n_examples)

    def _positions(self, step: int) -> range:
        """Return the positions of a step's examples in the endless row of passes."""
        if self._fills_steps:
            (source,) = self._sources
            return source.step(step)
        first = step * self.batch_sequences
        return range(first, first + self.batch_sequences)

    def _located(self, positions: range) -> Iterator[tuple[ExampleSource, int]]:
        return map(self._locate, positions)

    def _locate(self, position: int) -> tuple[ExampleSource, int]:
        """Return the source of a position, and the position within the source."""
        # A source takes its share of the remaining examples, as evenly as possible.
        for source, share in zip(self._sources, self._shares, strict=True):
            if share >= 1.0:
                return source, position
            n_before = int(position * share)
            n_with_this = int((position + 1) * share)
            if n_with_this > n_before:
                return source, n_before
            position -= n_before
        raise AssertionError("the last source takes all that is left")
