"""Gold answers in their passages, and the known repairs of where they begin."""

from dataclasses import dataclass

from sublayer.tasks.example import Answer

NOT_FOUND = "an answer that its passage does not have in its place"
"""Why a question is left out of a training set."""
MOVED = "an answer that begins a few characters before its place"
SPACED = "an answer with white space around it"
"""What is repaired."""

_FEW = 8
"""At most so many characters of white space were taken from the beginning of a passage."""


@dataclass(frozen=True, slots=True)
class Placed:
    """An answer, with or without a place, and what was repaired; empty: nothing."""

    answer: Answer
    repair: str = ""


def place_answer(passage: str, text: str, start: int) -> Placed:
    """Find a gold answer where it is said to begin, in characters, and check that it is there.

    Two things are repaired: white space around an answer, which some copies take away without
    moving its place; and passages whose leading white space was taken away in the same manner, of
    which SQuAD 2.0 has some: there the answer begins a few characters earlier, and only where one
    place alone fits. Of all others the answer has no place.
    """
    if text and start >= 0:
        if passage.startswith(text, start):
            return Placed(Answer(text, start))
        bare = text.strip()
        inside = start + len(text) - len(text.lstrip())
        for place in (inside, start):
            if bare and bare != text and passage.startswith(bare, place):
                return Placed(Answer(bare, place), SPACED)
        spaces = len(passage[start:]) - len(passage[start:].lstrip())
        if bare and spaces and passage.startswith(bare, start + spaces):
            return Placed(Answer(bare, start + spaces), SPACED)
        earlier = [
            place
            for place in range(max(0, start - _FEW), start)
            if bare and passage.startswith(bare, place)
        ]
        if len(earlier) == 1:
            return Placed(Answer(bare, earlier[0]), MOVED)
    return Placed(Answer(text))
