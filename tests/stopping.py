"""Programs that signal themselves, so that no test has to be quick to stop them."""

import sys

_PROGRAM = """
import os, sys

places = [place.split(":") for place in sys.argv[2].split(",")]


def stop_at_the_last(event, arguments):
    names = [str(each) for each in arguments[:2]]
    if places and event == places[0][0] and any(name.endswith(places[0][1]) for name in names):
        del places[0]
        if not places:
            os.kill(os.getpid(), int(sys.argv[1]))


sys.addaudithook(stop_at_the_last)
from sublayer.cli import main

sys.exit(main(sys.argv[3:]))
"""


def stopped_at(places, number, *words):
    """Name the command that runs ``sublayer`` and signals itself at all places in turn."""
    named = ",".join(map(":".join, places))
    return [sys.executable, "-c", _PROGRAM, str(int(number)), named, *words]
