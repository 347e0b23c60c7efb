"""Pieces aligned with the text that they were made of, whatever was done to it before."""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from weakref import WeakKeyDictionary

import numpy as np

from sublayer.data.arrays import Bools, Ints, TokenIds
from sublayer.data.tokenizers.base import Tokenizer

_ANYTHING = "\uffff"
"""Stands in the pieces for a token whose text is not known; no character of a text folds to it."""
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
"""Of each tokenizer the folded texts of ids, as far as they were met."""


def align(tokenizer: Tokenizer, ids: TokenIds, text: str) -> tuple[Ints, Ints]:
    """Return where each token begins in a text, and where it ends, ``[T]`` both, in characters.

    Text and pieces are compared character by character, without capitals, accents, whitespace,
    marks of width and kinds of quotes, so that they are mostly equal. A token of which no character
    is found, as none is of the unknown one, stands for what lies between its neighbours; of several
    each for a word of that, or a character, where there are as many.
    """
    texts = _texts.setdefault(tokenizer, {})
    for id_ in set(ids.tolist()) - texts.keys():
        texts[id_] = _piece(tokenizer, id_)
    pieces = [texts[id_] for id_ in ids.tolist()]
    owners = np.repeat(np.arange(len(ids)), list(map(len, pieces)))  # the token of each character
    folded = list(map(_fold, text))
    places = np.repeat(np.arange(len(text)), list(map(len, folded)))  # and its place in the text
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
    _divide_unknown(text, is_found, is_unknown, starts, ends)
    return starts, ends


def _divide_unknown(
    text: str, is_found: Bools, is_unknown: Bools, starts: Ints, ends: Ints
) -> None:
    """Give each unknown token of a run its word, or its character, where there are as many."""
    bounds = np.flatnonzero(np.diff(np.concatenate(([True], is_found, [True]))))
    for first, stop in bounds.reshape(-1, 2).tolist():
        unknown = first + np.flatnonzero(is_unknown[first:stop])
        if not len(unknown):
            continue
        at, end = int(starts[first]), int(ends[first])
        for pattern in (r"\S+", r"\S"):
            spans = [match.span() for match in re.compile(pattern).finditer(text, at, end)]
            if len(spans) == len(unknown):
                starts[unknown], ends[unknown] = np.array(spans).T
                # A mark of a space has no characters, and stands where what follows begins.
                behind = np.searchsorted(unknown, np.arange(first, stop))
                edges = np.append(starts[unknown], end)[behind]
                is_space = ~is_unknown[first:stop]
                starts[first:stop][is_space] = ends[first:stop][is_space] = edges[is_space]
                break


def _piece(tokenizer: Tokenizer, id_: int) -> str:
    if id_ in tokenizer.special_ids:
        return _ANYTHING
    text = tokenizer.decode([id_]).decode("utf-8", "replace")
    if _LACKING in text:
        return _ANYTHING
    return "".join(map(_fold, text))


@cache
def _fold(character: str) -> str:
    if character == _ANYTHING:
        return ""
    if character in _QUOTES:
        return _QUOTES[character]
    decomposed = unicodedata.normalize("NFKD", character)
    kept = (each for each in decomposed if not unicodedata.combining(each) and not each.isspace())
    return "".join(kept).casefold()


def _matches(pieces: str, text: str) -> Iterator[tuple[int, int]]:
    # Pairs of places with equal characters, both ascending.
    i = j = 0
    while i < len(pieces) and j < len(text):
        if pieces[i] == text[j]:
            yield i, j
            i, j = i + 1, j + 1
        elif pieces[i] == _ANYTHING:
            i, j = _behind_anything(pieces, i, text, j)
        else:
            i, j = _agreeing(pieces, i, text, j)


def _behind_anything(pieces: str, i: int, text: str, j: int) -> tuple[int, int]:
    while i < len(pieces) and pieces[i] == _ANYTHING:
        i += 1
    known = pieces[i : i + _PROBE].partition(_ANYTHING)[0]
    # It stands for a character at least, or for none where that does not fit.
    for start in (j + 1, j):
        found = text.find(known, start)
        if known and found >= 0:
            return i, found
    return i, j


def _agreeing(pieces: str, i: int, text: str, j: int) -> tuple[int, int]:
    # The nearest places at which both go on alike.
    for n_skipped in range(1, _SKIPPED + 1):
        for in_pieces in range(n_skipped + 1):
            known = pieces[i + in_pieces : i + in_pieces + _AGREEING].partition(_ANYTHING)[0]
            if known and text.startswith(known, j + n_skipped - in_pieces):
                return i + in_pieces, j + n_skipped - in_pieces
    return i + 1, j + 1
