"""Train one after the other in each of several processes: the words of each, in a JSON file."""

import json
import sys
from pathlib import Path

from sublayer import cli
from sublayer.training import parallel

if __name__ == "__main__":
    leave_world = parallel.leave_world
    # A group of processes that was left is not joined again under one launcher.
    parallel.leave_world = lambda: None
    for words in json.loads(Path(sys.argv[1]).read_text()):
        code = cli.main(words)
        if code:
            sys.exit(f"{' '.join(words)} ended with {code}")
    leave_world()
