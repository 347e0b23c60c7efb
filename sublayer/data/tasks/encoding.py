"""Examples of a task encoded, in the format that a model reads.

Questions about passages are encoded in windows. Source: BERT's run_squad.py and ALBERT's
squad_utils.py, whose examples of training are windows.
"""

from collections.abc import Sequence
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
from sublayer.tasks.wording import PairRow

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
            # The passage stands behind [CLS], the question and [SEP].
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


class _Texts:
    """The texts of rows, gathered to be encoded together, equal ones once."""

    def __init__(self) -> None:
        self.distinct: dict[str, int] = {}
        """The number of each text among all that differ."""
        self.texts: list[int] = []
        """Of each row one after another, by their numbers."""
        self.row_starts = [0]
        self.example_starts = [0]
        self.cuts: list[int] = []
        self.most: dict[int, tuple[int | None, int | None]] = {}
        self.numbers: list[int] = []

    def add_row(self, texts: Sequence[str], cut: int = 0) -> None:
        self.texts += [self.distinct.setdefault(text, len(self.distinct)) for text in texts]
        self.row_starts.append(len(self.texts))
        self.cuts.append(cut)

    def end_example(self, number: int) -> None:
        self.example_starts.append(len(self.cuts))
        self.numbers.append(number)


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
    gathered = _Texts()
    wording = wording_of(task)
    for number, example in enumerate(examples):
        if format_ == "pair":
            for row in wording.pair_rows(example):
                _add_pair(gathered, row)
        elif format_ == "traversal":
            for texts in wording.traversal_rows(example):
                gathered.add_row(texts)
        elif not trains:
            target = wording.text_target(example) if example.is_labelled else None
            read = wording.text_input(example)
            gathered.add_row((read,) if target is None else (read, target))
        else:
            # Each is an example of its own.
            for texts in wording.training_texts(example):
                gathered.add_row(texts)
                gathered.end_example(number)
            continue
        gathered.end_example(number)
    return _encoded(gathered, examples, tokenizer)


def _add_pair(gathered: _Texts, row: PairRow) -> None:
    texts = [row.first] if row.second is None else [row.first, row.second]
    first = len(gathered.texts)
    if row.first_tokens is not None:
        gathered.most[first] = (None, row.first_tokens)
    if row.second_tokens is not None:
        # The last of its tokens are read.
        gathered.most[first + 1] = (-row.second_tokens, None)
    assert row.cut in CUTS, "a passage is read in windows"
    gathered.add_row(texts, CUTS.index(row.cut))


def _encoded(
    gathered: _Texts, examples: Sequence[Example], tokenizer: Tokenizer
) -> EncodedExamples:
    distinct = list(gathered.distinct)
    encoded: list[AnyInts] = []
    for start in range(0, len(distinct), _BATCH_TEXTS):
        batch = distinct[start : start + _BATCH_TEXTS]
        encoded += tokenizer.encode_many([text.encode() for text in batch])
    ids = [encoded[number] for number in gathered.texts]
    for index, (begin, stop) in gathered.most.items():
        ids[index] = ids[index][begin:stop]
    kept = [examples[number] for number in gathered.numbers]
    return EncodedExamples(
        ids=np.concatenate(ids) if ids else np.zeros(0, dtype=np.int32),
        text_starts=bounds([len(text) for text in ids]),
        row_starts=np.array(gathered.row_starts, dtype=np.int64),
        example_starts=np.array(gathered.example_starts, dtype=np.int64),
        labels=np.array([example.label or 0.0 for example in kept], dtype=np.float64),
        is_labelled=np.array([example.is_labelled for example in kept], dtype=np.bool_),
        cuts=np.array(gathered.cuts, dtype=np.int64),
        numbers=np.array(gathered.numbers, dtype=np.int64),
    )
