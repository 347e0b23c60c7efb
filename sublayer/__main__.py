"""``python -m sublayer``: the same as ``sublayer``."""

import sys

from sublayer.cli import main

if __name__ == "__main__":
    sys.exit(main())
