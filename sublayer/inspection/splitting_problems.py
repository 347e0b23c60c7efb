"""Equations in two parts, whose flows are known, for measuring the errors of splittings."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from torch import Tensor

Array = NDArray[np.float64]
Field = Callable[[Array], Array]
"""``field(x)`` is dx/dt at x, ``[D]`` both."""
Flow = Callable[[Array, float], Array]
"""``flow(x, t)`` follows a field from x for a time t."""


@dataclass(frozen=True)
class Problem:
    """An equation in two parts with a known flow of each and of both."""

    name: str
    fields: dict[str, Field]
    """The parts, by the names ``F`` and ``G``."""
    flows: dict[str, Flow]
    """The flow of each part alone, by the same names."""
    whole: Flow
    """The flow of ``F + G``, which splittings approximate."""
    start: Array
    """Where steps begin, ``[D]``."""


def linear_problem(*, seed: int = 0, size: int = 6, commute: bool = False) -> Problem:
    """Build ``F = A x``, ``G = B x`` of random matrices ``[size, size]``.

    Their flows are exact, by matrix exponentials. ``commute``: A and B have equal eigenvectors, so
    that with exact flows no splitting errs.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    if commute:
        name = "linear, of operators that commute"
        basis = rng.standard_normal((size, size))
        a = _with_eigenvectors(basis, rng)
        b = _with_eigenvectors(basis, rng)
    else:
        name = "linear"
        a = _random_matrix(rng, size)
        b = _random_matrix(rng, size)
    parts = {"F": a, "G": b}
    fields: dict[str, Field] = {}
    flows: dict[str, Flow] = {}
    for part, matrix in parts.items():
        fields[part] = partial(np.matmul, matrix)
        flows[part] = _linear_flow(matrix)
    return Problem(
        name=name,
        fields=fields,
        flows=flows,
        whole=_linear_flow(a + b),
        start=rng.standard_normal(size),
    )


def _random_matrix(rng: np.random.Generator, size: int) -> Array:
    # Its largest eigenvalues are of about size 1.
    drawn = rng.standard_normal((size, size))
    return drawn / math.sqrt(size)


def _with_eigenvectors(basis: Array, rng: np.random.Generator) -> Array:
    eigenvalues = rng.uniform(-1, 1, len(basis))
    inverse = np.linalg.inv(basis)
    matrix: Array = basis @ np.diag(eigenvalues) @ inverse
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
    a = _random_matrix(rng, size)
    b = _random_matrix(rng, size)

    # A flow of F and G together follows their sum, not one after the other.
    def first(x: Array) -> Array:
        return np.tanh(a @ x)

    def second(x: Array) -> Array:
        return np.sin(b @ x)

    def both(x: Array) -> Array:
        return first(x) + second(x)

    return Problem(
        name="tanh and sine",
        fields={"F": first, "G": second},
        flows={"F": partial(integrate, first), "G": partial(integrate, second)},
        whole=partial(integrate, both),
        start=rng.standard_normal(size),
    )


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
