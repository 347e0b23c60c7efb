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

if __name__ == "__main__":
    words = sys.argv[2:]
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        loaded = load_recipe(words[1], [word for word in words if "=" in word])
        folder = Path(words[words.index("--out") + 1])
        lost = SignalAt(7, signal.Signals(int(sys.argv[1])))
        train_run(loaded, folder, resume=True, progress=lost)
    sys.exit(cli.main(words))
