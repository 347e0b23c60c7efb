"""Which pairs of a text and its translation are kept, and how many are dropped for which reason."""

from collections import Counter
from dataclasses import dataclass, field

from sublayer.counts import count


@dataclass
class PairFilter:
    """Drop pairs by the numbers of words of their sides, and count what is dropped by reason.

    A pair with an empty side is always dropped. Source: Moses' clean-corpus-n.perl.
    """

    longest: int | None = None
    """The words of a side at most; None: any number."""
    ratio: float | None = None
    """How many times the shorter side's words the longer may have; None: any."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Pairs by the reason for which they were dropped, worded for people."""

    def keeps(self, source: list[str], target: list[str]) -> bool:
        """Return whether a pair, by its words, is kept; count it in ``dropped`` if not."""
        shorter, longer = sorted((len(source), len(target)))
        reason = self._reason(shorter, longer)
        if reason:
            self.dropped[reason] += 1
        return not reason

    def _reason(self, shorter: int, longer: int) -> str:
        if shorter == 0:
            return "with an empty side"
        if self.longest is not None and longer > self.longest:
            return f"with more than {count(self.longest, 'word')}"
        if self.ratio is not None and longer > self.ratio * shorter:
            return f"with more than {self.ratio:g} words to one"
        return ""
