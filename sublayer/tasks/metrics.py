"""Metrics of tasks, from predictions and gold answers, as contributions of units.

Exact match and word F1 follow SQuAD's scripts; ReCoRD's script computes the same as SQuAD 1.1's,
for the chosen entity.
"""

import re
import string
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.errors import extra_module
from sublayer.tasks.task import Example, Prediction

OTHER_ENDS = (
    "。｡！？．﹒﹖﹗"  # wide
    "։׃؟۔܀܁܂߹।॥၊။።፧፨។៕᠃᠉᥄᥅᱾᱿꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫‼‽⁇⁈⁉⸮⸼"
)
"""Sentence-final punctuation of scripts other than Latin, Greek and Cyrillic.

Source: spaCy's sentencizer, with those of Khmer and Hebrew added."""
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u3190-\u9fff\uf900-\ufaff"
    "\ufe30-\ufe4f\uff01-\uff9f\U00020000-\U0003ffff"
)
"""Character ranges, for a regular expression, of scripts without spaces between words.

Thai, Lao, Tibetan, Burmese, Khmer; Chinese and Japanese with their punctuation; not Hangul."""

Numbers = NDArray[np.float64]
Predictions = Sequence[Prediction | None]
"""Predictions in the order of the examples; None for an example without one."""
_NONE = -1
"""Class index of a prediction outside the labels."""
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Answered:
    """Labelled examples, at least one, and their predictions.

    Units are groups of examples, and single examples without a group, in the order of their first
    examples.
    """

    examples: Sequence[Example]
    predictions: Predictions

    @cached_property
    def of_examples(self) -> NDArray[np.int64]:
        """Index of each example's unit, [N]."""
        numbers: dict[object, int] = {}
        of_examples = [
            numbers.setdefault(example.group or (index,), len(numbers))
            for index, example in enumerate(self.examples)
        ]
        return np.array(of_examples, dtype=np.int64)

    @cached_property
    def n_units(self) -> int:
        """Number of units."""
        return int(self.of_examples.max()) + 1

    @property
    def are_units(self) -> bool:
        """True where each unit is a single example."""
        return self.n_units == len(self.examples)

    def sums(self, values: Numbers) -> Numbers:
        """Sum the values of each unit's examples, from [N, K] to [U, K]."""
        if self.are_units:
            return values
        result = np.zeros((self.n_units, values.shape[1]))
        np.add.at(result, self.of_examples, values)
        return result

    def share(
        self,
        values: NDArray[Any] | Sequence[float],
        *,
        of: NDArray[np.bool_] | None = None,
        reason: str = "",
    ) -> "Sums":
        """Return the mean value over examples; ``of`` selects the examples that count, None all."""
        counted = np.ones(len(values)) if of is None else of
        return Sums(
            self.sums(np.stack([values, counted], axis=1).astype(np.float64)), ratio, reason
        )

    @cached_property
    def labels(self) -> tuple[Labels, Labels]:
        """Gold and predicted classes."""
        gold = [example.label for example in self.examples]
        labels = [None if pred is None else pred.label for pred in self.predictions]
        predicted = [_NONE if label is None else label for label in labels]
        return np.array(gold, dtype=np.int64), np.array(predicted, dtype=np.int64)

    @property
    def written(self) -> list[str]:
        """Written texts."""
        return ["" if pred is None else pred.text for pred in self.predictions]


class Contributions(ABC):
    """Contributions of units to a metric, from which resampled sets are scored."""

    reason: str = ""
    """Why the metric is undefined over all units, and reported as 0; empty where it is defined."""

    @property
    @abstractmethod
    def n_units(self) -> int:
        """Return the number of units."""

    @abstractmethod
    def at(self, weights: Numbers) -> Numbers:
        """Return the metric of each sample, [R], from unit counts, [R, U]."""

    @abstractmethod
    def influences(self) -> Numbers:
        """Return each unit's influence on the metric, [U]: pseudo-values minus their mean.

        Their variance divided by the number of units estimates the metric's variance (Efron 1982,
        the jackknife).
        """

    @property
    def value(self) -> float:
        """Return the metric over all units; 0 where it is undefined."""
        if self.reason:
            return 0.0
        return float(self.at(np.ones((1, self.n_units)))[0])


@dataclass
class Sums(Contributions):
    """A metric that is a function of sums over units."""

    columns: Numbers
    """Summands of each unit, [U, K]."""
    from_sums: Callable[[Numbers], Numbers]
    """Computes the metric, [R], from sums of the columns, [R, K]."""
    reason: str = ""

    @property
    def n_units(self) -> int:
        """Return the number of rows."""
        return len(self.columns)

    def at(self, weights: Numbers) -> Numbers:
        """Return the metric of weighted sums."""
        return self.from_sums(weights @ self.columns)

    def influences(self) -> Numbers:
        """Return the leave-one-out change, times the number of other units."""
        without_each = self.from_sums(self.columns.sum(0) - self.columns)
        moved: Numbers = (self.n_units - 1) * (without_each.mean() - without_each)
        return moved


@dataclass(frozen=True)
class TaskMetric:
    """A row of ``METRICS``."""

    name: str
    """Name in ``Task.metrics``."""
    title: str
    """Heading in tables."""
    contributions: Callable[[Answered], Contributions]
    """Computes the contribution of each unit."""
    is_beside: bool = False
    """True where it is reported along with a task's score, but is not part of it."""
    is_proportion: bool = False
    """True where it is the share of correct examples, with the standard error of a proportion."""
    is_balanced: bool = False
    """True where every class has the same weight, however rare."""


def ratio(sums: Numbers) -> Numbers:
    """Divide the first column by the second."""
    return quotient(sums[:, 0], sums[:, 1])


def quotient(above: Numbers, below: Numbers) -> Numbers:
    """Divide; 0 where the divisor is 0."""
    result = np.zeros(np.broadcast_shapes(above.shape, below.shape))
    np.divide(above, below, out=result, where=below > 0)
    return result


def accuracy(answered: Answered) -> Sums:
    """Compute the accuracy; answers outside the labels are wrong."""
    gold, predicted = answered.labels
    return answered.share(gold == predicted)


def accuracy_of(beginning: str, answered: Answered) -> Sums:
    """Compute the accuracy over examples whose ids have a prefix, such as the level of RACE."""
    gold, predicted = answered.labels
    is_of = np.array([example.id.startswith(beginning) for example in answered.examples])
    reason = "" if is_of.any() else f"no example is of {beginning}"
    return answered.share(is_of & (gold == predicted), of=is_of, reason=reason)


def f1(answered: Answered) -> Sums:
    """Compute the F1 of class 1; 0 where it occurs in neither labels nor predictions.

    A prediction other than 0 or 1 counts as the opposite of the label. Source: T5's
    ``f1_score_with_invalid``.
    """
    gold, predicted = answered.labels
    is_valid = (predicted == 0) | (predicted == 1)
    is_gold = gold == 1
    is_predicted = np.where(is_valid, predicted == 1, ~is_gold)
    counts = _counts(is_gold, is_predicted)
    return Sums(answered.sums(counts), lambda sums: _f1(sums[:, 0], sums[:, 1], sums[:, 2]))


def macro_f1(answered: Answered) -> Sums:
    """Compute the mean over classes of one-vs-rest F1.

    The classes are those among the labels or predictions of the sample, as in scikit-learn; a
    prediction outside the labels is a false negative of the correct class, and a false positive of
    none.
    """
    gold, predicted = answered.labels
    classes = np.unique(np.concatenate([gold, predicted]))
    classes = classes[classes != _NONE]
    counts = [_counts(gold == label, predicted == label) for label in classes]
    return Sums(answered.sums(np.concatenate(counts, axis=1)), _mean_f1)


def matthews(answered: Answered) -> Sums:
    """Compute the Matthews correlation of two or more classes, from -1 to 1.

    0 where all labels, or all predictions, are the same. A prediction outside the labels is a class
    of its own, as in T5. Source: Gorodkin 2004, R_K.
    """
    gold, predicted = answered.labels
    classes = np.unique(np.concatenate([gold, predicted]))
    of_gold = gold[:, None] == classes
    of_predicted = predicted[:, None] == classes
    ones = np.ones((len(gold), 1))
    right = (gold == predicted)[:, None]
    columns = np.concatenate([ones, right, of_gold, of_predicted], axis=1)  # [N, 2 + 2 classes]
    reason = ""
    if len(np.unique(predicted)) == 1:
        reason = "all predictions are the same"
    elif len(np.unique(gold)) == 1:
        reason = "all labels are the same"
    return Sums(answered.sums(columns), _correlation, reason)


def _counts(is_gold: NDArray[np.bool_], is_predicted: NDArray[np.bool_]) -> Numbers:
    """Return true positives, false positives and false negatives, [N, 3]."""
    parts = [is_gold & is_predicted, ~is_gold & is_predicted, is_gold & ~is_predicted]
    return np.stack(parts, axis=1).astype(np.float64)


def _f1(true: Numbers, false: Numbers, missed: Numbers) -> Numbers:
    return quotient(2 * true, 2 * true + false + missed)


def _mean_f1(sums: Numbers) -> Numbers:
    true, false, missed = np.moveaxis(sums.reshape(len(sums), -1, 3), 2, 0)  # each [R, classes]
    n_classes = np.count_nonzero(true + false + missed, axis=1).astype(np.float64)
    return quotient(_f1(true, false, missed).sum(1), n_classes)


def _correlation(sums: Numbers) -> Numbers:
    n, n_right = sums[:, 0], sums[:, 1]
    gold, predicted = np.split(sums[:, 2:], 2, axis=1)  # each [R, classes]
    covariance = n * n_right - (gold * predicted).sum(1)
    gold_variance = n**2 - (gold**2).sum(1)
    predicted_variance = n**2 - (predicted**2).sum(1)
    return quotient(covariance, np.sqrt(gold_variance) * np.sqrt(predicted_variance))


def group_exact_match(answered: Answered) -> Sums:
    """Compute the share of groups with all predictions correct: MultiRC's EM over questions.

    An example without a group is a group by itself.
    """
    gold, predicted = answered.labels
    columns = np.ones((answered.n_units, 2))
    columns[answered.of_examples[gold != predicted], 0] = 0
    return Sums(columns, ratio)


def gender_parity(answered: Answered) -> Sums:
    """Compute the share of pairs with equal predictions, correct or not.

    A prediction outside the labels equals no other. An example without a pair is left out. Source:
    Rudinger et al. 2018, as SuperGLUE computes it.
    """
    _, predicted = answered.labels
    columns = np.zeros((answered.n_units, 2))
    for unit in range(answered.n_units):
        of_unit = predicted[answered.of_examples == unit]
        if len(of_unit) > 1:
            columns[unit] = len({*of_unit.tolist()}) == 1 and _NONE not in of_unit, 1
    reason = "" if columns.any() else "no two examples form a pair"
    return Sums(columns, ratio, reason)


_ROUNDING = 1e-12
"""Variance, relative to the whole set's, up to which a sample counts as constant."""
_MOST_WEIGHTS = 1 << 22
"""Weights of the samples ranked at once."""
Places = NDArray[np.int64]


def pearson(answered: Answered) -> Sums:
    """Compute Pearson's correlation, from -1 to 1; 0 where either side is constant.

    A text that is not a number counts as a value below all labels, by a fifth of their range, as
    T5's -1 is below 0 to 5.
    """
    gold, predicted, reason = _numbers(answered)
    x, y = _standardised(gold), _standardised(predicted)
    columns = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)
    return Sums(answered.sums(columns), _numbers_correlation, reason)


def spearman(answered: Answered) -> "Ranks":
    """Compute Spearman's rank correlation, from -1 to 1; equal numbers share their mean rank.

    Missing numbers are treated as in ``pearson``.
    """
    gold, predicted, reason = _numbers(answered)
    return Ranks(answered, _places(gold), _places(predicted), reason)


@dataclass
class Ranks(Contributions):
    """Pairs of numbers, re-ranked in each sample."""

    answered: Answered
    gold: Places
    """Index of each example's number among the distinct ones, from 0, [N]."""
    predicted: Places
    reason: str = ""

    @property
    def n_units(self) -> int:
        """Return the number of units."""
        return self.answered.n_units

    def at(self, weights: Numbers) -> Numbers:
        """Return the correlation of the ranks in each sample."""
        size = max(1, _MOST_WEIGHTS // len(self.gold))
        parts = [weights[first : first + size] for first in range(0, len(weights), size)]
        return np.concatenate([self._of(part[:, self.answered.of_examples]) for part in parts])

    def _of(self, weights: Numbers) -> Numbers:
        total = weights.sum(1, keepdims=True)
        # The mean rank is half the total weight.
        x = _ranks(self.gold, weights) - total / 2  # [R, N]
        y = _ranks(self.predicted, weights) - total / 2
        covariance = (weights * x * y).sum(1)
        deviation = np.sqrt((weights * x * x).sum(1)) * np.sqrt((weights * y * y).sum(1))
        return quotient(covariance, deviation)

    def influences(self) -> Numbers:
        """Return the correlation's derivatives with respect to unit weights, times the number of
        units.

        An example adds its product, and shifts the ranks of all above it.
        """
        ones = np.ones((1, len(self.gold)))
        half = len(self.gold) / 2
        x = _ranks(self.gold, ones)[0] - half
        y = _ranks(self.predicted, ones)[0] - half
        by_covariance = x * y + _above(self.gold, y) + _above(self.predicted, x)
        by_x = x * x + 2 * _above(self.gold, x)
        by_y = y * y + 2 * _above(self.predicted, y)
        deviation = np.sqrt((x * x).sum() * (y * y).sum())
        correlation = (x * y).sum() / deviation
        slopes = by_covariance / deviation
        slopes -= correlation / 2 * (by_x / (x * x).sum() + by_y / (y * y).sum())
        return self.n_units * self.answered.sums(slopes[:, None])[:, 0]


def _numbers(answered: Answered) -> tuple[Numbers, Numbers, str]:
    """Return labels, predictions, and why their correlation is undefined; empty where it is not."""
    gold = np.array([example.label for example in answered.examples], dtype=np.float64)
    none = gold.min() - np.ptp(gold) / 5
    labels = [None if pred is None else pred.label for pred in answered.predictions]
    predicted = np.array([none if x is None else x for x in labels], dtype=np.float64)
    if not np.isfinite(predicted).all():
        n = np.count_nonzero(~np.isfinite(predicted))
        return gold, np.zeros_like(gold), f"{n:,} of the predicted numbers are not finite"
    if np.ptp(predicted) == 0:
        return gold, predicted, "all predictions are the same"
    if np.ptp(gold) == 0:
        return gold, predicted, "all labels are the same"
    return gold, predicted, ""


def _standardised(numbers: Numbers) -> Numbers:
    """Subtract the mean and divide by the deviation, so that sums of squares stay precise."""
    # Divide by the range first: squares of large numbers may overflow.
    scaled = (numbers - numbers[0]) / (np.ptp(numbers) or 1.0)
    deviation = scaled.std()
    result: Numbers = (scaled - scaled.mean()) / (deviation or 1.0)
    return result


def _numbers_correlation(sums: Numbers) -> Numbers:
    n, x, y, xx, yy, xy = sums.T
    x_variance, y_variance = n * xx - x * x, n * yy - y * y
    below = np.sqrt(np.maximum(x_variance, 0) * np.maximum(y_variance, 0))
    is_constant = np.minimum(x_variance, y_variance) <= _ROUNDING * n * n
    return quotient(n * xy - x * y, np.where(is_constant, 0, below))


def _places(numbers: Numbers) -> Places:
    return np.unique(numbers, return_inverse=True)[1].astype(np.int64)


def _ranks(places: Places, weights: Numbers) -> Numbers:
    """Return the rank of each number, [R, N]: the weight below it plus half that of its equals."""
    n_places = int(places.max()) + 1
    rows = np.arange(len(weights))[:, None] * n_places
    at_places = np.bincount((rows + places).ravel(), weights.ravel(), len(weights) * n_places)
    at_places = at_places.reshape(len(weights), n_places)
    ranks: Numbers = (at_places.cumsum(1) - at_places / 2)[:, places]
    return ranks


def _above(places: Places, values: Numbers) -> Numbers:
    """Return for each example the sum of values above its place, plus half of those at it."""
    at_places = np.bincount(places, values)
    sums: Numbers = (values.sum() - at_places.cumsum() + at_places / 2)[places]
    return sums


_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_SCORED = "the metrics of written texts"
_UNSPACED = re.compile(f"[{UNSPACED}]")
Compare = Callable[[str, str], float]
"""Scores a text against a gold answer, from 0 to 1."""


def normalise(text: str) -> str:
    """Return a text normalised for comparison: lower case, no ASCII punctuation, no articles.

    Punctuation is removed first: "The-Cat" becomes "thecat".
    """
    without = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", without).split())


def _compared(compare: Compare, answered: Answered) -> Sums:
    """Compare texts as SQuAD 1.1's script does; an example without a prediction is wrong."""
    pairs = zip(answered.examples, answered.predictions, strict=True)
    return answered.share(
        [
            max(
                (compare(gold.text, example.answer_text(prediction)) for gold in example.answers),
                default=0.0,
            )
            if prediction is not None
            else 0.0
            for example, prediction in pairs
        ]
    )


def _compared_v2(compare: Compare, answered: Answered) -> Sums:
    """Compare texts as SQuAD 2.0's script does; examples without a prediction are left out."""
    scores = scores_v2(compare, answered.examples, answered.predictions)
    is_there = ~np.isnan(scores)
    reason = "" if is_there.any() else "there are no predictions"
    return answered.share(np.where(is_there, scores, 0), of=is_there, reason=reason)


def scores_v2(compare: Compare, examples: Sequence[Example], predictions: Predictions) -> Numbers:
    """Score texts as SQuAD 2.0's script does; NaN where a prediction is missing.

    No answer is an empty text. Gold answers that normalise to an empty text are ignored.
    """
    scores = []
    for example, prediction in zip(examples, predictions, strict=True):
        if prediction is None:
            scores.append(np.nan)
            continue
        golds = [gold.text for gold in example.answers if normalise(gold.text)] or [""]
        scores.append(max(compare(gold, prediction.text) for gold in golds))
    return np.array(scores)


def is_equal(gold: str, predicted: str) -> float:
    """Compare normalised texts."""
    return float(normalise(gold) == normalise(predicted))


def words_f1(gold: str, predicted: str) -> float:
    """Compute the F1 of words: 0 where none is shared, also between two empty texts."""
    gold_words, words = normalise(gold).split(), normalise(predicted).split()
    n_shared = (Counter(gold_words) & Counter(words)).total()
    return 2 * n_shared / (len(gold_words) + len(words)) if n_shared else 0.0


def f1_v2(gold: str, predicted: str) -> float:
    """Compute the F1 of words; where either text is empty, 1 if both are, else 0."""
    is_nothing = not normalise(gold) or not normalise(predicted)
    return is_equal(gold, predicted) if is_nothing else words_f1(gold, predicted)


exact_match, token_f1 = (partial(_compared, compare) for compare in (is_equal, words_f1))
exact_match_v2, token_f1_v2 = (partial(_compared_v2, compare) for compare in (is_equal, f1_v2))


class RougeWords:
    """Tokenizer for ROUGE: lower-case words; single characters in scripts without spaces.

    Equals rouge-score's default on ASCII, which drops all other letters; no stemming.
    """

    def tokenize(self, text: str) -> list[str]:
        """Return the words of a text."""
        words = ""
        for character in unicodedata.normalize("NFC", text.lower()):
            category = unicodedata.category(character)
            if category[0] in "LMN":
                words += f" {character} " if _UNSPACED.match(character) else character
            elif category != "Cf":
                words += " "
        return words.split()


def check_text_metrics() -> None:
    """Raise DataError where a library for scoring written texts is missing."""
    extra_module("rouge_score.rouge_scorer", _SCORED, "text")
    extra_module("sacrebleu", _SCORED, "text")


def chrf(answered: Answered) -> Sums:
    """Compute sacreBLEU's chrF2 over all texts, from 0 to 1, with the best of several references.

    Source: Popovic 2015.
    """
    measure = extra_module("sacrebleu", _SCORED, "text").CHRF()
    golds = [[answer.text for answer in example.answers] for example in answered.examples]
    # Stream n holds the n-th reference of every text, None where it has fewer.
    streams = [list(stream) for stream in zip_longest(*golds)]
    counts = measure._extract_corpus_statistics(answered.written, streams)

    def from_sums(sums: Numbers) -> Numbers:
        rows = np.atleast_2d(sums)
        scores = [measure._compute_score_from_stats(row.tolist()).score for row in rows]
        return np.array(scores) / 100

    return Sums(answered.sums(np.asarray(counts, dtype=np.float64)), from_sums)


def rouge(name: str, answered: Answered) -> Sums:
    """Compute the mean F1 of a ROUGE by its rouge-score name, with the best of several references.

    Source: Lin 2004.
    """
    library = extra_module("rouge_score.rouge_scorer", _SCORED, "text")
    scorer = library.RougeScorer([name], tokenizer=RougeWords())
    scores = [
        scorer.score_multi([answer.text for answer in example.answers], text)[name].fmeasure
        for example, text in zip(answered.examples, answered.written, strict=True)
    ]
    return answered.share(scores)


def exact_text(answered: Answered) -> Sums:
    """Compute the share of texts equal to a reference, apart from white space."""
    scores = [
        float(" ".join(text.split()) in {" ".join(gold.text.split()) for gold in example.answers})
        for example, text in zip(answered.examples, answered.written, strict=True)
    ]
    return answered.share(scores)


rouge1, rouge2, rouge_l = (partial(rouge, name) for name in ("rouge1", "rouge2", "rougeL"))


METRICS: dict[str, TaskMetric] = {
    metric.name: metric
    for metric in (
        TaskMetric("accuracy", "accuracy", accuracy, is_proportion=True),
        TaskMetric("f1", "F1", f1),
        TaskMetric("macro_f1", "macro-F1", macro_f1, is_balanced=True),
        TaskMetric("matthews", "Matthews", matthews, is_balanced=True),
        TaskMetric("pearson", "Pearson", pearson),
        TaskMetric("spearman", "Spearman", spearman),
        TaskMetric("exact_match", "EM", exact_match),
        TaskMetric("token_f1", "F1", token_f1),
        TaskMetric("exact_match_v2", "EM", exact_match_v2),
        TaskMetric("token_f1_v2", "F1", token_f1_v2),
        TaskMetric("f1a", "F1a", f1),
        TaskMetric("group_exact_match", "EM", group_exact_match),
        TaskMetric("gender_parity", "parity", gender_parity),
        TaskMetric("middle", "middle", partial(accuracy_of, "middle"), is_beside=True),
        TaskMetric("high", "high", partial(accuracy_of, "high"), is_beside=True),
        TaskMetric("chrf", "chrF", chrf),
        TaskMetric("rouge1", "ROUGE-1", rouge1, is_beside=True),
        TaskMetric("rouge2", "ROUGE-2", rouge2, is_beside=True),
        TaskMetric("rougeL", "ROUGE-L", rouge_l, is_beside=True),
        TaskMetric("exact_text", "exact", exact_text, is_beside=True),
    )
}
"""Metrics by name, in the order of the documentation."""


def parts_of_score(metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics that a task's score averages."""
    return tuple(name for name in metrics if not METRICS[name].is_beside)
