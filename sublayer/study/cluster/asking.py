"""What a scheduler says of tasks, asked now and then: silence, and why tasks wait, are told."""

from collections.abc import Callable, Mapping

from sublayer.counts import count
from sublayer.study.cluster.clock import Clock
from sublayer.study.cluster.cluster import Cluster, NoAnswer, TaskState

_SILENCE_S = 120.0
"""Without an answer, until that is said, and said again after twice as long."""
_USUAL = {"", "None", "Priority", "Resources", "BeginTime"}
"""Reasons to wait that pass by themselves."""


class Asking:
    """Asks a cluster which tasks it still has."""

    def __init__(self, cluster: Cluster, say: Callable[[str], None], clock: Clock) -> None:
        self._cluster = cluster
        self._say = say
        self._clock = clock
        self._asked = -float("inf")
        self._answered = clock.now()
        self._told_after_s = _SILENCE_S
        self._told: set[str] = set()

    def ask(self, labels: Mapping[str, str]) -> Mapping[str, TaskState] | None:
        """Return those of the tasks that have not ended; None where it is too early, or silent.

        ``labels`` has the run of each task, for people. Raises ClusterGone.
        """
        now = self._clock.now()
        if not labels or now - self._asked < self._cluster.patience_s:
            return None
        self._asked = now
        try:
            states = self._cluster.active(list(labels))
        except NoAnswer as error:
            self._tell_silence(now - self._answered, str(error))
            return None
        if self._told_after_s > _SILENCE_S:
            self._say(f"{self._cluster.name} answers again")
        self._answered, self._told_after_s = now, _SILENCE_S
        self._tell_reasons(labels, states)
        return states

    def _tell_silence(self, silent_s: float, why: str) -> None:
        if silent_s < self._told_after_s:
            return
        self._told_after_s = 2 * silent_s
        self._say(
            f"{self._cluster.name} has not answered for {count(int(silent_s // 60), 'minute')} "
            f"({why}): what runs there goes on, and it is asked again"
        )

    def _tell_reasons(self, labels: Mapping[str, str], states: Mapping[str, TaskState]) -> None:
        waiting: dict[str, list[str]] = {}
        for task, state in states.items():
            if not state.is_running and state.reason not in _USUAL | self._told:
                waiting.setdefault(state.reason, []).append(labels[task])
        for reason, own in waiting.items():
            self._told.add(reason)
            verb = "waits" if len(own) == 1 else "wait"
            self._say(
                f"{count(len(own), 'run')} {verb} on {self._cluster.name} for {reason}, "
                f"{own[0]} first"
            )
