"""Predicted positions: their number, words and n-grams as published, and what replaces them."""

import random
from collections import Counter
from itertools import chain, groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

from sublayer.data.masked.masking import MaskRule, MaskVocabulary, mask_tokens
from sublayer.errors import ConfigError

CLS, SEP, MASK, N_SPECIAL, VOCAB_SIZE = 2, 3, 4, 5, 50

VOCABULARY = MaskVocabulary(MASK, np.arange(VOCAB_SIZE) >= N_SPECIAL)

BY_WORD = ("word", "ngram")

# A correct sampler fails one of these tests with one seed in a million; the seeds are fixed.
P_LOW = 1e-6


def philox(seed=0):
    return np.random.Generator(np.random.Philox(seed))


def sequence(n_words, generator, middle=None):
    """[CLS] words of one to three pieces [SEP], with another [SEP] before word ``middle``."""
    ids, starts = [CLS], [True]
    for word in range(n_words):
        if word == middle:
            ids.append(SEP)
            starts.append(True)
        for piece in range(int(generator.integers(1, 4))):
            ids.append(int(generator.integers(N_SPECIAL, VOCAB_SIZE)))
            starts.append(piece == 0)
    return np.array([*ids, SEP]), np.array([*starts, True])


def positions_of(ids, starts, generator, **rule):
    return mask_tokens(
        np.array(ids), starts, MaskRule(**rule), VOCABULARY, generator
    ).positions.tolist()


def runs(positions):
    """Lengths of what is contiguous."""
    return [
        len(list(group))
        for _, group in groupby(enumerate(positions), key=lambda pair: pair[1] - pair[0])
    ]


def test_the_number_of_predictions_is_the_rounded_share():
    # 0.15 * 512 = 76.8; 0.15 * 30 = 4.5 and 0.15 * 50 = 7.5 go to the even neighbour; 0.15 * 3 =
    # 0.45 is raised to 1.
    rule = MaskRule()
    assert [rule.n_predictions(n, n - 2) for n in (512, 30, 50, 3)] == [77, 4, 8, 1]
    assert MaskRule(most=20).n_predictions(512, 509) == 20
    assert MaskRule(most=100).n_predictions(512, 509) == 77
    assert MaskRule(counts="maskable").n_predictions(512, 100) == 15


@pytest.mark.parametrize("unit", ["token", *BY_WORD])
def test_nothing_but_maskable_tokens_is_predicted(unit):
    assert MaskRule(share=1.0).n_predictions(10, 7) == 7
    ids = np.array([CLS, 9, 8, SEP, 7, SEP])
    rule = MaskRule(unit=unit, share=1.0)
    masked = mask_tokens(ids, np.ones(6, dtype=bool), rule, VOCABULARY, philox())
    assert masked.positions.tolist() == [1, 2, 4]
    assert masked.targets.tolist() == [9, 8, 7]
    for without in (ids[:0], ids[[0, 3, 5]]):
        starts = np.ones(len(without), dtype=bool)
        masked = mask_tokens(without, starts, rule, VOCABULARY, philox())
        assert masked.ids.tolist() == without.tolist()
        assert len(masked.positions) == len(masked.targets) == 0
        assert masked.positions.dtype == np.int64


@given(
    n_words=st.integers(1, 40),
    unit=st.sampled_from(["token", "word", "ngram"]),
    share=st.floats(0.01, 1.0),
    most=st.none() | st.integers(1, 12),
    favours=st.sampled_from(["short", "long"]),
    predicts_first=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_what_is_masked_is_sorted_unique_maskable_and_keeps_its_target(
    n_words, unit, share, most, favours, predicts_first, seed
):
    ids, starts = sequence(n_words, philox(seed), middle=n_words // 2)
    before = ids.copy(), starts.copy()
    rule = MaskRule(
        unit=unit, share=share, most=most, favours=favours, predicts_first=predicts_first
    )
    masked = mask_tokens(ids, starts, rule, VOCABULARY, philox(seed + 1))
    assert np.array_equal(ids, before[0])
    assert np.array_equal(starts, before[1])
    assert np.array_equal(masked.targets, ids[masked.positions])
    assert (np.diff(masked.positions) > 0).all()
    untouched = np.delete(np.arange(len(ids)), masked.positions)
    assert np.array_equal(masked.ids[untouched], ids[untouched])
    assert ((masked.ids >= 0) & (masked.ids < VOCAB_SIZE)).all()
    drawn = masked.positions[1:] if predicts_first else masked.positions
    assert (ids[drawn] >= N_SPECIAL).all()
    wanted = rule.n_predictions(len(ids), int((ids >= N_SPECIAL).sum()))
    assert len(drawn) == wanted if unit == "token" else len(drawn) <= wanted


def test_predictions_become_masks_random_tokens_or_themselves_by_eighty_ten_ten():
    ids = np.full(400, 20)
    rule, n_trials, generator = MaskRule(share=0.5), 200, philox()
    rows = [mask_tokens(ids, None, rule, VOCABULARY, generator) for _ in range(n_trials)]
    seen = np.concatenate([masked.ids[masked.positions] for masked in rows])
    # A random token is uniform over all 50 ids, specials, the mask and the token itself included.
    expected = np.full(VOCAB_SIZE, 0.1 / VOCAB_SIZE)
    expected[MASK] += 0.8
    expected[20] += 0.1
    assert len(seen) == 200 * n_trials
    counts = np.bincount(seen, minlength=VOCAB_SIZE)
    assert chisquare(counts, expected * len(seen)).pvalue > P_LOW
    # Without masks and random tokens the input is unchanged.
    masked = mask_tokens(ids, None, MaskRule(p_mask=0.0, p_random=0.0), VOCABULARY, philox())
    assert masked.ids.tolist() == ids.tolist() and masked.ids is not ids
    assert len(masked.positions) == 60


def test_random_tokens_begin_where_they_may():
    vocabulary = MaskVocabulary(MASK, VOCABULARY.is_maskable, random_low=N_SPECIAL)
    rule = MaskRule(share=1.0, p_mask=0.0, p_random=1.0)
    seen = mask_tokens(np.full(45_000, 20), None, rule, vocabulary, philox()).ids
    counts = np.bincount(seen, minlength=VOCAB_SIZE)
    assert len(counts) == VOCAB_SIZE
    assert counts[:N_SPECIAL].sum() == 0
    assert chisquare(counts[N_SPECIAL:]).pvalue > P_LOW


def test_the_first_place_may_be_predicted_beside_the_share():
    ids = np.array([CLS, *range(10, 29), SEP])
    rule = MaskRule(counts="maskable", predicts_first=True, p_mask=1.0, p_random=0.0)
    for seed in range(50):
        masked = mask_tokens(ids, None, rule, VOCABULARY, philox(seed))
        # 0.15 * 19 = 2.85: three, and the class token.
        assert len(masked.positions) == 4
        assert masked.positions[0] == 0
        assert masked.targets[0] == masked.ids[0] == CLS
        assert (masked.ids[masked.positions[1:]] == MASK).all()
    for n, positions in ((2, [0, 1]), (1, [0]), (0, [])):
        masked = mask_tokens(np.arange(10, 10 + n), None, rule, VOCABULARY, philox())
        assert masked.positions.tolist() == positions


def test_the_draws_are_these_numbers():
    # Written down once: a change of them would change every run's data without a word.
    ids = np.array([CLS, *range(10, 40), SEP])
    starts = np.arange(32) % 2 == 1
    starts[[0, 31]] = True
    drawn = {
        unit: mask_tokens(ids, starts, MaskRule(unit=unit), VOCABULARY, philox())
        for unit in ("token", "ngram")
    }
    assert {
        unit: (masked.positions.tolist(), masked.ids[masked.positions].tolist())
        for unit, masked in drawn.items()
    } == {
        "token": ([1, 9, 10, 20, 27], [4, 4, 4, 4, 4]),
        "ngram": ([1, 2, 17, 18], [4, 4, 4, 4]),
    }


@pytest.mark.parametrize(
    "rule, field",
    [
        ({"share": 0.0}, "share = 0.0"),
        ({"share": 1.5}, "share = 1.5"),
        ({"most": 0}, "most = 0"),
        ({"longest": 0}, "longest = 0"),
        ({"p_mask": 0.95}, "p_mask = 0.95 and p_random = 0.1"),
        ({"p_random": -0.1}, "p_random = -0.1"),
    ],
)
def test_numbers_out_of_range_are_refused(rule, field):
    with pytest.raises(ConfigError, match=field):
        MaskRule(**rule)
    assert MaskRule(share=1.0, most=1, longest=1, p_mask=0.9).p_random == 0.1


@pytest.mark.parametrize("unit", BY_WORD)
def test_a_word_is_predicted_whole_or_not_at_all(unit):
    for seed in range(100):
        generator = philox(seed)
        ids, starts = sequence(40, generator, middle=20)
        word = np.cumsum(starts)
        masked = mask_tokens(ids, starts, MaskRule(unit=unit, share=0.3), VOCABULARY, generator)
        is_predicted = np.isin(np.arange(len(ids)), masked.positions)
        for number in np.unique(word):
            assert is_predicted[word == number].all() or not is_predicted[word == number].any()
    with pytest.raises(ConfigError, match="a whole-word mask needs a tokenizer with word boundar"):
        mask_tokens(np.arange(10, 20), None, MaskRule(unit=unit), VOCABULARY, philox())


def test_a_piece_after_a_special_token_begins_a_word():
    # 0.15 * 7 rounds to 1: the continuation at place 4 is one piece of its own, and so is the one
    # at place 1.
    ids = [CLS, 10, 11, SEP, 12, SEP, SEP]
    starts = np.array([True, False, False, True, False, True, True])
    for share, expected in ((0.15, {(4,)}), (0.3, {(4,), (1, 2)})):
        rule = {"unit": "word", "share": share}
        seen = {tuple(positions_of(ids, starts, philox(seed), **rule)) for seed in range(20)}
        assert seen == expected


@pytest.mark.parametrize(
    "favours, shares",
    [
        ("long", (2 / 11, 3 / 11, 6 / 11)),
    ],
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
