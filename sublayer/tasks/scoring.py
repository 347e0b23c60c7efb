"""Scores of tasks with standard errors, no-answer thresholds, and comparison of two models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sublayer.errors import DataError
from sublayer.tasks.metrics import (
    METRICS,
    Answered,
    Compare,
    Contributions,
    Numbers,
    Predictions,
    Sums,
    f1_v2,
    is_equal,
    parts_of_score,
    scores_v2,
)
from sublayer.tasks.task import Example, Prediction


def best_threshold(
    examples: Sequence[Example], predictions: Predictions, compare: Compare = f1_v2
) -> tuple[float, float]:
    """Find the best F1, or the best exact match, and its threshold, as SQuAD 2.0's script does.

    Each prediction's text is the best non-empty answer, whatever its ``no_answer``. Starting with
    all empty, answers are given one by one in ascending order of ``no_answer``; the threshold is
    that of the last answer given at the best score, 0 where none is given. Ties in ``no_answer``
    keep the order of examples, so that the best score may count only some of the answers at the
    threshold.
    """
    score = best_score = float(sum(not example.answers for example in examples))
    threshold = 0.0
    gains = scores_v2(compare, examples, predictions).tolist()
    predicted = [
        (prediction, example, gain)
        for prediction, example, gain in zip(predictions, examples, gains, strict=True)
        if prediction is not None
    ]
    for prediction, example, gain in sorted(predicted, key=lambda triple: triple[0].no_answer):
        if example.answers:
            score += gain
        elif prediction.text:
            score -= 1
        if score > best_score:
            best_score, threshold = score, prediction.no_answer
    return best_score / len(predicted) if predicted else 0.0, threshold


def with_threshold(predictions: Sequence[Prediction], threshold: float) -> list[Prediction]:
    """Empty the answers with ``no_answer`` above a threshold; one at the threshold stays.

    This matches the scoring script; ALBERT's code empties that one too.
    """
    return [
        replace(prediction, text="", start=None) if prediction.no_answer > threshold else prediction
        for prediction in predictions
    ]


@dataclass(frozen=True)
class ByAnswerable:
    """SQuAD 2.0's exact match and F1 over questions with an answer, or over those without."""

    n: int
    exact: float
    f1: float


def by_answerable(
    examples: Sequence[Example], predictions: Predictions
) -> dict[bool, ByAnswerable]:
    """Score questions with gold answers (True) and without (False) separately.

    A kind without questions, or without predictions, has no entry: the script fails there.
    """
    exact = scores_v2(is_equal, examples, predictions)
    f1 = scores_v2(f1_v2, examples, predictions)
    has_answer = np.array([bool(example.answers) for example in examples])
    result = {}
    for kind in (True, False):
        chosen = (has_answer == kind) & ~np.isnan(exact)
        if chosen.any():
            means = float(exact[chosen].mean()), float(f1[chosen].mean())
            result[kind] = ByAnswerable(int(chosen.sum()), *means)
    return result


def points(value: float) -> str:
    """Format a value, or a correlation, in points (hundredths)."""
    return f"{100 * value:z.1f}"


def signed_points(difference: float) -> str:
    """Format a signed difference of values in points."""
    return f"{100 * difference:+z.1f}"


@dataclass(frozen=True)
class MetricValue:
    """A metric over a set of examples."""

    value: float
    """Value from 0 to 1; from -1 for a correlation."""
    standard_error: float | None
    """Standard error of sampling the examples; None with a single unit, or without a value."""
    reason: str = ""
    """Why the metric is undefined, and reported as 0; empty where it is defined."""


@dataclass(frozen=True)
class TaskScore:
    """Mean of a task's metrics over a set of examples."""

    value: float
    standard_error: float | None
    metrics: Mapping[str, MetricValue]
    """Metrics by name."""
    n_examples: int
    n_outside: int
    """Number of predictions outside the labels, or not a number."""
    influences: Mapping[str, Numbers] = field(default_factory=dict, compare=False, repr=False)
    """Influence of each example, or group of examples, on a metric, as pseudo-values minus their
    mean, by the metric's name; on the score under "". Zeros where a metric is undefined."""


def score(
    examples: Sequence[Example], predictions: Predictions, metrics: Sequence[str]
) -> TaskScore:
    """Compute metrics of predictions, and the mean of the metrics that are part of a score.

    The standard error of accuracy is that of a proportion, sqrt(p (1 - p) / n); that of other
    metrics, of means of metrics, and of grouped examples is the jackknife's, over examples or
    groups. Raises DataError where there are no examples, or unlabelled ones.
    """
    check_labelled(examples)
    answered = Answered(examples, predictions)
    contributions = {name: METRICS[name].contributions(answered) for name in metrics}
    values = {}
    influences = np.zeros((len(metrics), answered.n_units))
    for row, (name, metric) in enumerate(contributions.items()):
        error: float | None = None
        if not metric.reason and answered.n_units > 1:
            influences[row] = metric.influences()
            error = _jackknife(influences[row])
            if METRICS[name].is_proportion and answered.are_units:
                p_right = metric.value
                error = float(np.sqrt(p_right * (1 - p_right) / answered.n_units))
        values[name] = MetricValue(metric.value, error, metric.reason)
    n_outside = sum(
        (example.label is not None or example.choices != ())
        and (prediction is None or prediction.label is None)
        for example, prediction in zip(examples, predictions, strict=True)
    )
    of_score = parts_of_score(metrics)
    parts = [values[name] for name in of_score]
    errors = [part.standard_error for part in parts]
    mean = influences[[name in of_score for name in metrics]].mean(0)
    error = None if None in errors else _jackknife(mean)
    error = errors[0] if len(parts) == 1 else error
    return TaskScore(
        value=float(np.mean([part.value for part in parts])),
        standard_error=error,
        metrics=values,
        n_examples=len(examples),
        n_outside=n_outside,
        influences={"": mean, **dict(zip(contributions, influences, strict=True))},
    )


def check_labelled(examples: Sequence[Example]) -> None:
    """Raise DataError where there are no examples, or unlabelled ones."""
    if not examples:
        raise DataError("there are no examples to score")
    n_unlabelled = sum(not example.is_labelled for example in examples)
    if n_unlabelled:
        raise DataError(
            f"{n_unlabelled:,} of {len(examples):,} examples have no label, as in a test split: "
            "score a labelled split"
        )


def _jackknife(influences: Numbers) -> float:
    n = len(influences)
    return float(np.sqrt(((influences - influences.mean()) ** 2).sum() / (n * (n - 1))))


SEED = 12345
"""Seed of resampling, the same every time."""
N_RESAMPLES = 1000
_PERCENTILES = (2.5, 97.5)
_MOST_PATTERNS = 1000
"""Most distinct units for which resamples are drawn by multinomial counts."""
_MOST_WEIGHTS = 1 << 22
"""Most weights drawn at once."""


@dataclass(frozen=True)
class PairedScores:
    """Difference between two models on the same examples."""

    value: float
    other: float
    difference: float
    """``value - other``: positive where the first model is better."""
    interval: tuple[float, float]
    """95 % bootstrap interval of the difference."""
    p_mcnemar: float | None
    """Only for accuracy, over ungrouped examples: two-sided probability of a difference at least
    this large between equally accurate models."""
    n_only_first: int | None
    """For accuracy: number of examples that only the first model has right."""
    n_only_other: int | None

    @property
    def is_decided(self) -> bool:
        """Check whether the interval excludes 0."""
        return self.interval[0] > 0 or self.interval[1] < 0


def paired(
    examples: Sequence[Example],
    predictions: Predictions,
    others: Predictions,
    metrics: Sequence[str],
) -> PairedScores:
    """Compare two models' predictions for the same examples by their score, the mean of metrics.

    Examples, or groups of examples, are resampled 1,000 times with replacement, the same for both
    models and every metric; the interval spans the 2.5th to the 97.5th percentile. For accuracy
    McNemar's exact test is computed, too. Raises DataError as ``score`` does.
    """
    check_labelled(examples)
    metrics = parts_of_score(metrics)
    ours, theirs = (
        [METRICS[name].contributions(Answered(examples, predicted)) for name in metrics]
        for predicted in (predictions, others)
    )
    value = float(np.mean([metric.value for metric in ours]))
    other = float(np.mean([metric.value for metric in theirs]))
    differences = _resampled(ours, theirs, ours[0].n_units)
    low, high = np.percentile(differences, _PERCENTILES)
    n_only_first = n_only_other = p_value = None
    is_proportion = len(metrics) == 1 and METRICS[metrics[0]].is_proportion
    if is_proportion and ours[0].n_units == len(examples):
        from scipy.stats import binomtest  # slow to import, and only needed here

        (our,), (their,) = ours, theirs
        assert isinstance(our, Sums), "accuracy is a mean"
        assert isinstance(their, Sums), "accuracy is a mean"
        gained = our.columns[:, 0] - their.columns[:, 0]
        n_only_first, n_only_other = int((gained > 0).sum()), int((gained < 0).sum())
        n_other = n_only_first + n_only_other
        p_value = float(binomtest(n_only_first, n_other).pvalue) if n_other else 1.0
    return PairedScores(
        value=value,
        other=other,
        difference=value - other,
        interval=(float(low), float(high)),
        p_mcnemar=p_value,
        n_only_first=n_only_first,
        n_only_other=n_only_other,
    )


def _resampled(
    ours: Sequence[Contributions], theirs: Sequence[Contributions], n_units: int
) -> Numbers:
    generator = np.random.default_rng(SEED)
    both = [metric for metric in (*ours, *theirs) if isinstance(metric, Sums)]
    if len(both) == len(ours) + len(theirs):
        # Counts of distinct units are drawn, unless there are too many kinds: right or wrong, by
        # both models, makes four kinds for any number of examples.
        joined = np.concatenate([metric.columns for metric in both], axis=1)
        rows, counts = np.unique(joined, axis=0, return_counts=True)
        if len(rows) <= _MOST_PATTERNS:
            ends = np.cumsum([metric.columns.shape[1] for metric in both])
            parts = np.split(rows, ends[:-1], axis=1)
            sums = [Sums(part, metric.from_sums) for part, metric in zip(parts, both, strict=True)]
            p_kinds = counts.astype(np.float64) / n_units
            drawn = generator.multinomial(n_units, p_kinds, size=N_RESAMPLES)
            weights = np.asarray(drawn, dtype=np.float64)
            return _differences(sums[: len(ours)], sums[len(ours) :], weights)
    size = max(1, _MOST_WEIGHTS // n_units)
    differences = []
    for first in range(0, N_RESAMPLES, size):
        n_rows = min(size, N_RESAMPLES - first)
        indices = generator.integers(n_units, size=(n_rows, n_units))
        indices += np.arange(n_rows)[:, None] * n_units
        n_drawn = np.bincount(indices.ravel(), minlength=n_rows * n_units)
        weights = np.asarray(n_drawn.reshape(n_rows, n_units), dtype=np.float64)
        differences.append(_differences(ours, theirs, weights))
    return np.concatenate(differences)


def _differences(
    ours: Sequence[Contributions], theirs: Sequence[Contributions], weights: Numbers
) -> Numbers:
    pairs = zip(ours, theirs, strict=True)
    differences = [our.at(weights) - their.at(weights) for our, their in pairs]
    mean: Numbers = np.mean(differences, axis=0)
    return mean
