"""Which positions are predicted, how many, and what the model sees there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from sublayer.data.masked.masking import MaskRule, MaskVocabulary, mask_tokens
from sublayer.errors import ConfigError
from tests.data.masked.masked_sequences import (
    BY_WORD,
    CLS,
    MASK,
    N_SPECIAL,
    P_LOW,
    SEP,
    VOCAB_SIZE,
    VOCABULARY,
    philox,
    positions_of,
    sequence,
)


def test_the_number_of_predictions_is_the_rounded_share():
    # 0.15 * 512 = 76.8; 0.15 * 30 = 4.5 and 0.15 * 50 = 7.5 go to the even neighbour; 0.15 * 3 =
    # 0.45 is raised to 1.
    rule = MaskRule()
    assert [rule.n_predictions(n, n - 2) for n in (512, 30, 50, 3)] == [77, 4, 8, 1]
    assert MaskRule(most=20).n_predictions(512, 509) == 20
    assert MaskRule(most=100).n_predictions(512, 509) == 77
    assert MaskRule(counts="maskable").n_predictions(512, 100) == 15


def test_more_predictions_than_maskable_tokens_are_all_of_them():
    assert MaskRule(share=1.0).n_predictions(10, 7) == 7
    for unit in ("token", *BY_WORD):
        ids = np.array([CLS, 9, 8, SEP, 7, SEP])
        masked = mask_tokens(
            ids, np.ones(6, dtype=bool), MaskRule(unit=unit, share=1.0), VOCABULARY, philox()
        )
        assert masked.positions.tolist() == [1, 2, 4]
        assert masked.targets.tolist() == [9, 8, 7]


@pytest.mark.parametrize("unit", ["token", *BY_WORD])
@pytest.mark.parametrize("ids", [[CLS, SEP, SEP], []])
def test_without_a_maskable_token_nothing_is_predicted(unit, ids):
    ids = np.array(ids, dtype=np.int64)
    masked = mask_tokens(
        ids, np.ones(len(ids), dtype=bool), MaskRule(unit=unit), VOCABULARY, philox()
    )
    assert masked.ids.tolist() == ids.tolist()
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


@pytest.mark.parametrize("unit", ["token", "word"])
def test_every_maskable_place_is_equally_likely(unit):
    ids = np.array([CLS, *range(10, 30), SEP, *range(10, 25), SEP])
    counts = np.zeros(len(ids))
    n_trials = 4000
    for seed in range(n_trials):
        counts[positions_of(ids, np.ones(len(ids), dtype=bool), philox(seed), unit=unit)] += 1
    assert counts[ids < N_SPECIAL].tolist() == [0, 0, 0]
    # 0.15 * 38 = 5.7: six of 35. Places drawn without replacement vary less than independent ones:
    # a safe bound.
    assert counts.sum() == 6 * n_trials
    assert chisquare(counts[ids >= N_SPECIAL]).pvalue > P_LOW


def test_the_share_of_predictions_is_fifteen_percent():
    n_predicted = n_tokens = 0
    for seed in range(100):
        generator = philox(seed)
        ids, starts = sequence(200, generator, middle=80)
        n_predicted += len(positions_of(ids, starts, generator, unit="ngram"))
        n_tokens += len(ids)
    # Each count is within half a token of 15 % of about 400.
    assert abs(n_predicted / n_tokens - 0.15) < 0.5 / 400


def test_predictions_become_masks_random_tokens_or_themselves_by_eighty_ten_ten():
    ids = np.full(400, 20)
    rule, n_trials = MaskRule(share=0.5), 200
    generator = philox()
    seen = np.concatenate(
        [
            masked.ids[masked.positions]
            for masked in (
                mask_tokens(ids, None, rule, VOCABULARY, generator) for _ in range(n_trials)
            )
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


def test_without_masks_and_random_tokens_the_input_is_unchanged():
    ids = np.arange(10, 30)
    masked = mask_tokens(ids, None, MaskRule(p_mask=0.0, p_random=0.0), VOCABULARY, philox())
    assert masked.ids.tolist() == ids.tolist()
    assert len(masked.positions) == 3
    assert masked.ids is not ids


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
    assert mask_tokens(np.array([10, 11]), None, rule, VOCABULARY, philox()).positions.tolist() == [
        0,
        1,
    ]
    assert mask_tokens(np.array([10]), None, rule, VOCABULARY, philox()).ids.tolist() == [10]
    assert mask_tokens(ids[:0], None, rule, VOCABULARY, philox()).positions.tolist() == []


def test_masks_are_a_function_of_the_generator():
    ids, starts = sequence(100, philox())
    for unit in ("token", *BY_WORD):
        rule = MaskRule(unit=unit)
        first, again, other = (
            mask_tokens(ids, starts, rule, VOCABULARY, philox(seed)) for seed in (1, 1, 2)
        )
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
        assert not np.array_equal(first.positions, other.positions)


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
