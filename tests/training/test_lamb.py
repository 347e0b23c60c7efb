import math

import pytest
import torch
from torch import nn

from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.training.optimizers.build import (
    build_optimizer,
)
from tests.training.optimizer_steps import take

FORMS = ["albert", "published"]


def tensors(shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {
        name: nn.Parameter(torch.randn(shape, generator=generator))
        for name, shape in shapes.items()
    }


MATRIX, BIAS = [[4.0, 0.0], [0.0, 3.0]], [2.0, -1.0]
BY_HAND = {"lr": 0.75, "betas": (0.5, 0.75), "eps": 1.0, "weight_decay": 0.5}
"""Decay rates of 1/2 and 3/4, 1 added to the root, half of the weights as decay."""


def by_hand(config, first, second):
    """Take two steps; return the matrix's diagonal, its other entries being 0, and the vector."""
    parameters = {
        "matrix": nn.Parameter(torch.tensor(MATRIX)),
        "bias": nn.Parameter(torch.tensor(BIAS)),
    }
    optimizer = build_optimizer(config, parameters, {"matrix": "matrix", "bias": "vector"})
    after = []
    for diagonal, vector in (first, second):
        take(
            optimizer,
            parameters,
            {"matrix": torch.diag(torch.tensor(diagonal)), "bias": torch.tensor(vector)},
        )
        matrix = parameters["matrix"].detach()
        assert torch.count_nonzero(matrix - torch.diag(matrix.diagonal())) == 0
        after += [matrix.diagonal().tolist(), parameters["bias"].tolist()]
    return after


@pytest.mark.parametrize(
    ("config", "first", "expected"),
    [
        # Step 1, matrix: m = g/2 = (-1, 1), v = g^2/4 = (1, 1), r = m / (1 + 1) = (-1/2, 1/2), u =
        # r + (4, 3)/2 = (3/2, 2); norms 5 and 5/2, ratio 2; w = (4, 3) - 0.75 * 2 * u = (1.75, 0).
        # Step 2: m = (-1/2 - 1/2, 1/2 + 1/2), v = 3/4 + 1/4, r as before, u = r + (7/8, 0) = (3/8,
        # 1/2); norms 7/4 and 5/8, ratio 2.8; w = (1.75, 0) - 0.75 * 2.8 * u = (0.9625, -1.05).
        # Vector: r = (1/2, -1/2), then m = (1/2 + 1/2, -1/2 + 1/2) and v = 1, so that r = (1/2, 0);
        # w -= 0.75 * r.
        (
            LambConfig(form="albert", **BY_HAND),
            ([-2.0, 2.0], [2.0, -2.0]),
            [[1.75, 0], [1.625, -0.625], [0.9625, -1.05], [1.25, -0.625]],
        ),
        # Step 1, matrix: m = g/2, divided by 1 - 1/2: (-1, 1); v = g^2/4, divided by 1 - 3/4: (1,
        # 1). From there as above. Step 2: m = g/4 + g/2, divided by 1 - 1/4: (-1, 1); v = 3/16 +
        # 1/4, divided by 1 - 9/16: (1, 1). As above. Vector: r = (1/2, -1/2); then m = (3/4, -1/4 +
        # 1/2) / (3/4) = (1, 1/3), v = (1, 1), r = (1/2, 1/6).
        (
            LambConfig(form="published", **BY_HAND),
            ([-1.0, 1.0], [1.0, -1.0]),
            [[1.75, 0], [1.625, -0.625], [0.9625, -1.05], [1.25, -0.75]],
        ),
        # Step 1, matrix: u = (3/2, 2) as for LAMB; w = (4, 3) - 0.75 * u = (2.875, 1.5). Step 2: r
        # = (-1/2, 1/2), u = r + (1.4375, 0.75) = (0.9375, 1.25); w = (2.875, 1.5) - 0.75 * u.
        (
            AdamWConfig(bias_correction=False, **BY_HAND),
            ([-2.0, 2.0], [2.0, -2.0]),
            [[2.875, 1.5], [1.625, -0.625], [2.171875, 0.5625], [1.25, -0.625]],
        ),
    ],
    ids=["albert", "published", "adamw without correction"],
)
def test_two_steps_give_the_numbers_worked_out_by_hand(double, config, first, expected):
    after = by_hand(config, first, ([-1.0, 1.0], [1.0, 1.0]))
    for numbers, each in zip(after, expected, strict=True):
        assert numbers == pytest.approx(each, abs=1e-15)


def parts(tensor):
    return tensor.unbind() if tensor.dim() == 3 else [tensor]


def test_a_stacked_parameter_moves_as_its_maps_would_one_by_one():
    together = tensors({"maps": (3, 5, 7)})
    with torch.no_grad():
        together["maps"] *= torch.tensor([0.1, 1.0, 10.0])[:, None, None]
    apart = {
        str(index): nn.Parameter(part.clone())
        for index, part in enumerate(together["maps"].detach())
    }
    config = LambConfig(lr=0.1)
    one, many = (
        build_optimizer(config, parameters, dict.fromkeys(parameters, role))
        for parameters, role in ((together, "stacked"), (apart, "matrix"))
    )
    for step in range(3):
        gradient = tensors({"maps": (3, 5, 7)}, seed=step + 1)["maps"].detach()
        take(one, together, {"maps": gradient})
        take(many, apart, {str(index): part for index, part in enumerate(gradient)})
    assert torch.equal(together["maps"], torch.stack(list(apart.values())))


@pytest.mark.parametrize("form", FORMS)
def test_matrices_maps_and_tables_move_by_the_learning_rates_share_of_their_length(form):
    parameters = tensors(
        {"matrix": (5, 7), "stacked": (2, 3, 5), "embedding": (11, 3), "vector": (2, 13)}
    )
    before = {name: value.detach().clone() for name, value in parameters.items()}
    optimizer = build_optimizer(
        LambConfig(form=form, lr=0.01), parameters, {name: name for name in parameters}
    )
    take(
        optimizer,
        parameters,
        {name: 1e-3 * torch.ones_like(value) for name, value in parameters.items()},
    )
    for name in ("matrix", "stacked", "embedding"):
        for new, old in zip(parts(parameters[name].detach()), parts(before[name]), strict=True):
            assert (new - old).norm().item() == pytest.approx(0.01 * old.norm().item(), rel=1e-4)
    # A vector moves by lr * r whatever its length: g / (g + eps); without correction 0.1 g /
    # (sqrt(0.001) g + eps).
    r = 1e-3 / (1e-3 + 1e-6) if form == "published" else 1e-4 / (math.sqrt(1e-9) + 1e-6)
    torch.testing.assert_close(
        before["vector"] - parameters["vector"].detach(), torch.full((2, 13), 0.01 * r)
    )


@pytest.mark.parametrize(("form", "role"), [("albert", "matrix"), ("published", "stacked")])
def test_weights_of_zero_and_updates_of_zero_have_the_ratio_1(form, role):
    parameters = {
        "empty": nn.Parameter(torch.zeros(2, 3, 5)),
        "idle": nn.Parameter(torch.ones(2, 3, 5)),
    }
    optimizer = build_optimizer(
        LambConfig(form=form, lr=0.5, weight_decay=0.0), parameters, {"empty": role, "idle": role}
    )
    take(optimizer, parameters, {"empty": torch.ones(2, 3, 5), "idle": torch.zeros(2, 3, 5)})
    r = 1 / (1 + 1e-6) if form == "published" else 0.1 / (math.sqrt(0.001) + 1e-6)
    torch.testing.assert_close(parameters["empty"].detach(), torch.full((2, 3, 5), -0.5 * r))
    assert torch.equal(parameters["idle"], torch.ones(2, 3, 5))


def test_adamw_with_correction_is_pytorchs_fused_one():
    parameters = tensors({"matrix": (3, 5)})
    optimizer = build_optimizer(AdamWConfig(), parameters, {"matrix": "matrix"})
    assert type(optimizer) is torch.optim.AdamW
    assert optimizer.param_groups[0]["fused"] is True
