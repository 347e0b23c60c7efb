"""An answer by its words: a phrase of the sentence that has most of the question's words.

The sentence is found as MCTest's sliding window finds a choice (Richardson et al. 2013), but among
sentences; which of its phrases answers is a rule of ours. Nothing is trained, but the threshold of
no answer.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sublayer.tasks.example import Example
from sublayer.tasks.metrics.thresholds import best_thresholds, with_threshold
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.scripts import OTHER_ENDS
from sublayer.tasks.task import Task

_TOKEN = re.compile(r"\w+(?:[-'’.,]\w+)*|[^\w\s]")
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
        for match in _TOKEN.finditer(text)
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
