"""How much of a table of cases is tried: a part each time, all of it in ``make test-all``."""

import os

from hypothesis import settings

TRIES_ALL = os.environ.get("TESTS_ALL") == "1"
_PART = 5  # a fifth of Hypothesis's examples, always the same ones


def rows(cases, keep):
    """Return all cases in ``make test-all``, else ``keep`` of them, spread evenly."""
    listed = list(cases)
    if TRIES_ALL or keep >= len(listed):
        return listed
    last = len(listed) - 1
    return [listed[round(place * last / max(keep - 1, 1))] for place in range(keep)]


def examples(count, **others):
    """Try so many examples in ``make test-all``, which draws others each time, else a fifth."""
    return settings(max_examples=count if TRIES_ALL else max(count // _PART, 1), **others)
