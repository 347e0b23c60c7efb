"""What every optimizer that is written here does: it waits for nothing, and resumes as it was."""

import pytest
import torch
from torch import nn

from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.training.optimizers.build import (
    build_optimizer,
    optimizer_tensors,
    restore_optimizer,
)
from tests.training.optimizer_steps import draw, own, take

SHAPES = {"matrix": (5, 7), "stacked": (2, 6, 5), "embedding": (11, 4), "vector": (3, 13)}
"""Of each role one, of its name."""
ROLES = {name: name for name in SHAPES}
OPTIMIZERS = {
    "lamb": LambConfig(form="albert"),
    "published lamb": LambConfig(form="published"),
    "uncorrected adamw": AdamWConfig(bias_correction=False),
    "gpt1's adam": AdamWConfig(form="gpt1"),
    "scaled adamw": AdamWConfig(lr=0.1, parameter_scale=True),
    "scaled, uncorrected adamw": AdamWConfig(lr=0.1, parameter_scale=True, bias_correction=False),
    "adafactor": AdafactorConfig(),
    "factored adafactor": AdafactorConfig(min_factored=4),
    "unscaled adafactor": AdafactorConfig(parameter_scale=False),
}
each_optimizer = pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)


@each_optimizer
def test_a_parameter_without_a_gradient_is_left_alone_until_it_has_one(config):
    start = draw({"always": (5, 7), "late": (5, 7)})
    parameters, fresh = own(start), own({"late": start["late"]})
    optimizer = build_optimizer(config, parameters, dict.fromkeys(parameters, "matrix"))
    other = build_optimizer(config, fresh, {"late": "matrix"})
    for _ in range(3):
        take(optimizer, parameters, {"always": torch.ones(5, 7)})
    assert torch.equal(parameters["late"], fresh["late"])
    assert not any(name.endswith("/late") for name in optimizer_tensors(optimizer, parameters))
    gradient = draw({"late": (5, 7)}, seed=1)
    take(optimizer, parameters, {"always": torch.ones(5, 7), **gradient})
    take(other, fresh, gradient)
    torch.testing.assert_close(parameters["late"], fresh["late"])
    assert not torch.equal(fresh["late"], start["late"])
    before = parameters["always"].detach().clone()
    take(optimizer, parameters, {})
    assert torch.equal(parameters["always"], before)


@each_optimizer
def test_one_restored_from_its_tensors_goes_on_bit_for_bit(config):
    parameters = own(draw(SHAPES))
    optimizer = build_optimizer(config, parameters, ROLES)
    for step in range(3):
        take(optimizer, parameters, draw(SHAPES, seed=step + 1))
    again = own({name: value.detach() for name, value in parameters.items()})
    restored = build_optimizer(config, again, ROLES)
    kept = optimizer_tensors(optimizer, parameters)
    restore_optimizer(restored, again, {name: value.clone() for name, value in kept.items()})
    for step in range(3, 6):
        take(optimizer, parameters, draw(SHAPES, seed=step + 1))
        take(restored, again, draw(SHAPES, seed=step + 1))
    assert all(torch.equal(value, again[name]) for name, value in parameters.items())


@each_optimizer
def test_a_step_asks_for_no_tensors_value_and_leaves_gradients_as_they_are(config):
    # Tensors on this device have no values: what would wait for a GPU fails here.
    meta = {name: torch.empty(shape, device="meta") for name, shape in SHAPES.items()}
    parameters = {name: nn.Parameter(value) for name, value in meta.items()}
    optimizer = build_optimizer(config, parameters, ROLES)
    for _ in range(2):
        take(optimizer, parameters, meta)
    assert all(value.is_meta for value in optimizer_tensors(optimizer, parameters).values())
    gradients = draw(SHAPES, seed=1)
    kept = {name: value.clone() for name, value in gradients.items()}
    real = own(draw(SHAPES))
    take(build_optimizer(config, real, ROLES), real, gradients)
    assert all(torch.equal(gradients[name], kept[name]) for name in SHAPES)
