"""Batches of masked examples: the global batch is a pure function of (seed, step)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import numpy as np

from sublayer.counts import count
from sublayer.data.masked.examples import ExampleSource, PairSettings
from sublayer.data.masked.packing import Example, pack
from sublayer.data.masked.segments import UNLABELLED
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.split import Split
from sublayer.data.tokenizers.base import check_masking

_MANY_SINGLE = 0.1
"""Share of the documents that is said to have a single sentence."""


def count_single_sentences(split: Split) -> tuple[int, int]:
    """Count the documents of a split that have one sentence, and all."""
    assert split.sentence_starts is not None, "the text was stored as sentences"
    firsts = np.searchsorted(split.sentence_starts, split.document_starts)
    n_sentences = np.diff(firsts, append=len(split.sentence_starts))
    return int((n_sentences == 1).sum()), len(split.document_starts)


class PairBatches:
    """Batches of ``batch_sequences`` examples, packed into rows of at most ``context`` tokens.

    Every example of a pass is used once before the next pass begins. In a weighted mixture each
    source has passes of its own, and its share of every stretch of examples. Where the settings say
    how steps are filled with tokens, which a weighted mixture has no rule for, a step has as many
    examples as that gives, and a pass begins with a step.

    Raises ConfigError where the vocabulary lacks what masked objectives need. That a source has no
    example is seen when one is asked for: then methods raise DataError.
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
        starts = [0]
        weights = np.ones(1)
        if split.weights is not None:
            starts = split.store.source_starts.tolist()
            weights = np.array(split.weights)
        # Of what the sources before each leave: the last takes all that is left.
        remaining = np.cumsum(weights[::-1])[::-1]
        self._shares = weights / remaining
        self._sources = []
        bounds = pairwise([*starts, len(split.ids)])
        for number, (start, stop) in enumerate(bounds):
            source = ExampleSource(split, start, stop, settings, seed=seed, number=number)
            self._sources.append(source)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Return rows ``rank``, ``rank + world``, ... of the global batch of a step (0-based).

        Where a step has fewer examples than there are processes, those without one are given the
        first, of which nothing counts.
        """
        positions = self._positions(step)
        if rank < len(positions):
            return self.examples(positions[rank::world])
        (first,) = self.make(positions[:1])
        nothing = np.zeros(0, dtype=np.int64)
        return self.packed([replace(first, positions=nothing, targets=nothing, label=UNLABELLED)])

    def n_tokens(self, step: int) -> int:
        """Count the tokens of the global batch, the special ones included, padding not."""
        positions = self._positions(step)
        lengths = [source.length(position) for source, position in self._located(positions)]
        return sum(lengths)

    def notes(self) -> list[str]:
        """Say how many documents have a single sentence, where these are many or left out."""
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
        return [source.example(position) for source, position in self._located(positions)]

    def packed(self, examples: Sequence[Example]) -> PackedBatch:
        """Put examples into rows of at most ``context`` tokens."""
        return pack(examples, width=self.context, pad_id=self._pad_id)

    def documents(self, positions: range) -> list[int]:
        """Return the number of the document of the split that each example begins in."""
        starts = [source.start(position) for source, position in self._located(positions)]
        n_begun = np.searchsorted(self.split.document_starts, starts, side="right")
        documents: list[int] = (n_begun - 1).tolist()
        return documents

    def n_in_passes(self, n_examples: int) -> int:
        """Count the examples of as many whole passes over the first source as give so many."""
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
        """Return the source of a position, and the position among the source's own examples."""
        # Each source takes its share of what those before it leave, as evenly as whole examples
        # allow.
        for source, share in zip(self._sources, self._shares, strict=True):
            if share >= 1.0:
                return source, position
            n_before = int(position * share)
            n_with_this = int((position + 1) * share)
            if n_with_this > n_before:
                return source, n_before
            position -= n_before
        raise AssertionError("the last source takes all that is left")
