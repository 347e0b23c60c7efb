"""Parameters of which the fast tests try some, and the slow ones all others."""

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def some_in_time(values: Iterable[Any], every: int) -> list[ParameterSet]:
    """Make parameters of values, all but one in ``every`` of which are tried by slow tests alone.

    A tuple is the values of several parameters.
    """
    return _marked(values, every, pytest.mark.slow)


def some_at_leisure(values: Iterable[Any], every: int) -> list[ParameterSet]:
    """Make parameters of values, all but one in ``every`` of which wait for ``make test-all``.

    For what takes long on each value, and hardly ever fails on one alone.
    """
    return _marked(values, every, pytest.mark.explore)


def _marked(values: Iterable[Any], every: int, mark: pytest.MarkDecorator) -> list[ParameterSet]:
    parameters = []
    for number, value in enumerate(values):
        marks = [mark] if number % every else []
        several = value if isinstance(value, tuple) else (value,)
        parameters.append(pytest.param(*several, marks=marks))
    return parameters
