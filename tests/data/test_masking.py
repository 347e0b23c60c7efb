import random
from collections import Counter
from itertools import chain, groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

from sublayer.data.masking import MaskRule, MaskVocabulary, mask_tokens
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


def places_of(ids, starts, generator, **rule):
    return mask_tokens(np.array(ids), starts, MaskRule(**rule), VOCABULARY, generator).places.tolist()


def runs(places):
    """Lengths of what is contiguous."""
    return [len(list(group)) for _, group in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0])]


def test_the_number_of_predictions_is_the_rounded_share():
    # 0.15 * 512 = 76.8; 0.15 * 30 = 4.5 and 0.15 * 50 = 7.5 go to the even neighbour; 0.15 * 3 = 0.45 is raised to 1.
    rule = MaskRule()
    assert [rule.n_predictions(n, n - 2) for n in (512, 30, 50, 3)] == [77, 4, 8, 1]
    assert MaskRule(most=20).n_predictions(512, 509) == 20
    assert MaskRule(most=100).n_predictions(512, 509) == 77
    assert MaskRule(counts="maskable").n_predictions(512, 100) == 15


def test_more_predictions_than_maskable_tokens_are_all_of_them():
    assert MaskRule(share=1.0).n_predictions(10, 7) == 7
    for unit in ("token", *BY_WORD):
        ids = np.array([CLS, 9, 8, SEP, 7, SEP])
        masked = mask_tokens(ids, np.ones(6, dtype=bool), MaskRule(unit=unit, share=1.0), VOCABULARY, philox())
        assert masked.places.tolist() == [1, 2, 4]
        assert masked.targets.tolist() == [9, 8, 7]


@pytest.mark.parametrize("unit", ["token", *BY_WORD])
@pytest.mark.parametrize("ids", [[CLS, SEP, SEP], []])
def test_without_a_maskable_token_nothing_is_predicted(unit, ids):
    ids = np.array(ids, dtype=np.int64)
    masked = mask_tokens(ids, np.ones(len(ids), dtype=bool), MaskRule(unit=unit), VOCABULARY, philox())
    assert masked.ids.tolist() == ids.tolist()
    assert len(masked.places) == len(masked.targets) == 0
    assert masked.places.dtype == np.int64


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
    rule = MaskRule(unit=unit, share=share, most=most, favours=favours, predicts_first=predicts_first)
    masked = mask_tokens(ids, starts, rule, VOCABULARY, philox(seed + 1))
    assert np.array_equal(ids, before[0])
    assert np.array_equal(starts, before[1])
    assert np.array_equal(masked.targets, ids[masked.places])
    assert (np.diff(masked.places) > 0).all()
    untouched = np.delete(np.arange(len(ids)), masked.places)
    assert np.array_equal(masked.ids[untouched], ids[untouched])
    assert ((masked.ids >= 0) & (masked.ids < VOCAB_SIZE)).all()
    drawn = masked.places[1:] if predicts_first else masked.places
    assert (ids[drawn] >= N_SPECIAL).all()
    wanted = rule.n_predictions(len(ids), int((ids >= N_SPECIAL).sum()))
    assert len(drawn) == wanted if unit == "token" else len(drawn) <= wanted


@pytest.mark.parametrize("unit", BY_WORD)
def test_a_word_is_predicted_whole_or_not_at_all(unit):
    for seed in range(200):
        generator = philox(seed)
        ids, starts = sequence(40, generator, middle=20)
        word = np.cumsum(starts)
        masked = mask_tokens(ids, starts, MaskRule(unit=unit, share=0.3), VOCABULARY, generator)
        is_predicted = np.isin(np.arange(len(ids)), masked.places)
        for number in np.unique(word):
            assert is_predicted[word == number].all() or not is_predicted[word == number].any()


def test_whole_words_reach_the_number_where_single_pieces_remain():
    # Of 40 words a third has one piece, so that the last place is always filled.
    for seed in range(100):
        generator = philox(seed)
        ids, starts = sequence(40, generator)
        assert len(places_of(ids, starts, generator, unit="word")) == round(0.15 * len(ids))


def test_a_word_that_would_exceed_the_number_is_skipped():
    # round(0.15 * 14) = 2 predictions: no word of 3 pieces fits; one of 2 or of 1 does.
    ids = [CLS, *range(10, 22), SEP]
    three = np.array([True, *[True, False, False] * 4, True])
    for unit in BY_WORD:
        assert places_of(ids, three, philox(), unit=unit) == []
    mixed = three.copy()
    mixed[12] = True
    seen = {tuple(places_of(ids, mixed, philox(seed), unit="word")) for seed in range(50)}
    assert seen == {(10, 11), (12,)}


def test_an_ngram_that_would_exceed_the_number_is_made_shorter():
    # 0.15 * 20 = 3 predictions. Three words of 2, 2, 1 pieces: whatever the draw, 2 + 2 never fits.
    ids = [CLS, 10, 11, 12, 13, 14, *[SEP] * 14]
    starts = np.array([True, True, False, True, False, True, *[True] * 14])
    rule = {"unit": "ngram", "longest": 3, "favours": "long"}
    seen = {tuple(places_of(ids, starts, philox(seed), **rule)) for seed in range(100)}
    assert seen == {(1, 2, 5), (3, 4, 5)}


def test_an_ngram_runs_across_a_separator_and_leaves_it_out():
    # 0.15 * 13 rounds to 2, of two words with a separator between them: both, as one bigram or as two words.
    ids = [CLS, 10, SEP, 11, *[SEP] * 9]
    for seed in range(20):
        assert places_of(ids, np.ones(13, dtype=bool), philox(seed), unit="ngram") == [1, 3]


def test_words_on_both_sides_of_a_separator_are_neighbours():
    # 40 words, each after a separator; two predictions. One bigram (1/3, unless it begins at the last word), or two
    # words that are neighbours by chance (2/40): 0.325 + 0.675 * 0.05 = 0.359.
    ids = np.array([CLS, *[10, SEP] * 40])
    is_pair = [
        np.diff(places_of(ids, np.ones(81, dtype=bool), philox(seed), unit="ngram", most=2, longest=2)).tolist() == [2]
        for seed in range(2000)
    ]
    assert abs(np.mean(is_pair) - 0.359) < 5 * np.sqrt(0.359 * 0.641 / 2000)


def test_a_piece_after_a_special_token_begins_a_word():
    # 0.15 * 7 rounds to 1: the continuation at place 4 is one piece of its own, and so is the one at place 1.
    ids, starts = [CLS, 10, 11, SEP, 12, SEP, SEP], np.array([True, False, False, True, False, True, True])
    seen = {tuple(places_of(ids, starts, philox(seed), unit="word")) for seed in range(20)}
    assert seen == {(4,)}
    seen = {tuple(places_of(ids, starts, philox(seed), unit="word", share=0.3)) for seed in range(20)}
    assert seen == {(4,), (1, 2)}


@pytest.mark.parametrize("favours, shares", [("short", (6 / 11, 3 / 11, 2 / 11)), ("long", (2 / 11, 3 / 11, 6 / 11))])
def test_lengths_of_ngrams_follow_their_probabilities(favours, shares):
    ids, starts = np.full(1000, 10), np.ones(1000, dtype=bool)
    counts = np.zeros(3)
    for seed in range(2000):
        lengths = runs(places_of(ids, starts, philox(seed), unit="ngram", most=3, favours=favours))
        assert sum(lengths) == 3
        counts[len(lengths) - 1] += 1
    # Three predictions: 3; 2 and 1; 1 and, made shorter where it is 3, 2; 1, 1 and 1. Few touch in 1,000 words.
    p1, p2, p3 = shares
    assert chisquare(counts, np.array([p3, p2 + p1 * (1 - p1), p1 * p1]) * 2000).pvalue > P_LOW


def released_ngrams(words, n_predictions, rng):
    """Follow the published procedure step by step, as a set of places."""
    candidates = [[list(chain(*words[start : start + n])) for n in (1, 2, 3)] for start in range(len(words))]
    rng.shuffle(candidates)
    covered = set()
    for ngrams in candidates:
        if len(covered) >= n_predictions:
            break
        n = rng.choices((1, 2, 3), (6, 3, 2))[0]
        while n > 1 and len(covered) + len(ngrams[n - 1]) > n_predictions:
            n -= 1
        places = ngrams[n - 1]
        if len(covered) + len(places) <= n_predictions and covered.isdisjoint(places):
            covered.update(places)
    return tuple(sorted(covered))


def test_ngrams_are_distributed_as_by_the_published_procedure():
    # Seven words of 1 to 3 pieces, with a separator after the third; 6 of 13 pieces.
    words = [[1], [2, 3], [4, 5, 6], [8], [9, 10, 11], [12], [13, 14]]
    ids = np.array([CLS, *[10] * 6, SEP, *[10] * 7, SEP])
    starts = np.isin(np.arange(16), [0, 7, 15, *(word[0] for word in words)])
    rng = random.Random(0)
    theirs = Counter(released_ngrams(words, 6, rng) for _ in range(20_000))
    ours = Counter(tuple(places_of(ids, starts, philox(seed), unit="ngram", share=6 / 16)) for seed in range(5000))
    common = [places for places in theirs if theirs[places] + ours[places] >= 25]
    table = [[counts[places] for places in common] for counts in (theirs, ours)]
    assert sum(map(sum, table)) > 0.98 * 25_000
    assert chi2_contingency(table).pvalue > P_LOW


def test_two_of_three_words_are_chosen_with_the_probabilities_worked_out_by_hand():
    # From the first or the second word, 5/11 go on to the next word, and 6/11 are joined by either of the others; the
    # third word has none to go on to. Words 1 and 2: (8/11 + 3/11) / 3; 2 and 3: (8/11 + 1/2) / 3; else 1 and 3.
    ids, starts = [CLS, 10, 11, 12], np.ones(4, dtype=bool)
    generator = philox()
    counts = Counter(tuple(places_of(ids, starts, generator, unit="ngram", share=0.5)) for _ in range(10_000))
    expected = {(1, 2): 22 / 66, (2, 3): 27 / 66, (1, 3): 17 / 66}
    assert counts.keys() == expected.keys()
    assert chisquare([counts[pair] for pair in expected], [10_000 * p for p in expected.values()]).pvalue > P_LOW


def test_lengths_of_ngrams_among_the_chosen_follow_their_probabilities():
    # A sequence so long that n-grams neither meet nor touch but in one case of a hundred; the last one may be cut.
    ids, starts = np.full(40_000, 10), np.ones(40_000, dtype=bool)
    counts = np.zeros(3)
    for seed in range(40):
        lengths = [n for n in runs(places_of(ids, starts, philox(seed), unit="ngram", most=200)) if n <= 3]
        counts += np.bincount(lengths, minlength=4)[1:]
    expected = np.array([6, 3, 2]) / 11
    # Touching and cut n-grams shift at most 2 % of the counts: compared with that allowance, and five deviations.
    total = counts.sum()
    assert (np.abs(counts / total - expected) < 0.02 + 5 * np.sqrt(expected / total)).all()


def test_the_longest_ngram_is_as_long_as_it_may_be():
    ids, starts = np.full(3000, 10), np.ones(3000, dtype=bool)
    for longest in (1, 2, 5):
        seen = {max(runs(places_of(ids, starts, philox(s), unit="ngram", most=5, longest=longest))) for s in range(40)}
        assert max(seen) == longest or longest == 1
    # A unigram only: the same draws as whole words.
    assert places_of(ids, starts, philox(), unit="ngram", longest=1) == places_of(ids, starts, philox(), unit="word")


@pytest.mark.parametrize("unit", ["token", "word"])
def test_every_maskable_place_is_equally_likely(unit):
    ids = np.array([CLS, *range(10, 30), SEP, *range(10, 25), SEP])
    counts = np.zeros(len(ids))
    n_trials = 4000
    for seed in range(n_trials):
        counts[places_of(ids, np.ones(len(ids), dtype=bool), philox(seed), unit=unit)] += 1
    assert counts[ids < N_SPECIAL].tolist() == [0, 0, 0]
    # 0.15 * 38 = 5.7: six of 35. Places drawn without replacement vary less than independent ones: a safe bound.
    assert counts.sum() == 6 * n_trials
    assert chisquare(counts[ids >= N_SPECIAL]).pvalue > P_LOW


def test_the_share_of_predictions_is_fifteen_percent():
    n_predicted = n_tokens = 0
    for seed in range(100):
        generator = philox(seed)
        ids, starts = sequence(200, generator, middle=80)
        n_predicted += len(places_of(ids, starts, generator, unit="ngram"))
        n_tokens += len(ids)
    # Each count is within half a token of 15 % of about 400.
    assert abs(n_predicted / n_tokens - 0.15) < 0.5 / 400


def test_predictions_become_masks_random_tokens_or_themselves_by_eighty_ten_ten():
    ids = np.full(400, 20)
    rule, n_trials = MaskRule(share=0.5), 200
    generator = philox()
    seen = np.concatenate(
        [
            masked.ids[masked.places]
            for masked in (mask_tokens(ids, None, rule, VOCABULARY, generator) for _ in range(n_trials))
        ]
    )
    counts = np.bincount(seen, minlength=VOCAB_SIZE)
    # A random token is uniform over all 50 ids, specials, the mask and the token itself included.
    expected = np.full(VOCAB_SIZE, 0.1 / VOCAB_SIZE)
    expected[MASK] += 0.8
    expected[20] += 0.1
    assert len(seen) == 200 * n_trials
    assert chisquare(counts, expected * len(seen)).pvalue > P_LOW


def test_random_tokens_begin_where_they_may():
    vocabulary = MaskVocabulary(MASK, VOCABULARY.is_maskable, random_low=N_SPECIAL)
    rule = MaskRule(share=1.0, p_mask=0.0, p_random=1.0)
    seen = mask_tokens(np.full(45_000, 20), None, rule, vocabulary, philox()).ids
    counts = np.bincount(seen, minlength=VOCAB_SIZE)
    assert len(counts) == VOCAB_SIZE
    assert counts[:N_SPECIAL].sum() == 0
    assert chisquare(counts[N_SPECIAL:]).pvalue > P_LOW


def test_the_pieces_of_a_word_are_masked_independently():
    # One word of two pieces: both masked 0.64, one 0.32, none 0.04.
    vocabulary = MaskVocabulary(MASK, VOCABULARY.is_maskable)
    ids, starts = np.array([CLS, 10, 11, SEP]), np.array([True, True, False, True])
    rule = MaskRule(unit="word", share=0.5, p_random=0.0)
    counts = np.zeros(3)
    for seed in range(4000):
        counts[np.count_nonzero(mask_tokens(ids, starts, rule, vocabulary, philox(seed)).ids == MASK)] += 1
    assert chisquare(counts, np.array([0.04, 0.32, 0.64]) * 4000).pvalue > P_LOW


def test_without_masks_and_random_tokens_the_input_is_unchanged():
    ids = np.arange(10, 30)
    masked = mask_tokens(ids, None, MaskRule(p_mask=0.0, p_random=0.0), VOCABULARY, philox())
    assert masked.ids.tolist() == ids.tolist()
    assert len(masked.places) == 3
    assert masked.ids is not ids


def test_the_first_place_may_be_predicted_beside_the_share():
    ids = np.array([CLS, *range(10, 29), SEP])
    rule = MaskRule(counts="maskable", predicts_first=True, p_mask=1.0, p_random=0.0)
    for seed in range(50):
        masked = mask_tokens(ids, None, rule, VOCABULARY, philox(seed))
        # 0.15 * 19 = 2.85: three, and the class token.
        assert len(masked.places) == 4
        assert masked.places[0] == 0
        assert masked.targets[0] == masked.ids[0] == CLS
        assert (masked.ids[masked.places[1:]] == MASK).all()
    assert mask_tokens(np.array([10, 11]), None, rule, VOCABULARY, philox()).places.tolist() == [0, 1]
    assert mask_tokens(np.array([10]), None, rule, VOCABULARY, philox()).ids.tolist() == [10]
    assert mask_tokens(ids[:0], None, rule, VOCABULARY, philox()).places.tolist() == []


def test_masks_are_a_function_of_the_generator():
    ids, starts = sequence(100, philox())
    for unit in ("token", *BY_WORD):
        rule = MaskRule(unit=unit)
        first, again, other = (mask_tokens(ids, starts, rule, VOCABULARY, philox(seed)) for seed in (1, 1, 2))
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
        assert not np.array_equal(first.places, other.places)


def test_the_draws_are_these_numbers():
    # Written down once: a change of them would change every run's data without a word.
    ids = np.array([CLS, *range(10, 40), SEP])
    starts = np.arange(32) % 2 == 1
    starts[[0, 31]] = True
    drawn = {unit: mask_tokens(ids, starts, MaskRule(unit=unit), VOCABULARY, philox()) for unit in ("token", "ngram")}
    assert {unit: (masked.places.tolist(), masked.ids[masked.places].tolist()) for unit, masked in drawn.items()} == {
        "token": ([1, 9, 10, 20, 27], [4, 4, 4, 4, 4]),
        "ngram": ([1, 2, 17, 18], [4, 4, 4, 4]),
    }


@pytest.mark.parametrize("unit", BY_WORD)
def test_whole_words_need_word_boundaries(unit):
    with pytest.raises(ConfigError, match="a whole-word mask needs a tokenizer with word boundaries"):
        mask_tokens(np.arange(10, 20), None, MaskRule(unit=unit), VOCABULARY, philox())


@pytest.mark.parametrize(
    "rule, message",
    [
        ({"share": 0.0}, "share = 0.0 must be above 0"),
        ({"share": 1.5}, "share = 1.5 must be above 0 and at most 1"),
        ({"most": 0}, "most = 0 must be at least 1"),
        ({"longest": 0}, "longest = 0 must be at least 1 word"),
        ({"p_mask": 0.95}, "p_mask = 0.95 and p_random = 0.1 must not be negative nor exceed 1"),
        ({"p_random": -0.1}, "p_random = -0.1"),
    ],
)
def test_numbers_out_of_range_are_refused(rule, message):
    with pytest.raises(ConfigError, match=message):
        MaskRule(**rule)
