"""Property tests that try many examples, a part of them where the examples are always the same."""

import os
from typing import Any

from hypothesis import settings

EXPLORES = "1" in (os.environ.get("TESTS_EXPLORE"), os.environ.get("TESTS_ALL"))
_PART = 5


def at_length(n_examples: int, **others: Any) -> settings:
    """Try so many examples in ``make test-all``, which draws others each time, else a fifth.

    What is tried again and again finds what a change broke, not what nobody has met yet.
    """
    return settings(max_examples=n_examples if EXPLORES else n_examples // _PART, **others)
