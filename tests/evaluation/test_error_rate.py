"""How often systems that are alike are called different: by randomisation, and by sacreBLEU's p."""

import numpy as np
import pytest
from scipy.stats import binomtest

from sublayer.evaluation.bleu import metric
from sublayer.evaluation.significance import Numbers, randomisation_p

N_LINES = 400
N_DRAWN = 199
"""Exchanges, and resamples: with these p is a multiple of 1/200, and at most 0.05 ten times."""
MEASURE = metric("sacrebleu", lowercase=False)


def draw_lines(rng: np.random.Generator, difficulty: Numbers, lengths: Numbers) -> Numbers:
    """Draw what BLEU is computed from of a system's translations: ``[N, 10]``, see LineCounts.

    Of a line of 12 words some 7 are right, 4 of its pairs and 1.5 of its runs of four: a BLEU of
    about 30. Where a line is hard, it is for both systems.
    """
    n_words = np.maximum(1, lengths + rng.integers(-2, 3, size=len(lengths)))
    right = np.clip(difficulty + rng.normal(0, 0.12, size=len(lengths)), 0.02, 0.98)
    columns = [n_words, lengths]
    totals = [np.maximum(0, n_words - n) for n in range(4)]
    shared = [rng.binomial(total, right ** (1 + 0.6 * n)) for n, total in enumerate(totals)]
    return np.stack([*columns, *shared, *totals], axis=1).astype(np.float64)


def draw_systems(rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Draw two systems' translations of the same lines, either of which could be the other's."""
    lengths = rng.integers(5, 30, size=N_LINES)
    difficulty = rng.beta(4, 3, size=N_LINES)
    return draw_lines(rng, difficulty, lengths), draw_lines(rng, difficulty, lengths)


def score(counts: Numbers) -> float:
    return float(MEASURE._compute_score_from_stats(counts.astype(int).tolist()).score)


def bootstrap_p(ours: Numbers, theirs: Numbers, rng: np.random.Generator, *, signed: bool) -> float:
    """p of the paired bootstrap: as sacreBLEU 2.6 shifts differences, or ``signed`` ones."""
    drawn = rng.multinomial(N_LINES, np.full(N_LINES, 1 / N_LINES), size=N_DRAWN).astype(float)
    found = [score(a) - score(b) for a, b in zip(drawn @ ours, drawn @ theirs, strict=True)]
    observed = score(ours.sum(0)) - score(theirs.sum(0))
    differences = np.array(found)
    shifted = np.abs(differences - differences.mean())
    if not signed:
        shifted = np.abs(differences) - np.abs(differences).mean()
    return float((np.sum(shifted >= abs(observed)) + 1) / (N_DRAWN + 1))


def test_the_systems_that_are_drawn_score_as_systems_do() -> None:
    ours, theirs = draw_systems(np.random.default_rng(1))
    assert 20 < score(ours.sum(0)) < 45
    assert 0 < abs(score(ours.sum(0)) - score(theirs.sum(0))) < 3


def test_few_exchanges_are_counted_by_hand() -> None:
    # One line: exchanged or not, the difference is as large.
    ours, theirs = draw_systems(np.random.default_rng(1))
    assert randomisation_p(MEASURE, ours[:1], theirs[:1], n_exchanges=7) == 1.0
    # Every line of one is empty of what is right: 20 lines, of which no exchange leaves all.
    worst = ours[:20].copy()
    worst[:, 2:6] = 0
    assert randomisation_p(MEASURE, ours[:20], worst, n_exchanges=199) == 1 / 200


@pytest.mark.slow
def test_randomisation_errs_as_often_as_it_says_and_sacrebleus_p_twice_as_often() -> None:
    rng = np.random.default_rng(7)
    n_pairs = 1000
    errors = {"randomisation": 0, "signed": 0, "sacrebleu": 0}
    for _ in range(n_pairs):
        ours, theirs = draw_systems(rng)
        p = randomisation_p(MEASURE, ours, theirs, n_exchanges=N_DRAWN)
        errors["randomisation"] += p <= 0.05
        errors["sacrebleu"] += bootstrap_p(ours, theirs, rng, signed=False) <= 0.05
        errors["signed"] += bootstrap_p(ours, theirs, rng, signed=True) <= 0.05
    intervals = {name: binomtest(n, n_pairs).proportion_ci(0.99) for name, n in errors.items()}
    for name in ("randomisation", "signed"):
        assert intervals[name].low <= 0.05 <= intervals[name].high
    assert intervals["sacrebleu"].low > 0.08
