"""Whole words and n-grams of them are masked together, as often as published."""

import random
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare

from sublayer.data.masked.masking import MaskRule, MaskVocabulary, mask_tokens
from sublayer.errors import ConfigError
from tests.data.masked.masked_sequences import (
    BY_WORD,
    CLS,
    MASK,
    P_LOW,
    SEP,
    VOCABULARY,
    philox,
    positions_of,
    runs,
    sequence,
)


@pytest.mark.parametrize("unit", BY_WORD)
def test_a_word_is_predicted_whole_or_not_at_all(unit):
    for seed in range(200):
        generator = philox(seed)
        ids, starts = sequence(40, generator, middle=20)
        word = np.cumsum(starts)
        masked = mask_tokens(ids, starts, MaskRule(unit=unit, share=0.3), VOCABULARY, generator)
        is_predicted = np.isin(np.arange(len(ids)), masked.positions)
        for number in np.unique(word):
            assert is_predicted[word == number].all() or not is_predicted[word == number].any()


def test_whole_words_reach_the_number_where_single_pieces_remain():
    # Of 40 words a third has one piece, so that the last place is always filled.
    for seed in range(100):
        generator = philox(seed)
        ids, starts = sequence(40, generator)
        assert len(positions_of(ids, starts, generator, unit="word")) == round(0.15 * len(ids))


def test_a_word_that_would_exceed_the_number_is_skipped():
    # round(0.15 * 14) = 2 predictions: no word of 3 pieces fits; one of 2 or of 1 does.
    ids = [CLS, *range(10, 22), SEP]
    three = np.array([True, *[True, False, False] * 4, True])
    for unit in BY_WORD:
        assert positions_of(ids, three, philox(), unit=unit) == []
    mixed = three.copy()
    mixed[12] = True
    seen = {tuple(positions_of(ids, mixed, philox(seed), unit="word")) for seed in range(50)}
    assert seen == {(10, 11), (12,)}


def test_an_ngram_that_would_exceed_the_number_is_made_shorter():
    # 0.15 * 20 = 3 predictions. Three words of 2, 2, 1 pieces: whatever the draw, 2 + 2 never fits.
    ids = [CLS, 10, 11, 12, 13, 14, *[SEP] * 14]
    starts = np.array([True, True, False, True, False, True, *[True] * 14])
    rule = {"unit": "ngram", "longest": 3, "favours": "long"}
    seen = {tuple(positions_of(ids, starts, philox(seed), **rule)) for seed in range(100)}
    assert seen == {(1, 2, 5), (3, 4, 5)}


def test_an_ngram_runs_across_a_separator_and_leaves_it_out():
    # 0.15 * 13 rounds to 2, of two words with a separator between them: both, as one bigram or as
    # two words.
    ids = [CLS, 10, SEP, 11, *[SEP] * 9]
    for seed in range(20):
        assert positions_of(ids, np.ones(13, dtype=bool), philox(seed), unit="ngram") == [1, 3]


def test_words_on_both_sides_of_a_separator_are_neighbours():
    # 40 words, each after a separator; two predictions. One bigram (1/3, unless it begins at the
    # last word), or two words that are neighbours by chance (2/40): 0.325 + 0.675 * 0.05 = 0.359.
    ids = np.array([CLS, *[10, SEP] * 40])
    is_pair = [
        np.diff(
            positions_of(
                ids, np.ones(81, dtype=bool), philox(seed), unit="ngram", most=2, longest=2
            )
        ).tolist()
        == [2]
        for seed in range(2000)
    ]
    assert abs(np.mean(is_pair) - 0.359) < 5 * np.sqrt(0.359 * 0.641 / 2000)


def test_a_piece_after_a_special_token_begins_a_word():
    # 0.15 * 7 rounds to 1: the continuation at place 4 is one piece of its own, and so is the one
    # at place 1.
    ids, starts = (
        [CLS, 10, 11, SEP, 12, SEP, SEP],
        np.array([True, False, False, True, False, True, True]),
    )
    seen = {tuple(positions_of(ids, starts, philox(seed), unit="word")) for seed in range(20)}
    assert seen == {(4,)}
    seen = {
        tuple(positions_of(ids, starts, philox(seed), unit="word", share=0.3)) for seed in range(20)
    }
    assert seen == {(4,), (1, 2)}


@pytest.mark.parametrize(
    "favours, shares", [("short", (6 / 11, 3 / 11, 2 / 11)), ("long", (2 / 11, 3 / 11, 6 / 11))]
)
def test_lengths_of_ngrams_follow_their_probabilities(favours, shares):
    ids, starts = np.full(1000, 10), np.ones(1000, dtype=bool)
    counts = np.zeros(3)
    for seed in range(2000):
        lengths = runs(
            positions_of(ids, starts, philox(seed), unit="ngram", most=3, favours=favours)
        )
        assert sum(lengths) == 3
        counts[len(lengths) - 1] += 1
    # Three predictions: 3; 2 and 1; 1 and, made shorter where it is 3, 2; 1, 1 and 1. Few touch in
    # 1,000 words.
    p1, p2, p3 = shares
    assert chisquare(counts, np.array([p3, p2 + p1 * (1 - p1), p1 * p1]) * 2000).pvalue > P_LOW


def released_ngrams(words, n_predictions, rng):
    """Follow the published procedure step by step, as a set of positions."""
    candidates = [
        [list(chain(*words[start : start + n])) for n in (1, 2, 3)] for start in range(len(words))
    ]
    rng.shuffle(candidates)
    covered = set()
    for ngrams in candidates:
        if len(covered) >= n_predictions:
            break
        n = rng.choices((1, 2, 3), (6, 3, 2))[0]
        while n > 1 and len(covered) + len(ngrams[n - 1]) > n_predictions:
            n -= 1
        positions = ngrams[n - 1]
        if len(covered) + len(positions) <= n_predictions and covered.isdisjoint(positions):
            covered.update(positions)
    return tuple(sorted(covered))


def test_ngrams_are_distributed_as_by_the_published_procedure():
    # Seven words of 1 to 3 pieces, with a separator after the third; 6 of 13 pieces.
    words = [[1], [2, 3], [4, 5, 6], [8], [9, 10, 11], [12], [13, 14]]
    ids = np.array([CLS, *[10] * 6, SEP, *[10] * 7, SEP])
    starts = np.isin(np.arange(16), [0, 7, 15, *(word[0] for word in words)])
    rng = random.Random(0)
    theirs = Counter(released_ngrams(words, 6, rng) for _ in range(20_000))
    ours = Counter(
        tuple(positions_of(ids, starts, philox(seed), unit="ngram", share=6 / 16))
        for seed in range(5000)
    )
    common = [positions for positions in theirs if theirs[positions] + ours[positions] >= 25]
    table = [[counts[positions] for positions in common] for counts in (theirs, ours)]
    assert sum(map(sum, table)) > 0.98 * 25_000
    assert chi2_contingency(table).pvalue > P_LOW


def test_two_of_three_words_are_chosen_with_the_probabilities_worked_out_by_hand():
    # From the first or the second word, 5/11 go on to the next word, and 6/11 are joined by either
    # of the others; the third word has none to go on to. Words 1 and 2: (8/11 + 3/11) / 3; 2 and 3:
    # (8/11 + 1/2) / 3; else 1 and 3.
    ids, starts = [CLS, 10, 11, 12], np.ones(4, dtype=bool)
    generator = philox()
    counts = Counter(
        tuple(positions_of(ids, starts, generator, unit="ngram", share=0.5)) for _ in range(10_000)
    )
    expected = {(1, 2): 22 / 66, (2, 3): 27 / 66, (1, 3): 17 / 66}
    assert counts.keys() == expected.keys()
    assert (
        chisquare(
            [counts[pair] for pair in expected], [10_000 * p for p in expected.values()]
        ).pvalue
        > P_LOW
    )


def test_lengths_of_ngrams_among_the_chosen_follow_their_probabilities():
    # A sequence so long that n-grams neither meet nor touch but in one case of a hundred; the last
    # one may be cut.
    ids, starts = np.full(40_000, 10), np.ones(40_000, dtype=bool)
    counts = np.zeros(3)
    for seed in range(40):
        lengths = [
            n
            for n in runs(positions_of(ids, starts, philox(seed), unit="ngram", most=200))
            if n <= 3
        ]
        counts += np.bincount(lengths, minlength=4)[1:]
    expected = np.array([6, 3, 2]) / 11
    # Touching and cut n-grams shift at most 2 % of the counts: compared with that allowance, and
    # five deviations.
    total = counts.sum()
    assert (np.abs(counts / total - expected) < 0.02 + 5 * np.sqrt(expected / total)).all()


def test_the_longest_ngram_is_as_long_as_it_may_be():
    ids, starts = np.full(3000, 10), np.ones(3000, dtype=bool)
    for longest in (1, 2, 5):
        seen = {
            max(runs(positions_of(ids, starts, philox(s), unit="ngram", most=5, longest=longest)))
            for s in range(40)
        }
        assert max(seen) == longest or longest == 1
    # A unigram only: the same draws as whole words.
    assert positions_of(ids, starts, philox(), unit="ngram", longest=1) == positions_of(
        ids, starts, philox(), unit="word"
    )


def test_the_pieces_of_a_word_are_masked_independently():
    # One word of two pieces: both masked 0.64, one 0.32, none 0.04.
    vocabulary = MaskVocabulary(MASK, VOCABULARY.is_maskable)
    ids, starts = np.array([CLS, 10, 11, SEP]), np.array([True, True, False, True])
    rule = MaskRule(unit="word", share=0.5, p_random=0.0)
    counts = np.zeros(3)
    for seed in range(4000):
        counts[
            np.count_nonzero(mask_tokens(ids, starts, rule, vocabulary, philox(seed)).ids == MASK)
        ] += 1
    assert chisquare(counts, np.array([0.04, 0.32, 0.64]) * 4000).pvalue > P_LOW


@pytest.mark.parametrize("unit", BY_WORD)
def test_whole_words_need_word_boundaries(unit):
    with pytest.raises(
        ConfigError, match="a whole-word mask needs a tokenizer with word boundaries"
    ):
        mask_tokens(np.arange(10, 20), None, MaskRule(unit=unit), VOCABULARY, philox())
