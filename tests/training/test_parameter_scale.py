"""AdamW whose updates are multiplied by the root mean square of each matrix's weights."""

import math

import pytest
import torch

from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.training.optimizers.build import (
    build_optimizer,
)
from sublayer.training.optimizers.division import WHOLE
from sublayer.training.optimizers.parameter_scale import parameter_scales
from tests.training.optimizer_steps import draw, own, take

SHAPES = {"matrix": (5, 7), "stacked": (2, 6, 5), "embedding": (11, 4), "vector": (3, 13)}
"""Of each role one, of its name."""
ROLES = {name: name for name in SHAPES}
CONFIGS = [
    AdamWConfig(lr=0.1, parameter_scale=True),
    AdamWConfig(lr=0.1, parameter_scale=True, bias_correction=False),
]
IDS = ["corrected", "uncorrected"]


def scales(parameters, n_axes):
    """Those of whole parameters, for which nothing is exchanged."""
    with pytest.raises(StopIteration) as end:
        next(parameter_scales(parameters, n_axes, WHOLE))
    return end.value.value


def test_the_scale_is_the_root_mean_square_of_each_variable_and_a_thousandth_at_least():
    matrix = torch.tensor([[3.0, 4.0], [0.0, 5.0]])  # 9 + 16 + 25, of 4 numbers
    stacked = torch.stack([matrix, torch.zeros(2, 2)])
    (of_matrix,) = scales([matrix], 2)
    assert of_matrix.tolist() == [[pytest.approx(math.sqrt(12.5))]]
    (of_stacked,) = scales([stacked], 2)
    assert of_stacked.flatten().tolist() == pytest.approx([math.sqrt(12.5), 1e-3])
    (of_vectors,) = scales([matrix], 1)
    assert of_vectors.flatten().tolist() == pytest.approx([math.sqrt(12.5), math.sqrt(12.5)])
    (of_scalar,) = scales([torch.tensor(-2.0)], 1)
    assert of_scalar.item() == 2.0


def test_a_matrix_moves_by_the_numbers_worked_out_by_hand(double):
    # m = (-1, 1) / 2 / (1 - 1/2) = (-1, 1), v = 1 / 4 / (1 - 3/4) = 1, m / (sqrt(v) + 1) = (-1/2,
    # 1/2), times the RMS 5 of (1, 7): (-2.5, 2.5); decay adds (1, 7) / 2, not scaled: w = (1, 7) -
    # 0.4 * (-2, 6) = (1.8, 4.6).
    settings = {"lr": 0.4, "betas": (0.5, 0.75), "eps": 1.0, "weight_decay": 0.5}
    config = AdamWConfig(parameter_scale=True, **settings)
    parameters = own({"w": torch.tensor([[1.0, 7.0]])})
    optimizer = build_optimizer(config, parameters, {"w": "matrix"})
    take(optimizer, parameters, {"w": torch.tensor([[-1.0, 1.0]])})
    assert parameters["w"].tolist() == [pytest.approx([1.8, 4.6], abs=1e-14)]
    # Uncorrected, for which twice the gradient has the same v: m = (-1, 1), v = 1.
    config = AdamWConfig(parameter_scale=True, bias_correction=False, **settings)
    parameters = own({"w": torch.tensor([[1.0, 7.0]])})
    optimizer = build_optimizer(config, parameters, {"w": "matrix"})
    take(optimizer, parameters, {"w": torch.tensor([[-2.0, 2.0]])})
    assert parameters["w"].tolist() == [pytest.approx([1.8, 4.6], abs=1e-14)]


@pytest.mark.parametrize("bias_correction", [True, False])
def test_weights_of_root_mean_square_1_move_as_without_a_scale(double, bias_correction):
    start = {name: value.sign() for name, value in draw(SHAPES).items()}
    plain = {"lr": 0.1, "weight_decay": 0.5, "bias_correction": bias_correction}
    moved = []
    for scaled in (False, True):
        parameters = own(start)
        config = AdamWConfig(**plain, parameter_scale=scaled)
        take(build_optimizer(config, parameters, ROLES), parameters, draw(SHAPES, seed=1))
        moved.append(parameters)
    for name in SHAPES:
        torch.testing.assert_close(moved[1][name], moved[0][name], rtol=0, atol=1e-14)


@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_what_is_stored_together_moves_as_it_would_one_by_one(config):
    for role, shape in (("stacked", (3, 5, 7)), ("vector", (3, 13))):
        scales = torch.tensor([0.1, 1.0, 10.0]).view(3, *[1] * (len(shape) - 1))
        start = scales * draw({"w": shape})["w"]
        together = own({"w": start})
        apart = own({str(index): part for index, part in enumerate(start)})
        alone = "matrix" if role == "stacked" else "vector"
        one = build_optimizer(config, together, {"w": role})
        many = build_optimizer(config, apart, dict.fromkeys(apart, alone))
        for step in range(3):
            gradient = draw({"w": shape}, seed=step + 1)["w"]
            take(one, together, {"w": gradient})
            take(many, apart, {str(index): part for index, part in enumerate(gradient)})
        expected = torch.stack([each.detach() for each in apart.values()])
        torch.testing.assert_close(together["w"].detach(), expected)
