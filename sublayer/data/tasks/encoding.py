"""Examples of a task encoded, in the format that a model reads.

Questions about passages are encoded in windows. Source: BERT's run_squad.py and ALBERT's
squad_utils.py, whose examples of training are windows.
"""

from collections.abc import Sequence
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np

from sublayer.config.supervised import Format
from sublayer.data.arrays import AnyInts
from sublayer.data.tasks.encoded import CUTS, EncodedExamples, SpanExamples, bounds
from sublayer.data.tasks.spans import (
    PlacedTokens,
    cut_windows,
    encode_with_offsets,
    gold_places,
    gold_tokens,
)
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.tasks.registry import wording_of
from sublayer.tasks.task import Example, Task
from sublayer.tasks.wording import PairRow, Wording

_N_MARKS = 3
"""[CLS], and a [SEP] behind each text."""


class WindowRule(NamedTuple):
    """Windows of a passage that is longer than a row."""

    context: int
    """Tokens of a row at most, marks included."""
    stride: int
    """Tokens between the beginnings of windows at most."""


def encode_passages(
    task: Task,
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    rule: WindowRule,
    *,
    trains: bool,
) -> SpanExamples:
    """Encode questions and their passages in windows, each behind its question.

    ``trains``: as they are learned from, each window an example; one whose answers are not found in
    the passage is left out. Otherwise each question is one.

    A question is cut to 64 tokens, and in a short context to half of its room. Raises ConfigError
    where a row has no room for a passage.
    """
    rows = [wording_of(task).pair_rows(example)[0] for example in examples]
    questions = tokenizer.encode_many([row.first.encode("utf-8", "replace") for row in rows])
    placed: dict[str, PlacedTokens] = {}
    texts: list[AnyInts] = []
    spans: list[tuple[int, int]] = []
    window_starts: list[int] = []
    example_starts = [0]
    numbers: list[int] = []
    passages: list[PlacedTokens] = []
    for number, (example, row) in enumerate(zip(examples, rows, strict=True)):
        passage = row.second or ""
        if passage not in placed:
            placed[passage] = encode_with_offsets(tokenizer, passage)
        tokens = placed[passage]
        with_place = [answer for answer in example.answers if answer.start is not None]
        gold = gold_tokens(tokens, passage, with_place or example.answers)
        if trains and example.answers and gold is None:
            continue
        assert row.first_tokens is not None, "a question is cut before its passage"
        most = max(0, min(row.first_tokens, (rule.context - _N_MARKS) // 2))
        question = questions[number][:most]
        room = rule.context - _N_MARKS - len(question)
        for window in cut_windows(len(tokens.ids), room, rule.stride):
            texts += [question, tokens.ids[window.start : window.stop]]
            # The passage follows [CLS], the question and [SEP].
            spans.append(gold_places(window, gold, len(question) + 2))
            window_starts.append(window.start)
            if trains:
                example_starts.append(len(spans))
                numbers.append(number)
        if not trains:
            example_starts.append(len(spans))
            numbers.append(number)
            passages.append(tokens)
    n_tokens = [len(passage.ids) for passage in passages] or [0] * len(numbers)
    none = np.zeros(0, dtype=np.int64)
    return SpanExamples(
        ids=np.concatenate([np.zeros(0, dtype=np.int32), *texts]),
        text_starts=bounds([len(text) for text in texts]),
        row_starts=np.arange(len(spans) + 1, dtype=np.int64) * 2,
        example_starts=np.array(example_starts, dtype=np.int64),
        labels=np.zeros(len(numbers)),
        is_labelled=np.array([examples[n].is_labelled for n in numbers], dtype=np.bool_),
        cuts=np.full(len(spans), CUTS.index("longest"), dtype=np.int64),
        numbers=np.array(numbers, dtype=np.int64),
        spans=np.array(spans, dtype=np.int64).reshape(len(spans), 2),
        window_starts=np.array(window_starts, dtype=np.int64),
        n_question_tokens=np.array([len(questions[n]) for n in numbers], dtype=np.int64),
        passage_starts=bounds(n_tokens),
        token_starts=np.concatenate([none, *(passage.starts for passage in passages)]),
        token_ends=np.concatenate([none, *(passage.ends for passage in passages)]),
    )


VERSION = 2
"""Changes whenever equal examples would be encoded otherwise."""
_BATCH_TEXTS = 4096


_ALL = slice(None)


class _EncodedRow(NamedTuple):
    """A row to be encoded: its texts, the one that gives way, and the tokens kept of each."""

    texts: Sequence[str]
    cut: str = CUTS[0]
    kept: tuple[slice, ...] = (_ALL, _ALL)


def encode_examples(
    task: Task,
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    format_: Format,
    *,
    trains: bool,
    windows: WindowRule | None = None,
) -> EncodedExamples:
    """Encode examples in a format; ``windows`` says how pairs of a question and a passage are read.

    ``trains``: as they are learned from, of which text to text makes an example of each gold
    answer, input and target; otherwise each is one, its target that of the first, if it is known.
    """
    if task.kind == "span" and format_ == "pair":
        assert windows is not None, "a passage is read in windows"
        return encode_passages(task, examples, tokenizer, windows, trains=trains)
    written = [
        (number, rows)
        for number, example in enumerate(examples)
        for rows in _written(wording_of(task), example, format_, trains=trains)
    ]
    rows = [row for _, example_rows in written for row in example_rows]
    # Equal texts are encoded once.
    places: dict[str, int] = {}
    for row in rows:
        for text in row.texts:
            places.setdefault(text, len(places))
    distinct = [text.encode() for text in places]
    encoded: list[AnyInts] = []
    for start in range(0, len(distinct), _BATCH_TEXTS):
        encoded += tokenizer.encode_many(distinct[start : start + _BATCH_TEXTS])
    ids = [
        encoded[places[text]][kept]
        for row in rows
        for text, kept in zip(row.texts, chain(row.kept, repeat(_ALL)), strict=False)
    ]
    kept_examples = [examples[number] for number, _ in written]
    return EncodedExamples(
        ids=np.concatenate(ids) if ids else np.zeros(0, dtype=np.int32),
        text_starts=bounds([len(text) for text in ids]),
        row_starts=bounds([len(row.texts) for row in rows]),
        example_starts=bounds([len(example_rows) for _, example_rows in written]),
        labels=np.array([example.label or 0.0 for example in kept_examples], dtype=np.float64),
        is_labelled=np.array([example.is_labelled for example in kept_examples], dtype=np.bool_),
        cuts=np.array([CUTS.index(row.cut) for row in rows], dtype=np.int64),
        numbers=np.array([number for number, _ in written], dtype=np.int64),
    )


def _written(
    wording: Wording, example: Example, format_: Format, *, trains: bool
) -> list[list[_EncodedRow]]:
    """Write an example as the rows of one or several."""
    if format_ == "pair":
        return [[_pair(row) for row in wording.pair_rows(example)]]
    if format_ == "traversal":
        return [[_EncodedRow(texts) for texts in wording.traversal_rows(example)]]
    if trains:
        return [[_EncodedRow(texts)] for texts in wording.training_texts(example)]
    target = wording.text_target(example) if example.is_labelled else None
    read = wording.text_input(example)
    return [[_EncodedRow((read,) if target is None else (read, target))]]


def _pair(row: PairRow) -> _EncodedRow:
    assert row.cut in CUTS, "a passage is read in windows"
    first = slice(row.first_tokens)
    # The last tokens of the second are read.
    second = _ALL if row.second_tokens is None else slice(-row.second_tokens, None)
    texts = (row.first,) if row.second is None else (row.first, row.second)
    return _EncodedRow(texts, row.cut, (first, second))
