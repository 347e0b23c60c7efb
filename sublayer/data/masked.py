"""Masked examples: masks, replacements, and batches as a pure function of (seed, step)."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch

from sublayer.config.objective import MaskedObjective
from sublayer.data.batches import IGNORED, PackedBatch, PackedSequence, Unpacked, pack_examples
from sublayer.data.counter_rng import Epochs, Purpose, generator, random_order
from sublayer.data.sentence_pairs import (
    N_SPECIAL,
    UNLABELLED,
    PairRule,
    Pairs,
    make_pairs,
    pairs_of_sentences,
)
from sublayer.data.store import Split
from sublayer.data.translation_batches import BatchRule
from sublayer.files.arrays import Bools, Ints
from sublayer.numbers import count

Unit = Literal["token", "word", "ngram"]
_DEFAULTS = MaskedObjective()


@dataclass(frozen=True)
class MaskRule:
    """Masking rule: number of predicted tokens, units, and replacements.

    Defaults are the recipe's. A predicted token is replaced by the mask with probability
    ``p_mask``, by a random token with ``p_random``, and kept otherwise.

    Source: Lan et al. 2020, sec. 3.1 and appendix; as released. Macaron BERT: Lu et al. 2019; as
    released.
    """

    unit: Unit = _DEFAULTS.masking
    share: float = _DEFAULTS.mask_share
    """Fraction of tokens to predict, among those that ``counts`` names; above 0, at most 1."""
    most: int | None = _DEFAULTS.max_predictions
    """Maximum number of predictions in a sequence; None: no maximum."""
    longest: int = _DEFAULTS.max_ngram
    """Maximum number of words in an n-gram."""
    favours: Literal["short", "long"] = _DEFAULTS.ngram_favours
    """Distribution of n, from 1 to ``longest``: ``short`` is proportional to 1/n, ``long`` has the
    same probabilities in reverse order."""
    p_mask: float = _DEFAULTS.p_mask
    p_random: float = _DEFAULTS.p_random
    counts: Literal["all", "maskable"] = _DEFAULTS.mask_base
    """Tokens to which ``share`` applies: all of the sequence, special ones included (ALBERT), or
    the maskable ones (Macaron BERT)."""
    predicts_first: bool = _DEFAULTS.predict_first
    """Whether the first position (the class token) is predicted as well, unmasked, in addition to
    ``share`` and ``most``."""

    def n_predictions(self, n_tokens: int, n_maskable: int) -> int:
        """Count the tokens to predict: the share, rounded half to even, at least 1, at most all."""
        n_counted = n_tokens if self.counts == "all" else n_maskable
        n_predictions = max(1, round(self.share * n_counted))
        if self.most is not None:
            n_predictions = min(n_predictions, self.most)
        return min(n_predictions, n_maskable)


@dataclass(frozen=True, eq=False)
class MaskVocabulary:
    """Ids of a vocabulary that masking needs."""

    mask_id: int
    is_maskable: Bools
    """True for ids that may be predicted, [V]: all but special tokens."""
    random_low: int = 0
    """First id of the range from which random tokens are drawn uniformly: 0 for ALBERT; Macaron
    BERT excludes the special tokens, which come first."""


def mask_tokens(
    ids: Ints,
    starts_word: Bools | None,
    rule: MaskRule,
    vocabulary: MaskVocabulary,
    generator: np.random.Generator,
) -> tuple[Ints, Ints, Ints]:
    """Choose the tokens of a sequence [T] to predict; mask, replace or keep each at random.

    Whole words, or n-grams of words, are chosen in random order. An n-gram with more tokens than
    predictions are left is shortened word by word; if even its first word has more, it is skipped,
    like an n-gram that overlaps a chosen word. So fewer tokens than planned may be chosen. n-grams
    may cross a special token, which is never masked. Without maskable tokens nothing is predicted.
    ``starts_word`` [T] is True at the first token of each word; the unit ``token`` ignores it.

    Returns the masked sequence [T], the predicted positions [P], ascending, and their targets [P].

    Departure from ALBERT as released: a piece after a special token always begins a word (there, it
    belongs to the last word before a separator).
    """
    is_maskable = vocabulary.is_maskable[ids]  # [T]
    if rule.predicts_first:
        is_maskable[:1] = False
    maskable = np.flatnonzero(is_maskable)  # [M]: their positions
    n_predictions = rule.n_predictions(len(ids), len(maskable))
    if rule.unit == "token":
        chosen = _order(len(maskable), generator)[:n_predictions]  # [P]: among maskable tokens
    else:
        assert starts_word is not None, "the vocabulary was checked"
        starts = starts_word.copy()  # [T]: also the first token, and each after a special one
        starts[:1] = True
        starts[1:] |= ~is_maskable[:-1]
        # Word w is maskable tokens ``bounds[w]`` to ``bounds[w + 1]``.
        bounds = np.append(np.flatnonzero(starts[maskable]), len(maskable))  # [W+1]
        n_words = len(bounds) - 1
        order = _order(n_words, generator).tolist()
        # Number of words of the n-gram that begins at each word.
        weights = 1 / np.arange(1, (rule.longest if rule.unit == "ngram" else 1) + 1)
        shares = np.cumsum(weights[::-1] if rule.favours == "long" else weights)
        drawn = generator.random(n_words)
        lengths = 1 + np.searchsorted(shares[:-1] / shares[-1], drawn, side="right")
        sizes: list[int] = lengths.tolist()
        edges: list[int] = bounds.tolist()
        is_chosen = bytearray(n_words)
        n_left = n_predictions
        # A Python loop, not arrays: each choice depends on those before it.
        for word in order:
            if n_left == 0:
                break
            start = edges[word]
            stop = min(word + sizes[word], n_words)
            while stop > word and edges[stop] - start > n_left:
                stop -= 1
            if stop > word and not any(is_chosen[word:stop]):
                is_chosen[word:stop] = b"\1" * (stop - word)
                n_left -= edges[stop] - start
        chosen_words = np.frombuffer(is_chosen, dtype=np.bool_)  # [W]
        chosen = np.flatnonzero(np.repeat(chosen_words, np.diff(bounds)))  # among [M]
    positions = np.sort(maskable[chosen])
    tokens = ids[positions]
    kinds, values = generator.random((2, len(positions)))
    n_candidates = len(vocabulary.is_maskable) - vocabulary.random_low
    random_ids = vocabulary.random_low + (values * n_candidates).astype(np.int64)
    unmasked = np.where(kinds < rule.p_mask + rule.p_random, random_ids, tokens)
    seen = ids.copy()
    seen[positions] = np.where(kinds < rule.p_mask, vocabulary.mask_id, unmasked)
    if rule.predicts_first:
        # One, unless the sequence is empty.
        positions = np.concatenate([np.arange(min(1, len(ids))), positions])
    return seen, positions, ids[positions]


def _order(count: int, generator: np.random.Generator) -> Ints:
    # Doubles and a stable sort only: numpy may change its shuffles from version to version.
    return np.argsort(generator.random(count), kind="stable")


@dataclass(frozen=True)
class Example:
    """A masked pair of texts: token ids, the segment of each token, and its targets."""

    ids: Ints
    """Input ids, special and replaced ones included: [T]."""
    segments: Ints
    """0 for tokens of the first text, 1 for tokens of the second: [T]."""
    positions: Ints
    """Predicted positions, ascending: [P]."""
    targets: Ints
    """Original ids at the predicted positions: [P]."""
    label: int
    """0 if the second text follows the first, 1 if not; -1: not predicted."""


def pack(examples: Sequence[Example], *, width: int, pad_id: int) -> PackedBatch:
    """Pack examples into rows of at most ``width`` tokens by best fit, the longest first.

    There is at least one example, and none is longer than ``width``. Rows are padded with
    ``pad_id`` to the longest; rows of a single example come first. The first token of each example
    represents it.
    """
    unpacked = []
    for number, example in enumerate(examples):
        targets = np.full(len(example.ids), IGNORED, dtype=np.int64)
        targets[example.positions] = example.targets
        sequence = PackedSequence(example.ids, example.segments, readout=0, targets=targets)
        unpacked.append(Unpacked([sequence], example.label, 1.0, number))
    return pack_examples(unpacked, width=width, written_width=0, pad_id=pad_id)


_SOURCE = 1 << 48
"""Offset between the seeds of a mixture's sources, which draw independently."""


@dataclass(frozen=True)
class PairSettings:
    """Settings of masked examples: sentence pairs, masks, and their repetition."""

    pairs: PairRule
    masks: MaskRule
    vocabulary: MaskVocabulary
    unit: Literal["chunks", "sentences"] = "chunks"
    """Segments of a pair: parts of a chunk, by all of ``pairs``, or single sentences, by its task
    and length alone."""
    static_copies: int | None = None
    """Number of passes after which pairs and masks repeat; None: never."""
    steps: BatchRule | None = None
    """Rule that fills each step up to a number of tokens; None: a fixed number of pairs a step."""


class _Pass(NamedTuple):
    """Examples of a pass in text order, and their order of use."""

    pairs: Pairs
    order: Ints
    step_ends: Ints
    """End of each step in that order, where steps are filled by tokens."""


class ExampleSource:
    """Examples of a text, pass after pass, in a new order per pass.

    The text is the tokens of a split from ``start`` to ``stop``. ``number`` is the source's number,
    from 0, so that sources draw independently. Positions number the examples through the endless
    sequence of passes, from 0.

    Methods that look up an example raise DataError where no pass has one, where the text has no
    sentence, or where it lacks a second document to take a B from.
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
        """Number of steps before each planned pass, and after the last of them."""
        self._passes = Epochs(
            self._make_pass,
            lambda plan: plan.pairs.n_pairs,
            "no document gives a pair of sentences, since each chunk is a single sentence: keep "
            "single sentences (objective.single_sentence = keep), or add text",
            same=self._copy,
        )

    def passes(self, n_examples: int) -> int:
        """Count the examples of the fewest full passes, at least one, that have ``n_examples``."""
        epoch, _ = self._passes.locate(max(n_examples - 1, 0))
        return self._passes.ends[epoch + 1]

    def step(self, step: int) -> range:
        """Return the positions of the examples of a step (0-based), where tokens fill the steps."""
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
        # Positions of pairs count from the beginning of the source.
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
        seen, positions, targets = mask_tokens(
            ids, starts_word, rule, self._settings.vocabulary, draws
        )
        return Example(
            ids=seen,
            segments=segments,
            positions=positions,
            targets=targets,
            label=int(pairs.label[index]),
        )

    def _find(self, position: int) -> tuple[int, Pairs, int]:
        """Return an example's pass, the pairs of that pass, and the example's index among them."""
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
        # Pairs have a single length, which serves the rule as that of both sides.
        steps = settings.steps.steps(np.stack([lengths, lengths], 1), seed=self._seed, epoch=epoch)
        return _Pass(pairs, np.concatenate(steps), np.cumsum([len(step) for step in steps]))

    def _copy(self, epoch: int) -> int:
        """Return the pass whose pairs and masks a pass reuses: itself, if not static."""
        copies = self._settings.static_copies
        return epoch if copies is None else epoch % copies


def _starts_within(starts: Ints, start: int, stop: int) -> Ints:
    """Return the starts inside a source, relative to its beginning."""
    first, last = np.searchsorted(starts, (start, stop))
    within = starts[first:last]
    # Not copied at offset 0: it may be memory-mapped.
    return within - start if start else within


_MANY_SINGLE = 0.1
"""Share of documents with a single sentence from which a note reports them."""


def count_single_sentences(split: Split) -> tuple[int, int]:
    """Count a split's documents with a single sentence, and all documents."""
    assert split.sentence_starts is not None, "the text was stored as sentences"
    firsts = np.searchsorted(split.sentence_starts, split.document_starts)
    n_sentences = np.diff(firsts, append=len(split.sentence_starts))
    return int((n_sentences == 1).sum()), len(split.document_starts)


class PairBatches:
    """Batches of ``batch_sequences`` examples, packed into rows of at most ``context`` tokens.

    Every example of a pass is used once before the next pass begins. In a weighted mixture each
    source has separate passes, and its share of every stretch of examples. Where the settings fill
    steps by tokens, which weighted mixtures do not support, the number of examples per step varies,
    and each pass begins with a new step.

    Raises ConfigError where the vocabulary lacks the special tokens of masked objectives. Methods
    raise DataError where a source has no example.
    """

    lengths_vary: ClassVar[bool] = False

    def __init__(
        self, split: Split, settings: PairSettings, *, context: int, batch_sequences: int, seed: int
    ) -> None:
        split.tokenizer.check_masking(f"the tokenizer of {' and '.join(split.sources)}")
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
        # Share of each source among the examples that earlier sources leave: the last takes all.
        self._shares = weights / np.cumsum(weights[::-1])[::-1]
        self._sources = [
            ExampleSource(split, start, stop, settings, seed=seed, number=number)
            for number, (start, stop) in enumerate(pairwise(bounds.tolist()))
        ]

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Return rows ``rank``, ``rank + world``, ... of the global batch of a step (0-based).

        Processes beyond the number of a step's examples get its first example, with weight 0.
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
        """Count the tokens of the global batch, special ones included, padding not."""
        return sum(source.length(at) for source, at in self._located(self._positions(step)))

    def notes(self) -> list[str]:
        """Return a note on documents of a single sentence, if they are many or omitted."""
        if self._rule.task == "none" or self._is_of_sentences:
            return []
        n_single, n_documents = count_single_sentences(self.split)
        is_dropped = self._rule.alone == "drop"
        if not n_single or (not is_dropped and n_single < _MANY_SINGLE * n_documents):
            return []
        happens = "are left out" if is_dropped else "give no pair of consecutive texts"
        return [
            f"{n_single:,} of {count(n_documents, 'document')} of the train split have a single "
            f"sentence, and {happens}"
        ]

    def examples(self, positions: range) -> PackedBatch:
        """Return the examples at positions of the endless sequence of passes, packed."""
        return self.packed(self.make(positions))

    def make(self, positions: range) -> list[Example]:
        """Return the examples at positions of the endless sequence of passes, unpacked."""
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
        """Count the examples of the fewest full passes over the first source with that many."""
        return self._sources[0].passes(n_examples)

    def _positions(self, step: int) -> range:
        """Return the positions of a step's examples in the endless sequence of passes."""
        if self._fills_steps:
            (source,) = self._sources
            return source.step(step)
        first = step * self.batch_sequences
        return range(first, first + self.batch_sequences)

    def _located(self, positions: range) -> Iterator[tuple[ExampleSource, int]]:
        """Yield the source of each position, and the position within the source."""
        for position in positions:
            left = position
            # A source takes its share of the remaining examples, as evenly as possible.
            for source, share in zip(self._sources, self._shares, strict=True):
                if share >= 1.0:
                    yield source, left
                    break
                n_before = int(left * share)
                if int((left + 1) * share) > n_before:
                    yield source, n_before
                    break
                left -= n_before
            else:
                raise AssertionError("the last source must take all remaining examples")
