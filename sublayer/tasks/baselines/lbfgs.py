"""The minimum of a smooth convex function, by L-BFGS. Source: Nocedal and Wright 2006, ch. 7.2.

Scipy's computes its products by a BLAS, whose threads wait for each other at every step. These need
none: for the 200,000 weights of SST-2 they take a third of the time on one thread, and far less
where other programs use the cores, too.
"""

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Objective = Callable[[Numbers], tuple[float, Numbers]]
"""Returns its value and its slopes."""
_N_KEPT = 10
"""Steps that the curvature is estimated from."""
_DECREASE = 1e-4
"""Of what the slope promises, the part that a step has to bring."""
_SLACK = 8 * np.finfo(np.float64).eps
"""Of the value, what is rounding."""
_MOST_HALVINGS = 50


def minimise(objective: Objective, start: Numbers, *, tolerance: float, most_steps: int) -> Numbers:
    """Return where the largest slope is at most ``tolerance``, or where steps end."""
    place = start
    value, slopes = objective(place)
    kept: deque[tuple[Numbers, Numbers]] = deque(maxlen=_N_KEPT)
    for _ in range(most_steps):
        if np.abs(slopes).max(initial=0.0) <= tolerance:
            break
        direction = -_times_inverse(slopes, kept)
        length = 1.0 if kept else min(1.0, 1 / float(np.abs(slopes).sum()))
        promise = _dot(slopes, direction)
        for _ in range(_MOST_HALVINGS):
            new_value, new_slopes = objective(place + length * direction)
            if new_value <= value + _DECREASE * length * promise + _SLACK * abs(value):
                break
            length /= 2
        else:
            break
        moved, turned = length * direction, new_slopes - slopes
        place, value, slopes = place + moved, new_value, new_slopes
        if _dot(moved, turned) > 0:
            kept.append((moved, turned))
    return place


def _times_inverse(slopes: Numbers, kept: deque[tuple[Numbers, Numbers]]) -> Numbers:
    """Multiply by the inverse of the curvature, as the kept steps show it (algorithm 7.4)."""
    result = slopes.copy()
    parts = []
    for moved, turned in reversed(kept):
        part = _dot(moved, result) / _dot(moved, turned)
        result -= part * turned
        parts.append(part)
    if kept:
        moved, turned = kept[-1]
        result *= _dot(moved, turned) / _dot(turned, turned)
    for (moved, turned), part in zip(kept, reversed(parts), strict=True):
        result += (part - _dot(turned, result) / _dot(moved, turned)) * moved
    return result


def _dot(first: Numbers, second: Numbers) -> float:
    return float(np.einsum("i,i", first, second))
