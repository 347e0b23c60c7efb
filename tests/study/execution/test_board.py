"""What is shown of runs that are made at a time."""

import io

from sublayer.study.execution import board
from sublayer.study.execution.board import PlainBoard, Tally, TerminalBoard
from sublayer.training.progress import Status


def test_what_is_left_is_estimated_from_the_runs_that_took_time() -> None:
    tally = Tally(total=10, at_once=2, done=3)
    assert tally.describe() == "3/10"
    tally.done, tally.seconds = 5, [50.0, 70.0]
    # Five runs of a minute, two at a time.
    assert tally.describe() == "5/10, about 2:30 to go"
    tally.done = 9
    # The last one is alone.
    assert tally.describe() == "9/10, about 1:00 to go"
    tally.done = 10
    assert tally.describe() == "10/10"


def test_a_pipe_has_a_line_every_ten_seconds_with_all_that_runs(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(board.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    with PlainBoard(Tally(4, 2, done=1), stream) as shown:
        shown.begin("gelu, seed 2")
        shown.begin("relu, seed 3")
        shown.update("gelu, seed 2", Status(120, 400, 1.5, 1000.0))
        for now[0] in (0.5, 9.0, 10.5, 12.0):
            shown.refresh()
        shown.end("gelu, seed 2")
        shown.stage("relu, seed 3", "reading the text")
        now[0] = 21.0
        shown.refresh()
    assert stream.getvalue().splitlines() == [
        "[1/4] running gelu, seed 2 (step 120/400); relu, seed 3 (starting)",
        "[1/4] running relu, seed 3 (reading the text)",
    ]


def test_a_terminal_has_a_bar_for_each_run_that_is_made(monkeypatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(board, "lasting_stderr", lambda: stream)
    shown = TerminalBoard(Tally(4, 2))
    shown.begin("gelu, seed 2")
    shown.begin("relu, seed 3")
    shown.update("relu, seed 3", Status(120, 400, 1.5, 1000.0))
    shown.end("gelu, seed 2")
    shown.refresh()
    with shown:
        pass
    text = stream.getvalue()
    assert "gelu, seed 2" not in text
    assert "relu, seed 3" in text
    assert "step 120/400  loss 1.5000" in text
    assert "0/4" in text
