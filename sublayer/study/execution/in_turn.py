"""Make a study's runs one after another in this process."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sublayer.errors import Interrupted
from sublayer.study.execution.one_run import Outcome, Task, finish_run, interruption
from sublayer.system.stage_displays import format_seconds
from sublayer.training.progress import default_progress


@dataclass
class InTurn:
    """Makes runs one by one, ``total`` in all; those found begun do not count in their pace."""

    total: int
    device: str | None
    _started: int = 0
    _seconds: list[float] = field(default_factory=list)
    _warned: set[str] = field(default_factory=set)

    def __call__(self, tasks: Sequence[Task]) -> dict[Path, Outcome]:
        """Make the runs, or what is missing of them, and return their outcomes by their folders."""
        return {task.path: self._make(task) for task in tasks}

    def _make(self, task: Task) -> Outcome:
        progress = default_progress(self._prefix(task.label))
        progress.warned = self._warned
        progress.is_alone = False
        is_whole = not task.path.exists()
        begun = time.monotonic()
        try:
            outcome = finish_run(task, progress, device=self.device)
        except (Interrupted, KeyboardInterrupt):
            # While a run is trained it is the former, while it is scored the latter.
            raise interruption(self._started - 1, self.total) from None
        if is_whole:
            self._seconds.append(time.monotonic() - begun)
        return outcome

    def _prefix(self, label: str) -> str:
        self._started += 1
        left = self.total - self._started + 1
        eta = ""
        if self._seconds:
            mean_s = sum(self._seconds) / len(self._seconds)
            eta = f", about {format_seconds(left * mean_s)} to go"
        return f"[{self._started}/{self.total}{eta}] {label}: "
