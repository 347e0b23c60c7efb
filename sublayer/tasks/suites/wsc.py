"""WSC: whether a pronoun stands for a noun. Source: Levesque et al. 2012, in SuperGLUE.

Two spans of the text, noun and pronoun, are given as texts and by the places of their first words,
counted where spaces separate them. They do not always agree.
"""

import re
from dataclasses import dataclass

from sublayer.tasks.example import Example
from sublayer.tasks.labels import read_class
from sublayer.tasks.nested import Nested, add_known
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.suites.superglue_rows import row_id
from sublayer.tasks.task import Task

_REWRITTEN = "a span that is written as its text is (its first letter, a full stop, a line break)"
_MOVED = "the place of a span: where its words stand, nearest to what was said"
_NO_PRONOUN = "a pronoun that is not in its text"
_NO_NOUN = "a noun that is not in its text"


@dataclass(frozen=True, slots=True)
class _Span:
    text: str
    index: int


def read_wsc(task: Task, row: Nested, result: ReadSplit) -> None:
    """Add the example of a row, whose spans stand in ``target``, or beside the text, as in the
    hub's copies.

    Spans are repaired as in TFDS's ``wsc.fixed``, and their places, too. A row whose pronoun is
    nowhere in its text is left out; in training also one whose noun is not.
    """
    text = row.text("text")
    target = row.inner("target") if "target" in row.values else row
    written = [
        _Span(target.text(f"span{number}_text"), target.whole(f"span{number}_index"))
        for number in (1, 2)
    ]
    noun, pronoun = (_fitted(text, span) for span in written)
    if pronoun is None:
        result.skip(_NO_PRONOUN, row.place)
        return
    if noun is None:
        if result.name == "train":
            result.skip(_NO_NOUN, row.place)
            return
        result.keep(_NO_NOUN, row.place)
    spans = [noun or written[0], pronoun]
    label = read_class(task, row.values.get("label"), row.place)
    example = Example(
        id=row_id(row, result),
        fields={"text": text, "span1_text": spans[0].text, "span2_text": spans[1].text},
        label=label,
        is_labelled=label is not None,
        source=text,
        extra={"span1_index": spans[0].index, "span2_index": spans[1].index},
    )
    n_examples = len(result.examples)
    add_known(result, example, row)
    if len(result.examples) > n_examples:
        if any(new.text != old.text for new, old in zip(spans, written, strict=True)):
            result.repair(_REWRITTEN, row.place)
        if any(new.index != old.index for new, old in zip(spans, written, strict=True)):
            result.repair(_MOVED, row.place)


def _fitted(text: str, span: _Span) -> _Span | None:
    """Return a span as it stands in its place, or else nearest to it; None where nowhere."""
    words = text.split(" ")
    found = {written: _places(words, written) for written in _ways(words, span)}
    for written, places in found.items():
        if span.index in places:
            return _Span(written, span.index)
    for written, places in found.items():
        if places:
            return _Span(written, min(places, key=lambda place: abs(place - span.index)))
    return None


def _ways(words: list[str], span: _Span) -> list[str]:
    """Return what a span may be meant to be. Source: TFDS's ``wsc.fixed``."""
    plain = span.text.rstrip(".").replace("\n", " ").strip()
    ways = [span.text, plain]
    if plain and 0 <= span.index < len(words):
        is_lower = words[span.index].lstrip("\"'(")[:1].islower()
        first = plain[0].lower() if is_lower else plain[0].upper()
        ways.append(first + plain[1:])
    return [way for way in ways if way]


def _places(words: list[str], span: str) -> list[int]:
    """Return where the words of a span stand, whatever punctuation sticks to them."""
    n_words = len(span.split(" "))
    pattern = re.compile(rf"\W*{re.escape(span)}\W*")
    return [
        place
        for place in range(len(words) - n_words + 1)
        if pattern.fullmatch(" ".join(words[place : place + n_words]))
    ]
