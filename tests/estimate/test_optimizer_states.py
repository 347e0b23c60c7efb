"""What an optimizer is said to keep of a model is what it keeps, whatever depends on shapes."""

import math
from collections import Counter
from typing import Any

import pytest
import torch

from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.kinds import OptimizerConfig
from sublayer.estimate import optimizer_states
from sublayer.estimate.optimizer_states import adafactor_work, matrix_shapes, n_states
from sublayer.model.roles import parameter_roles
from sublayer.training.optimizers.build import build_optimizer, optimizer_tensors
from tests.breadth import rows

from .configurations import ENCODERS, MODELS, TRANSLATORS, make_pass
from .measured import build_objective

FACTORED = AdafactorConfig(min_factored=32)
ALL = [*MODELS, *ENCODERS, *TRANSLATORS]


def kept_numbers(fields: dict[str, Any], optimizer: OptimizerConfig) -> int:
    objective = build_objective(make_pass(fields, "float32"))
    parameters = dict(objective.named_parameters())
    built = build_optimizer(optimizer, parameters, parameter_roles(objective))
    for parameter in parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    built.step()
    tensors = optimizer_tensors(built, parameters)
    return sum(each.numel() for name, each in tensors.items() if not name.startswith("step/"))


@pytest.mark.parametrize("fields", [MODELS[2], TRANSLATORS[0], TRANSLATORS[1]], ids=str)
def test_adafactor_keeps_rows_and_columns_of_each_matrix_as_is_said(fields: dict[str, Any]) -> None:
    step = make_pass(fields, "float32")
    said = n_states(step.config, step.objective, FACTORED)
    assert said == kept_numbers(fields, FACTORED)
    assert n_states(step.config, step.objective, AdafactorConfig(min_factored=97)) > 10 * said


def test_a_table_of_positions_is_counted_as_if_it_were_not_factored() -> None:
    step = make_pass({}, "float32")
    assert step.config.positions == "learned"
    said = n_states(step.config, step.objective, FACTORED)
    rows, columns = step.config.max_len, step.config.d_model
    too_many = rows * columns - (rows + columns)
    assert said == kept_numbers({}, FACTORED) + too_many


@pytest.mark.parametrize("fields", rows(ALL, 7), ids=str)
def test_every_matrix_that_is_counted_exists_and_what_is_kept_is_no_more(
    fields: dict[str, Any],
) -> None:
    step = make_pass(fields, "float32")
    parameters = build_objective(step).parameters()
    built = Counter(tuple(parameter.shape) for parameter in parameters)
    counted = matrix_shapes(step.config, step.objective)
    assert counted <= built
    n_left_out = n_numbers(built) - n_numbers(counted)
    said = n_states(step.config, step.objective, FACTORED)
    assert kept_numbers(fields, FACTORED) <= said < 0.05 * n_numbers(counted) + n_left_out
    adamw = AdamWConfig()
    assert n_states(step.config, step.objective, adamw) == kept_numbers(fields, adamw)


def n_numbers(shapes: Counter[tuple[int, ...]]) -> int:
    return sum(n * math.prod(shape) for shape, n in shapes.items())


@pytest.mark.parametrize("n_together", [1, 2])
def test_matrices_of_one_shape_that_are_updated_together_take_copies(
    monkeypatch: pytest.MonkeyPatch, n_together: int
) -> None:
    step = make_pass(MODELS[2], "float32")
    d_model, d_ff = step.config.d_model, step.config.d_ff
    largest = 2 * d_ff * d_model  # gate and value
    monkeypatch.setitem(optimizer_states._UPDATE_PART, "cpu", n_together * largest)
    expected = {
        # One stack of maps, or as many smaller maps as are no larger, with their squares.
        1: {True: 2 * 2, False: 2 * 3},
        2: {True: 4 * 2, False: 4 * 3},
    }[n_together]
    for is_factored, n_arrays in expected.items():
        table = AdafactorConfig(min_factored=32 if is_factored else 97)
        work = adafactor_work(step.config, step.objective, table, "cpu")
        assert work == n_arrays * d_ff * d_model
