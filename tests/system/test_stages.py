"""Stages are shown while they last: on a terminal as a moving line, in a pipe as lines."""

import io
import os
import pty
import threading

import pytest

from sublayer.system import stages
from sublayer.system.stage_displays import HeardStages, PlainStages
from sublayer.system.stages import display, note, shown_by, stage
from sublayer.system.status_line import StatusLine, columns_of

CHOOSE = stages._choose
"""Replaced in all other tests."""


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def pipe():
    lines, clock = [], Clock()
    return PlainStages(lines.append, clock, has_thread=False), lines, clock


def lasting(shown, clock, seconds):
    for _ in range(int(seconds * 10)):
        clock.now = round(clock.now + 0.1, 1)
        shown.tick()


def test_in_a_pipe_a_stage_has_a_line_after_a_second_and_then_every_ten(pipe):
    shown, lines, clock = pipe
    entered = shown.begin("reading")
    lasting(shown, clock, 0.9)
    assert lines == []
    lasting(shown, clock, 24)
    assert lines == ["reading", "reading 0:11", "reading 0:21"]
    shown.end(entered)
    shown.note("read")
    for number in range(30):
        entered = shown.begin(f"part {number}")
        lasting(shown, clock, 0.5)
        shown.end(entered)
    assert lines[3:] == ["read", "part 19"], "short stages are not silent"


def test_in_a_pipe_of_stages_that_differ_by_numbers_the_first_has_a_line(pipe):
    shown, lines, clock = pipe
    training = shown.begin("training", is_timed=False)
    for step in range(1, 13):
        entered = shown.begin(f"evaluating at step {step}")
        lasting(shown, clock, 2)
        shown.end(entered)
    assert lines == ["evaluating at step 1", "evaluating at step 6", "evaluating at step 11"]
    shown.end(training)
    shown.begin("evaluating at step 1")
    lasting(shown, clock, 1.1)
    assert lines[3:] == ["evaluating at step 1"], "another run begins anew"


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    stream, clock = io.StringIO(), Clock()
    return StatusLine(stream, clock, has_thread=False), stream, clock


def seen(stream):
    """Give the lines of a terminal after all that was written."""
    return [line.split("\x1b[K")[-1] for line in stream.getvalue().split("\n")]


def test_on_a_terminal_the_innermost_stage_is_a_line_below_all_notes(terminal):
    shown, stream, clock = terminal
    outer = shown.begin("training")
    inner = shown.begin("evaluating")
    assert seen(stream) == ["⠋ evaluating"]
    shown.note("a document is long")
    clock.now += 3.0
    shown.tick()
    assert seen(stream) == ["a document is long", "⠙ evaluating  0:03"]
    shown.end(inner)
    shown.change(outer, "training", 0.4)
    shown.tick()
    done = "━" * 8 + "─" * 13
    assert seen(stream) == ["a document is long", f"⠹ training  0:03  {done}"]
    for text in ("step 12/400 " * 20, "学习" * 60):
        shown.change(outer, text, 0.5)
        shown.tick()
        assert 37 <= columns_of(seen(stream)[-1]) <= 39, "as wide as the terminal"
    shown.end(outer)
    assert seen(stream) == ["a document is long", ""]


def test_stages_are_left_where_they_fail_and_heard_elsewhere():
    heard, notes = [], []

    def fail():
        note("it is long")
        raise KeyError

    with shown_by(HeardStages(heard.append, notes.append)):
        with pytest.raises(KeyError), stage("reading"), stage("sorting"):
            fail()
        assert display() is not stages._own and display().is_idle
    assert heard == ["reading", "sorting", "reading", ""] and notes == ["it is long"]


def test_a_thread_moves_the_line_and_ends_with_the_stage(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ticked = threading.Event()

    class Ticked(StatusLine):
        tick_s = 0.001

        def tick(self):
            super().tick()
            ticked.set()

    before = set(threading.enumerate())
    with shown_by(Ticked(io.StringIO())), stage("reading"):
        assert ticked.wait(60)
        (thread,) = set(threading.enumerate()) - before
    thread.join(60)
    assert not thread.is_alive()


def test_a_terminal_is_recognized_and_a_dumb_one_is_not(monkeypatch):
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as stream, os.fdopen(leader, "rb", buffering=0) as screen:
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setattr(stages, "_choose", CHOOSE)
        monkeypatch.setenv("TERM", "xterm")
        with stage("reading"):
            assert isinstance(display(), StatusLine)
            assert b"reading" in screen.read(1000)
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr(stages, "_own", None)
        assert isinstance(display(), PlainStages)
    monkeypatch.setattr(stages, "_own", None)
