"""Write the golden results anew: ``python -m tests.golden [OPTIONS OF PYTEST]``."""

import os
import sys
from pathlib import Path

import pytest

from tests.golden.core import WRITE

if __name__ == "__main__":
    os.environ[WRITE] = "1"
    sys.exit(pytest.main(["-q", "-n0", str(Path(__file__).parent), *sys.argv[1:]]))
