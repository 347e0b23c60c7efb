"""Questions about passages as tokens: windows of the passage, and where the answer is in each."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from sublayer.data.arrays import Ints
from sublayer.data.tasks.encoded import EncodedExamples, bounds, ranges
from sublayer.data.tasks.offsets import PlacedTokens
from sublayer.data.tasks.windows import Window


@dataclass(frozen=True)
class SpanExamples(EncodedExamples):
    """Questions, each row of which is a window of the passage behind the question.

    Of what is learned from, each window is an example of its own, and the last three fields are
    empty.
    """

    spans: Ints
    """Columns of the first and the last token of the answer in each row, marks included: ``[R,
    2]``; 0 and 0, which is [CLS], where the window has not all of it."""
    window_starts: Ints
    """The first token of each window, by its place in the passage: ``[R]``."""
    n_question_tokens: Ints
    """How long each question is, before it is cut: ``[E]``."""
    passage_starts: Ints
    """The first token of each example's passage, and the number of tokens: ``[E + 1]``."""
    token_starts: Ints
    """Where each token of a passage begins in it, in characters: ``[M]``."""
    token_ends: Ints
    """Where it ends: ``[M]``."""

    @property
    def n_questions(self) -> int:
        """Count the questions, of which each window may be an example."""
        return len(np.unique(self.numbers))

    @property
    def n_cut_questions(self) -> int:
        """Count the questions that are cut."""
        is_cut = self._read_question_tokens < self.n_question_tokens
        return len(np.unique(self.numbers[is_cut]))

    @property
    def most_question_tokens(self) -> int:
        """Return how many tokens of the longest question are read."""
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

    def windows(self, example: int) -> list[Window]:
        """Return an example's windows."""
        found = []
        for row in self.rows_of(example):
            _, window = self.texts_of(row)
            found.append(Window(int(self.window_starts[row]), len(window)))
        return found

    def offset(self, example: int) -> int:
        """Return the column at which the passage begins in each row of an example."""
        question, _ = self.texts_of(self.rows_of(example)[0])
        # Behind [CLS], the question and [SEP].
        return len(question) + 2

    def placed(self, example: int) -> PlacedTokens:
        """Return where the tokens of an example's passage stand in it; their ids are left out."""
        first, stop = self.passage_starts[example], self.passage_starts[example + 1]
        starts, ends = self.token_starts[first:stop], self.token_ends[first:stop]
        return PlacedTokens(np.zeros(0, dtype=np.int32), starts, ends)

    def select(self, examples: Ints) -> Self:
        """Return some of the examples, by their places here, in this order."""
        rows = ranges(self.example_starts, examples)
        tokens = ranges(self.passage_starts, examples)
        return replace(
            super().select(examples),
            spans=self.spans[rows],
            window_starts=self.window_starts[rows],
            n_question_tokens=self.n_question_tokens[examples],
            passage_starts=bounds(np.diff(self.passage_starts)[examples]),
            token_starts=self.token_starts[tokens],
            token_ends=self.token_ends[tokens],
        )
