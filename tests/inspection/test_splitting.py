"""The orders of splittings where the flows are known, and the coefficients of their errors."""

import numpy as np
import pytest
from scipy.linalg import expm

from sublayer.inspection.splitting import (
    SPLITTINGS,
    coefficients,
    euler,
    leading_term,
    local_errors,
    predicted_term,
    step,
)
from sublayer.inspection.splitting_problems import integrate, linear_problem, nonlinear_problem

ORDERS = {
    "Lie (Transformer)": 2,
    "Strang (Macaron)": 3,
    "Strang, attention outside": 3,
    "two half layers": 2,
    "Yoshida": 5,
}


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_every_part_is_followed_for_the_whole_time(splitting: str) -> None:
    for name in ("F", "G"):
        assert sum(share for part, share in SPLITTINGS[splitting] if part == name) == pytest.approx(
            1.0
        )


@pytest.mark.parametrize(
    "problem", [linear_problem(seed=3), nonlinear_problem(seed=3)], ids=lambda each: each.name
)
@pytest.mark.parametrize(("splitting", "order"), ORDERS.items())
def test_exact_flows_have_the_order_of_the_theorem(problem, splitting: str, order: int) -> None:
    steps = [2.0**-k for k in ((2, 3, 4) if order == 5 else (4, 5, 6, 7))]
    assert local_errors(problem, splitting, "exact", steps).slopes[-1] == pytest.approx(
        order, abs=0.2
    )


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_euler_steps_are_of_order_two_whatever_the_splitting(splitting: str) -> None:
    assert local_errors(linear_problem(seed=1), splitting, "Euler").slopes[-1] == pytest.approx(
        2.0, abs=0.1
    )


def test_midpoint_steps_keep_the_order_of_strang() -> None:
    assert local_errors(linear_problem(seed=1), "Strang (Macaron)", "midpoint").slopes[
        -1
    ] == pytest.approx(3.0, abs=0.1)
    assert local_errors(linear_problem(seed=1), "Lie (Transformer)", "midpoint").slopes[
        -1
    ] == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_operators_that_commute_leave_no_error(splitting: str) -> None:
    errors = local_errors(linear_problem(seed=2, commute=True), splitting, "exact")
    assert max(errors.errors) < 1e-13
    assert all(np.isnan(slope) for slope in errors.slopes)


def test_the_leading_terms_are_those_worked_out_by_hand() -> None:
    rng = np.random.Generator(np.random.PCG64(7))
    a, b = (rng.standard_normal((6, 6)) / np.sqrt(6) for _ in range(2))
    x = rng.standard_normal(6)
    problem = linear_problem(seed=7)
    assert problem.fields["F"](x) == pytest.approx(a @ x) and problem.fields["G"](
        x
    ) == pytest.approx(b @ x)
    # Scheme less exact, over h^2; F = A x first in Lie's, G = B x outside in Strang's.
    lie = -(a @ a / 2 + b @ b / 2 + a @ b / 2 - b @ a / 2) @ problem.start
    strang = -(a @ a / 2 + b @ b / 4) @ problem.start
    assert leading_term(problem, "Lie (Transformer)") == pytest.approx(lie, abs=1e-5)
    assert leading_term(problem, "Strang (Macaron)") == pytest.approx(strang, abs=1e-5)
    assert predicted_term(problem, "Lie (Transformer)") == pytest.approx(lie)
    assert predicted_term(problem, "Strang (Macaron)") == pytest.approx(strang)


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_what_is_worked_out_is_what_is_measured(splitting: str) -> None:
    problem = linear_problem(seed=5)
    assert predicted_term(problem, splitting) == pytest.approx(
        leading_term(problem, splitting), abs=1e-4
    )


def test_mixed_products_cancel_where_a_splitting_is_symmetric() -> None:
    mixed = {
        name: (coefficients(name)["F", "G"], coefficients(name)["G", "F"]) for name in SPLITTINGS
    }
    assert mixed.pop("Lie (Transformer)") == (-0.5, 0.5)
    assert mixed.pop("two half layers") == (-0.25, 0.25)
    assert all(numbers == pytest.approx((0.0, 0.0), abs=1e-12) for numbers in mixed.values())


def test_a_macaron_step_is_the_papers_three_lines() -> None:
    problem = nonlinear_problem(seed=4)
    flows = {name: euler(field) for name, field in problem.fields.items()}
    x, gamma = problem.start, 0.3
    first = x + gamma / 2 * problem.fields["G"](x)
    second = first + gamma * problem.fields["F"](first)
    third = second + gamma / 2 * problem.fields["G"](second)
    assert step(SPLITTINGS["Strang (Macaron)"], flows, x, gamma) == pytest.approx(third)


def test_integration_follows_a_known_flow() -> None:
    a = np.array([[0.0, 1.0], [-1.0, 0.0]])
    x = np.array([1.0, 2.0])
    assert integrate(lambda y: a @ y, x, 1.5) == pytest.approx(expm(1.5 * a) @ x, abs=1e-7)
