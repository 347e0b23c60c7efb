"""Token masks, replacements, and masked examples packed into rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from sublayer.config.objective import MaskedObjective
from sublayer.data.arrays import Bools, Ints
from sublayer.data.batches import IGNORED
from sublayer.data.packing import PackedBatch, PackedSequence, Unpacked, pack_examples

Unit = Literal["token", "word", "ngram"]
_DEFAULTS = MaskedObjective()


@dataclass(frozen=True)
class MaskRule:
    """Masking rule: number of predicted tokens, units, and replacements.

    Defaults are the recipe's. A predicted token becomes the mask with ``p_mask``, a random one with
    ``p_random``, else it stays.

    Source: Lan et al. 2020, sec. 3.1 and appendix; as
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

    def n_predictions(self, n_tokens: int, n_maskable: int) -> int:
        """Count the tokens to predict: the share, rounded half to even, at least 1, at most all."""
        n_counted = n_tokens if self.counts == "all" else n_maskable
        n_predictions = max(1, round(self.share * n_counted))
        if self.most is not None:
            n_predictions = min(n_predictions, self.most)
        return min(n_predictions, n_maskable)


@dataclass(frozen=True, eq=False)
class MaskVocabulary:
    """Ids of a vocabulary required for masking."""

    mask_id: int
    is_maskable: Bools
    """True for the ids that may be predicted, [V]: special tokens may not."""
    random_low: int = 0
    """A random token is uniform over the ids from this one on: ALBERT draws from all (0), Macaron
    BERT leaves out the special ones, which come first."""


class MaskedSequence(NamedTuple):
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
) -> MaskedSequence:
    """Choose the tokens of a sequence [T] to predict; mask, replace or keep each at random.

    Whole words, and n-grams of words, are chosen in random order. An n-gram that exceeds the
    remaining predictions is shortened word by word, then skipped; overlaps with chosen words are
    skipped, too: the number may not be reached. n-grams may cross a special token, which is never
    masked. Without maskable tokens nothing is predicted. ``starts_word`` [T] is True at the first
    token of each word; the unit ``token`` ignores it.

    Departure from ALBERT as released: a piece after a special token begins a word, whatever it is
    (there, it belongs to the last word before a separator).
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
        starts = starts_word.copy()  # [T]: also the first, and whatever follows a special one
        starts[:1] = True
        starts[1:] |= ~is_maskable[:-1]
        word_bounds = np.append(np.flatnonzero(starts[maskable]), len(maskable))  # [W+1]
        chosen = _choose_words(word_bounds, n_predictions, rule, generator)
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
    return MaskedSequence(seen, positions, ids[positions])


def _choose_words(
    bounds: Ints, n_predictions: int, rule: MaskRule, generator: np.random.Generator
) -> Ints:
    """Choose n-grams of words; return the indices of their tokens among the maskable ones.

    Word w is maskable tokens ``bounds[w]`` to ``bounds[w + 1]``.
    """
    n_words = len(bounds) - 1
    order = _order(n_words, generator).tolist()
    # The number of words of the n-gram that begins at each word.
    weights = 1 / np.arange(1, (rule.longest if rule.unit == "ngram" else 1) + 1)
    shares = np.cumsum(weights[::-1] if rule.favours == "long" else weights)
    drawn = generator.random(n_words)
    lengths = 1 + np.searchsorted(shares[:-1] / shares[-1], drawn, side="right")
    sizes: list[int] = lengths.tolist()
    edges: list[int] = bounds.tolist()
    is_chosen = bytearray(n_words)
    n_left = n_predictions
    # In Python, not arrays: a word depends on the choices before it.
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
    return np.flatnonzero(np.repeat(chosen_words, np.diff(bounds)))  # among [M]


def _order(count: int, generator: np.random.Generator) -> Ints:
    # Doubles and a stable sort only: numpy does not promise that shuffles stay the same from
    # version to version.
    return np.argsort(generator.random(count), kind="stable")


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

    At least one example, none longer than ``width``. Rows are padded with ``pad_id`` to the
    longest; rows of a single example come first. An example is represented by its first token.
    """
    unpacked = []
    for number, example in enumerate(examples):
        targets = np.full(len(example.ids), IGNORED, dtype=np.int64)
        targets[example.positions] = example.targets
        sequence = PackedSequence(example.ids, example.segments, readout=0, targets=targets)
        unpacked.append(Unpacked([sequence], example.label, 1.0, number))
    return pack_examples(unpacked, width=width, written_width=0, pad_id=pad_id)
