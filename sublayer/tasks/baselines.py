"""Baselines of every score: majority answer, bag of words, copy.

Sources: for choices MCTest's sliding window (Richardson, Burges and Renshaw 2013), which is not
trained: it chooses the option with its words closest together in the passage. The sentence with a
span is found in the same way; the choice of a phrase in it is our own rule.
"""

import itertools
import re
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from sublayer.errors import DataError
from sublayer.tasks.metrics import METRICS, OTHER_ENDS, UNSPACED
from sublayer.tasks.registry import wording_of
from sublayer.tasks.scoring import best_threshold, with_threshold
from sublayer.tasks.task import Example, Kind, Prediction, Task
from sublayer.tasks.wording import PLACEHOLDER, answered, fill_query

if TYPE_CHECKING:
    from scipy import sparse

# scikit-learn and scipy are slow to import, and are imported by the first prediction of words.
Numbers = NDArray[np.float64]
Texts = Sequence[Sequence[str]]
"""Texts as words."""
MOST_TRIPLED = 3_000_000
"""Most training words, times classes if more than two, with pairs and triples of words as features.
"""
_SINGLE_C, _SEVERAL_C = 10.0, 0.3
_SINGLE_RIDGE, _SEVERAL_RIDGE = 1.0, 10.0
_MOST_FOR_THRESHOLD = 2000
_SENTENCE_END = re.compile(rf"(?<=[.!?])\s|(?<=[{OTHER_ENDS}])")


class Baseline(ABC):
    """A way to answer a task without a model."""

    kinds: tuple[Kind, ...] = ("classes", "choice", "number", "span")
    """Kinds of tasks it can answer."""

    @abstractmethod
    def describe(self, task: Task) -> str:
        """Describe the baseline of a task in a few words."""

    @abstractmethod
    def predict(
        self, task: Task, train: Sequence[Example], scored: Sequence[Example]
    ) -> list[Prediction]:
        """Learn from the ``train`` examples, and predict the ``scored`` ones.

        Raises DataError where it learns and no training row has a label.
        """


class Majority(Baseline):
    """One answer for all examples; the first choice where an example lacks the majority's."""

    kinds = (*Baseline.kinds, "text")

    def describe(self, task: Task) -> str:
        """Return the majority's answer to a task in a few words."""
        if task.kind == "span":
            return "no answer" if task.has_unanswerable else "the passage's first sentence"
        return {
            "classes": "the most frequent label of the training rows",
            "number": "the mean of the training rows",
            "text": "the most frequent text of the training rows",
            "choice": "the most frequent position of the right choice in the training rows",
        }[task.kind]

    def predict(
        self, task: Task, train: Sequence[Example], scored: Sequence[Example]
    ) -> list[Prediction]:
        """Predict the majority's answer; for spans nothing is learned."""
        if task.kind == "span":
            if task.has_unanswerable:
                return [Prediction(no_answer=1.0)] * len(scored)
            passages = [example.fields[task.fields[0]] for example in scored]
            firsts = [_SENTENCE_END.split(passage, maxsplit=1)[0] for passage in passages]
            return [Prediction(text=first, start=0) for first in firsts]
        rows = labelled_rows(task, train)
        if task.kind == "text":
            texts = Counter(answer.text for example in rows for answer in example.answers)
            return [Prediction(text=texts.most_common(1)[0][0])] * len(scored)
        if task.kind == "number":
            mean = float(np.mean([example.label for example in rows]))
            return [Prediction(mean)] * len(scored)
        if task.kind == "classes":
            labels = [int(example.label or 0) for example in rows]
            counts = np.bincount(labels, None, len(task.labels))
            probabilities = tuple((counts / len(rows)).tolist())
            return [Prediction(int(counts.argmax()), probabilities)] * len(scored)
        right = []
        for example in rows:
            golds = {answer.text for answer in example.answers}
            places = [index for index, choice in enumerate(example.choices) if choice in golds]
            is_known = example.label is not None
            right.append(int(example.label or 0) if is_known else next(iter(places), 0))
        index = int(np.bincount(right).argmax())
        return [Prediction(index if index < len(example.choices) else 0) for example in scored]


class Words(Baseline):
    """A linear model of words, the closest words of a choice, or a phrase of the passage."""

    def describe(self, task: Task) -> str:
        """Return the method for a task in a few words."""
        if task.kind == "choice":
            return "the choice with its words closest together in the passage; nothing trained"
        if task.kind == "span":
            learned = (
                "the no-answer threshold trained" if task.has_unanswerable else "nothing trained"
            )
            return f"a phrase of the sentence with most of the question's words; {learned}"
        model = "logistic regression" if task.kind == "classes" else "ridge regression"
        classes = ", classes balanced" if task.kind == "classes" and _is_balanced(task) else ""
        if len(task.fields) > 1:
            return f"{model} on the TF-IDF of each text's words and their overlap{classes}"
        return f"{model} on the TF-IDF of words, pairs and triples of words{classes}"

    def predict(
        self, task: Task, train: Sequence[Example], scored: Sequence[Example]
    ) -> list[Prediction]:
        """Predict from words.

        Choices: the one with the highest window score of its words and the question's, the first of
        equals. The passage is the task's first text, all others are the question; the choice fills
        its blanks.

        Spans: a phrase without words of the question, preferably with capitals for who and where,
        with a number for when and how many, and near the question's words. ``no_answer`` is the
        weighted share of the question's words missing from the sentence. Where questions may be
        unanswerable, those above a threshold get no answer; it maximises F1 on up to 2,000 training
        examples.

        Classes: logistic regression; a label without training rows is never predicted. Numbers:
        ridge regression, clipped to the range of the training examples.
        """
        if task.kind == "choice":
            predictions = []
            for example in scored:
                passage, *others = wording_of(task).texts(example)
                question = " ".join(others)
                fill = fill_query if PLACEHOLDER in question else answered
                wanted = [frozenset(split_words(fill(question, one))) for one in example.choices]
                predictions.append(Prediction(int(np.argmax(score_windows(passage, wanted)))))
            return predictions
        if task.kind == "span":
            predictions = [_answer(task, example) for example in scored]
            if not task.has_unanswerable:
                return predictions
            rows = labelled_rows(task, train)
            sample = rows[:: -(-len(rows) // _MOST_FOR_THRESHOLD)]
            learned = [_answer(task, example) for example in sample]
            _, threshold = best_threshold(sample, learned)
            return with_threshold(predictions, threshold)
        rows = labelled_rows(task, train)
        if not scored:
            return []
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression, Ridge

        labels = np.array([example.label for example in rows])
        is_single = len(task.fields) == 1
        if task.kind == "number":
            features, scored_features = _features(task, rows, scored)
            numbers = labels.astype(np.float64)
            penalty = _SINGLE_RIDGE if is_single else _SEVERAL_RIDGE
            ridge = Ridge(penalty, solver="sparse_cg", tol=1e-8).fit(features, numbers)
            predicted = ridge.predict(scored_features).clip(numbers.min(), numbers.max())
            return [Prediction(number) for number in predicted.tolist()]
        labels = labels.astype(np.int64)
        seen = np.unique(labels)
        probabilities = np.zeros((len(scored), len(task.labels)))
        if len(seen) == 1:
            probabilities[:, seen] = 1
        else:
            features, scored_features = _features(task, rows, scored)
            model = LogisticRegression(
                C=_SINGLE_C if is_single else _SEVERAL_C,
                class_weight="balanced" if _is_balanced(task) else None,
                max_iter=1000,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(features, labels)
            probabilities[:, seen] = model.predict_proba(scored_features)
        return [Prediction(int(row.argmax()), tuple(row.tolist())) for row in probabilities]


class Copy(Baseline):
    """A copy of the input, or of the first of several texts."""

    kinds = ("text",)

    def describe(self, task: Task) -> str:
        """Return a few words on it."""
        return "the text itself, unchanged"

    def predict(
        self, task: Task, train: Sequence[Example], scored: Sequence[Example]
    ) -> list[Prediction]:
        """Answer with the text."""
        return [Prediction(text=example.fields[task.fields[0]]) for example in scored]


BASELINES: dict[str, Baseline] = {"majority": Majority(), "words": Words(), "copy": Copy()}
"""Baselines by name, in display order."""


def labelled_rows(task: Task, train: Sequence[Example]) -> list[Example]:
    """Return the labelled training rows. Raises DataError where there are none."""
    rows = [example for example in train if example.is_labelled]
    if not rows:
        raise DataError(
            f"{task.title} has no training rows with a label: without them its baselines are not "
            "known"
        )
    return rows


def _is_balanced(task: Task) -> bool:
    """Return whether the metrics weigh classes equally, as the classifier then does."""
    return any(METRICS[name].is_balanced for name in task.metrics)


_TOKEN = re.compile(r"\w+|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Return lower-case words and punctuation: "Don't go." becomes don ' t go .

    Vowel signs and accents belong to their words; in a script without spaces between words, each
    character is a word.
    """
    pattern = _TOKEN if text.isascii() else _token_of_any_script()
    return pattern.findall(text.lower())


@cache
def _token_of_any_script() -> re.Pattern[str]:
    signs = "".join(sign for sign in map(chr, range(0x300, 0x10000)) if category(sign)[0] == "M")
    return re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])[\w{signs}])+|[^\w\s]")


_OVERLAP_SCALE = 0.5
"""Scale of standardised overlap features next to TF-IDF: smaller ones are penalised more."""


def _features(
    task: Task, train: Sequence[Example], scored: Sequence[Example]
) -> "tuple[sparse.csr_matrix, sparse.csr_matrix]":
    """Return the features of training and scored examples."""
    from scipy import sparse

    split: dict[str, list[str]] = {}  # a passage occurs in many examples
    # For both sets: the words of all first texts, of all second ones, and so on.
    both: list[list[list[list[str]]]] = []
    for examples in (train, scored):
        # A diagnostic set may name the texts differently from the task that trains it.
        has_fields = set(task.fields) <= set(examples[0].fields)
        renamed = task if has_fields else replace(task, fields=tuple(examples[0].fields))
        wording = wording_of(renamed)
        rows = [wording.texts(example) for example in examples]
        for text in itertools.chain(*rows):
            if text not in split:
                split[text] = split_words(text)
        both.append([[split[text] for text in of_field] for of_field in zip(*rows, strict=True)])
    texts, scored_texts = both
    if len(task.fields) == 1:
        n_all = sum(map(len, texts[0])) * (len(task.labels) if len(task.labels) > 2 else 1)
        return _tfidf(texts[0], scored_texts[0], n_words=3 if n_all <= MOST_TRIPLED else 1)
    parts = [_tfidf(*of_field) for of_field in zip(texts, scored_texts, strict=True)]
    overlap = Overlap(list(itertools.chain(*texts)))
    shared, scored_shared = (
        np.hstack([overlap.features(*pair) for pair in itertools.combinations(fields, 2)])
        for fields in (texts, scored_texts)
    )
    mean, deviation = shared.mean(0), shared.std(0)
    scale = _OVERLAP_SCALE * _quotient(np.ones_like(deviation), deviation)
    parts.append(((shared - mean) * scale, (scored_shared - mean) * scale))
    return tuple(sparse.hstack(blocks).tocsr() for blocks in zip(*parts, strict=True))


def _tfidf(
    train: Texts, scored: Texts, n_words: int = 1
) -> "tuple[sparse.csr_matrix, sparse.csr_matrix]":
    """Return the TF-IDF of words, and of n-grams up to ``n_words``."""
    from scipy import sparse
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not any(train):
        return sparse.csr_matrix((len(train), 1)), sparse.csr_matrix((len(scored), 1))

    def phrases(words: Sequence[str]) -> list[str]:
        lengths = range(1, n_words + 1)
        starts = [(n, start) for n in lengths for start in range(len(words) - n + 1)]
        return [" ".join(words[start : start + n]) for n, start in starts]

    vectorizer = TfidfVectorizer(analyzer=phrases)
    return vectorizer.fit_transform(train), vectorizer.transform(scored)


_NEGATIONS = frozenset(
    {"not", "no", "never", "nothing", "nobody", "none", "neither", "nor", "without", "cannot", "t"}
)
"""``t`` is the end of a split don't."""
_MOST_ROWS = 20_000
"""Most pairs compared at once."""
FEATURES = (
    "shared words, of the second's",
    "shared words, of the first's",
    "shared words, of both's",
    "shared words by rarity, of the second's",
    "cosine of TF-IDF",
    "shared word pairs, of the second's",
    "log of the first's length",
    "log of the second's length",
    "log of the rarity of words only in the second",
    "log of the rarity of words only in the first",
    "negation in the first",
    "negation in the second",
    "negation in only one",
)
"""Columns of ``Overlap.features``, in order."""


class Overlap:
    """Comparison of texts by words, weighted by rarity in the given texts."""

    def __init__(self, texts: Texts) -> None:
        counts, words = _count(texts)
        n_with = np.bincount(counts.indices, minlength=len(words))
        idf = np.log((1 + len(texts)) / (1 + n_with)) + 1
        self._rarity = dict(zip(words, idf.tolist(), strict=True))
        self._unknown = float(np.log(1 + len(texts)) + 1)

    def features(self, firsts: Texts, seconds: Texts) -> Numbers:
        """Return the features of each pair, [N, features]."""
        parts = [np.empty((0, len(FEATURES)))]
        for start in range(0, len(firsts), _MOST_ROWS):
            rows = slice(start, start + _MOST_ROWS)
            parts.append(self._of(firsts[rows], seconds[rows]))
        return np.concatenate(parts)

    def _of(self, firsts: Texts, seconds: Texts) -> Numbers:
        texts, n_pairs = [*firsts, *seconds], len(firsts)
        counts, words = _count(texts)
        has_pairs = _count([list(itertools.pairwise(text)) for text in texts])[0].sign()
        idf = np.array([self._rarity.get(word, self._unknown) for word in words])
        first, second = counts[:n_pairs], counts[n_pairs:]
        has_first, has_second = first.sign(), second.sign()
        both = has_first.multiply(has_second).tocsr()
        n_first, n_second, n_both = map(_sums, (has_first, has_second, both))
        by_first, by_second, by_both = (matrix @ idf for matrix in (has_first, has_second, both))
        lengths = [np.sqrt(matrix.multiply(matrix) @ idf**2) for matrix in (first, second)]
        shared_pairs = _sums(has_pairs[:n_pairs].multiply(has_pairs[n_pairs:]))
        is_negation = np.array([word in _NEGATIONS for word in words], dtype=np.float64)
        negations = [(matrix @ is_negation > 0) for matrix in (has_first, has_second)]
        columns = [
            _quotient(n_both, n_second),
            _quotient(n_both, n_first),
            _quotient(n_both, n_first + n_second - n_both),
            _quotient(by_both, by_second),
            _quotient(first.multiply(second) @ idf**2, lengths[0] * lengths[1]),
            _quotient(shared_pairs, _sums(has_pairs[n_pairs:])),
            np.log1p(_sums(first)),
            np.log1p(_sums(second)),
            np.log1p(by_second - by_both),
            np.log1p(by_first - by_both),
            *negations,
            negations[0] != negations[1],
        ]
        return np.stack(columns, axis=1).astype(np.float64)


def _count(texts: Sequence[Sequence[object]]) -> "tuple[sparse.csr_matrix, list[str]]":
    """Count the elements of texts, sequences of elements; also return the elements."""
    from scipy import sparse
    from sklearn.feature_extraction.text import CountVectorizer

    if not any(texts):
        return sparse.csr_matrix((len(texts), 0)), []
    vectorizer = CountVectorizer(analyzer=list, dtype=np.float64)
    return vectorizer.fit_transform(texts), list(vectorizer.get_feature_names_out())


def _sums(counts: "sparse.csr_matrix") -> Numbers:
    return np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()


def _quotient(part: Numbers, whole: Numbers) -> Numbers:
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)


def score_windows(passage: str, wanted: Sequence[frozenset[str]]) -> list[float]:
    """Return each word set's maximum weight in a passage window of as many words as the set.

    The weight of a word is log(1 + 1 / its count in the passage).
    """
    words = split_words(passage)
    counts = Counter(words)
    weights = np.array([np.log1p(1 / counts[word]) for word in words])
    scores = []
    for of_choice in wanted:
        size = min(len(of_choice), len(words))
        is_wanted = np.array([word in of_choice for word in words], dtype=bool)
        sums = np.concatenate([[0.0], np.cumsum(weights * is_wanted)])
        scores.append(float((sums[size:] - sums[:-size]).max()) if size else 0.0)
    return scores


_WORD = re.compile(r"\w+(?:[-'’.,]\w+)*|[^\w\s]")
_ENDS = frozenset(".!?" + OTHER_ENDS)
_NAMES = frozenset({"who", "whom", "whose", "where"})
_COUNTS = frozenset({"when", "many", "much", "year", "percentage", "date"})
_LINKING_WORDS = """
a an the of to in on at and or is are was were be been it its that this he she they we i you for
with as by from his her their my our your do does did no not what which who whom whose when where
why how many much had has have into than then also more most other some such only can could would
will may
"""
_LINKING = frozenset(_LINKING_WORDS.split())
"""Words excluded from answers."""
_NAME_BONUS, _COUNT_BONUS, _CAPITAL_BONUS = 2.0, 3.0, 0.5
_DISTANCE_COST = 0.1


def _answer(task: Task, example: Example) -> Prediction:
    """Answer with a phrase of the passage's sentence with most of the question's words."""
    passage, question = (example.fields[name] for name in task.fields)
    in_question = {word[0].lower() for word in _WORD.finditer(question)}
    # The sentence: the one with the greatest weighted share of the question's words. A word missing
    # from the passage has the weight of one that occurs once.
    words = list(_WORD.finditer(passage))
    counts = Counter(word[0].lower() for word in words)
    wanted = sorted(in_question - {"?"})  # a set's order would change the sums of weights
    weights = {word: float(np.log1p(1 / counts[word])) for word in wanted if counts[word]}
    total = sum(weights.values()) + (len(wanted) - len(weights)) * float(np.log(2))
    sentence: list[re.Match[str]] = []
    best_share = -1.0
    first = 0
    for index, word in enumerate(words):
        if word[0] in _ENDS or index == len(words) - 1:
            shared = {token[0].lower() for token in words[first : index + 1]} & weights.keys()
            share = sum(weights[term] for term in sorted(shared)) / total if total else 0.0
            if share > best_share:
                sentence, best_share = words[first : index + 1], share
            first = index + 1
    if not sentence:
        return Prediction(no_answer=1.0)
    # The phrase: the best of the longest runs without question or linking words.
    lower = [word[0].lower() for word in sentence]
    content, excluded = in_question - _LINKING, in_question | _LINKING
    anchors = [index for index, word in enumerate(lower) if word in content] or [0]

    def is_part(index: int) -> bool:
        return sentence[index][0][0].isalnum() and lower[index] not in excluded

    def score(phrase: list[int]) -> float:
        words = [sentence[index][0] for index in phrase]
        distances = [min(abs(anchor - phrase[0]), abs(anchor - phrase[-1])) for anchor in anchors]
        capitals = sum(word[0].isupper() for word in words) / len(words)
        has_number = any(map(str.isdigit, "".join(words)))
        value = -_DISTANCE_COST * sum(distances) / len(distances)
        value += (_CAPITAL_BONUS if _NAMES.isdisjoint(in_question) else _NAME_BONUS) * capitals
        return value + (0 if _COUNTS.isdisjoint(in_question) else _COUNT_BONUS * has_number)

    runs = itertools.groupby(range(len(sentence)), key=is_part)
    phrases = [list(places) for is_phrase, places in runs if is_phrase]
    best = max(phrases, key=score) if phrases else range(len(sentence))
    start, stop = sentence[best[0]].start(), sentence[best[-1]].end()
    return Prediction(text=passage[start:stop], start=start, no_answer=1 - best_share)
