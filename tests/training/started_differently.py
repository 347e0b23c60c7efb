"""Train in one of several processes, each with another seed."""

import os
import sys

from sublayer import cli

if __name__ == "__main__":
    words = sys.argv[1:]
    words.insert(2, f"train.seed={os.environ['RANK']}")
    sys.exit(cli.main(words))
