"""Train in one of several processes, of which the second is lost after a step, once.

Arguments: the signal that it sends itself, then the words of a command.
"""

import os
import signal
import sys
from pathlib import Path

from sublayer import cli
from sublayer.config.layering.layers import load_recipe
from sublayer.runs.run import train_run
from tests.training.runs import SignalAt

_STEP = 7


def train_until_lost(number, words):
    settings = [word for word in words if "=" in word]
    folder = Path(words[words.index("--out") + 1])
    train_run(
        load_recipe(words[1], settings),
        folder,
        resume=True,
        progress=SignalAt(_STEP, signal.Signals(number)),
    )


if __name__ == "__main__":
    words = sys.argv[2:]
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        train_until_lost(int(sys.argv[1]), words)
    sys.exit(cli.main(words))
