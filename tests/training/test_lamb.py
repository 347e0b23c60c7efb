import math

import pytest
import torch
from torch import nn

from sublayer.config.model import ModelConfig
from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.model.build import build
from sublayer.model.roles import parameter_roles
from sublayer.training.optimizers.build import (
    build_optimizer,
    clip_gradient,
    set_learning_rate,
)
from tests.training.optimizer_steps import take

FORMS = ["albert", "published"]
CONFIGS = [
    LambConfig(form="albert"),
    LambConfig(form="published"),
    AdamWConfig(bias_correction=False, eps=1e-6),
]
IDS = ["albert", "published", "adamw"]


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


def test_alberts_form_gives_the_numbers_worked_out_by_hand(double):
    # Step 1, matrix: m = g/2 = (-1, 1), v = g^2/4 = (1, 1), r = m / (1 + 1) = (-1/2, 1/2), u = r +
    # (4, 3)/2 = (3/2, 2); norms 5 and 5/2, ratio 2; w = (4, 3) - 0.75 * 2 * u = (1.75, 0). Step 2:
    # m = (-1/2 - 1/2, 1/2 + 1/2), v = 3/4 + 1/4, r as before, u = r + (7/8, 0) = (3/8, 1/2); norms
    # 7/4 and 5/8, ratio 2.8; w = (1.75, 0) - 0.75 * 2.8 * u = (0.9625, -1.05). Vector: r = (1/2,
    # -1/2), then m = (1/2 + 1/2, -1/2 + 1/2) and v = 1, so that r = (1/2, 0); w -= 0.75 * r.
    after = by_hand(
        LambConfig(form="albert", **BY_HAND), ([-2.0, 2.0], [2.0, -2.0]), ([-1.0, 1.0], [1.0, 1.0])
    )
    for numbers, expected in zip(
        after, [[1.75, 0], [1.625, -0.625], [0.9625, -1.05], [1.25, -0.625]], strict=True
    ):
        assert numbers == pytest.approx(expected, abs=1e-15)


def test_the_published_form_gives_the_numbers_worked_out_by_hand(double):
    # Step 1, matrix: m = g/2, divided by 1 - 1/2: (-1, 1); v = g^2/4, divided by 1 - 3/4: (1, 1).
    # From there as above. Step 2: m = g/4 + g/2, divided by 1 - 1/4: (-1, 1); v = 3/16 + 1/4,
    # divided by 1 - 9/16: (1, 1). As above. Vector: r = (1/2, -1/2); then m = (3/4, -1/4 + 1/2) /
    # (3/4) = (1, 1/3), v = (1, 1), r = (1/2, 1/6).
    after = by_hand(
        LambConfig(form="published", **BY_HAND),
        ([-1.0, 1.0], [1.0, -1.0]),
        ([-1.0, 1.0], [1.0, 1.0]),
    )
    for numbers, expected in zip(
        after, [[1.75, 0], [1.625, -0.625], [0.9625, -1.05], [1.25, -0.75]], strict=True
    ):
        assert numbers == pytest.approx(expected, abs=1e-15)


def test_adamw_without_correction_gives_the_numbers_worked_out_by_hand(double):
    # Step 1, matrix: u = (3/2, 2) as for LAMB; w = (4, 3) - 0.75 * u = (2.875, 1.5).
    # Step 2: r = (-1/2, 1/2), u = r + (1.4375, 0.75) = (0.9375, 1.25); w = (2.875, 1.5) - 0.75 * u.
    config = AdamWConfig(bias_correction=False, **BY_HAND)
    after = by_hand(config, ([-2.0, 2.0], [2.0, -2.0]), ([-1.0, 1.0], [1.0, 1.0]))
    expected = [[2.875, 1.5], [1.625, -0.625], [2.171875, 0.5625], [1.25, -0.625]]
    for numbers, each in zip(after, expected, strict=True):
        assert numbers == pytest.approx(each, abs=1e-15)


class Variable:
    """One variable of the published rules, number by number, in Python's own floats."""

    def __init__(self, weights, *, is_spared):
        self.weights, self.is_spared = weights.flatten().tolist(), is_spared
        self.first, self.second, self.step = [0.0] * len(self.weights), [0.0] * len(self.weights), 0

    def update(self, gradient, config, lr):
        (b1, b2), self.step = config.betas, self.step + 1
        self.first = [b1 * m + (1 - b1) * g for m, g in zip(self.first, gradient, strict=True)]
        self.second = [
            b2 * v + (1 - b2) * g * g for v, g in zip(self.second, gradient, strict=True)
        ]
        is_corrected = getattr(config, "bias_correction", config.form == "published")
        c1, c2 = (1 - b1**self.step, 1 - b2**self.step) if is_corrected else (1, 1)
        u = [
            m / c1 / (math.sqrt(v / c2) + config.eps)
            for m, v in zip(self.first, self.second, strict=True)
        ]
        ratio = 1.0
        if not self.is_spared:
            u = [x + config.weight_decay * w for x, w in zip(u, self.weights, strict=True)]
            norms = math.hypot(*self.weights), math.hypot(*u)
            ratio = norms[0] / norms[1] if isinstance(config, LambConfig) and all(norms) else 1.0
        self.weights = [w - lr * ratio * x for w, x in zip(self.weights, u, strict=True)]


MODEL = {
    "d_model": 8,
    "n_heads": 2,
    "d_ff": 11,
    "d_embed": 5,
    "ffn": "swiglu",
    "norm": "layer",
    "bias": True,
}
MODEL |= {
    "positions": "learned-per-layer",
    "n_layers": 3,
    "head_bias": True,
    "tie_embeddings": False,
}


def variables(name, tensor):
    """The variables that a parameter stands for, and whether ALBERT's list of names spares them."""
    is_spared = "norm" in name or name.endswith("bias")
    return [Variable(part, is_spared=is_spared) for part in parts(tensor)]


def parts(tensor):
    return tensor.unbind() if tensor.dim() == 3 else [tensor]


@pytest.mark.parametrize("share", ["none", "all"])
@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_ten_steps_of_a_model_equal_the_published_rule_number_by_number(double, config, share):
    model = build(
        resolve_model(ModelConfig(share=share, **MODEL), vocab_size=13, context=7), seed=3
    )
    parameters, roles = dict(model.named_parameters()), parameter_roles(model)
    assert set(roles.values()) == {"matrix", "stacked", "vector", "embedding"}
    optimizer = build_optimizer(config, parameters, roles)
    expected = {name: variables(name, value.detach()) for name, value in parameters.items()}
    generator = torch.Generator().manual_seed(0)
    for step in range(10):
        ids = torch.randint(13, (4, 8), generator=generator)
        nn.functional.cross_entropy(
            model(ids[:, :-1]).logits.flatten(0, 1), ids[:, 1:].flatten()
        ).backward()
        clip_gradient(parameters.values(), 1.0)
        lr = 0.03 * step  # the first is 0, as after ALBERT's warm-up
        for name, value in parameters.items():
            for variable, gradient in zip(expected[name], parts(value.grad), strict=True):
                variable.update(gradient.flatten().tolist(), config, lr)
        set_learning_rate(optimizer, lr)
        optimizer.step()
        optimizer.zero_grad()
    for name, value in parameters.items():
        for variable, part in zip(expected[name], parts(value.detach()), strict=True):
            assert part.flatten().tolist() == pytest.approx(variable.weights, rel=0, abs=1e-12), (
                name
            )


@pytest.mark.parametrize("form", FORMS)
def test_a_stacked_parameter_moves_as_its_maps_would_one_by_one(form):
    together = tensors({"maps": (3, 5, 7)})
    with torch.no_grad():
        together["maps"] *= torch.tensor([0.1, 1.0, 10.0])[:, None, None]
    apart = {
        str(index): nn.Parameter(part.clone())
        for index, part in enumerate(together["maps"].detach())
    }
    config = LambConfig(form=form, lr=0.1)
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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("role", ["matrix", "stacked", "embedding"])
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
