"""What the columns of a table of one's own say is right: a class, a number, a choice, spans."""

import math
import string
from collections.abc import Iterable, Sequence
from typing import Any

from sublayer.errors import DataError
from sublayer.tasks.example import Answer
from sublayer.tasks.gold_spans import Placed, place_answer
from sublayer.values import is_missing

SEVERAL = "an answer that its passage has in several places: the first of them"
"""What is repaired of an answer without a place."""


def is_blank(value: Any) -> bool:
    """Return whether a field has nothing in it: a blank text, null, or no number."""
    return not value.strip() if isinstance(value, str) else is_missing(value)


def word_of(value: Any, place: str) -> str:
    """Return a label as a word, without white space around it; empty for none.

    Whole numbers and truths are words, too. Raises DataError for other numbers, and for lists.
    """
    if is_blank(value):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if not isinstance(value, str | int):
        kind = type(value).__name__
        raise DataError(
            f"{place}: the label {value!r} is {kind}, not a word or a whole number: "
            "write it as text"
        )
    return str(value).strip()


def sorted_words(words: Iterable[str], where: str) -> tuple[str, ...]:
    """Return the distinct labels in order: whole numbers by what they count, all else as words.

    Raises DataError, which says where they stand, if all are numbers and some not whole: these are
    no classes.
    """
    distinct = sorted(set(words))
    numbers = [_number(word) for word in distinct]
    if any(number is None for number in numbers):
        return tuple(distinct)
    odd = [w for w, n in zip(distinct, numbers, strict=True) if n and not n.is_integer()]
    if odd and not math.isfinite(float(odd[-1])):
        raise DataError(
            f"{where} has numbers, and {odd[-1]!r} among them: empty it where it means that a "
            "label is missing, or write classes as words"
        )
    if odd:
        raise DataError(
            f"{where} has numbers such as {odd[0]}: predict them as such (--number, or number "
            "instead of label in data.columns), or write classes as words"
        )
    return tuple(sorted(distinct, key=lambda word: (float(word), word)))


def same_number(word: str, labels: Sequence[str]) -> str:
    """Return the label that is the same number as a word, as 1 is 1.0; empty where none is."""
    number = _number(word)
    return next((each for each in labels if number is not None and _number(each) == number), "")


def number_of(value: Any, place: str) -> float | None:
    """Return a number, or None for none; raise DataError for what is no finite one."""
    if is_blank(value):
        return None
    number = None if isinstance(value, bool) else _number(value)
    if number is None or not math.isfinite(number):
        raise DataError(
            f"{place}: the label {value!r} is no number: write it with a decimal point and without "
            "a unit, or empty it where it is missing"
        )
    return number


def choice_of(value: Any, names: Sequence[str], choices: Sequence[str], place: str) -> int | None:
    """Return the index of the right choice, or None where nothing is said.

    It may be said by the name of its column, by its text, by its letter, from A, or by its number,
    from 0. Raises DataError where it is none of these, or means different ones.
    """
    word = word_of(value, place)
    if not word:
        return None
    if word in names:
        return names.index(word)
    meant = {index for index, choice in enumerate(choices) if choice.strip() == word}
    letters = string.ascii_uppercase[: len(choices)]
    if len(word) == 1 and word in letters:
        meant.add(letters.index(word))
    if word.isdecimal() and int(word) < len(choices):
        meant.add(int(word))
    if len(meant) > 1:
        of_columns = " or ".join(names[index] for index in sorted(meant))
        raise DataError(f"{place}: the label {word!r} may mean {of_columns}: write that name")
    if not meant:
        raise DataError(
            f"{place}: the label {word!r} is no choice: write its text, its column "
            f"({', '.join(names)}), its letter ({letters[0]} to {letters[-1]}) or its number "
            f"(0 to {len(choices) - 1})"
        )
    return meant.pop()


def is_unanswerable(answers: Any) -> bool:
    """Return whether it is said of a question that it has no answer: by an empty list."""
    return answers == [] or (isinstance(answers, dict) and answers.get("text") == [])


def spans_of(answers: Any, start: Any, passage: str, place: str) -> list[Placed] | None:
    """Return the gold answers to a question, or None where nothing is said.

    ``answers`` is a text, or a list of them, or of texts and their places as SQuAD's are in the
    hub's copies; an empty list is said of a question without an answer. ``start`` is the place of a
    text, in characters; without one, it is where the passage has the text first.

    Raises DataError for what is no such answer.
    """
    if is_blank(answers):
        return None
    if isinstance(answers, str):
        return [_placed(answers, start, passage, place)]
    if isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list):
            raise DataError(f"{place}: an answer has no lists text and answer_start")
    else:
        texts, starts = answers, [None] * len(answers) if isinstance(answers, list) else None
    if not isinstance(texts, list) or starts is None or len(texts) != len(starts):
        raise DataError(f"{place}: the answer {answers!r} is neither a text nor a list of them")
    if not all(isinstance(text, str) for text in texts):
        raise DataError(f"{place}: not all answers in {texts!r} are texts")
    return [_placed(text, at, passage, place) for text, at in zip(texts, starts, strict=True)]


def texts_of(value: Any, column: str, place: str) -> list[str]:
    """Return the texts of a column that has one in each row, or a list; none where it is blank.

    Raises DataError for what is neither.
    """
    listed = value if isinstance(value, list | tuple) else [value]
    found = [text for text in listed if not is_blank(text)]
    if not all(isinstance(text, str) for text in found):
        raise DataError(f"{place}: {column} is {value!r:.60}, neither a text nor a list of texts")
    return found


def _placed(text: str, start: Any, passage: str, place: str) -> Placed:
    if not is_blank(start):
        number = None if isinstance(start, bool) else _number(start)
        if number is None or not number.is_integer():
            raise DataError(f"{place}: an answer begins at {start!r}, which is no whole number")
        return place_answer(passage, text, int(number))
    bare = text.strip()
    first = passage.find(bare) if bare else -1
    if first < 0:
        return Placed(Answer(text))
    return Placed(Answer(bare, first), SEVERAL if passage.find(bare, first + 1) > 0 else "")


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if "_" in str(value) else number
