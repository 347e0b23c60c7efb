"""The examples of a text for masked objectives, pass after pass."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from sublayer.data.arrays import Ints, TokenIds
from sublayer.data.counter_rng import Purpose, generator
from sublayer.data.epochs import LastEpochs
from sublayer.data.masked.masking import MaskRule, MaskVocabulary, mask_tokens
from sublayer.data.masked.packing import Example
from sublayer.data.masked.segment_pairs import make_pairs
from sublayer.data.masked.segments import UNLABELLED, PairRule, Pairs
from sublayer.data.masked.sentence_pairs import pairs_of_sentences
from sublayer.data.parallel.batch_plan import BatchRule
from sublayer.data.random_order import random_order
from sublayer.data.split import Split
from sublayer.errors import DataError

_SOURCE = 1 << 48
"""Offset between the seeds of a mixture's sources, which draw independently."""
_SPECIAL = 3
"""Tokens of a pair beside its texts: the class token, and the end of each."""
_EMPTY_PASSES = 64
"""So many passes without an example mean that there will be none."""


@dataclass(frozen=True)
class PairSettings:
    """How examples are made of a text: which sentences pair up, what is masked, what repeats."""

    pairs: PairRule
    masks: MaskRule
    vocabulary: MaskVocabulary
    unit: Literal["chunks", "sentences"] = "chunks"
    """Pairs are parts of chunks, by the rule, or single sentences, of which the rule's task and
    length count."""
    static_copies: int | None = None
    """Number of passes after which pairs and masks repeat; None: never."""
    steps: BatchRule | None = None
    """How the pairs of a pass are filled into steps by their tokens; None: a step has as many pairs
    as it is asked for."""


class _Pass(NamedTuple):
    """The examples of a pass, in the order of the text, and the order in which they are used."""

    pairs: Pairs
    order: Ints
    step_ends: Ints
    """Where each step ends in that order, of steps that are filled with tokens."""


class _Location(NamedTuple):
    """Where an example is: its pass, the pass' pairs, and its index among them."""

    epoch: int
    pairs: Pairs
    pair_index: int


class ExampleSource:
    """The examples of a text, pass after pass, each pass in an order of its own.

    The text is the tokens of a split from position ``start`` to ``stop``; ``number`` is that of the
    source that it is, from 0, by which sources draw independently. A position is that of an example
    in the endless row of passes, from 0.

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
        self._ends = [0]
        """The number of examples before each pass, and after the last that was planned."""
        self._counts: dict[int, int] = {}
        self._step_ends = [0]
        """The number of steps before each pass, and after the last that was planned."""
        self._passes = LastEpochs[_Pass]()

    def locate(self, position: int) -> tuple[int, int]:
        """Return the pass and the index in it of a position in the endless row of passes."""
        ends = self._ends
        while position >= ends[-1]:
            epoch = len(ends) - 1
            end = ends[-1] + self.count(epoch)
            ends.append(end)
            if len(ends) > _EMPTY_PASSES and end == ends[-1 - _EMPTY_PASSES]:
                raise DataError(
                    "no document gives a pair of sentences: each chunk is a single one; keep those "
                    "(objective.single_sentence = keep), or add text"
                )
        epoch = bisect_right(ends, position) - 1
        return epoch, position - ends[epoch]

    def count(self, epoch: int) -> int:
        """Count the examples of a pass, 0-based; it may have none."""
        copy = self._copy(epoch)
        if copy not in self._counts:
            self._counts[copy] = self._pass(epoch).pairs.n_pairs
        return self._counts[copy]

    def passes(self, n_examples: int) -> int:
        """Count the examples of as many whole passes as give ``n_examples``, one at least."""
        epoch, _ = self.locate(max(n_examples - 1, 0))
        return self._ends[epoch + 1]

    def step(self, step: int) -> range:
        """Return the positions of the examples of a step, 0-based, that is filled with tokens."""
        ends = self._step_ends
        while step >= ends[-1]:
            epoch = len(ends) - 1
            ends.append(ends[-1] + len(self._pass(epoch).step_ends))
        epoch = bisect_right(ends, step) - 1
        # Passes are planned one after another: their examples are counted on the way.
        while len(self._ends) <= epoch:
            self.locate(self._ends[-1])
        bounds = [0, *self._pass(epoch).step_ends]
        index = step - ends[epoch]
        first = self._ends[epoch]
        return range(first + int(bounds[index]), first + int(bounds[index + 1]))

    def length(self, position: int) -> int:
        """Count the tokens of an example, the special ones included."""
        _, pairs, index = self._find(position)
        n_first = pairs.a_stop[index] - pairs.a_start[index]
        n_second = pairs.b_stop[index] - pairs.b_start[index]
        n_special = _SPECIAL if n_second else _SPECIAL - 1
        return int(n_first + n_second + n_special)

    def start(self, position: int) -> int:
        """Return where in the text an example's first segment begins."""
        _, pairs, index = self._find(position)
        return self._start + int(pairs.a_start[index])

    def example(self, position: int) -> Example:
        """Build an example: a pure function of the seed and its position."""
        epoch, pairs, index = self._find(position)
        ids, segments = self._assemble(pairs, index)
        settings = self._settings
        starts_word = None
        if settings.masks.unit != "token":
            starts_word = self._tokenizer.starts_word(ids)
        draws = generator(self._seed, Purpose.MASKS, self._copy(epoch), index)
        masked = mask_tokens(ids, starts_word, settings.masks, settings.vocabulary, draws)
        return Example(
            ids=masked.ids,
            segments=segments,
            positions=masked.positions,
            targets=masked.targets,
            label=int(pairs.label[index]),
        )

    def _find(self, position: int) -> _Location:
        epoch, index_in_pass = self.locate(position)
        pairs, order, _ = self._pass(epoch)
        index = int(order[index_in_pass])
        return _Location(epoch, pairs, index)

    def _assemble(self, pairs: Pairs, index: int) -> tuple[Ints, Ints]:
        """Return an example's ids and segments [T]: the class token, A, an end, B, an end."""
        first = self._tokens(pairs.a_start[index], pairs.a_stop[index])
        second = self._tokens(pairs.b_start[index], pairs.b_stop[index])
        class_token = [self._tokenizer.cls_id]
        first_end = [self._tokenizer.sep_id]
        second_end = first_end if len(second) else []
        ids = np.concatenate([class_token, first, first_end, second, second_end])
        # The first segment has the class token and its own end with it.
        n_in_first = len(first) + 2
        is_second = np.arange(len(ids)) >= n_in_first
        segments = is_second.astype(np.int64)
        return ids.astype(np.int64), segments

    def _tokens(self, start: np.int64, stop: np.int64) -> TokenIds:
        # Pairs count from the beginning of the source.
        first = self._start + start
        limit = self._start + stop
        return np.asarray(self._ids[first:limit])

    def _pass(self, epoch: int) -> _Pass:
        return self._passes.get(epoch, self._make_pass)

    def _make_pass(self, epoch: int) -> _Pass:
        pairs = self._pairs(self._copy(epoch))
        rule = self._settings.steps
        if rule is None:
            order = random_order(self._seed, Purpose.EXAMPLE_ORDER, epoch, pairs.n_pairs)
            return _Pass(pairs, order, step_ends=np.zeros(0, dtype=np.int64))
        lengths = pairs.a_length + pairs.b_length + _SPECIAL
        # Of a single side, which the rule takes for both.
        steps = rule.steps(np.stack([lengths, lengths], 1), seed=self._seed, epoch=epoch)
        step_ends = np.cumsum([len(step) for step in steps])
        return _Pass(pairs, np.concatenate(steps), step_ends)

    def _pairs(self, copy: int) -> Pairs:
        rule = self._settings.pairs
        n_tokens = self._stop - self._start
        if self._settings.unit == "chunks":
            return make_pairs(
                self._sentences, self._documents, n_tokens, rule, seed=self._seed, epoch=copy
            )
        pairs = pairs_of_sentences(
            self._sentences, n_tokens, rule.max_len, seed=self._seed, epoch=copy
        )
        if rule.task == "nsp":
            return pairs
        unlabelled = np.full_like(pairs.label, UNLABELLED)
        return pairs._replace(label=unlabelled)

    def _copy(self, epoch: int) -> int:
        """Return the number of the pass whose pairs and masks a pass has."""
        copies = self._settings.static_copies
        if copies is None:
            return epoch
        return epoch % copies


def _starts_within(starts: Ints, start: int, stop: int) -> Ints:
    """Return the starts that lie in a source, counted from its beginning."""
    first, last = np.searchsorted(starts, (start, stop))
    within = starts[first:last]
    # Not copied where there is nothing to subtract: it may be mapped.
    return within - start if start else within
