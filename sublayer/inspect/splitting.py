"""Splitting an equation in two: what a step of either kind errs by, in numbers, as Macaron Net's theory has it.

The equation is ``dx/dt = F(x) + G(x)``. A splitting follows F and G in turn, each for shares of a step. Sources:
Lu et al. 2019 (1906.02762), sec. 3 (its theorem is of exact flows: Bobylev and Ohwada 2001); Yoshida 1990.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from torch import Tensor

Array = NDArray[np.float64]
Field = Callable[[Array], Array]
Flow = Callable[[Array, float], Array]
"""``flow(x, t)`` follows a field from x for a time t."""
Part = tuple[Literal["F", "G"], float]

_OUTER = 1 / (2 - 2 ** (1 / 3))
_INNER = 1 - 2 * _OUTER

SPLITTINGS: dict[str, tuple[Part, ...]] = {
    "Lie (Transformer)": (("F", 1.0), ("G", 1.0)),
    "Strang (Macaron)": (("G", 0.5), ("F", 1.0), ("G", 0.5)),
    "Strang, attention outside": (("F", 0.5), ("G", 1.0), ("F", 0.5)),
    "two half layers": (("F", 0.5), ("G", 0.5), ("F", 0.5), ("G", 0.5)),
    "Yoshida": (
        ("G", _OUTER / 2),
        ("F", _OUTER),
        ("G", (_OUTER + _INNER) / 2),
        ("F", _INNER),
        ("G", (_OUTER + _INNER) / 2),
        ("F", _OUTER),
        ("G", _OUTER / 2),
    ),
}
"""Whose shares of a step are followed in turn. F is attention (it mixes tokens), G the feed-forward network."""


@dataclass(frozen=True)
class Problem:
    """An equation in two parts with a known flow of each and of both."""

    name: str
    fields: dict[str, Field]
    flows: dict[str, Flow]
    whole: Flow
    start: Array


@dataclass(frozen=True)
class Errors:
    """The errors of a splitting's single step for each of ``steps``, and the slopes between them on a doubled scale."""

    splitting: str
    substeps: str
    steps: tuple[float, ...]
    errors: tuple[float, ...]

    @property
    def slopes(self) -> tuple[float, ...]:
        """Give the order that each halving of the step shows; NaN where there is no error but rounding."""
        pairs = zip(self.errors[:-1], self.errors[1:], strict=True)
        return tuple(math.log2(one / other) if min(one, other) > 1e-13 else math.nan for one, other in pairs)


STEPS = tuple(2.0**-k for k in range(3, 9))


def linear_problem(*, seed: int = 0, size: int = 6, commute: bool = False) -> Problem:
    """Make ``F = A x``, ``G = B x`` of random matrices; with ``commute`` both have the same eigenvectors."""
    rng = np.random.Generator(np.random.PCG64(seed))
    if commute:
        basis = rng.standard_normal((size, size))
        a, b = (basis @ np.diag(rng.uniform(-1, 1, size)) @ np.linalg.inv(basis) for _ in range(2))
    else:
        a, b = (rng.standard_normal((size, size)) / math.sqrt(size) for _ in range(2))
    start = rng.standard_normal(size)
    name = "linear, of operators that commute" if commute else "linear"
    return Problem(
        name,
        {"F": lambda x: a @ x, "G": lambda x: b @ x},
        {"F": lambda x, t: expm(t * a) @ x, "G": lambda x, t: expm(t * b) @ x},
        lambda x, t: expm(t * (a + b)) @ x,
        start,
    )


def nonlinear_problem(*, seed: int = 0, size: int = 6) -> Problem:
    """Make ``F = tanh(A x)``, ``G = sin(B x)`` of random matrices; flows are integrated in 64 Runge-Kutta steps."""
    rng = np.random.Generator(np.random.PCG64(seed))
    a, b = (rng.standard_normal((size, size)) / math.sqrt(size) for _ in range(2))
    start = rng.standard_normal(size)
    first: Field = lambda x: np.tanh(a @ x)  # noqa: E731
    second: Field = lambda x: np.sin(b @ x)  # noqa: E731
    return Problem(
        "tanh and sine",
        {"F": first, "G": second},
        {"F": lambda x, t: integrate(first, x, t), "G": lambda x, t: integrate(second, x, t)},
        lambda x, t: integrate(lambda y: first(y) + second(y), x, t),
        start,
    )


State = TypeVar("State", Array, Tensor)


def integrate(field: Callable[[State], State], x: State, t: float, n_steps: int = 64) -> State:
    """Follow a field for a time t by the classical Runge-Kutta method of fourth order."""
    h = t / n_steps
    for _ in range(n_steps):
        one = field(x)
        two = field(x + h / 2 * one)
        three = field(x + h / 2 * two)
        four = field(x + h * three)
        x = x + h / 6 * (one + 2 * two + 2 * three + four)
    return x


def euler(field: Field) -> Flow:
    """Give the flow of a single Euler step: what a residual sub-layer does."""
    return lambda x, t: x + t * field(x)


def midpoint(field: Field) -> Flow:
    """Give the flow of a single midpoint step, of second order."""
    return lambda x, t: x + t * field(x + t / 2 * field(x))


SUBSTEPS: dict[str, Callable[[Problem], dict[str, Flow]]] = {
    "exact": lambda problem: problem.flows,
    "Euler": lambda problem: {name: euler(field) for name, field in problem.fields.items()},
    "midpoint": lambda problem: {name: midpoint(field) for name, field in problem.fields.items()},
}


def step(parts: Sequence[Part], flows: dict[str, Flow], x: Array, h: float) -> Array:
    """Take one step of a splitting."""
    for name, share in parts:
        x = flows[name](x, share * h)
    return x


def local_errors(problem: Problem, splitting: str, substeps: str, steps: Sequence[float] = STEPS) -> Errors:
    """Measure how far a splitting's single step is from the true flow, for each step size."""
    flows = SUBSTEPS[substeps](problem)
    found = [
        float(np.linalg.norm(step(SPLITTINGS[splitting], flows, problem.start, h) - problem.whole(problem.start, h)))
        for h in steps
    ]
    return Errors(splitting, substeps, tuple(steps), tuple(found))


def leading_term(problem: Problem, splitting: str, h: float = 1e-4) -> Array:
    """Estimate the coefficient of h^2 in scheme minus exact, of Euler sub-steps, from two small steps."""
    flows = SUBSTEPS["Euler"](problem)

    def scaled(size: float) -> Array:
        difference: Array = step(SPLITTINGS[splitting], flows, problem.start, size) - problem.whole(problem.start, size)
        return difference / size**2

    return 2 * scaled(h / 2) - scaled(h)  # what is of third order goes


def coefficients(splitting: str) -> dict[tuple[str, str], float]:
    """Give the numbers of h^2 in scheme less exact, of Euler sub-steps: of ``(P, Q)`` that of ``P'(x) Q(x)``.

    Each pair of parts, Q's share q before P's share p, gives p q; the exact flow has a half of each. With F first,
    Lie's are -1/2 of (F, F) and (G, G), -1/2 of (F, G) and 1/2 of (G, F); of Strang's the last two are 0.
    """
    parts = SPLITTINGS[splitting]
    found = {(later, earlier): -0.5 for later in "FG" for earlier in "FG"}
    for place, (later, share) in enumerate(parts):
        for earlier, other in parts[:place]:
            found[later, earlier] += share * other
    return found


def predicted_term(problem: Problem, splitting: str) -> Array:
    """Work out what ``leading_term`` estimates, for a linear equation, of which ``P'(x) Q(x)`` is ``P(Q(x))``."""
    fields = problem.fields
    total: Array = np.zeros_like(problem.start)
    for (later, earlier), number in coefficients(splitting).items():
        total = total + number * fields[later](fields[earlier](problem.start))
    return total
