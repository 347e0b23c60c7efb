"""Labels beside points, moved apart where they would cover each other."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Box:
    """Where a label would stand, in any unit of length; y grows upwards."""

    left: float
    bottom: float
    right: float
    top: float

    def raised(self, height: float) -> "Box":
        """Return the box so much higher."""
        return Box(self.left, self.bottom + height, self.right, self.top + height)

    def covers(self, other: "Box") -> bool:
        """Return whether both have some area in common."""
        is_beside = self.right <= other.left or other.right <= self.left
        is_above = self.bottom >= other.top or other.bottom >= self.top
        return not (is_beside or is_above)


def raise_labels(boxes: Sequence[Box], *, gap: float) -> list[float]:
    """Return how much higher each label has to stand so that none covers another.

    They are placed from the lowest to the highest; what is free stays where it is, and what is not
    stands ``gap``, more than 0, above all that were in its way.
    """
    heights = [0.0] * len(boxes)
    placed: list[Box] = []
    order = sorted(range(len(boxes)), key=lambda index: (boxes[index].bottom, boxes[index].left))
    for index in order:
        box = boxes[index]
        # Each pass stands above all that were in the way, so that none is in the way twice.
        while in_the_way := [other for other in placed if other.covers(box)]:
            top = max(other.top for other in in_the_way)
            heights[index] += top - box.bottom + gap
            box = boxes[index].raised(heights[index])
        placed.append(box)
    return heights
