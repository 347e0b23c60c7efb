"""Programs that signal themselves, so that no test has to be quick to stop them."""

import sys

_PROGRAM = """
import os, sys

numbers = [int(number) for number in sys.argv[1].split(",")]
places = [place.split(":") for place in sys.argv[2].split(",")]


def stop_at_the_last(event, arguments, kill=os.kill, me=os.getpid()):
    names = [str(each) for each in arguments[:2]]
    if places and event == places[0][0] and any(name.endswith(places[0][1]) for name in names):
        del places[0]
        for number in numbers if not places else ():
            kill(me, number)


sys.addaudithook(stop_at_the_last)
sys.argv[1:] = sys.argv[3:]
from sublayer.__main__ import run

sys.exit(run())
"""


def stopped_at(places, number, *words):
    """Name the command that runs ``sublayer`` and signals itself at the last of places in turn.

    A place is an event of Python's audit hooks and the end of what it is about; a number of a
    signal may be several.
    """
    numbers = number if isinstance(number, tuple) else (number,)
    sent = ",".join(str(int(each)) for each in numbers)
    return [sys.executable, "-c", _PROGRAM, sent, ",".join(map(":".join, places)), *words]
