"""Answers in a passage: positions of tokens, windows, and scores of spans.

Source of windows: BERT's and ALBERT's preparation of SQuAD; of scores: ALBERT's ``squad_utils.py``.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from sublayer.data.tokenizers.base import CharacterTokenizer, Tokenizer
from sublayer.data.tokenizers.subword import SubwordTokenizer
from sublayer.errors import ConfigError
from sublayer.files.arrays import Floats, Ints, TokenIds
from sublayer.tasks.task import Answer

_ANYTHING = "\uffff"
"""Placeholder for a token of unknown text; no character of a text folds to it."""
_LACKING = "\ufffd"
_PROBE = 16
_AGREEING = 4
_SKIPPED = 64
_QUOTES = {
    **dict.fromkeys("‘’‚`", "'"),
    **dict.fromkeys('"“”„«»', "''"),
    **dict.fromkeys("‐‑‒–—―−", "-"),
}

_texts: WeakKeyDictionary[Tokenizer, dict[int, str]] = WeakKeyDictionary()
"""Folded texts of the ids met so far, by tokenizer."""


def align(tokenizer: Tokenizer, ids: TokenIds, text: str) -> tuple[Ints, Ints]:
    """Return the starts and ends of tokens in a text, in characters, ``[T]`` each.

    Text and pieces are compared character by character, regardless of case, accents, whitespace,
    full width and kinds of quotes, so that they are mostly equal. A token without a match, such as
    the unknown token, covers the text between its neighbours. Several such tokens in a row cover
    its words, or its characters, if there are as many.
    """
    texts = _texts.setdefault(tokenizer, {})
    for id_ in set(ids.tolist()) - texts.keys():
        texts[id_] = _ANYTHING
        if id_ in tokenizer.special_ids:
            continue
        piece = tokenizer.decode([id_]).decode("utf-8", "replace")
        if _LACKING not in piece:
            texts[id_] = "".join(map(_fold, piece))
    pieces = [texts[id_] for id_ in ids.tolist()]
    owners = np.repeat(np.arange(len(ids)), list(map(len, pieces)))  # token of each character
    folded = list(map(_fold, text))
    places = np.repeat(np.arange(len(text)), list(map(len, folded)))  # and its position in the text
    pairs = np.array(list(_matches("".join(pieces), "".join(folded))), dtype=np.int64)
    in_pieces, in_text = pairs.reshape(-1, 2).T
    tokens, at = owners[in_pieces], places[in_text]
    starts = np.full(len(ids), len(text), dtype=np.int64)
    ends = np.zeros(len(ids), dtype=np.int64)
    np.minimum.at(starts, tokens, at)
    np.maximum.at(ends, tokens, at + 1)
    is_found = np.zeros(len(ids), dtype=np.bool_)
    is_found[tokens] = True
    ends_before = np.maximum.accumulate(ends)
    starts_behind = np.minimum.accumulate(starts[::-1])[::-1]
    starts = np.where(is_found, starts, np.minimum(ends_before, starts_behind))
    ends = np.where(is_found, ends, np.maximum(ends_before, starts_behind))
    is_unknown = np.array([piece == _ANYTHING for piece in pieces], dtype=np.bool_)
    # Unknown tokens in a row are the words between their neighbours, or the characters, if there
    # are as many.
    bounds = np.flatnonzero(np.diff(np.concatenate(([True], is_found, [True]))))
    for first, stop in bounds.reshape(-1, 2).tolist():
        unknown = first + np.flatnonzero(is_unknown[first:stop])
        if not len(unknown):
            continue
        start, end = int(starts[first]), int(ends[first])
        for pattern in (r"\S+", r"\S"):
            spans = [match.span() for match in re.compile(pattern).finditer(text, start, end)]
            if len(spans) == len(unknown):
                starts[unknown], ends[unknown] = np.array(spans).T
                # A space token has no characters, and is placed at the next token.
                behind = np.searchsorted(unknown, np.arange(first, stop))
                edges = np.append(starts[unknown], end)[behind]
                is_space = ~is_unknown[first:stop]
                starts[first:stop][is_space] = ends[first:stop][is_space] = edges[is_space]
                break
    return starts, ends


@cache
def _fold(character: str) -> str:
    if character == _ANYTHING:
        return ""
    if character in _QUOTES:
        return _QUOTES[character]
    decomposed = unicodedata.normalize("NFKD", character)
    parts = (part for part in decomposed if not unicodedata.combining(part) and not part.isspace())
    return "".join(parts).casefold()


def _matches(pieces: str, text: str) -> Iterator[tuple[int, int]]:
    # Pairs of positions with equal characters, both ascending.
    i = j = 0
    while i < len(pieces) and j < len(text):
        if pieces[i] == text[j]:
            yield i, j
            i, j = i + 1, j + 1
        elif pieces[i] == _ANYTHING:
            while i < len(pieces) and pieces[i] == _ANYTHING:
                i += 1
            following = pieces[i : i + _PROBE].partition(_ANYTHING)[0]
            # The placeholder covers at least one character, or none if that does not fit.
            places = [text.find(following, start) for start in (j + 1, j)] if following else []
            j = next((place for place in places if place >= 0), j)
        else:
            # The nearest positions from which both agree.
            skips = (
                (n, skipped - n) for skipped in range(1, _SKIPPED + 1) for n in range(skipped + 1)
            )
            for in_pieces, in_text in skips:
                start = i + in_pieces
                following = pieces[start : start + _AGREEING].partition(_ANYTHING)[0]
                if following and text.startswith(following, j + in_text):
                    break
            else:
                in_pieces, in_text = 1, 1
            i, j = i + in_pieces, j + in_text


class PlacedTokens(NamedTuple):
    """Tokens of a text ``[T]``, and their positions in it."""

    ids: TokenIds
    starts: Ints
    """Start of each token, in characters."""
    ends: Ints
    """End of each token, after its last character; a character of several tokens is in each."""

    def covering(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the first and last token that overlap characters ``start`` to ``end - 1``.

        None if there is no such token.
        """
        touched = np.flatnonzero((self.starts < end) & (self.ends > start))
        if not len(touched):
            return None
        return int(touched[0]), int(touched[-1])

    def slice(self, first: int, last: int, text: str) -> slice:
        """Return the characters of tokens ``first`` to ``last``, without surrounding whitespace."""
        start, end = int(self.starts[first]), int(self.ends[first : last + 1].max())
        piece = text[start:end]
        start += len(piece) - len(piece.lstrip())
        return slice(start, start + len(piece.strip()))

    def gold_tokens(self, passage: str, answers: Sequence[Answer]) -> tuple[int, int] | None:
        """Return the first and the last token of the first gold answer; None if there is none.

        An answer without a position is taken at its first occurrence. Tokens that it covers in part
        are included.
        """
        if not answers:
            return None
        answer = answers[0]
        start = passage.find(answer.text) if answer.start is None else answer.start
        if start < 0:
            return None
        return self.covering(start, start + len(answer.text))


def encode_with_offsets(tokenizer: Tokenizer, text: str) -> PlacedTokens:
    """Encode a text, with the position of each token in it.

    Positions are exact if the tokenizer keeps every byte, has an id for each character, or is one
    of the ``tokenizers`` library, which returns them. For others, which lowercase letters, strip
    accents and whitespace or rewrite punctuation first, pieces are aligned with the text. Half of a
    surrogate pair is encoded as ``?``.
    """
    data = text.encode("utf-8", "replace")
    ids = tokenizer.encode(data)
    if tokenizer.is_lossless:
        byte_ends = np.cumsum(tokenizer.token_bytes[ids])
        byte_starts = byte_ends - tokenizer.token_bytes[ids]
        # Character of each byte; every byte but a continuation byte, 10xxxxxx, begins one.
        characters = np.cumsum(np.frombuffer(data, dtype=np.uint8) & 0xC0 != 0x80) - 1
        return PlacedTokens(ids, characters[byte_starts], characters[byte_ends - 1] + 1)
    if isinstance(tokenizer, CharacterTokenizer):
        places = np.arange(len(ids))
        return PlacedTokens(ids, places, places + 1)
    if isinstance(tokenizer, SubwordTokenizer):
        library_ids, spans = tokenizer.encode_with_spans(data.decode())
        if np.array_equal(library_ids, ids):
            return PlacedTokens(ids, spans[:, 0], spans[:, 1])
    return PlacedTokens(ids, *align(tokenizer, ids, data.decode()))


STRIDE = 128


def cut_windows(n_tokens: int, room: int, stride: int = STRIDE) -> tuple[range, ...]:
    """Cut a passage of ``n_tokens`` into windows of at most ``room``, which begin every ``stride``.

    The last window ends with the passage. An empty passage has one empty window.

    Raises ConfigError where there is no room.
    """
    if room < 1:
        raise ConfigError(
            "the model's context has no room for a passage after its question: give a longer "
            "data.context"
        )
    windows = [range(min(room, n_tokens))]
    while windows[-1].stop < n_tokens:
        start = windows[-1].start + min(stride, len(windows[-1]))
        windows.append(range(start, min(start + room, n_tokens)))
    return tuple(windows)


def best_windows(windows: Sequence[range]) -> Ints:
    """Return the number of the window that scores each token of the passage, ``[N]``.

    It is the window with maximum context on the token's shorter side, plus 0.01 per token of the
    window; the first of several equal ones.
    """
    n_tokens = windows[-1].stop
    best = np.zeros(n_tokens, dtype=np.int64)
    highest = np.full(n_tokens, -np.inf)
    for number, window in enumerate(windows):
        places = np.arange(window.start, window.stop)
        left, right = places - window.start, window.stop - 1 - places
        scores = np.minimum(left, right) + 0.01 * len(window)
        is_better = scores > highest[places]
        best[places[is_better]] = number
        highest[places[is_better]] = scores[is_better]
    return best


def gold_places(window: range, gold: tuple[int, int] | None, offset: int) -> tuple[int, int]:
    """Return the columns of the answer's first and last token in a window's row.

    The passage begins at column ``offset``. Both are 0, the column of [CLS], if the window lacks a
    part of the answer.
    """
    if gold is None or gold[0] < window.start or gold[1] >= window.stop:
        return 0, 0
    shift = offset - window.start
    return gold[0] + shift, gold[1] + shift


N_BEST = 20
"""Number of best starts, of best ends where independent of the start, and of answers kept."""
N_BEST_JOINT = 5
"""Number of best starts, and of best ends for each, where the end depends on the start."""
MOST_TOKENS = 30


class Candidates(NamedTuple):
    """Candidate answers in one window's row, ``[C]``."""

    starts: Ints
    """Columns of first tokens."""
    ends: Ints
    """Columns of last tokens."""
    scores: Floats


@dataclass(frozen=True, slots=True)
class Span:
    """Answer in a passage."""

    text: str
    start: int
    """Start in the passage, in characters."""
    score: float
    probability: float
    """Probability among the listed answers."""


def independent_candidates(starts: Floats, ends: Floats, n_best: int = N_BEST) -> Candidates:
    """Pair the best starts and the best ends of a row's logits, ``[T]`` each; scores are sums.

    The logits exclude padding, which in the source may displace candidates.
    """
    firsts, lasts = best_starts(starts, n_best), best_starts(ends, n_best)
    scores = starts[firsts][:, None] + ends[lasts]
    return Candidates(np.repeat(firsts, len(lasts)), np.tile(lasts, len(firsts)), scores.ravel())


def joint_candidates(
    starts: Floats, columns: Ints, ends: Floats, n_ends: int = N_BEST_JOINT
) -> Candidates:
    """Pair starts, by their ``columns`` ``[K]``, with the best ends given each start.

    ``starts`` ``[T]`` and ``ends`` ``[K, T]`` are a row's logits. Scores are log-probabilities.
    """
    start_scores = _log_softmax(starts)[columns]
    end_scores = _log_softmax(ends)
    best = np.stack([best_starts(row, n_ends) for row in end_scores])  # [K, n_ends]
    scores = start_scores[:, None] + np.take_along_axis(end_scores, best, axis=1)
    return Candidates(np.repeat(columns, best.shape[1]), best.ravel(), scores.ravel())


def rank_spans(
    windows: Sequence[range],
    candidates: Sequence[Candidates],
    *,
    offset: int,
    placed: PlacedTokens,
    passage: str,
    most_tokens: int = MOST_TOKENS,
    n_best: int = N_BEST,
) -> list[Span]:
    """Return the ``n_best`` best valid answers of all windows, best first; empty if none is valid.

    ``offset`` is the column at which the passage begins, the same in each window. A valid answer
    lies in the passage, does not end before its start, has at most ``most_tokens``, starts at a
    token that its window scores (``best_windows``), and is not only whitespace. Of equal scores, an
    earlier window comes first, then a better start.
    """
    scored_in = best_windows(windows)
    answers: list[tuple[float, int, int]] = []
    for number, (window, answer) in enumerate(zip(windows, candidates, strict=True)):
        starts, ends = (columns - offset + window.start for columns in (answer.starts, answer.ends))
        is_answer = (starts >= window.start) & (ends < window.stop) & (ends >= starts)
        is_answer &= ends - starts < most_tokens
        is_answer[is_answer] = scored_in[starts[is_answer]] == number
        columns = (answer.scores, starts, ends)
        answers += zip(*(column[is_answer].tolist() for column in columns), strict=True)
    answers.sort(key=lambda scored: -scored[0])
    texts = []
    for score, first, last in answers:
        span = placed.slice(first, last, passage)
        if span.start < span.stop:
            texts.append((passage[span], span.start, score))
        if len(texts) == n_best:
            break
    probabilities = probabilities_of(np.array([score for _, _, score in texts]))
    return [Span(*answer, p) for answer, p in zip(texts, probabilities, strict=True)]


def probabilities_of(scores: Floats) -> list[float]:
    """Return the softmax of the listed answers' scores."""
    shares: list[float] = np.exp(_log_softmax(scores)).tolist()
    return shares


def best_starts(starts: Floats, n_starts: int = N_BEST_JOINT) -> Ints:
    """Return the columns of the highest logits ``[T]``, for ``joint_candidates``."""
    return np.argsort(-starts, kind="stable")[:n_starts]


def _log_softmax(logits: Floats) -> Floats:
    if not logits.size:
        return logits
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result
