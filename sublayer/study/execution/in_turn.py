"""Make a study's runs one after another in this process."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from sublayer.errors import Interrupted
from sublayer.study.execution.board import BoardProgress, Tally, default_board
from sublayer.study.execution.ended import describe_end
from sublayer.study.execution.one_run import Outcome, Task, finish_run, interruption, is_finished
from sublayer.system.stage_displays import HeardStages
from sublayer.system.stages import shown_by
from sublayer.training.progress import SilentProgress


class InTurn:
    """Makes runs one by one, ``total`` in all."""

    def __init__(self, total: int, device: str | None) -> None:
        self._board = default_board(Tally(total))
        self._device = device

    def __call__(self, tasks: Sequence[Task]) -> dict[Path, Outcome]:
        """Make the runs, or what is missing of them, and return their outcomes by their folders."""
        with self._board:
            return {task.path: self._make(task) for task in tasks}

    def _make(self, task: Task) -> Outcome:
        board, label = self._board, task.label
        if is_finished(task):
            board.tally.find()
            return finish_run(task, SilentProgress(), device=self._device)
        board.begin(label)
        try:
            with shown_by(HeardStages(partial(board.stage, label), board.note)):
                outcome = finish_run(task, BoardProgress(board, label), device=self._device)
        except (Interrupted, KeyboardInterrupt):
            # While a run is trained it is the former, while it is scored the latter.
            raise interruption(board.tally.done, board.tally.total) from None
        board.finish(label, describe_end(task, outcome))
        return outcome
