"""Operator splitting: the local errors of Lie's, Strang's and other schemes, in numbers.

The equation is ``dx/dt = F(x) + G(x)``. A splitting follows F and G in turn, each for shares of a
step. Sources: Lu et al. 2019 (1906.02762), sec. 3 (its theorem is of exact flows: Bobylev and
Ohwada 2001); Yoshida 1990.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from sublayer.inspection.splitting_problems import Array, Field, Flow, Problem

Part = tuple[Literal["F", "G"], float]
"""Which field a part of a step follows, and for what share of the step; negative: backwards."""

_ROUNDING = 1e-13
"""Errors up to this are of rounding alone."""

# Yoshida's shares: of the outer steps, and of the one between them, which goes back.
_OUTER = 1 / (2 - 2 ** (1 / 3))
_INNER = 1 - 2 * _OUTER
_BETWEEN = (_OUTER + _INNER) / 2

SPLITTINGS: dict[str, tuple[Part, ...]] = {
    "Lie (Transformer)": (("F", 1.0), ("G", 1.0)),
    "Strang (Macaron)": (("G", 0.5), ("F", 1.0), ("G", 0.5)),
    "Strang, attention outside": (("F", 0.5), ("G", 1.0), ("F", 0.5)),
    "two half layers": (("F", 0.5), ("G", 0.5), ("F", 0.5), ("G", 0.5)),
    "Yoshida": (
        ("G", _OUTER / 2),
        ("F", _OUTER),
        ("G", _BETWEEN),
        ("F", _INNER),
        ("G", _BETWEEN),
        ("F", _OUTER),
        ("G", _OUTER / 2),
    ),
}
"""The parts of each scheme's step, in order: F is attention, G the feed-forward network."""


@dataclass(frozen=True)
class Errors:
    """The errors of a splitting's single step for each of ``steps``, and their log-log slopes."""

    splitting: str
    """A name of ``SPLITTINGS``."""
    substeps: str
    """A name of ``SUBSTEPS``: by what each part is followed."""
    steps: tuple[float, ...]
    """Sizes of the step, in units of time; ``slopes`` takes each for half of the one before."""
    errors: tuple[float, ...]
    """L2 distances from the true flow, one for each size."""

    @property
    def slopes(self) -> tuple[float, ...]:
        """Return the order that each halving of the step shows; NaN where only rounding is left.

        The local error of a scheme of order p falls as ``h ** (p + 1)``: with exact flows Lie's
        slope is 2, Strang's 3.
        """
        orders = [_order(coarse, fine) for coarse, fine in pairwise(self.errors)]
        return tuple(orders)


def _order(coarse: float, fine: float) -> float:
    if min(coarse, fine) <= _ROUNDING:
        return math.nan
    return math.log2(coarse / fine)


STEPS = tuple(2.0**-k for k in range(3, 9))
"""Sizes of a step, each half of the one before: 1/8 to 1/256."""


def euler(field: Field) -> Flow:
    """Return the flow of a single Euler step, of first order: what a residual sub-layer does."""
    return lambda x, t: x + t * field(x)


def midpoint(field: Field) -> Flow:
    """Return the flow of a single midpoint step, of second order."""

    def flow(x: Array, t: float) -> Array:
        half = t / 2
        middle = x + half * field(x)
        return x + t * field(middle)

    return flow


def _exact_flows(problem: Problem) -> dict[str, Flow]:
    return problem.flows


def _euler_flows(problem: Problem) -> dict[str, Flow]:
    return {name: euler(field) for name, field in problem.fields.items()}


def _midpoint_flows(problem: Problem) -> dict[str, Flow]:
    return {name: midpoint(field) for name, field in problem.fields.items()}


SUBSTEPS: dict[str, Callable[[Problem], dict[str, Flow]]] = {
    "exact": _exact_flows,
    "Euler": _euler_flows,
    "midpoint": _midpoint_flows,
}


def step(parts: Sequence[Part], flows: dict[str, Flow], x: Array, h: float) -> Array:
    """Take one step of a splitting, of size ``h``: its parts in turn, each from the end before."""
    for name, share in parts:
        x = flows[name](x, share * h)
    return x


def local_errors(
    problem: Problem, splitting: str, substeps: str, steps: Sequence[float] = STEPS
) -> Errors:
    """Measure how far a splitting's single step is from the true flow, for each step size.

    ``splitting`` and ``substeps`` are names of ``SPLITTINGS`` and ``SUBSTEPS``. Distances are L2.
    """
    flows = SUBSTEPS[substeps](problem)
    errors = []
    for h in steps:
        error = _step_error(problem, splitting, flows, h)
        errors.append(float(np.linalg.norm(error)))
    return Errors(splitting, substeps, tuple(steps), tuple(errors))


def _step_error(problem: Problem, splitting: str, flows: dict[str, Flow], h: float) -> Array:
    parts = SPLITTINGS[splitting]
    approximate = step(parts, flows, problem.start, h)
    exact = problem.whole(problem.start, h)
    return approximate - exact


def leading_term(problem: Problem, splitting: str, h: float = 1e-4) -> Array:
    """Estimate the coefficient of h^2 in the error of Euler sub-steps, from two small steps.

    The vector, ``[D]``, is what ``predicted_term`` computes for a linear equation.
    """
    flows = SUBSTEPS["Euler"](problem)
    half = h / 2
    coarse = _step_error(problem, splitting, flows, h) / h**2
    fine = _step_error(problem, splitting, flows, half) / half**2
    return 2 * fine - coarse  # Richardson: what is of third order cancels


def coefficients(splitting: str) -> dict[tuple[str, str], float]:
    """Compute the coefficients of h^2 in the error of Euler sub-steps, by pairs of parts.

    That of ``(P, Q)`` multiplies ``P'(x) Q(x)``. Each pair of parts, Q's share q before P's share
    p, gives p q; the exact flow has a half of each. With F first, Lie's are -1/2 of (F, F) and (G,
    G), -1/2 of (F, G) and 1/2 of (G, F); of Strang's the last two are 0.
    """
    parts = SPLITTINGS[splitting]
    # What the exact flow has is subtracted: a half of each pair.
    products = {(later, earlier): -0.5 for later in "FG" for earlier in "FG"}
    for index, (later, later_share) in enumerate(parts):
        parts_before = parts[:index]
        for earlier, earlier_share in parts_before:
            products[later, earlier] += later_share * earlier_share
    return products


def predicted_term(problem: Problem, splitting: str) -> Array:
    """Compute what ``leading_term`` estimates, for a linear equation: ``P'(x) Q(x) = P(Q(x))``."""
    fields = problem.fields
    total: Array = np.zeros_like(problem.start)
    for (later, earlier), coefficient in coefficients(splitting).items():
        inner = fields[earlier](problem.start)
        total = total + coefficient * fields[later](inner)
    return total
