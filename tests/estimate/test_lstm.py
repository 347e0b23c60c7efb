"""What an LSTM takes: parameters and operations by hand, memory as it is measured."""

from dataclasses import replace
from typing import Any

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.config.resolved import ResolvedModel
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.estimate.memory import training_memory
from tests.breadth import rows

from . import measured
from .configurations import make_pass

MODELS: list[dict[str, Any]] = [
    {"kind": "lstm", "n_layers": 1},
    {"kind": "lstm", "n_layers": 3, "dropout": 0.1},
    {"kind": "lstm", "n_layers": 2, "bias": False, "d_embed": 32},
]


def resolved(**fields: Any) -> ResolvedModel:
    return resolve_model(ModelConfig(kind="lstm", **fields), vocab_size=100, context=7)


def test_parameters_and_operations_are_those_worked_out_by_hand() -> None:
    config = resolved(n_layers=3, d_model=20, d_embed=8)
    gates = 4 * 20 * (20 + 20)  # four gates, of the input and of the output
    # Tables of 100 x 8; 8 x 20 + 20 in and 20 x 8 + 8 out; two biases of each gate.
    assert count_parameters(config).total == 800 + 180 + 168 + 3 * (gates + 2 * 4 * 20)
    assert flops_per_token(config, 7) == 6 * (3 * gates + 8 * 20 + 20 * 8 + 8 * 100)


def test_operations_do_not_grow_with_the_context() -> None:
    config = resolved(n_layers=2, d_model=20)
    assert flops_per_token(config, 7) == flops_per_token(config, 7000)


@pytest.mark.parametrize("fields", MODELS, ids=str)
def test_a_pass_saves_what_is_said(fields: dict[str, Any]) -> None:
    for precision in ("float32", "bfloat16"):
        step = make_pass(fields, precision)
        said = measured.saved_activations(step) + measured.saved_casts(step)
        assert said == pytest.approx(measured.saved_bytes(step), rel=0.1)


KINDS = [(1, "float32", True), (2, "bfloat16", False)]


@pytest.mark.parametrize(("n_passes", "precision", "recomputes"), KINDS)
@pytest.mark.parametrize("fields", rows(MODELS, 1))
def test_a_step_allocates_what_is_said(
    fields: dict[str, Any], n_passes: int, precision: str, recomputes: bool
) -> None:
    step = replace(make_pass(fields, precision), recomputes=recomputes)
    optimizer = load_recipe("gpt").recipe.optimizer
    take_step = measured.make_step(step, optimizer, n_passes)
    take_step(0)
    said = training_memory(step, optimizer, n_passes=n_passes)
    assert said.tensors - said.weights - said.optimizer == pytest.approx(
        measured.allocated_peak(take_step, with_onednn=True), rel=0.1
    )
