"""Pairs of texts with masks, from stored sentences: the global batch is a pure function of (seed, step)."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sublayer.data.draws import Purpose, generator, roots
from sublayer.data.masking import MaskRule, MaskVocabulary, mask_tokens
from sublayer.data.packed import Example, PairBatch, pack
from sublayer.data.pairs import make_pairs
from sublayer.data.segments import UNLABELLED, PairRule, Pairs
from sublayer.data.sentence_pairs import pairs_of_sentences
from sublayer.data.split import Split
from sublayer.data.vocabulary import Tokenizer, check_masking
from sublayer.errors import DataError

_SOURCE = 1 << 48
"""Between the seeds of a mixture's sources, which draw apart from each other."""
_EMPTY_PASSES = 64
"""So many passes without an example mean that there will be none."""


@dataclass(frozen=True)
class PairSettings:
    """How examples are made of a text: which sentences pair up, what is hidden, and when passes repeat.

    ``unit``: pairs are parts of chunks, by the rule, or single sentences, of which the rule's task and length count.
    ``static_copies`` is the number of passes after which pairs and masks repeat; None: never.
    """

    pairs: PairRule
    masks: MaskRule
    vocabulary: MaskVocabulary
    unit: Literal["chunks", "sentences"] = "chunks"
    static_copies: int | None = None


class ExampleSource:
    """The examples of a text, pass after pass, each pass in an order of its own."""

    def __init__(
        self, split: Split, start: int, stop: int, settings: PairSettings, *, seed: int, number: int = 0
    ) -> None:
        assert split.sentence_starts is not None, "the text was stored as sentences"
        self._seed = seed + number * _SOURCE
        self._ids, self._tokenizer, self._settings = split.ids, split.tokenizer, settings
        self._start, self._stop = start, stop
        self._sentences, self._documents = (
            starts[(starts >= start) & (starts < stop)] - start
            for starts in (split.sentence_starts, split.document_starts)
        )
        self._ends = [0]
        """How many examples there are before each pass, and after the last that was planned."""
        self._counts: dict[int, int] = {}
        self._plans: dict[int, tuple[Pairs, NDArray[np.int64]]] = {}

    def locate(self, position: int) -> tuple[int, int]:
        """Tell in which pass, and where in it, the example at a position of the endless row of passes is."""
        while position >= self._ends[-1]:
            self._ends.append(self._ends[-1] + self.count(len(self._ends) - 1))
            if len(self._ends) > _EMPTY_PASSES and self._ends[-1] == self._ends[-1 - _EMPTY_PASSES]:
                raise DataError(
                    "no document gives a pair of sentences: each chunk is a single one; keep those (objective.alone = "
                    "keep), or add text"
                )
        epoch = int(np.searchsorted(self._ends, position, side="right")) - 1
        return epoch, position - self._ends[epoch]

    def count(self, epoch: int) -> int:
        """Count the examples of a pass."""
        copy = self._copy(epoch)
        if copy not in self._counts:
            self._counts[copy] = len(self._plan(epoch)[1])
        return self._counts[copy]

    def passes(self, n_examples: int) -> int:
        """Count the examples of as many whole passes as give ``n_examples``, one at least."""
        epoch, _ = self.locate(max(n_examples - 1, 0))
        return self._ends[epoch + 1]

    def length(self, position: int) -> int:
        """Count the tokens of an example."""
        epoch, place = self.locate(position)
        pairs, order = self._plan(epoch)
        index = order[place]
        n_first, n_second = pairs.a_stop[index] - pairs.a_start[index], pairs.b_stop[index] - pairs.b_start[index]
        return int(n_first + n_second + (3 if n_second else 2))

    def example(self, position: int) -> Example:
        """Make an example."""
        epoch, place = self.locate(position)
        pairs, order = self._plan(epoch)
        index = int(order[place])
        ids, segments = self._assemble(pairs, index)
        settings = self._settings
        starts_word = None if settings.masks.unit == "token" else self._tokenizer.starts_word(ids)
        draws = generator(self._seed, Purpose.MASKS, self._copy(epoch), index)
        masked = mask_tokens(ids, starts_word, settings.masks, settings.vocabulary, draws)
        return Example(masked.ids, segments, masked.places, masked.targets, int(pairs.label[index]))

    def _assemble(self, pairs: Pairs, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        first = np.asarray(self._ids[self._start + pairs.a_start[index] : self._start + pairs.a_stop[index]])
        second = np.asarray(self._ids[self._start + pairs.b_start[index] : self._start + pairs.b_stop[index]])
        cls_id, sep_id = self._tokenizer.cls_id, self._tokenizer.sep_id
        end = [sep_id] if len(second) else []
        ids = np.concatenate([[cls_id], first, [sep_id], second, end]).astype(np.int64)
        segments = (np.arange(len(ids)) >= len(first) + 2).astype(np.int64)
        return ids, segments

    def _plan(self, epoch: int) -> tuple[Pairs, NDArray[np.int64]]:
        copy = self._copy(epoch)
        if epoch not in self._plans:
            # Remembered for speed alone, the last two: a batch may end one pass and begin the next.
            self._plans = {known: plan for known, plan in self._plans.items() if known == epoch - 1}
            pairs = self._pairs(copy)
            order = np.argsort(roots(self._seed, Purpose.EXAMPLE_ORDER, epoch, pairs.n_pairs), kind="stable")
            self._plans[epoch] = pairs, order
        return self._plans[epoch]

    def _pairs(self, copy: int) -> Pairs:
        rule, n_tokens = self._settings.pairs, self._stop - self._start
        if self._settings.unit == "chunks":
            return make_pairs(self._sentences, self._documents, n_tokens, rule, seed=self._seed, epoch=copy)
        pairs = pairs_of_sentences(self._sentences, n_tokens, rule.max_len, seed=self._seed, epoch=copy)
        return pairs if rule.task == "nsp" else pairs._replace(label=np.full_like(pairs.label, UNLABELLED))

    def _copy(self, epoch: int) -> int:
        copies = self._settings.static_copies
        return epoch if copies is None else epoch % copies


class PairBatches:
    """The examples that a run trains on: ``batch_sequences`` a step, packed into rows of at most ``context`` tokens.

    Every example of a pass is used once before the next pass begins. In a weighted mixture each source has passes of
    its own, and its share of every stretch of examples.

    Raises ConfigError where the vocabulary lacks what masked objectives need, DataError where a source has no example.
    """

    def __init__(self, split: Split, settings: PairSettings, *, context: int, batch_sequences: int, seed: int) -> None:
        check_masking(split.tokenizer, f"the tokenizer of {' and '.join(split.sources)}")
        self.split, self.context, self.batch_sequences = split, context, batch_sequences
        bounds = [0, len(split.ids)] if split.weights is None else [*split.store.source_starts.tolist(), len(split.ids)]
        self._sources = [
            ExampleSource(split, *each, settings, seed=seed, number=number)
            for number, each in enumerate(pairwise(bounds))
        ]
        weights = np.array([1.0] if split.weights is None else split.weights)
        self._shares = weights / np.cumsum(weights[::-1])[::-1]
        self._pad_id = _needed(split.tokenizer, "pad_id")

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PairBatch:
        """Give examples ``rank``, ``rank + world``, ... of the global batch of optimizer step ``step`` (0-based)."""
        positions = range(step * self.batch_sequences + rank, (step + 1) * self.batch_sequences, world)
        return self.examples(positions)

    def n_tokens(self, step: int) -> int:
        """Count the tokens of the global batch, the special ones included, padding not."""
        positions = range(step * self.batch_sequences, (step + 1) * self.batch_sequences)
        return sum(source.length(position) for source, position in map(self._of, positions))

    def examples(self, positions: range) -> PairBatch:
        """Give the examples at positions of the endless row of passes."""
        examples = [source.example(position) for source, position in map(self._of, positions)]
        return pack(examples, width=self.context, pad_id=self._pad_id)

    def n_in_passes(self, n_examples: int) -> int:
        """Count the examples of as many whole passes over the first source as give so many, one at least."""
        return self._sources[0].passes(n_examples)

    def _of(self, position: int) -> tuple[ExampleSource, int]:
        # Each source takes its share of what those before it leave, as evenly as whole examples allow.
        for source, share in zip(self._sources, self._shares, strict=True):
            before = int(position * share)
            if share >= 1.0 or int((position + 1) * share) > before:
                return source, before if share < 1.0 else position
            position -= before
        raise AssertionError("the last source takes all that is left")


def _needed(tokenizer: Tokenizer, name: str) -> int:
    value = getattr(tokenizer, name)
    assert isinstance(value, int), f"a checked vocabulary has {name}"
    return value
