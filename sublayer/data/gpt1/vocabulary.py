"""GPT-1's vocabulary: pieces, their ids, and the merges that make them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sublayer.data.subwords.bpe_encoding import END
from sublayer.errors import DataError

UNKNOWN = "<unk>"

Merge = tuple[str, str]

# What transformers and fine-tuning put beside pieces of text: <unk>, [PAD], _start_.
_SPECIAL = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]|_[a-z]+_")


@dataclass(frozen=True)
class Gpt1Vocabulary:
    """Pieces by id, of which those that end a word end in ``</w>``, and merges in their order.

    ``<unk>`` stands for what no piece does. Other ids that no merge makes stand for no text.
    """

    ids: Mapping[str, int]
    merges: tuple[Merge, ...]

    @property
    def special(self) -> list[str]:
        """The pieces that stand for no text."""
        return unmade(self.ids, self.merges)


def unmade(ids: Mapping[str, int], merges: Sequence[Merge]) -> list[str]:
    """List the pieces that are no character, nor made by a merge."""
    made = {left + right for left, right in merges}
    return [piece for piece in ids if piece not in made and len(piece.removesuffix(END)) != 1]


def check_vocabulary(
    ids: Mapping[str, int], merges: Sequence[Merge], of: str, made_by: str
) -> None:
    """Raise DataError where a vocabulary and merges do not belong together.

    ``of`` names the vocabulary, and ``made_by`` the merges, whose lines are numbered from 2.
    """
    if UNKNOWN not in ids:
        raise DataError(f"{of} has no {UNKNOWN}, the piece for what GPT-1's vocabulary lacks")
    seen: set[Merge] = set()
    for number, merge in enumerate(merges, 2):
        left, right = merge
        for piece in (left, right, left + right):
            if piece not in ids:
                raise DataError(
                    f"{made_by}, line {number}: {left!r} and {right!r} need {piece!r}, which {of} "
                    "lacks: they are of different versions, give those that belong together"
                )
        if merge in seen:
            raise DataError(f"{made_by}, line {number}: {left!r} and {right!r} are merged before")
        seen.add(merge)
    for piece in unmade(ids, merges):
        if not _SPECIAL.fullmatch(piece):
            raise DataError(
                f"{of} has {piece[:60]!r}, which no merge of {made_by} makes: they are of "
                "different versions, or the merges are cut short"
            )


def ends_words(ids: Mapping[str, int]) -> bool:
    """Return whether a ``vocab.json`` has words that end in a mark, as GPT-1's, unlike GPT-2's."""
    return 4 * sum(piece.endswith(END) for piece in ids) > len(ids)
