"""Windows of a passage that is longer than a row, each behind the whole question.

Source: BERT's and ALBERT's preparation of SQuAD.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sublayer.data.arrays import Ints
from sublayer.data.tasks.offsets import PlacedTokens
from sublayer.errors import ConfigError
from sublayer.tasks.task import Answer

STRIDE = 128


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens of a passage that stand in a row."""

    start: int
    """Its first, by its place in the passage."""
    length: int

    @property
    def stop(self) -> int:
        """The place behind its last."""
        return self.start + self.length


def cut_windows(n_tokens: int, room: int, stride: int = STRIDE) -> tuple[Window, ...]:
    """Cut a passage of ``n_tokens`` into windows of at most ``room``, each ``stride`` behind the
    one before; the last ends with the passage. An empty passage has an empty one.

    Raises ConfigError where there is no room.
    """
    if room < 1:
        raise ConfigError(
            "the model's context has no room for a passage behind its question: give a longer one"
        )
    windows = [Window(0, min(room, n_tokens))]
    while windows[-1].stop < n_tokens:
        start = windows[-1].start + min(stride, windows[-1].length)
        windows.append(Window(start, min(room, n_tokens - start)))
    return tuple(windows)


def best_windows(windows: Sequence[Window]) -> Ints:
    """Return for each token of the passage the number of the window in which it is scored, ``[N]``.

    That is where it has most context on its poorer side, with 0.01 for each token of the window;
    of equals the first.
    """
    n_tokens = windows[-1].stop
    best = np.zeros(n_tokens, dtype=np.int64)
    highest = np.full(n_tokens, -np.inf)
    for number, window in enumerate(windows):
        places = np.arange(window.start, window.stop)
        left, right = places - window.start, window.stop - 1 - places
        scores = np.minimum(left, right) + 0.01 * window.length
        is_better = scores > highest[places]
        best[places[is_better]] = number
        highest[places[is_better]] = scores[is_better]
    return best


def gold_tokens(
    placed: PlacedTokens, passage: str, answers: Sequence[Answer]
) -> tuple[int, int] | None:
    """Return the first and the last token of the first gold answer; None where there is none.

    An answer without a place is taken where the passage first has it. Whole tokens are taken where
    it begins or ends inside one.
    """
    if not answers:
        return None
    answer = answers[0]
    start = passage.find(answer.text) if answer.start is None else answer.start
    if start < 0:
        return None
    return placed.covering(start, start + len(answer.text))


def gold_places(window: Window, gold: tuple[int, int] | None, offset: int) -> tuple[int, int]:
    """Return where the answer begins and ends in a window's row, whose passage begins at
    ``offset``; 0 and 0, which is [CLS], where the window has not all of it.
    """
    if gold is None or gold[0] < window.start or gold[1] >= window.stop:
        return 0, 0
    shift = offset - window.start
    return gold[0] + shift, gold[1] + shift
