"""Metrics of answers as texts: exact match and F1 of words, as SQuAD's scripts compute them; chrF,
ROUGE and equality of texts that are written; thresholds of no answer.

ReCoRD's script computes the same as SQuAD 1.1's, of the entity that was chosen.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from sublayer.system.extras import extra_module
from sublayer.tasks.metrics import Answered, Numbers, Predictions, Sums
from sublayer.tasks.scripts import UNSPACED
from sublayer.tasks.task import Example, Prediction, answer_text

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

    No answer is an empty text. Gold answers of which nothing remains are none.
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


def _f1(gold: str, predicted: str) -> float:
    """Compare words: 0 where none is shared, also of nothing."""
    gold_words, words = normalise(gold).split(), normalise(predicted).split()
    n_shared = (Counter(gold_words) & Counter(words)).total()
    return 2 * n_shared / (len(gold_words) + len(words)) if n_shared else 0.0


def f1_v2(gold: str, predicted: str) -> float:
    """Compare words: of nothing, equality counts."""
    is_nothing = not normalise(gold) or not normalise(predicted)
    return is_equal(gold, predicted) if is_nothing else _f1(gold, predicted)


exact_match, token_f1 = (partial(_compared, compare) for compare in (is_equal, _f1))
exact_match_v2, token_f1_v2 = (partial(_compared_v2, compare) for compare in (is_equal, f1_v2))


class RougeWords:
    """The tokenizer of ROUGE: words in lower case, in scripts without spaces single characters.

    Equal to the default of rouge-score on ASCII, which drops all other letters; no stemming.
    """

    def tokenize(self, text: str) -> list[str]:
        """Return the words of a text."""
        words = "".join(map(_rouge_character, unicodedata.normalize("NFC", text.lower())))
        return words.split()


def _rouge_character(character: str) -> str:
    category = unicodedata.category(character)
    if category[0] not in "LMN":
        return "" if category == "Cf" else " "
    return f" {character} " if _UNSPACED.match(character) else character


def check_text_metrics() -> None:
    """Raise DataError where a library is missing by which texts that are written are scored."""
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


class BestThreshold(NamedTuple):
    """The threshold by which a score is highest, in hindsight."""

    score: float
    threshold: float


def best_threshold(
    examples: Sequence[Example], predictions: Predictions, compare: Compare = f1_v2
) -> BestThreshold:
    """Find the threshold of the best F1, or of the best exact match, as SQuAD 2.0's script does.

    Predictions have the best answer that is not empty as their text, whatever ``no_answer`` says.
    From all empty, answers are given one by one, by ascending ``no_answer``; the threshold is that
    of the last one given, and 0 where none is. Equal scores are walked in the order of examples,
    so that a threshold may stand for fewer answers than lie at it.
    """
    score = best_score = float(sum(not example.answers for example in examples))
    threshold = 0.0
    gains = scores_v2(compare, examples, predictions).tolist()
    known = [
        (prediction, example, gain)
        for prediction, example, gain in zip(predictions, examples, gains, strict=True)
        if prediction is not None
    ]
    for prediction, example, gain in sorted(known, key=lambda triple: triple[0].no_answer):
        if example.answers:
            score += gain
        elif prediction.text:
            score -= 1
        if score > best_score:
            best_score, threshold = score, prediction.no_answer
    return BestThreshold(best_score / len(known) if known else 0.0, threshold)


def with_threshold(predictions: Sequence[Prediction], threshold: float) -> list[Prediction]:
    """Empty the answers whose ``no_answer`` is above a threshold; one at it stays, as in scoring.

    ALBERT's code empties that one too.
    """
    return [
        replace(prediction, text="", start=None) if prediction.no_answer > threshold else prediction
        for prediction in predictions
    ]


@dataclass(frozen=True)
class ByAnswerable:
    """SQuAD 2.0's exact match and F1 of the questions with an answer, and of those without."""

    n: int
    exact: float
    f1: float


def by_answerable(
    examples: Sequence[Example], predictions: Predictions
) -> dict[bool, ByAnswerable]:
    """Score questions that have gold answers (True) and those that have none (False) apart.

    A kind of which there is none, or no prediction, has no row: the script stops there.
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
