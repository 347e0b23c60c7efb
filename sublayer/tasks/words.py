"""Words alone: a linear model of them, their overlap, or the phrase that answers."""

import itertools
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias
from unicodedata import category

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import LinearOperator, lsqr
from scipy.special import expit, logsumexp, softmax

from sublayer.tasks.formats import PLACEHOLDER, answered, fill_query, texts_of
from sublayer.tasks.reading import labelled_rows
from sublayer.tasks.scripts import OTHER_ENDS, UNSPACED
from sublayer.tasks.task import Example, Prediction, Task
from sublayer.tasks.text_metrics import best_thresholds, with_threshold

_TOKEN = re.compile(r"\w+|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Return words and marks in lower case: "Don't go." is don ' t go . of them.

    Vowel signs and accents belong to their words; each character of a script without spaces between
    words is one.
    """
    pattern = _TOKEN if text.isascii() else _token_of_any_script()
    return pattern.findall(text.lower())


@cache
def _token_of_any_script() -> re.Pattern[str]:
    signs = "".join(each for each in map(chr, range(0x300, 0x10000)) if category(each)[0] == "M")
    return re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])[\w{signs}])+|[^\w\s]")


class Words:
    """Splits texts, each of which is split once: a passage stands in many examples."""

    def __init__(self) -> None:
        self._split: dict[str, list[str]] = {}

    def of(self, text: str) -> list[str]:
        """Return the words of a text."""
        words = self._split.get(text)
        if words is None:
            words = self._split[text] = split_words(text)
        return words


Ids = NDArray[np.int64]
_NONE = -1
"""Of a word that is not known, and where nothing begins."""


def look_up(texts: Sequence[Sequence[str]], vocabulary: Mapping[str, int]) -> tuple[Ids, Ids]:
    """Return the id of every word, text after text, or -1, and the text that it stands in."""
    ids = [vocabulary.get(word, _NONE) for text in texts for word in text]
    lengths = [len(text) for text in texts]
    return np.array(ids, dtype=np.int64), np.repeat(np.arange(len(texts)), lengths)


def find_codes(before: Ids, ids: Ids, rows: Ids, *, n_before: int, n_words: int) -> Ids:
    """Return the code of what begins at each place and is a word longer than ``before``; or -1.

    A code is the id of the first ``n_before`` words times the number of all words, plus the id of
    the word that follows them in the same text.
    """
    codes = np.full(len(ids), _NONE)
    n_places = max(0, len(ids) - n_before)
    first, last = before[:n_places], ids[n_before:]
    is_there = (first != _NONE) & (last != _NONE) & (rows[:n_places] == rows[n_before:])
    codes[:n_places][is_there] = first[is_there] * n_words + last[is_there]
    return codes


def places_of(known: Ids, codes: Ids) -> Ids:
    """Return the place of each code among known ones, which are sorted; or -1."""
    if not len(known):
        return np.full(len(codes), _NONE)
    places = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    return np.where(known[places] == codes, places, _NONE)


def count_features(
    features: Sequence[Ids], sizes: Sequence[int], rows: Ids, n_texts: int
) -> sparse.csr_matrix:
    """Count in each text the features of several kinds, whose columns stand side by side.

    ``features`` has for each kind an id for each place, or -1; ``sizes`` how many there are.
    """
    firsts = np.cumsum([0, *sizes[:-1]])
    parts = [
        np.where(ids == _NONE, _NONE, ids + first)
        for ids, first in zip(features, firsts, strict=True)
    ]
    columns = np.concatenate(parts)
    is_there = columns != _NONE
    all_rows = np.tile(rows, len(features))[is_there]
    ones = np.ones(len(all_rows))
    shape = (n_texts, sum(sizes))
    return sparse.coo_matrix((ones, (all_rows, columns[is_there])), shape).tocsr()


Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Tfidf:
    """What was learned of texts: their words, word pairs and so on, and how rare each is."""

    vocabulary: dict[str, int]
    codes: tuple[Ids, ...]
    """Of two words, then three, and so on, sorted: the place of each is its id."""
    idf: Weights
    """How rare each feature is, single words first."""

    def transform(self, texts: Sequence[Sequence[str]]) -> sparse.csr_matrix:
        """Return a row of length 1 for each text, or of 0 where nothing in it is known."""
        ids, rows = look_up(texts, self.vocabulary)
        features, before = [ids], ids
        for n_before, known in enumerate(self.codes, start=1):
            found = find_codes(before, ids, rows, n_before=n_before, n_words=len(self.vocabulary))
            before = places_of(known, found)
            features.append(before)
        sizes = [len(self.vocabulary), *map(len, self.codes)]
        return _scaled(count_features(features, sizes, rows, len(texts)), self.idf)


def fit_tfidf(
    texts: Sequence[Sequence[str]], *, n_words: int = 1
) -> tuple[Tfidf, sparse.csr_matrix]:
    """Learn the features of texts, each a sequence of words; return them and the texts' rows.

    ``n_words``: of how many words that follow each other the longest features are.
    """
    vocabulary: dict[str, int] = {}
    for text in texts:
        for word in text:
            vocabulary.setdefault(word, len(vocabulary))
    ids, rows = look_up(texts, vocabulary)
    features, codes, before = [ids], [], ids
    for n_before in range(1, n_words):
        found = find_codes(before, ids, rows, n_before=n_before, n_words=len(vocabulary))
        known = np.unique(found[found >= 0])
        before = places_of(known, found)
        codes.append(known)
        features.append(before)
    sizes = [len(vocabulary), *map(len, codes)]
    counts = count_features(features, sizes, rows, len(texts))
    idf = inverse_frequencies(counts)
    return Tfidf(vocabulary, tuple(codes), idf), _scaled(counts, idf)


def inverse_frequencies(counts: sparse.csr_matrix) -> Weights:
    """Return for each feature the logarithm of how rare it is, smoothed, plus 1."""
    n_texts, n_features = counts.shape
    n_with = np.bincount(counts.indices, minlength=n_features)
    weights: Weights = np.log((1 + n_texts) / (1 + n_with)) + 1
    return weights


def _scaled(counts: sparse.csr_matrix, idf: Weights) -> sparse.csr_matrix:
    weighted = counts @ sparse.diags(idf)
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    inverse = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return sparse.csr_matrix(sparse.diags(inverse) @ weighted)


_LbfgsNumbers = NDArray[np.float64]
_Objective = Callable[[_LbfgsNumbers], tuple[float, _LbfgsNumbers]]
"""Returns its value and its slopes."""
_N_KEPT = 10
"""Steps that the curvature is estimated from."""
_DECREASE = 1e-4
"""Of what the slope promises, the part that a step has to bring."""
_SLACK = 8 * np.finfo(np.float64).eps
"""Of the value, what is rounding."""
_MOST_HALVINGS = 50


def minimise(
    objective: _Objective, start: _LbfgsNumbers, *, tolerance: float, most_steps: int
) -> _LbfgsNumbers:
    """Return where the largest slope is at most ``tolerance``, or where steps end."""
    place = start
    value, slopes = objective(place)
    kept: deque[tuple[_LbfgsNumbers, _LbfgsNumbers]] = deque(maxlen=_N_KEPT)
    for _ in range(most_steps):
        if np.abs(slopes).max(initial=0.0) <= tolerance:
            break
        direction = -_times_inverse(slopes, kept)
        length = 1.0 if kept else min(1.0, 1 / float(np.abs(slopes).sum()))
        promise = _dot(slopes, direction)
        for _ in range(_MOST_HALVINGS):
            new_value, new_slopes = objective(place + length * direction)
            if new_value <= value + _DECREASE * length * promise + _SLACK * abs(value):
                break
            length /= 2
        else:
            break
        moved, turned = length * direction, new_slopes - slopes
        place, value, slopes = place + moved, new_value, new_slopes
        if _dot(moved, turned) > 0:
            kept.append((moved, turned))
    return place


def _times_inverse(
    slopes: _LbfgsNumbers, kept: deque[tuple[_LbfgsNumbers, _LbfgsNumbers]]
) -> _LbfgsNumbers:
    """Multiply by the inverse of the curvature, as the kept steps show it (algorithm 7.4)."""
    result = slopes.copy()
    parts = []
    for moved, turned in reversed(kept):
        part = _dot(moved, result) / _dot(moved, turned)
        result -= part * turned
        parts.append(part)
    if kept:
        moved, turned = kept[-1]
        result *= _dot(moved, turned) / _dot(turned, turned)
    for (moved, turned), part in zip(kept, reversed(parts), strict=True):
        result += (part - _dot(turned, result) / _dot(moved, turned)) * moved
    return result


def _dot(first: _LbfgsNumbers, second: _LbfgsNumbers) -> float:
    return float(np.einsum("i,i", first, second))


Numbers = NDArray[np.float64]
Features: TypeAlias = csr_matrix | Numbers
_MOST_STEPS = 1000
_MOST_CURVED = 0.25
"""Of the logistic loss, its second derivative at 0."""


@dataclass(frozen=True)
class Logistic:
    """Weights and biases, of two classes those of the second alone."""

    weights: Numbers
    """[features, classes], or [features, 1]."""
    biases: Numbers
    classes: NDArray[np.int64]
    """Those that were there to learn from."""
    n_classes: int

    def probabilities(self, features: Features) -> Numbers:
        """Return the probability of each class, [N, n_classes]: 0 where it was never seen."""
        result = np.zeros((features.shape[0], self.n_classes))
        scores = features @ self.weights + self.biases
        if len(self.classes) == 1:
            result[:, self.classes] = 1
        elif len(self.classes) == 2:
            second = expit(scores)
            result[:, self.classes] = np.concatenate([1 - second, second], axis=1)
        else:
            result[:, self.classes] = softmax(scores, axis=1)
        return result


def fit_logistic(
    features: Features,
    labels: NDArray[np.int64],
    *,
    n_classes: int,
    inverse_penalty: float,
    is_balanced: bool = False,
    tolerance: float = 1e-4,
) -> Logistic:
    """Minimise the penalty, half of the squared weights, plus ``inverse_penalty`` times the losses.

    Biases have no penalty. ``is_balanced``: every class counts as much as any other, as the rows
    of rare ones weigh more. ``tolerance`` is of the largest slope along a scaled weight, of the
    objective by ``inverse_penalty`` and the number of rows.
    """
    classes, places = np.unique(labels, return_inverse=True)
    counts = np.bincount(places)
    row_weights = (len(labels) / (len(classes) * counts))[places]
    row_weights = (row_weights if is_balanced else np.ones(len(labels))) / len(labels)
    n_outputs = len(classes) if len(classes) > 2 else 1
    loss = _binary_loss if n_outputs == 1 else _multinomial_loss
    penalty = 1 / (inverse_penalty * len(labels))
    shape = (features.shape[1] + 1, n_outputs)
    if len(classes) == 1:
        solution = np.zeros(shape)
    else:
        scales = _scales(features, row_weights, penalty)[:, None]
        objective = _objective(features, places, row_weights, penalty, scales, loss)
        start = np.zeros(shape[0] * shape[1])
        flat = minimise(objective, start, tolerance=tolerance, most_steps=_MOST_STEPS)
        solution = flat.reshape(shape) * scales
    return Logistic(solution[:-1], solution[-1], classes.astype(np.int64), n_classes)


_Loss = Callable[[Numbers, NDArray[np.int64]], tuple[Numbers, Numbers]]


def _scales(features: Features, row_weights: Numbers, penalty: float) -> Numbers:
    """Return for each feature, and the bias, the root of what the objective bends at most."""
    squares = features.multiply(features) if isinstance(features, csr_matrix) else features**2
    curvature = _MOST_CURVED * np.asarray(squares.T @ row_weights).ravel() + penalty
    scales: Numbers = 1 / np.sqrt(np.append(curvature, _MOST_CURVED))
    return scales


def _objective(
    features: Features,
    places: NDArray[np.int64],
    row_weights: Numbers,
    penalty: float,
    scales: Numbers,
    loss: _Loss,
) -> Callable[[Numbers], tuple[float, Numbers]]:
    transposed = features.T.tocsr() if isinstance(features, csr_matrix) else features.T

    def compute(flat: Numbers) -> tuple[float, Numbers]:
        parameters = flat.reshape(len(scales), -1) * scales
        weights = parameters[:-1]
        losses, slopes = loss(features @ weights + parameters[-1], places)
        slopes = slopes * row_weights[:, None]
        value = (row_weights * losses).sum() + penalty / 2 * (weights**2).sum()
        by_weights = transposed @ slopes + penalty * weights
        return float(value), (np.vstack([by_weights, slopes.sum(0)]) * scales).ravel()

    return compute


def _binary_loss(scores: Numbers, places: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
    score = scores[:, 0]
    losses = np.logaddexp(0, score) - places * score
    return losses, (expit(score) - places)[:, None]


def _multinomial_loss(scores: Numbers, places: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
    rows = np.arange(len(places))
    losses = logsumexp(scores, axis=1) - scores[rows, places]
    slopes = softmax(scores, axis=1)
    slopes[rows, places] -= 1
    return losses, slopes


@dataclass(frozen=True)
class Ridge:
    """Weights, and a bias, which has no penalty."""

    weights: Numbers
    bias: float

    def predict(self, features: Features) -> Numbers:
        """Return a number for each row."""
        numbers: Numbers = features @ self.weights + self.bias
        return numbers


def fit_ridge(features: Features, numbers: Numbers, *, penalty: float) -> Ridge:
    """Minimise the squared errors plus ``penalty`` times the squared weights."""
    means = np.asarray(features.mean(axis=0)).ravel()
    centre = numbers.mean()
    centred = LinearOperator(
        features.shape,
        matvec=lambda weights: features @ weights - means @ weights,
        rmatvec=lambda errors: features.T @ errors - means * errors.sum(),
        dtype=np.float64,
    )
    weights = lsqr(
        centred, numbers - centre, damp=np.sqrt(penalty), atol=1e-8, btol=1e-8, iter_lim=1000
    )[0]
    return Ridge(weights, float(centre - means @ weights))


_OverlapNumbers = NDArray[np.float64]
Texts = Sequence[Sequence[str]]
_NEGATIONS = frozenset(
    {"not", "no", "never", "nothing", "nobody", "none", "neither", "nor", "without", "cannot", "t"}
)
"""``t`` is what is left of don't."""
_MOST_ROWS = 20_000
"""Pairs that are compared at once."""

FEATURES = (
    "shared words, of the second's",
    "shared words, of the first's",
    "shared words, of both's",
    "shared words by rarity, of the second's",
    "cosine of TF-IDF",
    "shared word pairs, of the second's",
    "log of the first's length",
    "log of the second's length",
    "log of the rarity that the second has alone",
    "log of the rarity that the first has alone",
    "negation in the first",
    "negation in the second",
    "negation in one alone",
)
"""The columns, in order."""


class Overlap:
    """Compares texts by their words, which it knows the rarity of from texts that it was given."""

    def __init__(self, texts: Texts) -> None:
        vocabulary: dict[str, int] = {}
        for text in texts:
            for word in text:
                vocabulary.setdefault(word, len(vocabulary))
        ids, rows = look_up(texts, vocabulary)
        idf = inverse_frequencies(count_features([ids], [len(vocabulary)], rows, len(texts)))
        self._rarity = dict(zip(vocabulary, idf.tolist(), strict=True))
        self._unknown = float(np.log(1 + len(texts)) + 1)

    def features(self, firsts: Texts, seconds: Texts) -> _OverlapNumbers:
        """Return the features of each pair, [N, features]."""
        parts = [np.empty((0, len(FEATURES)))]
        for start in range(0, len(firsts), _MOST_ROWS):
            rows = slice(start, start + _MOST_ROWS)
            parts.append(self._of(firsts[rows], seconds[rows]))
        return np.concatenate(parts)

    def _of(self, firsts: Texts, seconds: Texts) -> _OverlapNumbers:
        n_pairs = len(firsts)
        words, pairs, vocabulary = _count([*firsts, *seconds])
        idf = np.array([self._rarity.get(word, self._unknown) for word in vocabulary])
        first, second = words[:n_pairs], words[n_pairs:]
        has_first, has_second = first.sign(), second.sign()
        both = has_first.multiply(has_second).tocsr()
        n_first, n_second, n_both = _sums(has_first), _sums(has_second), _sums(both)
        by_rarity = [each @ idf for each in (has_first, has_second, both)]
        lengths = [np.sqrt(each.multiply(each) @ idf**2) for each in (first, second)]
        has_pairs = pairs.sign()
        shared_pairs = _sums(has_pairs[:n_pairs].multiply(has_pairs[n_pairs:]))
        is_negation = np.array([word in _NEGATIONS for word in vocabulary], dtype=np.float64)
        negations = [(each @ is_negation > 0) for each in (has_first, has_second)]
        columns = [
            _share(n_both, n_second),
            _share(n_both, n_first),
            _share(n_both, n_first + n_second - n_both),
            _share(by_rarity[2], by_rarity[1]),
            _share(first.multiply(second) @ idf**2, lengths[0] * lengths[1]),
            _share(shared_pairs, _sums(has_pairs[n_pairs:])),
            np.log1p(_sums(first)),
            np.log1p(_sums(second)),
            np.log1p(by_rarity[1] - by_rarity[2]),
            np.log1p(by_rarity[0] - by_rarity[2]),
            *negations,
            negations[0] != negations[1],
        ]
        return np.stack(columns, axis=1).astype(np.float64)


def _count(texts: Texts) -> tuple[sparse.csr_matrix, sparse.csr_matrix, list[str]]:
    """Count words and word pairs of texts, whichever they are."""
    vocabulary: dict[str, int] = {}
    for text in texts:
        for word in text:
            vocabulary.setdefault(word, len(vocabulary))
    ids, rows = look_up(texts, vocabulary)
    codes = find_codes(ids, ids, rows, n_before=1, n_words=len(vocabulary))
    known = np.unique(codes[codes >= 0])
    pairs = count_features([places_of(known, codes)], [len(known)], rows, len(texts))
    words = count_features([ids], [len(vocabulary)], rows, len(texts))
    return words, pairs, list(vocabulary)


def _sums(counts: sparse.csr_matrix) -> _OverlapNumbers:
    return np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()


def _share(part: _OverlapNumbers, whole: _OverlapNumbers) -> _OverlapNumbers:
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)


MOST_TRIPLED = 3_000_000
"""Words of all training texts, times the classes where there are more than two, up to which pairs
and triples of words are features, too."""
BALANCED = ("matthews", "macro_f1")
"""Metrics that count every class alike, however rare: the model then does so, too."""
_SINGLE_C = 10.0
_SEVERAL_C = 0.3
_OVERLAP_SCALE = 0.5
"""What standardised overlap is multiplied by beside TF-IDF: less is penalised more."""
_SINGLE_RIDGE = 1.0
_SEVERAL_RIDGE = 10.0

_Pair = tuple[sparse.csr_matrix, sparse.csr_matrix]
"""Of the training examples, and of those that are scored."""


def predict_classes(
    task: Task, train: Sequence[Example], scored: Sequence[Example]
) -> list[Prediction]:
    """Predict labels by logistic regression."""
    features, scored_features = _features(task, train, scored)
    model = fit_logistic(
        features,
        np.array([example.label for example in train], dtype=np.int64),
        n_classes=len(task.labels),
        inverse_penalty=_SEVERAL_C if compares(task) else _SINGLE_C,
        is_balanced=not set(BALANCED).isdisjoint(task.metrics),
    )
    probabilities = model.probabilities(scored_features)
    return [Prediction(int(row.argmax()), tuple(row.tolist())) for row in probabilities]


def predict_numbers(
    task: Task, train: Sequence[Example], scored: Sequence[Example]
) -> list[Prediction]:
    """Predict numbers by ridge regression, none beyond those of the training examples."""
    features, scored_features = _features(task, train, scored)
    numbers = np.array([example.label for example in train], dtype=np.float64)
    penalty = _SEVERAL_RIDGE if compares(task) else _SINGLE_RIDGE
    predicted = fit_ridge(features, numbers, penalty=penalty).predict(scored_features)
    return [Prediction(each) for each in predicted.clip(numbers.min(), numbers.max()).tolist()]


def compares(task: Task) -> bool:
    """Return whether a task has several texts, whose words are compared."""
    return len(task.fields) > 1


def _features(task: Task, train: Sequence[Example], scored: Sequence[Example]) -> _Pair:
    words = Words()
    texts, scored_texts = (_by_place(task, examples, words) for examples in (train, scored))
    if not compares(task):
        n_all = sum(map(len, texts[0])) * (len(task.labels) if len(task.labels) > 2 else 1)
        tfidf, features = fit_tfidf(texts[0], n_words=3 if n_all <= MOST_TRIPLED else 1)
        return features, tfidf.transform(scored_texts[0])
    parts, scored_parts = [], []
    for of_field, scored_of_field in zip(texts, scored_texts, strict=True):
        tfidf, features = fit_tfidf(of_field)
        parts.append(features)
        scored_parts.append(tfidf.transform(scored_of_field))
    overlap = Overlap([text for of_field in texts for text in of_field])
    shared, scored_shared = (_compared(overlap, each) for each in (texts, scored_texts))
    mean, deviation = shared.mean(0), shared.std(0)
    scale = _OVERLAP_SCALE * np.divide(
        1, deviation, out=np.zeros_like(deviation), where=deviation > 0
    )
    parts.append(sparse.csr_matrix((shared - mean) * scale))
    scored_parts.append(sparse.csr_matrix((scored_shared - mean) * scale))
    return sparse.hstack(parts).tocsr(), sparse.hstack(scored_parts).tocsr()


def _by_place(task: Task, examples: Sequence[Example], words: Words) -> list[list[list[str]]]:
    """Return the words of all first texts, of all second ones, and so on."""
    if not set(task.fields) <= set(examples[0].fields):
        # A diagnostic set may call the texts otherwise than the task that it is trained as.
        task = replace(task, fields=tuple(examples[0].fields))
    rows = [[words.of(text) for text in texts_of(task, example)] for example in examples]
    return [list(texts) for texts in zip(*rows, strict=True)]


def _compared(overlap: Overlap, texts: Sequence[Sequence[Sequence[str]]]) -> NDArray[np.float64]:
    """Compare every field with every other."""
    pairs = itertools.combinations(texts, 2)
    return np.concatenate([overlap.features(*pair) for pair in pairs], axis=1)


@dataclass(frozen=True)
class Passage:
    """The words of a passage, and how much each counts."""

    words: tuple[str, ...]
    weights: NDArray[np.float64]
    """Of each word: log(1 + 1 / how often it stands in the passage)."""


def read_passage(text: str) -> Passage:
    """Weigh the words of a passage."""
    words = tuple(split_words(text))
    _, places, counts = np.unique(np.array(words), return_inverse=True, return_counts=True)
    return Passage(words, np.log1p(1 / counts[places]))


def score_window(passage: Passage, wanted: frozenset[str]) -> float:
    """Return the most that wanted words weigh within as many words as there are wanted ones."""
    size = min(len(wanted), len(passage.words))
    if not size:
        return 0.0
    is_wanted = np.array([word in wanted for word in passage.words])
    sums = np.concatenate([[0.0], np.cumsum(passage.weights * is_wanted)])
    return float((sums[size:] - sums[:-size]).max())


def predict_choices(task: Task, scored: Sequence[Example]) -> list[Prediction]:
    """Choose the first of the choices whose words, with the question's, score highest.

    The passage is the task's first text, all others are the question; the choice fills its blanks.
    """
    passages: dict[str, Passage] = {}
    predictions = []
    for example in scored:
        text, *others = texts_of(task, example)
        if text not in passages:
            passages[text] = read_passage(text)
        question = " ".join(others)
        scores = [
            score_window(passages[text], frozenset(split_words(_filled(question, choice))))
            for choice in example.choices
        ]
        predictions.append(Prediction(int(np.argmax(scores))))
    return predictions


def _filled(question: str, choice: str) -> str:
    if PLACEHOLDER in question:
        return fill_query(question, choice)
    return answered(question, choice)


_PHRASES_TOKEN = re.compile(r"\w+(?:[-'’.,]\w+)*|[^\w\s]")
_ENDS = frozenset(".!?" + OTHER_ENDS)
_MOST_FOR_THRESHOLD = 2000
_NAMES = frozenset({"who", "whom", "whose", "where"})
_COUNTS = frozenset({"when", "many", "much", "year", "percentage", "date"})
_LINKING_WORDS = """
a an the of to in on at and or is are was were be been it its that this he she they we i you for
with as by from his her their my our your do does did no not what which who whom whose when where
why how many much had has have into than then also more most other some such only can could would
will may
"""
_LINKING = frozenset(_LINKING_WORDS.split())
"""Words that are no part of an answer."""
_NAME_BONUS, _COUNT_BONUS, _CAPITAL_BONUS = 2.0, 3.0, 0.5
_DISTANCE_COST = 0.1


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    lower: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Sentence:
    words: list[_Word]
    share: float
    """Of the weight of the question's words, how much it has."""


def predict_spans(
    task: Task, train: Sequence[Example], scored: Sequence[Example]
) -> list[Prediction]:
    """Answer with a phrase that has no word of the question: of names for who and where, with a
    number for when and how many, and the nearer to the question's words the better.

    ``no_answer`` is what share of the question's words, by weight, the sentence is without. Where
    questions may have no answer, those above a threshold have none: the one by which 2,000 training
    examples have the best F1.
    """
    predictions = [_answer(task, example) for example in scored]
    if not task.has_unanswerable:
        return predictions
    sample = train[:: -(-len(train) // _MOST_FOR_THRESHOLD)]
    best = best_thresholds(sample, [_answer(task, example) for example in sample])
    return with_threshold(predictions, best.f1.threshold)


def _answer(task: Task, example: Example) -> Prediction:
    passage, question = (example.fields[name] for name in task.fields)
    asked = [word.lower for word in _words(question)]
    sentence = _best_sentence(_words(passage), frozenset(asked) - {"?"})
    if not sentence.words:
        return Prediction(no_answer=1.0)
    phrase = _best_phrase(sentence.words, asked)
    start, stop = phrase[0].start, phrase[-1].stop
    return Prediction(text=passage[start:stop], start=start, no_answer=1 - sentence.share)


def _words(text: str) -> list[_Word]:
    return [
        _Word(match[0], match[0].lower(), match.start(), match.end())
        for match in _PHRASES_TOKEN.finditer(text)
    ]


def _best_sentence(words: list[_Word], asked: frozenset[str]) -> _Sentence:
    counts = Counter(word.lower for word in words)
    weights = {word: float(np.log1p(1 / counts[word])) for word in asked if counts[word]}
    # What the passage does not have weighs as much as what it has once.
    total = sum(weights.values()) + (len(asked) - len(weights)) * float(np.log(2))
    best = _Sentence([], -1.0)
    first = 0
    for place, word in enumerate(words):
        if word.text in _ENDS or place == len(words) - 1:
            sentence = words[first : place + 1]
            shared = {each.lower for each in sentence} & weights.keys()
            share = sum(weights[each] for each in sorted(shared)) / total if total else 0.0
            if share > best.share:
                best = _Sentence(sentence, share)
            first = place + 1
    return best


def _best_phrase(sentence: list[_Word], asked: list[str]) -> list[_Word]:
    content = set(asked) - _LINKING
    anchors = [place for place, word in enumerate(sentence) if word.lower in content] or [0]
    phrases = _phrases(sentence, set(asked))
    if not phrases:
        return sentence
    wants_name = not _NAMES.isdisjoint(asked)
    wants_count = not _COUNTS.isdisjoint(asked)

    def score(phrase: range) -> float:
        words = sentence[phrase.start : phrase.stop]
        distances = [min(abs(each - phrase.start), abs(each - phrase.stop + 1)) for each in anchors]
        capitals = sum(word.text[0].isupper() for word in words) / len(words)
        has_number = any(character.isdigit() for word in words for character in word.text)
        value = -_DISTANCE_COST * sum(distances) / len(distances)
        value += (_NAME_BONUS if wants_name else _CAPITAL_BONUS) * capitals
        return value + (_COUNT_BONUS * has_number if wants_count else 0)

    best = max(phrases, key=score)
    return sentence[best.start : best.stop]


def _phrases(sentence: list[_Word], asked: set[str]) -> list[range]:
    """Return the longest runs of words that are neither asked with nor linking."""
    phrases = []
    start = None
    for place, word in enumerate(sentence):
        is_part = word.lower not in asked and word.lower not in _LINKING and word.text[0].isalnum()
        if is_part and start is None:
            start = place
        if not is_part and start is not None:
            phrases.append(range(start, place))
            start = None
    if start is not None:
        phrases.append(range(start, len(sentence)))
    return phrases


def describe_words(task: Task) -> str:
    """Return in a few words what is computed for a task."""
    if task.kind == "choice":
        return "the choice whose words stand closest together in the passage; nothing trained"
    if task.kind == "span":
        learned = (
            "its threshold of no answer trained" if task.has_unanswerable else "nothing trained"
        )
        return f"a phrase of the sentence that has most of the question's words; {learned}"
    model = "logistic regression" if task.kind == "classes" else "ridge regression"
    is_balanced = task.kind == "classes" and not set(BALANCED).isdisjoint(task.metrics)
    classes = ", classes balanced" if is_balanced else ""
    if compares(task):
        return f"{model} on the TF-IDF of each text's words and what they share{classes}"
    return f"{model} on the TF-IDF of words, pairs and triples of words{classes}"


def words(task: Task, train: Sequence[Example], scored: Sequence[Example]) -> list[Prediction]:
    """Predict by words alone, from the same training rows: see ``describe_words``.

    Raises DataError where it has to learn and no training row has a label.
    """
    if task.kind == "choice":
        return predict_choices(task, scored)
    if task.kind == "span":
        rows = labelled_rows(task, train) if task.has_unanswerable else []
        return predict_spans(task, rows, scored)
    rows = labelled_rows(task, train)
    if not scored:
        return []
    if task.kind == "number":
        return predict_numbers(task, rows, scored)
    return predict_classes(task, rows, scored)
