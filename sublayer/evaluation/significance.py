"""Paired tests of corpus scores: two systems' translations of the same lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.config.objectives.translation import BleuTokenizer
from sublayer.evaluation.bleu import check_lines, count_lines, metric

SEED = 12345
"""sacreBLEU's, so that both draw the same lines."""
N_RESAMPLES = 1000
"""Times that lines are drawn again, for an interval."""
N_EXCHANGES = 10_000
"""Times that lines change systems, in approximate randomisation."""
_N_EXCHANGED_PARTS = 20

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Paired:
    """Two systems by one measure, from 0 to 100."""

    value: float
    other: float
    difference: float
    """``value - other``: positive where the first system is better."""
    interval: tuple[float, float]
    """The difference's over lines that are drawn again, of 95 %: 2.5th and 97.5th percentile."""
    p_randomisation: float
    """By approximate randomisation, see ``randomisation_p``: 1/10001 at least."""


def compare_translations(
    name: str,
    texts: Sequence[str],
    others: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    tokens: BleuTokenizer = "13a",
    more: Sequence[Sequence[str]] = (),
) -> Paired:
    """Compare two systems' translations of the same lines by a measure.

    The measures are bleu, of words, and sacrebleu and chrf, of texts. Lines are resampled 1,000
    times for the interval (paired bootstrap), and exchanged between the systems 10,000 times for p
    (approximate randomisation). ``lowercase``: all in lower case. ``tokens``: sacreBLEU's
    tokenizer of sacrebleu; ``more``: further references, as ``count_lines`` takes them.

    Raises DataError where numbers of lines differ or there are none, ConfigError where sacrebleu
    is not installed. Source: Koehn 2004; Riezler and Maxwell 2005.

    Departure: sacreBLEU's p of the paired bootstrap is not computed. It shifts absolute differences
    by their mean, where differences with their signs are to be shifted, and so calls systems that
    are alike different about twice as often as it says: in 11 of 100 comparisons at a nominal 5
    (``tests/evaluation/test_bleu.py``).
    """
    for lines in (texts, others):
        check_lines(lines, references)
    measure = metric(name, lowercase=lowercase, tokens=tokens)
    counts, other_counts = (
        count_lines(name, lines, references, lowercase=lowercase, tokens=tokens, more=more)
        for lines in (texts, others)
    )
    ours = counts.counts.astype(np.float64)
    theirs = other_counts.counts.astype(np.float64)
    value = _score(measure, ours.sum(0))
    other = _score(measure, theirs.sum(0))
    resampled = _resampled_differences(measure, ours, theirs)
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Paired(
        value=value,
        other=other,
        difference=value - other,
        interval=(float(low), float(high)),
        p_randomisation=randomisation_p(measure, ours, theirs),
    )


def randomisation_p(
    measure: Any, ours: Numbers, theirs: Numbers, *, n_exchanges: int = N_EXCHANGES
) -> float:
    """Return how probable a difference as large, of either sign, is between systems alike.

    The counts of two systems' lines, ``[N, K]`` as of ``LineCounts``, are exchanged between them,
    each line or not by a throw of a coin, ``n_exchanges`` times; ``measure`` is sacreBLEU's object.
    The observed assignment is one of the possible ones, so that of systems whose lines could as
    well be each other's at most 5 of 100 have a p up to 0.05. Source: Riezler and Maxwell 2005.

    Departure: a difference as large as the one observed counts as chance, where sacreBLEU asks for
    a larger one, by which systems that differ in one line of a thousand would differ beyond doubt.
    """
    observed = abs(_score(measure, ours.sum(0)) - _score(measure, theirs.sum(0)))
    exchanged = np.abs(_exchanged_differences(measure, ours, theirs, n_exchanges))
    n_as_large = np.sum(exchanged >= observed) + 1
    return float(n_as_large / (n_exchanges + 1))


def _score(measure: Any, counts: Numbers) -> float:
    statistics = counts.astype(np.int64).tolist()
    return float(measure._compute_score_from_stats(statistics).score)


def _resampled_differences(measure: Any, ours: Numbers, theirs: Numbers) -> Numbers:
    n_lines = len(ours)
    generator = np.random.default_rng(SEED)
    samples = generator.choice(n_lines, size=(N_RESAMPLES, n_lines), replace=True)
    times = [np.bincount(sample, minlength=n_lines) for sample in samples]
    weights = np.stack(times).astype(np.float64)  # [resamples, N]: how often each line is drawn
    our_sums = weights @ ours
    their_sums = weights @ theirs
    return _differences(measure, our_sums, their_sums)


def _exchanged_differences(
    measure: Any, ours: Numbers, theirs: Numbers, n_exchanges: int
) -> Numbers:
    generator = np.random.default_rng(SEED)
    is_exchanged = generator.integers(2, size=(n_exchanges, len(ours)), dtype=bool)
    # As numbers a few at a time: they take eight times the memory.
    parts = np.array_split(is_exchanged, _N_EXCHANGED_PARTS)
    surplus = ours - theirs
    moved_parts = []
    for part in parts:
        weights = part.astype(np.float64)
        moved_parts.append(weights @ surplus)
    moved = np.concatenate(moved_parts)  # [exchanges, K]
    without = ours.sum(0) - moved
    with_moved = theirs.sum(0) + moved
    return _differences(measure, without, with_moved)


def _differences(measure: Any, ours: Numbers, theirs: Numbers) -> Numbers:
    differences = []
    for our_sums, their_sums in zip(ours, theirs, strict=True):
        difference = _score(measure, our_sums) - _score(measure, their_sums)
        differences.append(difference)
    return np.array(differences)
