"""Whether one system's translations score better than another's of the same lines: paired tests of corpus scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.evaluate.bleu import check_lines, metric

SEED = 12345
"""sacreBLEU's, so that both draw the same lines."""
N_RESAMPLES, N_EXCHANGES = 1000, 10_000

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Paired:
    """Two systems by one measure.

    ``interval`` is the difference's over lines that are drawn again, of 95 %. The two p are how probable a difference
    at least as large is between systems that are alike, by paired bootstrap and by approximate randomisation.
    """

    value: float
    other: float
    difference: float
    interval: tuple[float, float]
    p_bootstrap: float
    p_randomisation: float


def compare_translations(
    name: str, texts: Sequence[str], others: Sequence[str], references: Sequence[str], *, lowercase: bool = False
) -> Paired:
    """Compare two systems' translations of the same lines by a measure: bleu, of words, sacrebleu or chrf, of texts.

    Lines are drawn again 1,000 times (paired bootstrap), and exchanged between the systems 10,000 times (approximate
    randomisation). Raises DataError where numbers of lines differ.
    Source: Koehn 2004; Riezler and Maxwell 2005, with the bootstrap's shift as sacreBLEU has it.
    Departure: a difference as large as the one observed counts as chance, where sacreBLEU asks for a larger one, by
    which systems that differ in one line of a thousand would differ beyond doubt.
    """
    for lines in (texts, others):
        check_lines(lines, references)
    measure = metric(name, lowercase=lowercase)
    counts = [_counts(measure, lines, references) for lines in (texts, others)]
    value, other = (_score(measure, each.sum(0)) for each in counts)
    drawn = _drawn_again(measure, counts)
    shifted = np.abs(drawn) - np.abs(drawn).mean()
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Paired(
        value=value,
        other=other,
        difference=value - other,
        interval=(float(low), float(high)),
        p_bootstrap=_p(shifted, abs(value - other)),
        p_randomisation=_p(np.abs(_exchanged(measure, counts)), abs(value - other)),
    )


def _counts(measure: Any, texts: Sequence[str], references: Sequence[str]) -> Numbers:
    # What sacreBLEU's own tests add up: the n-grams of each line, and those that it shares with the reference.
    return np.asarray(measure._extract_corpus_statistics(list(texts), [list(references)]), dtype=np.float64)


def _score(measure: Any, counts: Numbers) -> float:
    return float(measure._compute_score_from_stats(counts.astype(np.int64).tolist()).score)


def _drawn_again(measure: Any, counts: Sequence[Numbers]) -> Numbers:
    n_lines = len(counts[0])
    chosen = np.random.default_rng(SEED).choice(n_lines, size=(N_RESAMPLES, n_lines), replace=True)
    times = np.stack([np.bincount(each, minlength=n_lines) for each in chosen]).astype(np.float64)
    return _differences(measure, times @ counts[0], times @ counts[1])


def _exchanged(measure: Any, counts: Sequence[Numbers]) -> Numbers:
    drawn = np.random.default_rng(SEED).integers(2, size=(N_EXCHANGES, len(counts[0])), dtype=bool)
    # As numbers a few at a time: they take eight times the room.
    exchanged = np.concatenate(
        [each.astype(np.float64) @ (counts[0] - counts[1]) for each in np.array_split(drawn, 20)]
    )
    return _differences(measure, counts[0].sum(0) - exchanged, counts[1].sum(0) + exchanged)


def _differences(measure: Any, ours: Numbers, theirs: Numbers) -> Numbers:
    pairs = zip(ours, theirs, strict=True)
    return np.array([_score(measure, one) - _score(measure, another) for one, another in pairs])


def _p(found: Numbers, observed: float) -> float:
    # The observed order of lines is one of the possible ones.
    return float((np.sum(found >= observed) + 1) / (len(found) + 1))
