"""Which pairs of a text and its translation are kept, and how many are dropped for which reason."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class PairFilter:
    """Drop pairs by the words of their sides, and count them by reason; what has an empty side is always dropped.

    ``longest``: the words of a side at most. ``ratio``: how many times the shorter side's words the longer may have.
    Source: Moses' clean-corpus-n.perl.
    """

    longest: int | None = None
    ratio: float | None = None
    dropped: Counter[str] = field(default_factory=Counter)

    def keeps(self, source: list[str], target: list[str]) -> bool:
        """Tell whether a pair is kept."""
        reason = self._reason(*sorted((len(source), len(target))))
        if reason:
            self.dropped[reason] += 1
        return not reason

    def _reason(self, shorter: int, longer: int) -> str:
        if shorter == 0:
            return "with an empty side"
        if self.longest is not None and longer > self.longest:
            return f"with more than {self.longest} words"
        if self.ratio is not None and longer > self.ratio * shorter:
            return f"with more than {self.ratio:g} words to one"
        return ""
