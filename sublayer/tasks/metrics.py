"""Metrics of tasks, from predictions and gold answers, by contributions of units.

Exact match and F1 of words are computed as SQuAD's scripts compute them; ReCoRD's script computes
the same as SQuAD 1.1's, of the entity that was chosen.
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

from sublayer.system.extras import extra_module
from sublayer.tasks.task import Example, Prediction, answer_text

OTHER_ENDS = (
    "。｡！？．﹒﹖﹗"  # wide
    "։׃؟۔܀܁܂߹।॥၊။።፧፨។៕᠃᠉᥄᥅᱾᱿꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫‼‽⁇⁈⁉⸮⸼"
)
"""Marks that end sentences in scripts other than Latin, Greek and Cyrillic.

Source: the marks of spaCy's sentencizer, those of Khmer and Hebrew added."""
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u3190-\u9fff\uf900-\ufaff"
    "\ufe30-\ufe4f\uff01-\uff9f\U00020000-\U0003ffff"
)
"""Ranges of characters, for a regular expression, that are written without spaces between words.

Thai, Lao, Tibetan, Burmese, Khmer; Chinese and Japanese with their punctuation; not Hangul."""

Numbers = NDArray[np.float64]
Predictions = Sequence[Prediction | None]
"""One for each example, in their order; None where there is none."""
_NONE = -1
"""The class of a prediction that is none of the labels."""
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Answered:
    """Labelled examples, at least one, and their predictions.

    Units are groups of examples, and each example that has no group, in the order of their firsts.
    """

    examples: Sequence[Example]
    predictions: Predictions

    @cached_property
    def of_examples(self) -> NDArray[np.int64]:
        """The number of each example's unit."""
        numbers: dict[object, int] = {}
        of_examples = [
            numbers.setdefault(example.group or (index,), len(numbers))
            for index, example in enumerate(self.examples)
        ]
        return np.array(of_examples, dtype=np.int64)

    @cached_property
    def n_units(self) -> int:
        """The number of units."""
        return int(self.of_examples.max()) + 1

    @property
    def are_units(self) -> bool:
        """True where each unit is a single example."""
        return self.n_units == len(self.examples)

    def sums(self, values: Numbers) -> Numbers:
        """Add up the values of each unit's examples, [N, K], to [U, K]."""
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
        """Return the mean of each example's value; ``of`` those that count, unset all."""
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
    """Contributions of units to a metric, for resampling."""

    reason: str = ""
    """Reason why the metric has no value of all units and is 0; empty where it has one."""

    @property
    @abstractmethod
    def n_units(self) -> int:
        """Return the number of units."""

    @abstractmethod
    def at(self, weights: Numbers) -> Numbers:
        """Return the metric of samples, [R], from unit counts, [R, U]."""

    @abstractmethod
    def influences(self) -> Numbers:
        """Return each unit's influence on the metric, [U]: pseudo-values less their mean.

        Their variance by the number of units is that of the metric (Efron 1982, the jackknife).
        """

    @property
    def value(self) -> float:
        """Return the metric of all units; 0 where it has no value."""
        if self.reason:
            return 0.0
        return float(self.at(np.ones((1, self.n_units)))[0])


@dataclass
class Sums(Contributions):
    """A metric as a function of sums over units."""

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
    """As ``Task.metrics`` says it."""
    title: str
    """As tables head it."""
    contributions: Callable[[Answered], Contributions]
    """Computes the contribution of each unit."""
    is_beside: bool = False
    """True where it is reported beside a task's score, and is no part of that."""
    is_proportion: bool = False
    """True where it is the share of examples that are right, whose error is a proportion's."""
    is_balanced: bool = False
    """True where every class counts alike, however rare."""


def ratio(sums: Numbers) -> Numbers:
    """Divide the first column by the second."""
    return quotient(sums[:, 0], sums[:, 1])


def quotient(above: Numbers, below: Numbers) -> Numbers:
    """Divide; 0 where the divisor is 0."""
    result = np.zeros(np.broadcast_shapes(above.shape, below.shape))
    np.divide(above, below, out=result, where=below > 0)
    return result


def accuracy(answered: Answered) -> Sums:
    """Compute the accuracy; answers that are not labels are wrong."""
    gold, predicted = answered.labels
    return answered.share(gold == predicted)


def accuracy_of(beginning: str, answered: Answered) -> Sums:
    """Compute the accuracy of the examples whose ids begin so, as those of a school of RACE."""
    gold, predicted = answered.labels
    is_of = np.array([example.id.startswith(beginning) for example in answered.examples])
    reason = "" if is_of.any() else f"no example is of {beginning}"
    return answered.share(is_of & (gold == predicted), of=is_of, reason=reason)


def f1(answered: Answered) -> Sums:
    """Compute the F1 of class 1; 0 where neither gold nor predictions have it.

    A prediction that is neither 0 nor 1 counts as the opposite of the label. Source: T5's
    ``f1_score_with_invalid``.
    """
    gold, predicted = answered.labels
    is_valid = (predicted == 0) | (predicted == 1)
    is_gold = gold == 1
    is_predicted = np.where(is_valid, predicted == 1, ~is_gold)
    counts = _counts(is_gold, is_predicted)
    return Sums(answered.sums(counts), lambda sums: _f1(sums[:, 0], sums[:, 1], sums[:, 2]))


def macro_f1(answered: Answered) -> Sums:
    """Compute the mean of each class's F1 against the others.

    The classes are those that are right or predicted somewhere in the sample, as in scikit-learn;
    a prediction that is none of them is missed by the right class, and is false for no other.
    """
    gold, predicted = answered.labels
    classes = np.unique(np.concatenate([gold, predicted]))
    classes = classes[classes != _NONE]
    counts = [_counts(gold == label, predicted == label) for label in classes]
    return Sums(answered.sums(np.concatenate(counts, axis=1)), _mean_f1)


def matthews(answered: Answered) -> Sums:
    """Compute Matthews correlation, of two or more classes, from -1 to 1.

    0 where all examples are of one class, or all predictions. A prediction that is none of the
    labels is a class of its own, as in T5. Source: Gorodkin 2004, R_K.
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
    """Compute the share of groups whose predictions are all right: MultiRC's EM, of questions.

    An example of no group is one by itself.
    """
    gold, predicted = answered.labels
    columns = np.ones((answered.n_units, 2))
    columns[answered.of_examples[gold != predicted], 0] = 0
    return Sums(columns, ratio)


def gender_parity(answered: Answered) -> Sums:
    """Compute the share of pairs whose two predictions are the same, right or wrong.

    A prediction that is none of the labels is the same as nothing. An example of no pair is left
    out. Source: Rudinger et al. 2018, as SuperGLUE has it.
    """
    _, predicted = answered.labels
    columns = np.zeros((answered.n_units, 2))
    for unit in range(answered.n_units):
        of_unit = predicted[answered.of_examples == unit]
        if len(of_unit) > 1:
            columns[unit] = len({*of_unit.tolist()}) == 1 and _NONE not in of_unit, 1
    reason = "" if columns.any() else "no two examples are a pair"
    return Sums(columns, ratio, reason)


_ROUNDING = 1e-12
"""A variance, as a part of that of the whole set, that is none."""
_MOST_WEIGHTS = 1 << 22
"""Of samples whose ranks are computed at once."""
Places = NDArray[np.int64]


def pearson(answered: Answered) -> Sums:
    """Correlate the numbers, from -1 to 1; 0 where either side is constant.

    A text that is no number counts as one below all that are right: by a fifth of their range, as
    T5's -1 lies below 0 to 5.
    """
    gold, predicted, reason = _numbers(answered)
    x, y = _standardised(gold), _standardised(predicted)
    columns = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)
    return Sums(answered.sums(columns), _numbers_correlation, reason)


def spearman(answered: Answered) -> "Ranks":
    """Correlate the ranks, from -1 to 1; equal numbers have the mean of their ranks.

    Otherwise as ``pearson``.
    """
    gold, predicted, reason = _numbers(answered)
    return Ranks(answered, _places(gold), _places(predicted), reason)


@dataclass
class Ranks(Contributions):
    """Pairs of numbers, ranked anew in each sample."""

    answered: Answered
    gold: Places
    """The place of each example's number among the distinct ones, from 0, [N]."""
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
        # The mean rank is half of what there is.
        x = _ranks(self.gold, weights) - total / 2  # [R, N]
        y = _ranks(self.predicted, weights) - total / 2
        covariance = (weights * x * y).sum(1)
        deviation = np.sqrt((weights * x * x).sum(1)) * np.sqrt((weights * y * y).sum(1))
        return quotient(covariance, deviation)

    def influences(self) -> Numbers:
        """Return the correlation's derivatives by the weights of the units, times their number.

        An example adds its product, and moves the ranks of all above it.
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
    """Return labels, predictions, and the reason why they have no correlation."""
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
    """Subtract the mean and divide by the deviation, so that sums of squares lose no digits."""
    # By the range first: the square of a number may be none that there is.
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
    """Return the rank of each number, [R, N]: the weight below it, and half of its equals'."""
    n_places = int(places.max()) + 1
    rows = np.arange(len(weights))[:, None] * n_places
    at_places = np.bincount((rows + places).ravel(), weights.ravel(), len(weights) * n_places)
    at_places = at_places.reshape(len(weights), n_places)
    ranks: Numbers = (at_places.cumsum(1) - at_places / 2)[:, places]
    return ranks


def _above(places: Places, values: Numbers) -> Numbers:
    """Return for each example the sum of values that lie above it, and half of those equal."""
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
    """Return a text as answers are compared: in lower case, without ASCII punctuation and articles.

    Punctuation goes first: of "The-Cat" remains "thecat".
    """
    without = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", without).split())


def _compared(compare: Compare, answered: Answered) -> Sums:
    """Compare texts as SQuAD 1.1's script does; where there is no prediction it is wrong."""
    pairs = zip(answered.examples, answered.predictions, strict=True)
    return answered.share(
        [
            max(
                (compare(gold.text, answer_text(example, given)) for gold in example.answers),
                default=0.0,
            )
            if given is not None
            else 0.0
            for example, given in pairs
        ]
    )


def _compared_v2(compare: Compare, answered: Answered) -> Sums:
    """Compare texts as SQuAD 2.0's script does; examples without a prediction are left out."""
    scores = scores_v2(compare, answered.examples, answered.predictions)
    is_there = ~np.isnan(scores)
    reason = "" if is_there.any() else "there are no predictions"
    return answered.share(np.where(is_there, scores, 0), of=is_there, reason=reason)


def scores_v2(compare: Compare, examples: Sequence[Example], predictions: Predictions) -> Numbers:
    """Score texts as SQuAD 2.0's script does; NaN where there is no prediction.

    No answer is an empty text. Gold answers that normalise to nothing are ignored.
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
    """Compare words: 0 where none is shared, also of nothing."""
    gold_words, words = normalise(gold).split(), normalise(predicted).split()
    n_shared = (Counter(gold_words) & Counter(words)).total()
    return 2 * n_shared / (len(gold_words) + len(words)) if n_shared else 0.0


def f1_v2(gold: str, predicted: str) -> float:
    """Compare words: of nothing, equality counts."""
    is_nothing = not normalise(gold) or not normalise(predicted)
    return is_equal(gold, predicted) if is_nothing else words_f1(gold, predicted)


exact_match, token_f1 = (partial(_compared, compare) for compare in (is_equal, words_f1))
exact_match_v2, token_f1_v2 = (partial(_compared_v2, compare) for compare in (is_equal, f1_v2))


class RougeWords:
    """The tokenizer of ROUGE: words in lower case, in scripts without spaces single characters.

    Equal to the default of rouge-score on ASCII, which drops all other letters; no stemming.
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
    """Compute sacreBLEU's chrF2 of all texts, from 0 to 1; of several references the best.

    Source: Popovic 2015.
    """
    measure = extra_module("sacrebleu", _SCORED, "text").CHRF()
    golds = [[answer.text for answer in example.answers] for example in answered.examples]
    # A stream has the n-th reference of every text, None where it has fewer.
    streams = [list(stream) for stream in zip_longest(*golds)]
    counts = measure._extract_corpus_statistics(answered.written, streams)

    def from_sums(sums: Numbers) -> Numbers:
        rows = np.atleast_2d(sums)
        scores = [measure._compute_score_from_stats(row.tolist()).score for row in rows]
        return np.array(scores) / 100

    return Sums(answered.sums(np.asarray(counts, dtype=np.float64)), from_sums)


def rouge(name: str, answered: Answered) -> Sums:
    """Compute the mean F1 of rouge-score, by its name; of several references the best.

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
    """Compare texts as they are written, but for white space, with each reference."""
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
"""In the order in which the documentation lists them."""


def parts_of_score(metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics whose mean is a task's score."""
    return tuple(name for name in metrics if not METRICS[name].is_beside)
