"""Show how runs go on the nodes of a cluster, by what the nodes write."""

from sublayer.study.cluster.exchange import Progress
from sublayer.study.execution.board import Board


class RunBoard:
    """Puts runs on a board when their nodes speak, and off it."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._shown: dict[str, Progress] = {}

    def show(self, label: str, progress: Progress) -> None:
        """Show what has changed of a run."""
        before = self._shown.get(label)
        if before is None:
            self.board.begin(label)
            self.board.note(f"{label}: on {progress.host}")
        n_notes, n_warnings = (len(before.notes), len(before.warnings)) if before else (0, 0)
        for text in progress.notes[n_notes:]:
            self.board.note(f"{label}: {text}")
        for text in progress.warnings[n_warnings:]:
            self.board.warn(label, text)
        status = progress.read_status()
        if status is not None:
            self.board.update(label, status)
        self.board.stage(label, progress.stage)
        self._shown[label] = progress

    def end(self, label: str) -> None:
        """Show a run no longer, if it was shown."""
        if self._shown.pop(label, None) is not None:
            self.board.drop(label)
