"""Masked tokens: which places of a sequence are predicted, and what the model sees there."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sublayer.errors import ConfigError

Unit = Literal["token", "word", "ngram"]


@dataclass(frozen=True)
class MaskRule:
    """How many tokens are predicted, in which units they are chosen, and what stands in their place.

    ``share`` is of all tokens of the sequence, special ones included (ALBERT), or of the maskable ones (Macaron BERT);
    ``most`` caps the number of predictions, None does not. ``longest`` is in words: an n-gram has 1 to ``longest``,
    with a probability proportional to 1/n, or, where long ones are favoured, to the same numbers in reverse order.
    A predicted token becomes the mask with ``p_mask``, a random one with ``p_random``, else it stays.
    ``predicts_first``: the first place (the class token) is predicted too, unchanged, beside the share and the cap.

    Raises ConfigError for a number out of range.
    Source: Lan et al. 2020, sec. 3.1 and appendix; as released. Macaron BERT: Lu et al. 2019; as released.
    """

    unit: Unit = "token"
    share: float = 0.15
    most: int | None = None
    longest: int = 3
    favours: Literal["short", "long"] = "short"
    p_mask: float = 0.8
    p_random: float = 0.1
    counts: Literal["all", "maskable"] = "all"
    predicts_first: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigError(f"share = {self.share} must be above 0 and at most 1")
        if self.most is not None and self.most < 1:
            raise ConfigError(f"most = {self.most} must be at least 1; None sets no cap")
        if self.longest < 1:
            raise ConfigError(f"longest = {self.longest} must be at least 1 word")
        if self.p_mask < 0 or self.p_random < 0 or self.p_mask + self.p_random > 1:
            raise ConfigError(
                f"p_mask = {self.p_mask} and p_random = {self.p_random} must not be negative nor exceed 1 together"
            )

    def n_predictions(self, n_tokens: int, n_maskable: int) -> int:
        """Count the tokens to predict: the share, rounded as Python does (a half to even), at least 1, at most all."""
        of = n_tokens if self.counts == "all" else n_maskable
        return min(max(1, round(self.share * of)), n_maskable if self.most is None else min(self.most, n_maskable))


@dataclass(frozen=True, eq=False)
class MaskVocabulary:
    """What masking needs to know of a vocabulary.

    ``is_maskable`` [V] is True for the ids that may be predicted: special tokens may not. A random token is uniform
    over the ids from ``random_low`` on: ALBERT draws from all ids (0), Macaron BERT leaves out the special ones.
    """

    mask_id: int
    is_maskable: NDArray[np.bool_]
    random_low: int = 0

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return len(self.is_maskable)


class Masked(NamedTuple):
    """A sequence as the model sees it, and what it predicts: ``targets`` [P] at ``places`` [P], in ascending order."""

    ids: NDArray[np.int64]
    places: NDArray[np.int64]
    targets: NDArray[np.int64]


def mask_tokens(
    ids: NDArray[np.int64],
    starts_word: NDArray[np.bool_] | None,
    rule: MaskRule,
    vocabulary: MaskVocabulary,
    generator: np.random.Generator,
) -> Masked:
    """Choose the tokens of a sequence [T] that are predicted; mask, change or keep each by a draw of its own.

    Whole words, and n-grams of them, are chosen in random order. What would exceed the number of predictions is made
    shorter word by word, then skipped; what meets a chosen word is skipped, too: the number may not be reached. n-grams
    may run across a special token, which is never masked itself. Where nothing is maskable, nothing is predicted.

    Departure from ALBERT as released: a piece after a special token begins a word, whatever it is (there, it belongs to
    the last word before a separator).

    Raises ConfigError where words are asked for and ``starts_word`` [T] is None.
    """
    is_maskable = vocabulary.is_maskable[ids]  # [T]
    if rule.predicts_first:
        is_maskable[:1] = False
    maskable = np.flatnonzero(is_maskable)
    n_predictions = rule.n_predictions(len(ids), len(maskable))
    if rule.unit == "token":
        chosen = maskable[_order(len(maskable), generator)[:n_predictions]]
    else:
        if starts_word is None:
            raise ConfigError("a whole-word mask needs a tokenizer with word boundaries; choose the unit token")
        firsts = np.flatnonzero(_starts_word(starts_word, is_maskable)[maskable])
        chosen = maskable[_words(np.append(firsts, len(maskable)), n_predictions, rule, generator)]
    places = np.sort(chosen)
    seen = ids.copy()
    seen[places] = _replacements(ids[places], rule, vocabulary, generator)
    if rule.predicts_first:
        places = np.concatenate([np.zeros_like(places, shape=min(1, len(ids))), places])
    return Masked(seen, places, ids[places])


def _starts_word(starts_word: NDArray[np.bool_], is_maskable: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Let a word begin after each special token and at the beginning, too."""
    starts = starts_word.copy()
    starts[:1] = True
    starts[1:] |= ~is_maskable[:-1]
    return starts


def _words(
    bounds: NDArray[np.int64], n_predictions: int, rule: MaskRule, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Choose n-grams of words among the maskable tokens; word w has those from ``bounds[w]`` to ``bounds[w + 1]``."""
    n_words = len(bounds) - 1
    order, lengths = _order(n_words, generator).tolist(), _lengths(n_words, rule, generator).tolist()
    edges: list[int] = bounds.tolist()
    is_chosen = bytearray(n_words)
    left = n_predictions
    for word in order:
        if left == 0:
            break
        stop = min(word + lengths[word], n_words)
        while stop > word and edges[stop] - edges[word] > left:
            stop -= 1
        if stop > word and not any(is_chosen[word:stop]):
            is_chosen[word:stop] = b"\1" * (stop - word)
            left -= edges[stop] - edges[word]
    return np.flatnonzero(np.repeat(np.frombuffer(is_chosen, dtype=np.bool_), np.diff(bounds)))


def _lengths(n_words: int, rule: MaskRule, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw the words of the n-gram that begins at each word."""
    longest = rule.longest if rule.unit == "ngram" else 1
    weights = 1 / np.arange(1, longest + 1)
    shares = np.cumsum(weights if rule.favours == "short" else weights[::-1])
    return 1 + np.searchsorted(shares[:-1] / shares[-1], generator.random(n_words), side="right")


def _replacements(
    tokens: NDArray[np.int64], rule: MaskRule, vocabulary: MaskVocabulary, generator: np.random.Generator
) -> NDArray[np.int64]:
    kinds, values = generator.random((2, len(tokens)))
    span = vocabulary.vocab_size - vocabulary.random_low
    random = vocabulary.random_low + (values * span).astype(np.int64)
    return np.where(
        kinds < rule.p_mask, vocabulary.mask_id, np.where(kinds < rule.p_mask + rule.p_random, random, tokens)
    )


def _order(count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    # Doubles and a stable sort only: numpy does not promise that shuffles stay the same from version to version.
    return np.argsort(generator.random(count), kind="stable")
