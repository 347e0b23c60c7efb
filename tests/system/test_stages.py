"""What is being done is shown while it lasts: on a terminal a moving line, in a pipe lines."""

import io
import os
import pty
import re
import threading

import pytest

from sublayer.system import stages
from sublayer.system.stage_displays import HeardStages, PlainStages
from sublayer.system.stages import display, note, shown_by, stage
from sublayer.system.status_line import StatusLine, cut

CHOOSE = stages._choose
"""What tests otherwise replace."""


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def plain() -> tuple[PlainStages, list[str], Clock]:
    lines: list[str] = []
    clock = Clock()
    return PlainStages(lines.append, clock, has_thread=False), lines, clock


def test_in_a_pipe_a_stage_of_less_than_a_second_has_no_line() -> None:
    shown, lines, clock = plain()
    entered = shown.begin("reading")
    clock.now += 0.9
    shown.tick()
    shown.end(entered)
    shown.tick()
    assert lines == []


def test_in_a_pipe_the_first_of_many_alike_has_a_line_and_then_one_every_ten_seconds() -> None:
    shown, lines, clock = plain()
    training = shown.begin("training", is_timed=False)
    heard = []
    for step in range(1, 13):
        entered = shown.begin(f"evaluating at step {step}")
        for _ in range(20):
            clock.now += 0.1
            shown.tick()
            heard.append(len(lines))
        shown.end(entered)
    # Of 24 s the first, and then two more.
    assert lines == ["evaluating at step 1", "evaluating at step 6", "evaluating at step 11"]
    assert max(heard.count(n) for n in set(heard)) <= 101
    shown.end(training)
    # Another run begins anew.
    shown.begin("evaluating at step 1")
    clock.now += 1.1
    shown.tick()
    assert lines[3:] == ["evaluating at step 1"]


def test_in_a_pipe_a_stage_that_changes_its_number_is_said_once_in_ten_seconds() -> None:
    shown, lines, clock = plain()
    entered = shown.begin("read 0 of 90 tokens")
    for n in range(90):
        clock.now += 0.1
        shown.change(entered, f"read {n} of 90 tokens")
        shown.tick()
    assert len(lines) == 1


def test_in_a_pipe_a_stage_has_a_line_and_then_one_every_ten_seconds() -> None:
    shown, lines, clock = plain()
    shown.begin("reading")
    heard = []
    for _ in range(250):
        clock.now += 0.1
        shown.tick()
        heard.append(len(lines))
    assert lines == ["reading", "reading 0:11", "reading 0:21"]
    # Never more than ten seconds without a line.
    longest = max(heard.count(n) for n in set(heard))
    assert longest <= 101


def test_in_a_pipe_many_short_stages_are_not_silent_either() -> None:
    shown, lines, clock = plain()
    for number in range(30):
        entered = shown.begin(f"part {number}")
        clock.now += 0.5
        shown.tick()
        shown.end(entered)
    assert lines == ["part 19"]


def test_in_a_pipe_a_line_of_another_kind_counts_as_one() -> None:
    shown, lines, clock = plain()
    training = shown.begin("step 0", is_timed=False)
    clock.now += 9.0
    shown.note("resumed")
    clock.now += 2.0
    shown.change(training, "step 7")
    shown.tick()
    assert lines == ["resumed"]
    clock.now += 8.5
    shown.tick()
    assert lines == ["resumed", "step 7"]


def terminal(width: str, monkeypatch: pytest.MonkeyPatch) -> tuple[StatusLine, io.StringIO, Clock]:
    monkeypatch.setenv("COLUMNS", width)
    stream = io.StringIO()
    clock = Clock()
    return StatusLine(stream, clock, has_thread=False), stream, clock


def seen(stream: io.StringIO) -> list[str]:
    """What a terminal shows after all that was written, line by line."""
    return [line.split("\x1b[K")[-1] for line in stream.getvalue().split("\n")]


def test_on_a_terminal_a_stage_is_there_at_once_and_every_tick_moves_it(monkeypatch) -> None:
    shown, stream, clock = terminal("80", monkeypatch)
    entered = shown.begin("reading")
    first = seen(stream)[-1]
    assert first.endswith(" reading")
    clock.now += 3.0
    shown.tick()
    later = seen(stream)[-1]
    assert later.endswith(" reading  0:03")
    assert later[0] != first[0]
    shown.end(entered)
    assert seen(stream) == [""]


def test_on_a_terminal_a_note_stays_above_the_line_and_the_innermost_stage_is_shown(
    monkeypatch,
) -> None:
    shown, stream, _ = terminal("80", monkeypatch)
    outer = shown.begin("training")
    inner = shown.begin("evaluating")
    shown.note("a document is long")
    assert seen(stream)[0] == "a document is long"
    assert seen(stream)[1].endswith("evaluating")
    shown.end(inner)
    assert seen(stream)[1].endswith("training")
    shown.end(outer)
    assert seen(stream) == ["a document is long", ""]


@pytest.mark.parametrize("text", ["step 12/400 " * 20, "学习" * 60])
def test_on_a_terminal_no_line_is_longer_than_the_terminal_is_wide(text, monkeypatch) -> None:
    shown, stream, _ = terminal("40", monkeypatch)
    entered = shown.begin(text)
    shown.change(entered, text, 0.5)
    shown.tick()
    line = seen(stream)[-1]
    assert cut(line, 39) == line
    assert "\n" not in stream.getvalue()


def test_a_stage_that_fails_is_left_and_its_line_taken_away(monkeypatch) -> None:
    shown, stream, _ = terminal("80", monkeypatch)
    with shown_by(shown), pytest.raises(KeyError), stage("reading"):
        raise KeyError
    assert shown.is_idle
    assert seen(stream) == [""]


def test_what_is_shown_elsewhere_is_heard_there() -> None:
    heard: list[str] = []
    notes: list[str] = []
    with shown_by(HeardStages(heard.append, notes.append)), stage("reading"):
        with stage("sorting"):
            note("it is long")
        assert display() is not stages._own
    assert heard == ["reading", "sorting", "reading", ""]
    assert notes == ["it is long"]


def test_a_thread_moves_the_line_and_ends_with_the_stage(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ticked = threading.Event()

    class Ticked(StatusLine):
        tick_s = 0.001

        def tick(self) -> None:
            super().tick()
            ticked.set()

    before = set(threading.enumerate())
    with shown_by(Ticked(io.StringIO())), stage("reading"):
        assert ticked.wait(60)
        (thread,) = set(threading.enumerate()) - before
    thread.join(60)
    assert not thread.is_alive()


def test_a_terminal_is_recognized_and_a_dumb_one_is_not(monkeypatch) -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as stream, os.fdopen(leader, "rb", buffering=0) as screen:
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setattr(stages, "_choose", CHOOSE)
        monkeypatch.setenv("TERM", "xterm")
        with stage("reading"):
            assert isinstance(display(), StatusLine)
            assert re.search(rb"reading", screen.read(1000))
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr(stages, "_own", None)
        assert isinstance(display(), PlainStages)
    monkeypatch.setattr(stages, "_own", None)
