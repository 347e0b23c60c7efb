"""An example of a task as each format writes it, token by token: the papers' figures."""

from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from sublayer.config.supervised import Format
from sublayer.data.arrays import AnyInts
from sublayer.data.tasks.assembly import build_row
from sublayer.data.tasks.encoded import TRAVERSAL_NAMES, find_marks
from sublayer.data.tasks.encoding import encode_examples
from sublayer.data.tokenizers.base import (
    Tokenizer,
    with_names,
)
from sublayer.data.tokenizers.shown import END, WordTokens, show_tokens, special_names
from sublayer.errors import ConfigError
from sublayer.tasks.registry import wording_of
from sublayer.tasks.task import Example, Task

FORMATS: tuple[Format, ...] = ("pair", "traversal", "text")
_UNCUT = 1 << 20


class Shown(NamedTuple):
    """A token as it is shown."""

    text: str
    is_mark: bool
    """True where it belongs to the format, and not to a text."""


@dataclass(frozen=True)
class FormatFigure:
    """An example in one format."""

    format: Format
    rows: tuple[tuple[Shown, ...], ...]
    """Rows that are read; of a choice one for each, in their order."""
    target: tuple[Shown, ...] = ()
    """Target tokens of it; none where it is not known, and where nothing is written."""
    problem: str = ""
    """Reason why there are no rows."""


def draw_figures(task: Task, example: Example, tokenizer: Tokenizer | None) -> list[FormatFigure]:
    """Write an example in each format, uncut; without a tokenizer as words."""
    return [_draw(task, example, format_, tokenizer) for format_ in FORMATS]


def _draw(
    task: Task, example: Example, format_: Format, tokenizer: Tokenizer | None
) -> FormatFigure:
    if tokenizer is None:
        last = END if format_ == "text" else "[SEP]"
        tokenizer = WordTokens(_texts(task, example, format_), last=last)
    tokenizer = with_names(tokenizer, TRAVERSAL_NAMES)
    try:
        marks = find_marks(tokenizer, format_)
    except ConfigError as error:
        return FormatFigure(format_, (), problem=str(error))
    if task.kind == "span" and format_ == "pair":
        # Where the passage fits one window.
        (pair,) = wording_of(task).pair_rows(example)
        assert pair.second is not None and marks.first is not None, "a question is about a passage"
        question = tokenizer.encode(pair.first.encode())[: pair.first_tokens]
        passage = tokenizer.encode(pair.second.encode())
        ids: list[Any] = [[marks.first], question, [marks.between], passage, [marks.last]]
        return FormatFigure(format_, (_shown(np.concatenate(ids), tokenizer),))
    encoded = encode_examples(task, [example], tokenizer, format_, trains=False)
    if format_ == "text":
        read, *written = (
            _shown(np.append(text, marks.last), tokenizer) for text in encoded.texts_of(0)
        )
        return FormatFigure(format_, (read,), written[0] if written else ())
    rows = (build_row(encoded, row, marks, _UNCUT)[0] for row in range(encoded.n_rows))
    return FormatFigure(format_, tuple(_shown(row, tokenizer) for row in rows))


def _texts(task: Task, example: Example, format_: Format) -> list[str]:
    wording = wording_of(task)
    if format_ == "traversal":
        return list(chain.from_iterable(wording.traversal_rows(example)))
    if format_ == "text":
        return [wording.text_input(example), wording.text_target(example) or ""]
    return [text for row in wording.pair_rows(example) for text in (row.first, row.second or "")]


def _shown(ids: AnyInts, tokenizer: Tokenizer) -> tuple[Shown, ...]:
    marks = special_names(tokenizer)
    texts = show_tokens(ids, tokenizer)
    return tuple(Shown(text, id_ in marks) for id_, text in zip(ids.tolist(), texts, strict=True))
