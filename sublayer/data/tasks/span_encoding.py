"""Questions about passages encoded, in windows.

Source: BERT's run_squad.py and ALBERT's squad_utils.py, whose examples of training are windows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sublayer.data.arrays import AnyInts, Ints
from sublayer.data.tasks.encoded import CUTS, bounds
from sublayer.data.tasks.offsets import PlacedTokens, encode_with_offsets
from sublayer.data.tasks.span_examples import SpanExamples
from sublayer.data.tasks.windows import cut_windows, gold_places, gold_tokens
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.tasks.formats import PairRow, pair_rows
from sublayer.tasks.task import Example, Task

_N_MARKS = 3
"""[CLS], and a [SEP] behind each text."""


class WindowRule(NamedTuple):
    """How a passage that is longer than a row is read."""

    context: int
    """Tokens of a row at most, marks included."""
    stride: int
    """Tokens between the beginnings of windows at most."""


class _Gathered:
    """Rows as they are put together."""

    def __init__(self) -> None:
        self.texts: list[AnyInts] = []
        self.spans: list[tuple[int, int]] = []
        self.window_starts: list[int] = []
        self.example_starts = [0]
        self.n_question_tokens: list[int] = []
        self.is_labelled: list[bool] = []
        self.numbers: list[int] = []
        self.passages: list[PlacedTokens] = []

    def end_example(self, example: Example, number: int, n_question_tokens: int) -> None:
        self.example_starts.append(len(self.spans))
        self.n_question_tokens.append(n_question_tokens)
        self.is_labelled.append(example.is_labelled)
        self.numbers.append(number)


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
    rows = [pair_rows(task, example)[0] for example in examples]
    questions = tokenizer.encode_many([row.first.encode("utf-8", "replace") for row in rows])
    placed: dict[str, PlacedTokens] = {}
    gathered = _Gathered()
    for number, (example, row) in enumerate(zip(examples, rows, strict=True)):
        passage = row.second or ""
        if passage not in placed:
            placed[passage] = encode_with_offsets(tokenizer, passage)
        tokens = placed[passage]
        with_place = [each for each in example.answers if each.start is not None]
        gold = gold_tokens(tokens, passage, with_place or example.answers)
        if trains and example.answers and gold is None:
            continue
        uncut = questions[number]
        question = uncut[: _most_tokens(row, rule.context)]
        room = rule.context - _N_MARKS - len(question)
        for window in cut_windows(len(tokens.ids), room, rule.stride):
            gathered.texts += [question, tokens.ids[window.start : window.stop]]
            # The passage stands behind [CLS], the question and [SEP].
            gathered.spans.append(gold_places(window, gold, len(question) + 2))
            gathered.window_starts.append(window.start)
            if trains:
                gathered.end_example(example, number, len(uncut))
        if not trains:
            gathered.end_example(example, number, len(uncut))
            gathered.passages.append(tokens)
    return _put_together(gathered)


def _most_tokens(row: PairRow, context: int) -> int:
    assert row.first_tokens is not None, "a question is cut before its passage"
    return max(0, min(row.first_tokens, (context - _N_MARKS) // 2))


def _put_together(gathered: _Gathered) -> SpanExamples:
    n_rows = len(gathered.spans)
    n_examples = len(gathered.numbers)
    n_tokens = [len(each.ids) for each in gathered.passages] or [0] * n_examples
    return SpanExamples(
        ids=np.concatenate([np.zeros(0, dtype=np.int32), *gathered.texts]),
        text_starts=bounds([len(text) for text in gathered.texts]),
        row_starts=np.arange(n_rows + 1, dtype=np.int64) * 2,
        example_starts=np.array(gathered.example_starts, dtype=np.int64),
        labels=np.zeros(n_examples),
        is_labelled=np.array(gathered.is_labelled, dtype=np.bool_),
        cuts=np.full(n_rows, CUTS.index("longest"), dtype=np.int64),
        numbers=np.array(gathered.numbers, dtype=np.int64),
        spans=np.array(gathered.spans, dtype=np.int64).reshape(n_rows, 2),
        window_starts=np.array(gathered.window_starts, dtype=np.int64),
        n_question_tokens=np.array(gathered.n_question_tokens, dtype=np.int64),
        passage_starts=bounds(n_tokens),
        token_starts=_joined([each.starts for each in gathered.passages]),
        token_ends=_joined([each.ends for each in gathered.passages]),
    )


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])
