"""Examples of a task encoded, in the format that a model reads."""

from collections.abc import Sequence

import numpy as np

from sublayer.config.supervised import Format
from sublayer.data.arrays import AnyInts
from sublayer.data.tasks.encoded import CUTS, EncodedExamples, bounds
from sublayer.data.tasks.span_encoding import WindowRule, encode_passages
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.tasks.formats import (
    PairRow,
    pair_rows,
    text_input,
    text_target,
    training_texts,
    traversal_rows,
)
from sublayer.tasks.task import Example, Task

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
        self.labels: list[float] = []
        self.is_labelled: list[bool] = []
        self.numbers: list[int] = []

    def add_row(self, texts: Sequence[str], cut: int = 0) -> None:
        self.texts += [self.distinct.setdefault(text, len(self.distinct)) for text in texts]
        self.row_starts.append(len(self.texts))
        self.cuts.append(cut)

    def end_example(self, example: Example, number: int) -> None:
        self.example_starts.append(len(self.cuts))
        self.labels.append(0.0 if example.label is None else float(example.label))
        self.is_labelled.append(example.is_labelled)
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
    for number, example in enumerate(examples):
        if format_ == "pair":
            for row in pair_rows(task, example):
                _add_pair(gathered, row)
        elif format_ == "traversal":
            for texts in traversal_rows(task, example):
                gathered.add_row(texts)
        elif not trains:
            target = text_target(task, example) if example.is_labelled else None
            read = text_input(task, example)
            gathered.add_row((read,) if target is None else (read, target))
        else:
            # Each is an example of its own.
            for texts in training_texts(task, example):
                gathered.add_row(texts)
                gathered.end_example(example, number)
            continue
        gathered.end_example(example, number)
    return _encoded(gathered, tokenizer)


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


def _encoded(gathered: _Texts, tokenizer: Tokenizer) -> EncodedExamples:
    distinct = list(gathered.distinct)
    found: list[AnyInts] = []
    for start in range(0, len(distinct), _BATCH_TEXTS):
        batch = distinct[start : start + _BATCH_TEXTS]
        found += tokenizer.encode_many([text.encode() for text in batch])
    ids = [found[number] for number in gathered.texts]
    for index, (begin, stop) in gathered.most.items():
        ids[index] = ids[index][begin:stop]
    lengths = [len(each) for each in ids]
    flat = np.concatenate(ids) if ids else np.zeros(0, dtype=np.int32)
    return EncodedExamples(
        ids=flat,
        text_starts=bounds(lengths),
        row_starts=np.array(gathered.row_starts, dtype=np.int64),
        example_starts=np.array(gathered.example_starts, dtype=np.int64),
        labels=np.array(gathered.labels, dtype=np.float64),
        is_labelled=np.array(gathered.is_labelled, dtype=np.bool_),
        cuts=np.array(gathered.cuts, dtype=np.int64),
        numbers=np.array(gathered.numbers, dtype=np.int64),
    )
