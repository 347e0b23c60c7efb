"""Continuations of a prompt that grow by a token at a time, and are shown meanwhile."""

import codecs
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sublayer.commands.shared.base import write_result

if TYPE_CHECKING:
    from sublayer.data.tokenizers.base import Tokenizer


class Continuation:
    """A growing continuation that holds back incomplete characters and possible stops.

    It begins with ``first``.
    """

    def __init__(
        self, tokenizer: "Tokenizer", stops: list[str], *, is_shown: bool, first: str = ""
    ) -> None:
        self.text = first
        self.is_over = False
        self._tokenizer = tokenizer
        self._stops = stops
        longest_stop = max(map(len, stops), default=1)
        self._n_held = longest_stop - 1
        """Characters that could begin a stop, and are held back until the text continues."""
        self._is_shown = is_shown
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._n_shown = 0

    def add(self, token: int) -> None:
        """Add a token, unless the text is over: at a stop, or at the token that ends a document."""
        if self.is_over:
            return
        self.is_over = token == self._tokenizer.end_id
        if not self.is_over:
            data = self._tokenizer.decode([token])
            self._extend(self._decoder.decode(data))
        self._show(0 if self.is_over else self._n_held)

    def end(self) -> None:
        """Show what was held back."""
        if not self.is_over:
            incomplete = self._decoder.decode(b"", final=True)
            self._extend(incomplete)
        self._show(0)

    def _extend(self, text: str) -> None:
        """Add characters, and end the text before the first stop in it."""
        self.text += text
        positions = [self.text.find(stop) for stop in self._stops]
        hits = [position for position in positions if position >= 0]
        if hits:
            end = min(hits)
            self.text = self.text[:end]
            self.is_over = True

    def _show(self, n_held: int) -> None:
        start = self._n_shown
        end = len(self.text) - n_held
        if self._is_shown and end > start:
            write_result(self.text[start:end])
            self._n_shown = end


def extend_all(texts: list[Continuation], steps: Iterable[list[int]], *, first: str) -> int:
    """Add tokens to every text until all are over, and return the number of steps.

    ``first`` is shown once the prompt is read.
    """
    n_steps = 0
    for tokens in steps:
        if n_steps == 0:
            write_result(first)
        n_steps += 1
        for text, token in zip(texts, tokens, strict=True):
            text.add(token)
        if all(text.is_over for text in texts):
            break
    for text in texts:
        text.end()
    return n_steps
