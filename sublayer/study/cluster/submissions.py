"""The runs that wait to be submitted, and what becomes of them where a scheduler takes no more."""

from collections import deque

from sublayer.study.cluster.clock import Clock

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 300.0
"""Between two tries, each pause twice the one before; 10 s are enough for a job to be listed."""
_MOST_ALONE = 6
"""Tries in a row, with nothing of the study on the cluster, after which it is not waited for."""


class Submissions:
    """Runs in their order. After a refusal nothing is due for a while: sites have limits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runs: deque[str] = deque()
        self._has_taken = False
        self._n_refused = 0
        self._due = -float("inf")
        self._said: set[str] = set()

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: str, *, first: bool = False) -> None:
        """Have a run wait behind all others, or before them."""
        if first:
            self._runs.appendleft(run)
        else:
            self._runs.append(run)

    def is_due(self) -> bool:
        """Return whether the next run is to be submitted now."""
        return bool(self._runs) and self._clock.now() >= self._due

    def pop(self) -> str:
        """Take the next run."""
        return self._runs.popleft()

    def take(self) -> None:
        """Note that the cluster has taken a run."""
        self._has_taken = True
        self._n_refused = 0

    def hurry(self) -> None:
        """Have the next run due at once: something has ended, so that there may be room."""
        self._due = self._clock.now()

    def refuse(self, run: str, *, n_there: int) -> bool:
        """Put back a run that was refused, behind all others; return whether to try it again.

        ``n_there`` runs are on the cluster. With none there, one that has never taken a run is not
        asked again, and another for a while: it may be started again.
        """
        self._n_refused += 1
        if not n_there and (not self._has_taken or self._n_refused >= _MOST_ALONE):
            return False
        self._runs.append(run)
        pause_s = _FIRST_PAUSE_S * 2 ** min(self._n_refused - 1, 10)
        self._due = self._clock.now() + min(pause_s, _LONGEST_PAUSE_S)
        return True

    def is_news(self, why: str) -> bool:
        """Return whether a reason was not said before."""
        is_news = why not in self._said
        self._said.add(why)
        return is_news
