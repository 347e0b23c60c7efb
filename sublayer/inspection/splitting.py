"""Operator splitting: local errors of Lie's, Strang's and other schemes, measured and plotted.

The equation is ``dx/dt = F(x) + G(x)``. A splitting follows F and G in turn, for fractions of a
step. Sources: Lu et al. 2019 (1906.02762), sec. 3 (its theorem is for exact flows: Bobylev and
Ohwada 2001); Yoshida 1990.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from torch import Tensor

from sublayer.plot import dots, look, panels_svg

Array = NDArray[np.float64]
Field = Callable[[Array], Array]
"""``field(x)`` is dx/dt at x, ``[D]`` both."""
Flow = Callable[[Array, float], Array]
"""``flow(x, t)`` follows a field from x for a time t."""


@dataclass(frozen=True)
class Problem:
    """An equation in two parts, with the flows of the parts and of their sum."""

    name: str
    fields: Mapping[str, Field]
    """The parts, by the names ``F`` and ``G``."""
    flows: Mapping[str, Flow]
    """The flow of each part alone, by the same names, and of ``F + G``, by ``FG``."""
    start: Array
    """Starting point of the steps, ``[D]``."""


def linear_problem(*, seed: int = 0, size: int = 6, commute: bool = False) -> Problem:
    """Build ``F = A x``, ``G = B x`` of random matrices ``[size, size]``.

    Flows are exact, by matrix exponentials. ``commute``: A and B have equal eigenvectors, so that
    splittings of exact flows have no error.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    if commute:
        basis = rng.standard_normal((size, size))
        a, b = (basis @ np.diag(rng.uniform(-1, 1, size)) @ np.linalg.inv(basis) for _ in range(2))
    else:
        a, b = (_random_matrix(rng, size) for _ in range(2))
    name = "linear, of operators that commute" if commute else "linear"
    fields = {"F": partial(np.matmul, a), "G": partial(np.matmul, b)}
    flows = {"F": _linear_flow(a), "G": _linear_flow(b), "FG": _linear_flow(a + b)}
    return Problem(name, fields, flows, rng.standard_normal(size))


def _random_matrix(rng: np.random.Generator, size: int) -> Array:
    # Scaled to largest eigenvalues of about 1.
    matrix: Array = rng.standard_normal((size, size)) / math.sqrt(size)
    return matrix


def _linear_flow(matrix: Array) -> Flow:
    def flow(x: Array, t: float) -> Array:
        exponential: Array = expm(t * matrix)
        return exponential @ x

    return flow


def nonlinear_problem(*, seed: int = 0, size: int = 6) -> Problem:
    """Build ``F = tanh(A x)``, ``G = sin(B x)`` of random matrices ``[size, size]``.

    Its flows have no closed form: they are integrated in 64 Runge-Kutta steps.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    a, b = (_random_matrix(rng, size) for _ in range(2))
    # The joint flow follows the sum of F and G, not one after the other.
    fields: dict[str, Field] = {
        "F": lambda x: np.tanh(a @ x),
        "G": lambda x: np.sin(b @ x),
        "FG": lambda x: np.tanh(a @ x) + np.sin(b @ x),
    }
    flows = {name: partial(integrate, field) for name, field in fields.items()}
    return Problem("tanh and sine", fields, flows, rng.standard_normal(size))


State = TypeVar("State", Array, Tensor)


def integrate(field: Callable[[State], State], x: State, t: float, n_steps: int = 64) -> State:
    """Follow a field for a time t by the classical Runge-Kutta method of fourth order.

    x has any shape, and the field keeps it.
    """
    h = t / n_steps
    half = h / 2
    for _ in range(n_steps):
        k1 = field(x)
        k2 = field(x + half * k1)
        k3 = field(x + half * k2)
        k4 = field(x + h * k3)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return x


Substeps = Literal["exact", "midpoint", "Euler"]
"""The exact flow, a step of second order, and one of first order."""
Part = tuple[Literal["F", "G"], float]
"""Field that a part of a step follows, and its share of the step; negative: backwards."""

_ROUNDING = 1e-13
"""Errors up to this are of rounding alone."""

# Yoshida's coefficients: of the outer steps, and of the negative one between them.
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
    """Errors of a splitting's single step for each of ``steps``, and their log-log slopes."""

    splitting: str
    """A name of ``SPLITTINGS``."""
    substeps: Substeps
    """Integrator of each part."""
    steps: tuple[float, ...]
    """Sizes of the step, in units of time; ``slopes`` takes each for half of the one before."""
    errors: tuple[float, ...]
    """L2 distances from the true flow, one for each size."""

    @property
    def slopes(self) -> tuple[float, ...]:
        """Return the observed order of each halving of the step; NaN at rounding error.

        The local error of a scheme of order p falls as ``h ** (p + 1)``: with exact flows Lie's
        slope is 2, Strang's 3.
        """
        orders = []
        for coarse, fine in pairwise(self.errors):
            is_rounding = min(coarse, fine) <= _ROUNDING
            orders.append(math.nan if is_rounding else math.log2(coarse / fine))
        return tuple(orders)


STEPS = tuple(2.0**-k for k in range(3, 9))
"""Sizes of a step, each half of the one before: 1/8 to 1/256."""


def euler(field: Field) -> Flow:
    """Return the flow of an Euler step, of first order, as in a residual sub-layer."""
    return lambda x, t: x + t * field(x)


def midpoint(field: Field) -> Flow:
    """Return the flow of a midpoint step, of second order."""

    def flow(x: Array, t: float) -> Array:
        half = t / 2
        middle = x + half * field(x)
        return x + t * field(middle)

    return flow


def substep_flows(problem: Problem, substeps: Substeps) -> Mapping[str, Flow]:
    """Return the flow of each field, by name."""
    if substeps == "exact":
        return problem.flows
    scheme = {"Euler": euler, "midpoint": midpoint}[substeps]
    return {name: scheme(field) for name, field in problem.fields.items()}


def step(parts: Sequence[Part], flows: Mapping[str, Flow], x: Array, h: float) -> Array:
    """Take one step of size ``h`` of a splitting: its parts in turn."""
    for name, share in parts:
        x = flows[name](x, share * h)
    return x


def local_errors(
    problem: Problem, splitting: str, substeps: Substeps, steps: Sequence[float] = STEPS
) -> Errors:
    """Measure the distance between a splitting's single step and the true flow, by step size.

    ``splitting`` is a name of ``SPLITTINGS``. Distances are L2.
    """
    flows = substep_flows(problem, substeps)
    errors = []
    for h in steps:
        error = _step_error(problem, splitting, flows, h)
        errors.append(float(np.linalg.norm(error)))
    return Errors(splitting, substeps, tuple(steps), tuple(errors))


def _step_error(problem: Problem, splitting: str, flows: Mapping[str, Flow], h: float) -> Array:
    parts = SPLITTINGS[splitting]
    approximate = step(parts, flows, problem.start, h)
    exact = problem.flows["FG"](problem.start, h)
    return approximate - exact


def leading_term(problem: Problem, splitting: str, h: float = 1e-4) -> Array:
    """Estimate the coefficient of h^2 in the error of Euler sub-steps, from two small steps.

    ``predicted_term`` computes this vector, ``[D]``, for a linear equation.
    """
    flows = substep_flows(problem, "Euler")
    half = h / 2
    coarse = _step_error(problem, splitting, flows, h) / h**2
    fine = _step_error(problem, splitting, flows, half) / half**2
    return 2 * fine - coarse  # Richardson: terms of third order cancel


def coefficients(splitting: str) -> dict[tuple[str, str], float]:
    """Compute the coefficients of h^2 in the error of Euler sub-steps, by pairs of parts.

    The coefficient of ``(P, Q)`` multiplies ``P'(x) Q(x)``. A fraction q of Q before a fraction p
    of P contributes p q; the exact flow has 1/2 for each pair. With F first, Lie's are -1/2 for (F,
    F) and (G, G), -1/2 for (F, G) and 1/2 for (G, F); Strang's last two are 0.
    """
    parts = SPLITTINGS[splitting]
    # Less the exact flow's 1/2 for each pair.
    products = {(later, earlier): -0.5 for later in "FG" for earlier in "FG"}
    for index, (later, later_share) in enumerate(parts):
        parts_before = parts[:index]
        for earlier, earlier_share in parts_before:
            products[later, earlier] += later_share * earlier_share
    return products


def predicted_term(problem: Problem, splitting: str) -> Array:
    """Compute the leading term for a linear equation, where ``P'(x) Q(x) = P(Q(x))``."""
    fields = problem.fields
    total: Array = np.zeros_like(problem.start)
    for (later, earlier), coefficient in coefficients(splitting).items():
        inner = fields[earlier](problem.start)
        total = total + coefficient * fields[later](inner)
    return total


def known_errors() -> list[dict[str, Any]]:
    """Measure the single-step errors of each splitting on equations with known flows."""
    rows = []
    for problem in (linear_problem(), nonlinear_problem(), linear_problem(commute=True)):
        # Where operators commute, only the sub-steps' errors remain.
        is_commuting = "commute" in problem.name
        for substeps in get_args(Substeps)[: 1 if is_commuting else None]:
            for splitting in SPLITTINGS:
                errors = local_errors(problem, splitting, substeps)
                values = {**asdict(errors), "slopes": list(errors.slopes)}
                rows.append({"equation": problem.name, **values})
    return rows


def leading_terms() -> list[dict[str, Any]]:
    """Compute the leading error term of each splitting, predicted and measured."""
    problem = linear_problem()
    terms = []
    for splitting in SPLITTINGS:
        products = coefficients(splitting).items()
        terms.append(
            {
                "splitting": splitting,
                "coefficients": {
                    f"{later}' {earlier}": value for (later, earlier), value in products
                },
                "predicted": predicted_term(problem, splitting).tolist(),
                "measured": leading_term(problem, splitting).tolist(),
            }
        )
    return terms


_HEIGHT = 3.0  # inches of 72 units
_PANELS = {"exact": "exact flows", "Euler": "Euler steps"}


def draw_errors(rows: Sequence[Mapping[str, Any]], equation: str = "linear") -> str:
    """Plot the error of a single step against its size, a line per splitting; return the SVG.

    Both axes are logarithmic. A row is a splitting of an ``equation`` with one kind of
    ``substeps``, and paired ``steps`` and ``errors``. Every equation has rows for both panels,
    exact flows and Euler steps.
    """
    drawn = [row for row in rows if row["equation"] == equation]

    def fill(panels: Any) -> Mapping[str, Any]:
        lines: dict[str, Any] = {}
        for axes, (substeps, label) in zip(panels, _PANELS.items(), strict=True):
            axes.set_xscale("log")
            axes.set_yscale("log")
            for index, row in enumerate(row for row in drawn if row["substeps"] == substeps):
                line = dots(axes, row["steps"], row["errors"], look(index))
                lines[row["splitting"]] = line
            axes.set_xlabel(f"size of a step, {label}")
        panels[0].set_ylabel("error of a step")
        return lines

    title = "Error of a single step of each splitting"
    return panels_svg(fill, len(_PANELS), _HEIGHT, title, is_shared=True)
