"""Masks of tokens, what replaces them, and masked examples packed into rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np

from sublayer.config.objective import MaskedObjective
from sublayer.data.arrays import Bools, Ints
from sublayer.data.batches import IGNORED
from sublayer.data.packing import PackedBatch, PackedSequence, Unpacked, best_fit, pack_examples
from sublayer.errors import ConfigError

Unit = Literal["token", "word", "ngram"]
_DEFAULTS = MaskedObjective()


@dataclass(frozen=True)
class MaskRule:
    """The rule of masks: the number of predicted tokens, their units, and their replacements.

    Defaults are the recipe's. A predicted token becomes the mask with ``p_mask``, a random one with
    ``p_random``, else it stays.

    Raises ConfigError for a number out of range. Source: Lan et al. 2020, sec. 3.1 and appendix; as
    released. Macaron BERT: Lu et al. 2019; as released.
    """

    unit: Unit = _DEFAULTS.masking
    share: float = _DEFAULTS.mask_share
    """Tokens that are predicted, of those that ``counts`` says; above 0, at most 1."""
    most: int | None = _DEFAULTS.max_predictions
    """The most predictions of a sequence; None: as many as the share is."""
    longest: int = _DEFAULTS.max_ngram
    """Words of the longest n-gram."""
    favours: Literal["short", "long"] = _DEFAULTS.ngram_favours
    """An n-gram has 1 to ``longest`` words with a probability proportional to 1/n, or, where long
    ones are favoured, to the same numbers in reverse order."""
    p_mask: float = _DEFAULTS.p_mask
    p_random: float = _DEFAULTS.p_random
    counts: Literal["all", "maskable"] = _DEFAULTS.mask_base
    """All tokens of the sequence, special ones included (ALBERT), or the maskable ones (Macaron
    BERT)."""
    predicts_first: bool = _DEFAULTS.predict_first
    """True where the first position (the class token) is predicted too, unchanged, beside the share
    and the cap."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigError(f"share = {self.share} must be above 0 and at most 1")
        if self.most is not None and self.most < 1:
            raise ConfigError(f"most = {self.most} must be at least 1; None sets no cap")
        if self.longest < 1:
            raise ConfigError(f"longest = {self.longest} must be at least 1 word")
        if self.p_mask < 0 or self.p_random < 0 or self.p_mask + self.p_random > 1:
            raise ConfigError(
                f"p_mask = {self.p_mask} and p_random = {self.p_random} must not be negative "
                "nor exceed 1 together"
            )

    def n_predictions(self, n_tokens: int, n_maskable: int) -> int:
        """Count the tokens to predict: the share, rounded half to even, at least 1, at most all."""
        n_counted = n_tokens if self.counts == "all" else n_maskable
        n_predictions = max(1, round(self.share * n_counted))
        if self.most is not None:
            n_predictions = min(n_predictions, self.most)
        return min(n_predictions, n_maskable)


@dataclass(frozen=True, eq=False)
class MaskVocabulary:
    """The ids of a vocabulary that masking needs."""

    mask_id: int
    is_maskable: Bools
    """True for the ids that may be predicted, [V]: special tokens may not."""
    random_low: int = 0
    """A random token is uniform over the ids from this one on: ALBERT draws from all (0), Macaron
    BERT leaves out the special ones, which come first."""

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return len(self.is_maskable)


class Masked(NamedTuple):
    """A sequence as the model sees it, and the ``targets`` [P] at ascending ``positions`` [P]."""

    ids: Ints
    positions: Ints
    targets: Ints


def mask_tokens(
    ids: Ints,
    starts_word: Bools | None,
    rule: MaskRule,
    vocabulary: MaskVocabulary,
    generator: np.random.Generator,
) -> Masked:
    """Choose the tokens of a sequence [T] to predict; mask, replace or keep each at random.

    Whole words, and n-grams of them, are chosen in random order. What would exceed the number of
    predictions is made shorter word by word, then skipped; what meets a chosen word is skipped,
    too: the number may not be reached. n-grams may run across a special token, which is never
    masked itself. Where nothing is maskable, nothing is predicted. ``starts_word`` [T] is True at
    the first token of each word; the unit ``token`` does not read it.

    Departure from ALBERT as released: a piece after a special token begins a word, whatever it is
    (there, it belongs to the last word before a separator).

    Raises ConfigError where words are asked for and ``starts_word`` [T] is None.
    """
    is_maskable = vocabulary.is_maskable[ids]  # [T]
    if rule.predicts_first:
        is_maskable[:1] = False
    maskable = np.flatnonzero(is_maskable)  # [M]: their positions
    n_predictions = rule.n_predictions(len(ids), len(maskable))
    if rule.unit == "token":
        order = _order(len(maskable), generator)
        chosen = maskable[order[:n_predictions]]  # [P]
    else:
        if starts_word is None:
            raise ConfigError(
                "a whole-word mask needs a tokenizer with word boundaries; choose the unit token"
            )
        starts = _starts_word(starts_word, is_maskable)  # [T]
        first_tokens = np.flatnonzero(starts[maskable])  # [W]: among the maskable ones
        word_bounds = np.append(first_tokens, len(maskable))  # [W+1]
        indices = _choose_words(word_bounds, n_predictions, rule, generator)
        chosen = maskable[indices]  # [P]
    positions = np.sort(chosen)
    seen = ids.copy()
    seen[positions] = _replacements(ids[positions], rule, vocabulary, generator)
    if rule.predicts_first:
        # One, unless the sequence is empty.
        class_position = np.zeros_like(positions, shape=min(1, len(ids)))
        positions = np.concatenate([class_position, positions])
    return Masked(seen, positions, ids[positions])


def _starts_word(starts_word: Bools, is_maskable: Bools) -> Bools:
    """Mark the starts of words: also the first token and whatever follows a special one."""
    starts = starts_word.copy()
    starts[:1] = True
    starts[1:] |= ~is_maskable[:-1]
    return starts


def _choose_words(
    bounds: Ints, n_predictions: int, rule: MaskRule, generator: np.random.Generator
) -> Ints:
    """Choose n-grams of words; return the indices of their tokens among the maskable ones.

    Word w is maskable tokens ``bounds[w]`` to ``bounds[w + 1]``.
    """
    n_words = len(bounds) - 1
    order = _order(n_words, generator).tolist()
    lengths = _lengths(n_words, rule, generator).tolist()
    edges: list[int] = bounds.tolist()
    is_chosen = bytearray(n_words)
    n_left = n_predictions
    # In Python, not arrays: each word depends on what those before it left.
    for word in order:
        if n_left == 0:
            break
        start = edges[word]
        stop = min(word + lengths[word], n_words)
        while stop > word and edges[stop] - start > n_left:
            stop -= 1
        if stop > word and not any(is_chosen[word:stop]):
            is_chosen[word:stop] = b"\1" * (stop - word)
            n_left -= edges[stop] - start
    chosen_words = np.frombuffer(is_chosen, dtype=np.bool_)  # [W]
    chosen_tokens = np.repeat(chosen_words, np.diff(bounds))  # [M]
    return np.flatnonzero(chosen_tokens)


def _lengths(n_words: int, rule: MaskRule, generator: np.random.Generator) -> Ints:
    """Draw the number of words of the n-gram that begins at each word."""
    longest = rule.longest if rule.unit == "ngram" else 1
    weights = 1 / np.arange(1, longest + 1)
    if rule.favours == "long":
        weights = weights[::-1]
    shares = np.cumsum(weights)
    thresholds = shares[:-1] / shares[-1]
    drawn = generator.random(n_words)
    return 1 + np.searchsorted(thresholds, drawn, side="right")


def _replacements(
    tokens: Ints,
    rule: MaskRule,
    vocabulary: MaskVocabulary,
    generator: np.random.Generator,
) -> Ints:
    kinds, values = generator.random((2, len(tokens)))
    n_candidates = vocabulary.vocab_size - vocabulary.random_low
    offsets = (values * n_candidates).astype(np.int64)
    random_ids = vocabulary.random_low + offsets
    is_random = kinds < rule.p_mask + rule.p_random
    unmasked = np.where(is_random, random_ids, tokens)
    is_mask = kinds < rule.p_mask
    return np.where(is_mask, vocabulary.mask_id, unmasked)


def _order(count: int, generator: np.random.Generator) -> Ints:
    # Doubles and a stable sort only: numpy does not promise that shuffles stay the same from
    # version to version.
    sort_keys = generator.random(count)
    return np.argsort(sort_keys, kind="stable")


@dataclass(frozen=True)
class Example:
    """A masked pair of texts: token ids, the segment of each token, and its targets."""

    ids: Ints
    """As the model sees them, the special ones included: [T]."""
    segments: Ints
    """0 for tokens of the first text, 1 for those of the second: [T]."""
    positions: Ints
    """Those that are predicted, ascending: [P]."""
    targets: Ints
    """The ids that belong there: [P]."""
    label: int
    """1 where the second text does not follow the first, 0 where it does, -1: not predicted."""


def pack(examples: Sequence[Example], *, width: int, pad_id: int) -> PackedBatch:
    """Pack examples into rows of at most ``width`` tokens by best fit, the longest first.

    There is one at least, and none is longer than ``width``. Rows are padded with ``pad_id`` to the
    longest of them; those of a single example come first. What stands for an example is its first
    token.
    """
    unpacked = [_unpacked(example, number) for number, example in enumerate(examples)]
    return pack_examples(unpacked, width=width, written_width=0, pad_id=pad_id)


def packed_order(examples: Sequence[Example], *, width: int) -> list[int]:
    """List the indices of examples in the order in which ``pack`` puts them into its rows."""
    sizes = [(len(example.ids), 0) for example in examples]
    return list(chain.from_iterable(best_fit(sizes, (width, 0))))


def _unpacked(example: Example, number: int) -> Unpacked:
    targets = np.full(len(example.ids), IGNORED, dtype=np.int64)
    targets[example.positions] = example.targets
    sequence = PackedSequence(example.ids, example.segments, readout=0, targets=targets)
    return Unpacked([sequence], example.label, 1.0, number)
