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

CHOOSE = stages._choose  # replaced in all other tests


class Shown:
    """A display with a clock that stands until it is moved."""

    def __init__(self, kind, written):
        self.now = 100.0
        self.shown = kind(written, lambda: self.now, has_thread=False)

    def last(self, seconds):
        for _ in range(int(seconds * 10)):
            self.now = round(self.now + 0.1, 1)
            self.shown.tick()

    def stage(self, text, seconds):
        entered = self.shown.begin(text)
        self.last(seconds)
        self.shown.end(entered)


def test_in_a_pipe_a_stage_has_a_line_after_a_second_and_then_every_ten():
    lines = []
    piped = Shown(PlainStages, lines.append)
    entered = piped.shown.begin("reading")
    piped.last(0.9)
    assert lines == []
    piped.last(24)
    assert lines == ["reading", "reading 0:11", "reading 0:21"]
    piped.shown.end(entered)
    piped.shown.note("read")
    for number in range(30):
        piped.stage(f"part {number}", 0.5)
    assert lines[3:] == ["read", "part 19"], "short stages are not silent"
    lines = []
    piped = Shown(PlainStages, lines.append)
    training = piped.shown.begin("training", is_timed=False)
    for step in range(1, 13):
        piped.stage(f"evaluating at step {step}", 2)
    assert lines == ["evaluating at step 1", "evaluating at step 6", "evaluating at step 11"]
    piped.shown.end(training)
    piped.stage("evaluating at step 1", 1.1)
    assert lines[3:] == ["evaluating at step 1"], "another run begins anew"


def test_on_a_terminal_the_innermost_stage_is_a_line_below_all_notes(monkeypatch):
    def seen():
        return [line.split("\x1b[K")[-1] for line in stream.getvalue().split("\n")]

    monkeypatch.setenv("COLUMNS", "40")
    stream = io.StringIO()
    terminal = Shown(StatusLine, stream)
    shown = terminal.shown
    outer, inner = shown.begin("training"), shown.begin("evaluating")
    assert seen() == ["⠋ evaluating"]
    shown.note("a document is long")
    terminal.now += 3.0
    shown.tick()
    assert seen() == ["a document is long", "⠙ evaluating  0:03"]
    shown.end(inner)
    shown.change(outer, "training", 0.4)
    shown.tick()
    assert seen() == ["a document is long", f"⠹ training  0:03  {'━' * 8 + '─' * 13}"]
    for text in ("step 12/400 " * 20, "学习" * 60):
        shown.change(outer, text, 0.5)
        shown.tick()
        assert 37 <= columns_of(seen()[-1]) <= 39, "as wide as the terminal"
    shown.end(outer)
    assert seen() == ["a document is long", ""]


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
    ticked, before = threading.Event(), set(threading.enumerate())
    monkeypatch.setattr(StatusLine, "tick_s", 0.001)
    monkeypatch.setattr(StatusLine, "tick", lambda shown: ticked.set())
    with shown_by(StatusLine(io.StringIO())), stage("reading"):
        assert ticked.wait(60)
        (thread,) = set(threading.enumerate()) - before
    thread.join(60)
    assert not thread.is_alive()


def test_a_terminal_is_recognized_and_a_dumb_one_is_not(monkeypatch):
    leader, follower = pty.openpty()
    monkeypatch.setattr(stages, "_choose", CHOOSE)
    with os.fdopen(follower, "w") as stream, os.fdopen(leader, "rb", buffering=0) as screen:
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        with stage("reading"):
            assert isinstance(display(), StatusLine) and b"reading" in screen.read(1000)
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr(stages, "_own", None)
        assert isinstance(display(), PlainStages)
    monkeypatch.setattr(stages, "_own", None)
