"""Examples of tasks as tokens: special tokens by format, rows of texts, windows of passages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain, pairwise, repeat
from typing import Any, NamedTuple, Self

import numpy as np

from sublayer.config.objective import Format
from sublayer.data.tasks.spans import (
    PlacedTokens,
    cut_windows,
    encode_with_offsets,
    gold_places,
)
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import ConfigError
from sublayer.files.arrays import AnyInts, Bools, Floats, Ints
from sublayer.tasks.registry import wording_of
from sublayer.tasks.task import Example, Task

START, DELIMITER, CLASSIFY = "_start_", "_delimiter_", "_classify_"
"""Names of a traversal's special tokens. Source: Radford et al. 2018, as released."""
TRAVERSAL_NAMES = (START, DELIMITER, CLASSIFY)
"""Names of a traversal's special tokens in the order of their ids, which follow all others."""
_MARKS = {
    "traversal": "start, delimiter and end of a traversal",
    "text": "end of a text",
    "pair": "[CLS] and [SEP]",
}


@dataclass(frozen=True)
class Marks:
    """Ids of a format's special tokens; None where the format lacks one."""

    first: int | None
    """Token before the first text."""
    between: int
    """Token after every text but the last."""
    last: int
    """Token after the last text."""
    pad: int
    """Padding."""
    n_between: int = 1
    """Times that ``between`` stands there."""


def find_marks(tokenizer: Tokenizer, format_: Format) -> Marks:
    """Find a format's special tokens in a vocabulary; raise ConfigError where it lacks them."""
    ids = tokenizer.added_ids
    end = tokenizer.sep_id
    if format_ == "traversal":
        marks = [ids.get(name) for name in TRAVERSAL_NAMES]
        remedy = "sublayer finetune adds them and trains them"
    elif format_ == "text":
        end = tokenizer.end_id if end is None else end
        marks = [end, end]
        remedy = "start from a model that was pre-trained with data.tokenizer = bpe or unigram"
    else:
        marks = [tokenizer.cls_id, end, end]
        remedy = "start from an encoder whose tokenizer has them"
    mark_ids = [id_ for id_ in marks if id_ is not None]
    if len(mark_ids) < len(marks):
        raise ConfigError(
            f"the tokenizer, of kind {tokenizer.kind}, lacks the {_MARKS[format_]} that "
            f"objective.format = {format_} needs: {remedy}"
        )
    *first, between, last = mark_ids
    pad = last if tokenizer.pad_id is None else tokenizer.pad_id
    n_between = tokenizer.n_separators if format_ == "pair" else 1
    return Marks(first[0] if first else None, between, last, pad, n_between)


CUTS = ("longest", "first")
"""Part of a row that is truncated if the row is too long, by the number that is stored."""


_TYPES: dict[str, Any] = {"labels": np.float64, "is_labelled": np.bool_}
"""Types of stored fields that are not integers."""


@dataclass(frozen=True)
class EncodedExamples:
    """Encoded examples of a task's split: an example has some rows, and a row some texts.

    ``ids`` concatenates the texts of all rows.
    """

    ids: AnyInts
    """Token ids, ``[N]``, without special tokens."""
    text_starts: Ints
    """Start of each text, and the end: ``[P + 1]``."""
    row_starts: Ints
    """First text of each row, and the number of texts: ``[R + 1]``."""
    example_starts: Ints
    """First row of each example, and the number of rows: ``[E + 1]``."""
    labels: Floats
    """Index of the class or of the correct choice, or a real number; 0 if unlabelled: ``[E]``."""
    is_labelled: Bools
    """``[E]``."""
    cuts: Ints
    """Part of each row that is truncated, a number of ``CUTS``: ``[R]``."""
    numbers: Ints
    """Index of each example among those that were read: ``[E]``."""

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        """Build from arrays as stored, by the names of the fields."""
        wide = {
            field.name: np.asarray(arrays[field.name]).astype(_TYPES.get(field.name, np.int64))
            for field in fields(cls)
            if field.name != "ids"
        }
        return cls(ids=arrays["ids"], **wide)

    def arrays(self) -> dict[str, Any]:
        """Return the arrays to store, in narrow types, by the names of the fields."""
        stored = {field.name: getattr(self, field.name) for field in fields(self)}
        stored["is_labelled"] = self.is_labelled.astype(np.uint8)
        return stored

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_rows(self) -> int:
        """Count the rows of all examples."""
        return len(self.row_starts) - 1

    @cached_property
    def text_lengths(self) -> Ints:
        """Length of each text in tokens: ``[P]``."""
        return np.diff(self.text_starts)

    @cached_property
    def row_texts(self) -> Ints:
        """Count the texts of each row: ``[R]``."""
        return np.diff(self.row_starts)

    @cached_property
    def row_tokens(self) -> Ints:
        """Count the tokens of each row before truncation, without special tokens: ``[R]``."""
        if not self.n_rows:
            return np.zeros(0, dtype=np.int64)
        return np.add.reduceat(self.text_lengths, self.row_starts[:-1])

    def rows_of(self, example: int) -> range:
        """Return the rows of an example."""
        return range(self.example_starts[example], self.example_starts[example + 1])

    def texts_of(self, row: int) -> list[AnyInts]:
        """Return the token ids of each text of a row."""
        first, stop = self.row_starts[row], self.row_starts[row + 1]
        starts = self.text_starts[first : stop + 1]
        return [self.ids[start:end] for start, end in pairwise(starts)]

    def span_of(self, row: int) -> tuple[int, int]:
        """Return the columns of the first and the last token of a row's answer.

        Both are 0 if the row has no answer, or if answers are not spans.
        """
        return 0, 0

    def golds(self) -> list[Any]:
        """Return the labels or answers, for a checksum."""
        gold: list[Any] = self.labels.tolist()
        return gold

    def select(self, examples: Ints) -> Self:
        """Return the examples with the given indices, in this order."""
        rows = ranges(self.example_starts, examples)
        texts = ranges(self.row_starts, rows)
        tokens = ranges(self.text_starts, texts)
        return replace(
            self,
            ids=self.ids[tokens],
            text_starts=bounds(self.text_lengths[texts]),
            row_starts=bounds(self.row_texts[rows]),
            example_starts=bounds(np.diff(self.example_starts)[examples]),
            labels=self.labels[examples],
            is_labelled=self.is_labelled[examples],
            cuts=self.cuts[rows],
            numbers=self.numbers[examples],
        )


def joined(parts: Sequence[EncodedExamples]) -> EncodedExamples:
    """Concatenate examples of several tasks; ``numbers`` still count within each part."""
    if len(parts) == 1:
        return parts[0]
    arrays: dict[str, Any] = {}
    for field in fields(EncodedExamples):
        values = [getattr(part, field.name) for part in parts]
        is_bounds = field.name.endswith("_starts")
        joined_ = np.concatenate([np.diff(value) if is_bounds else value for value in values])
        arrays[field.name] = bounds(joined_) if is_bounds else joined_
    return EncodedExamples(**arrays)


def bounds(lengths: Sequence[int] | Ints) -> Ints:
    """Return the start of each item, and the end of the last, from their lengths."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def ranges(starts: Ints, chosen: Ints) -> Ints:
    """Return the numbers from ``starts[i]`` to ``starts[i + 1]`` of each chosen ``i``, in order."""
    lengths = np.diff(starts)[chosen]
    own_starts = bounds(lengths)
    offsets = np.arange(own_starts[-1]) - np.repeat(own_starts[:-1], lengths)
    numbers: Ints = np.repeat(starts[chosen], lengths) + offsets
    return numbers


def cut_lengths(lengths: Sequence[int], room: int) -> list[int]:
    """Return the lengths of texts after truncation: the longest repeatedly loses its last token.

    Of equally long texts the last is cut first. Source: BERT's run_classifier.py, for two texts.
    """
    shortened = list(lengths)
    excess = sum(shortened) - room
    while excess > 0:
        longest = max(shortened)
        at_top = [index for index, length in enumerate(shortened) if length == longest]
        below = max((length for length in shortened if length < longest), default=0)
        # All longest texts shrink together to the next length, or as far as needed.
        level = max(below, longest - excess // len(at_top))
        if level < longest:
            for index in at_top:
                shortened[index] = level
        else:
            for index in at_top[len(at_top) - excess :]:
                shortened[index] -= 1
        excess = sum(shortened) - room
    return shortened


@dataclass(frozen=True)
class SpanExamples(EncodedExamples):
    """Encoded questions: a row has the question and a window of its passage.

    In training each window is an example, and the last three fields are empty.
    """

    spans: Ints
    """Columns of the first and the last token of the answer in each row: ``[R, 2]``; both are 0,
    the column of [CLS], if the window lacks a part of the answer."""
    window_starts: Ints
    """Position of each window's first token in the passage: ``[R]``."""
    n_question_tokens: Ints
    """Length of each question in tokens before truncation: ``[E]``."""
    passage_columns: Ints
    """Column of each row's first token of the passage: ``[R]``."""
    passage_starts: Ints
    """First token of each example's passage, and the number of tokens: ``[E + 1]``."""
    token_starts: Ints
    """Start of each token in its passage, in characters: ``[M]``."""
    token_ends: Ints
    """End of each token in its passage, in characters: ``[M]``."""

    @property
    def n_questions(self) -> int:
        """Count the questions, each of which may have several examples, one per window."""
        return len(np.unique(self.numbers))

    @property
    def n_cut_questions(self) -> int:
        """Count the truncated questions."""
        is_cut = self._read_question_tokens < self.n_question_tokens
        return len(np.unique(self.numbers[is_cut]))

    @property
    def most_question_tokens(self) -> int:
        """Return the number of tokens that are read of the longest question."""
        return int(self._read_question_tokens.max(initial=0))

    @property
    def _read_question_tokens(self) -> Ints:
        first_texts = self.row_starts[self.example_starts[:-1]]
        return self.text_lengths[first_texts]

    def span_of(self, row: int) -> tuple[int, int]:
        """Return the columns of the answer in a row."""
        first, last = self.spans[row].tolist()
        return first, last

    def golds(self) -> list[Any]:
        """Return the columns of all answers."""
        gold: list[Any] = self.spans.tolist()
        return gold

    def windows(self, example: int) -> list[range]:
        """Return the windows of an example as ranges of the passage's tokens."""
        windows = []
        for row in self.rows_of(example):
            _, window = self.texts_of(row)
            start = int(self.window_starts[row])
            windows.append(range(start, start + len(window)))
        return windows

    def offset(self, example: int) -> int:
        """Return the column at which the passage begins in each row of an example."""
        return int(self.passage_columns[self.rows_of(example)[0]])

    def placed(self, example: int) -> PlacedTokens:
        """Return the positions of a passage's tokens in its text; their ids are not stored."""
        first, stop = self.passage_starts[example], self.passage_starts[example + 1]
        starts, ends = self.token_starts[first:stop], self.token_ends[first:stop]
        return PlacedTokens(np.zeros(0, dtype=np.int32), starts, ends)

    def select(self, examples: Ints) -> Self:
        """Return the examples with the given indices, in this order."""
        rows = ranges(self.example_starts, examples)
        tokens = ranges(self.passage_starts, examples)
        return replace(
            super().select(examples),
            spans=self.spans[rows],
            window_starts=self.window_starts[rows],
            passage_columns=self.passage_columns[rows],
            n_question_tokens=self.n_question_tokens[examples],
            passage_starts=bounds(np.diff(self.passage_starts)[examples]),
            token_starts=self.token_starts[tokens],
            token_ends=self.token_ends[tokens],
        )


class WindowRule(NamedTuple):
    """Rule that cuts a passage longer than a row into windows."""

    context: int
    """Maximum length of a row in tokens, special ones included."""
    stride: int
    """Maximum distance between the beginnings of windows in tokens."""


def encode_passages(
    task: Task,
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    rule: WindowRule,
    *,
    trains: bool,
) -> SpanExamples:
    """Encode questions with their passages, in rows of the question and a window of the passage.

    With ``trains`` each window is an example, and questions whose answers are not found in their
    passages are left out. Otherwise each question is an example.

    A question is truncated to 64 tokens, and in a short context to half of the room. Raises
    ConfigError where a row has no room for a passage.
    """
    # A row has [CLS], and [SEP] after each text, after the first as often as the tokenizer says.
    n_marks = 2 + tokenizer.n_separators
    rows = [wording_of(task).pair_rows(example)[0] for example in examples]
    questions = tokenizer.encode_many([row.first.encode("utf-8", "replace") for row in rows])
    placed: dict[str, PlacedTokens] = {}
    texts: list[AnyInts] = []
    spans: list[tuple[int, int]] = []
    window_starts: list[int] = []
    passage_columns: list[int] = []
    example_starts = [0]
    numbers: list[int] = []
    passages: list[PlacedTokens] = []
    for number, (example, row) in enumerate(zip(examples, rows, strict=True)):
        passage = row.second or ""
        if passage not in placed:
            placed[passage] = encode_with_offsets(tokenizer, passage)
        tokens = placed[passage]
        with_place = [answer for answer in example.answers if answer.start is not None]
        gold = tokens.gold_tokens(passage, with_place or example.answers)
        if trains and example.answers and gold is None:
            continue
        assert row.first_tokens is not None, "a question has a maximum length"
        most = max(0, min(row.first_tokens, (rule.context - n_marks) // 2))
        question = questions[number][:most]
        room = rule.context - n_marks - len(question)
        for window in cut_windows(len(tokens.ids), room, rule.stride):
            texts += [question, tokens.ids[window.start : window.stop]]
            passage_columns.append(len(question) + n_marks - 1)
            spans.append(gold_places(window, gold, passage_columns[-1]))
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
        passage_columns=np.array(passage_columns, dtype=np.int64),
        n_question_tokens=np.array([len(questions[n]) for n in numbers], dtype=np.int64),
        passage_starts=bounds(n_tokens),
        token_starts=np.concatenate([none, *(passage.starts for passage in passages)]),
        token_ends=np.concatenate([none, *(passage.ends for passage in passages)]),
    )


ENCODING_VERSION = 3
"""Version of the encoding: increased whenever equal examples would be encoded otherwise."""
_BATCH_TEXTS = 4096


_ALL = slice(None)
_WHOLE = (_ALL, _ALL)


Row = tuple[Sequence[str], str, tuple[slice, ...]]
"""Row to be encoded: its texts, the part that is truncated, and the kept tokens of each text."""


def encode_examples(
    task: Task,
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    format_: Format,
    *,
    trains: bool,
    windows: WindowRule | None = None,
) -> EncodedExamples:
    """Encode examples in a format; ``windows`` is the rule of pairs of a question and a passage.

    With ``trains``, the format ``text`` makes an example of each gold answer. Otherwise an example
    remains one, with the first gold answer, if any, as its target.
    """
    if task.kind == "span" and format_ == "pair":
        assert windows is not None, "a passage is read in windows"
        return encode_passages(task, examples, tokenizer, windows, trains=trains)
    wording = wording_of(task)
    written: list[tuple[int, list[Row]]] = []
    for number, example in enumerate(examples):
        in_rows: list[Row] = []
        if format_ == "pair":
            for row in wording.pair_rows(example):
                assert row.cut in CUTS, "a passage is read in windows"
                pair = (row.first,) if row.second is None else (row.first, row.second)
                # Only the last tokens of the second text are read.
                second = _ALL if row.second_tokens is None else slice(-row.second_tokens, None)
                in_rows.append((pair, row.cut, (slice(row.first_tokens), second)))
        elif format_ == "traversal":
            in_rows = [(texts, CUTS[0], _WHOLE) for texts in wording.traversal_rows(example)]
        elif trains:
            training_texts = wording.training_texts(example)
            written += [(number, [(texts, CUTS[0], _WHOLE)]) for texts in training_texts]
            continue
        else:
            target = wording.text_target(example) if example.is_labelled else None
            read = wording.text_input(example)
            in_rows = [((read,) if target is None else (read, target), CUTS[0], _WHOLE)]
        written.append((number, in_rows))
    rows = [row for _, example_rows in written for row in example_rows]
    # Equal texts are encoded once.
    places: dict[str, int] = {}
    for texts, _, _ in rows:
        for text in texts:
            places.setdefault(text, len(places))
    distinct = [text.encode() for text in places]
    encoded: list[AnyInts] = []
    for start in range(0, len(distinct), _BATCH_TEXTS):
        encoded += tokenizer.encode_many(distinct[start : start + _BATCH_TEXTS])
    ids = [
        encoded[places[text]][tokens]
        for texts, _, of_row in rows
        for text, tokens in zip(texts, chain(of_row, repeat(_ALL)), strict=False)
    ]
    kept_examples = [examples[number] for number, _ in written]
    return EncodedExamples(
        ids=np.concatenate(ids) if ids else np.zeros(0, dtype=np.int32),
        text_starts=bounds([len(text) for text in ids]),
        row_starts=bounds([len(texts) for texts, _, _ in rows]),
        example_starts=bounds([len(example_rows) for _, example_rows in written]),
        labels=np.array([example.label or 0.0 for example in kept_examples], dtype=np.float64),
        is_labelled=np.array([example.is_labelled for example in kept_examples], dtype=np.bool_),
        cuts=np.array([CUTS.index(cut) for _, cut, _ in rows], dtype=np.int64),
        numbers=np.array([number for number, _ in written], dtype=np.int64),
    )
