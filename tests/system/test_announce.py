"""What takes long is said, and what does not is not."""

import threading

from sublayer.system.announce import announced


def test_what_takes_long_is_said():
    said, heard = [], threading.Event()
    with announced("reading", lambda text: (said.append(text), heard.set()), after_s=0.0):
        assert heard.wait(60)
    assert said == ["reading"]


def test_what_does_not_take_long_is_not_said():
    said = []
    with announced("reading", said.append, after_s=3600.0):
        pass
    assert said == []
    assert not [
        thread
        for thread in threading.enumerate()
        if isinstance(thread, threading.Timer) and not thread.finished.is_set()
    ]
