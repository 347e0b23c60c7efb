"""What a text that a model wrote says of an example."""

import math
import re
import string
from collections.abc import Iterator

from sublayer.tasks.example import Example
from sublayer.tasks.formats.text import REFERENTS, UNANSWERABLE, text_target, text_targets
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.task import Task

# Source, of these and of the rule: T5's postprocessing of WSC.
_DETERMINERS = {
    *("a", "an", "each", "every", "few", "her", "his", "many", "much", "my", "our", "some"),
    *("that", "the", "their", "these", "this", "those", "which", "whose", "your"),
}
_NUMBER = re.compile(r"[+-]?[\d._]*(e[+-]?[\d_]*)?|[+-]?[a-z]{,8}", re.IGNORECASE)
"""The beginning of what is read as a number, and of "inf" and "nan"."""
_TOKEN = re.compile(rf"[{re.escape(string.punctuation)}]|[^\s{re.escape(string.punctuation)}]+")


def read_answer(task: Task, example: Example, written: str) -> Prediction:
    """Return the answer that was written; its label is None where it is none of the labels, or no
    number.

    Of a span, the passage's own characters where it has these words, and where they begin. Of WSC
    and WNLI, whether the noun in question is named; of DPR, which of the two is.
    """
    text = written.strip()
    if task.kind == "number":
        return Prediction(_number(text), text=text)
    if task.kind == "text":
        return Prediction(text=text)
    if task.kind == "span":
        return _span(task, example, text)
    if task.name in REFERENTS:
        return Prediction(_referent(task, example, text), text=text)
    targets = text_targets(task, example)
    return Prediction(targets.index(text) if text in targets else None, text=text)


def may_answer(task: Task, example: Example, begun: str) -> bool:
    """Return whether a text that begins so may be one of the labels, or a number, once it ends.

    Of spans, of nouns that are named and where words are scored every text may answer. Spaces are
    left out of account, as what follows may join or trim them.
    """
    text = "".join(begun.rstrip("\N{REPLACEMENT CHARACTER}").split())
    if task.kind == "number":
        return _NUMBER.fullmatch(text) is not None
    if task.kind == "text" or task.name in REFERENTS or "token_f1" in task.metrics:
        return True
    labels = text_targets(task, example)
    return not labels or any("".join(label.split()).startswith(text) for label in labels)


def names_referent(written: str, referent: str) -> bool:
    """Return whether a text names a noun: without determiners and capitals, the words of one are
    among the other's, and neither or both have an apostrophe.
    """
    words, wanted = _content(written), _content(referent)
    if ("'" in written) != ("'" in referent):
        return False
    return words <= wanted or wanted <= words


def _content(text: str) -> set[str]:
    return set(text.lower().split()) - _DETERMINERS


def _referent(task: Task, example: Example, text: str) -> int | None:
    if not _content(text):
        return None
    if task.kind == "choice":
        if text in example.choices:
            return example.choices.index(text)
        named = [names_referent(text, choice) for choice in example.choices]
        # Both may be: "the dog" of "the big dog" and "the small dog".
        return named.index(True) if named.count(True) == 1 else None
    referent = text_target(task, example)
    assert referent is not None, "the noun in question is part of the example"
    return int(names_referent(text, referent))


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _span(task: Task, example: Example, text: str) -> Prediction:
    if task.has_unanswerable and text.lower() == UNANSWERABLE:
        return Prediction(text="", no_answer=1.0)
    passage = example.fields[task.fields[0]]
    place = _find(text, passage)
    if place is None:
        return Prediction(text=text)
    return Prediction(text=passage[place.start : place.stop], start=place.start)


def _find(text: str, passage: str) -> slice | None:
    # Compared by words and marks, between which spaces are added and lost: in their own capitals,
    # else in any.
    wanted, there = list(_tokens(text)), list(_tokens(passage))
    if not wanted:
        return None
    for convert in (str, str.lower):
        needle = [convert(token) for token, _ in wanted]
        tokens = [convert(token) for token, _ in there]
        for place in range(len(there) - len(wanted) + 1):
            if tokens[place : place + len(wanted)] == needle:
                last, start_of_last = there[place + len(wanted) - 1]
                return slice(there[place][1], start_of_last + len(last))
    return None


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    return ((match[0], match.start()) for match in _TOKEN.finditer(text))
