"""What a command did: its exit code, and what it printed."""

import json
from collections import namedtuple


class Result(namedtuple("Result", "code out err")):
    def found(self):
        """Return the object that the last line of a command that succeeded is."""
        assert self.code == 0, self.err
        return json.loads(self.out.splitlines()[-1])

    def answer(self):
        """Return the object that is all that a command said."""
        assert (self.err, self.out.count("\n")) == ("", 1)
        return self.found()

    def shown(self):
        """Return the text that is all that a command said."""
        assert (self.code, self.err) == (0, "")
        return self.out

    def refusal(self):
        """Return the one line by which a command refused the user's mistake."""
        assert (self.code, self.out, self.err.count("\n")) == (2, "", 1)
        return self.err


def unwrapped(text):
    """Make one line again of what was wrapped for a terminal."""
    return " ".join(text.split())
