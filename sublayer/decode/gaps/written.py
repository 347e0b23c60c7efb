"""What a decoder wrote for the gaps of a text: where it stands, and the text that it completes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sublayer.data.tokenizers.base import Tokenizer
from sublayer.decode.gaps.prompt import Prompt


class Filled(NamedTuple):
    """A completed text, and where in it each gap's text stands."""

    text: str
    places: list[slice]


def find_fills(written: Sequence[int], prompt: Prompt) -> list[slice | None]:
    """Find the tokens that fill each gap: those behind its sentinel; None for one without it.

    Of sentinels that are written again only the first counts. Where a prompt begins with a gap and
    what was written begins with text, that text fills the gap, and the first sentinel stands before
    what fills the second: so read targets of independent noise, whose sentinels stand for what is
    between gaps.
    """
    if not prompt.sentinels:
        return [slice(0, len(written))]
    names = set(prompt.sentinels)
    places = [place for place, id_ in enumerate(written) if id_ in names]
    places.append(len(written))
    behind: dict[int, slice] = {}
    for place, end in pairwise(places):
        behind.setdefault(written[place], slice(place + 1, end))
    found = [behind.get(sentinel) for sentinel in prompt.sentinels]
    if prompt.begins_with_gap and places[0] > 0:
        return [slice(0, places[0]), *found[:-1]]
    return found


def find_unplaced(
    written: Sequence[int], prompt: Prompt, fills: Sequence[slice | None]
) -> list[int]:
    """Return the ids that fill no gap, sentinels aside.

    They stand before the first sentinel, or behind one that was written before.
    """
    placed: set[int] = set()
    for fill in fills:
        if fill is not None:
            placed.update(range(fill.start, fill.stop))
    names = set(prompt.sentinels)
    return [id_ for place, id_ in enumerate(written) if place not in placed and id_ not in names]


def complete(tokenizer: Tokenizer, prompt: Prompt, fills: Sequence[Sequence[int]]) -> Filled:
    """Put the ids that fill each gap into a text.

    The prompt stays as it is, but for the whitespace before a gap, which the tokens decide: there
    is none where they have none there, else the prompt's own, or the tokens' where that has none.
    """
    text = prompt.texts[0]
    ids = list(prompt.ids[0])
    places = []
    for fill, after, after_ids in zip(fills, prompt.texts[1:], prompt.ids[1:], strict=True):
        space, content = _divided(tokenizer, ids, fill)
        stem = text.rstrip()
        typed = text[len(stem) :]
        if after[:1].isspace() or not after:
            content = content.rstrip()
        if content:
            text = stem + ((typed or space) if space else "")
        elif after[:1].isspace():
            text = stem  # one whitespace is enough
        places.append(slice(len(text), len(text) + len(content)))
        is_start = not text and not content
        text += content + (after.lstrip() if is_start else after)
        ids += [*fill, *after_ids]
    return Filled(text, places)


def _divided(tokenizer: Tokenizer, before: Sequence[int], fill: Sequence[int]) -> tuple[str, str]:
    """Decode what fills a gap behind other ids: the whitespace before its text, and the text."""
    known = _decode(tokenizer, before)
    whole = _decode(tokenizer, [*before, *fill])
    stem = known.rstrip()
    written = whole[len(stem) :] if whole.startswith(stem) else _decode(tokenizer, fill)
    content = written.lstrip()
    return written[: len(written) - len(content)], content


def _decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return tokenizer.decode(ids).decode("utf-8", "replace")
