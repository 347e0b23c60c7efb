"""Adam as released with GPT-1: numbers worked out by hand, and a slow reference."""

import math

import pytest
import torch
from torch import nn

from sublayer.config.layering.layers import load_recipe
from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.errors import ConfigError
from sublayer.training.optimizers.build import build_optimizer
from tests.training.optimizer_steps import draw, own, take

LR, DECAY = 0.1, 0.5


def updated(weight: float, gradient: float, n_updates: int, *, eps: float = 1e-30) -> list[float]:
    """Return a matrix of one number after each update by the same gradient, in float64."""
    config = AdamWConfig(form="gpt1", lr=LR, weight_decay=DECAY, betas=(0.9, 0.999), eps=eps)
    parameter = nn.Parameter(torch.full((1, 1), weight, dtype=torch.float64))
    optimizer = build_optimizer(config, {"matrix": parameter}, {"matrix": "matrix"})
    values = []
    for _ in range(n_updates):
        take(optimizer, {"matrix": parameter}, {"matrix": torch.full_like(parameter, gradient)})
        values.append(parameter.item())
    return values


def test_updates_are_those_worked_out_by_hand():
    # Of the same gradient, m = (1 - 0.9^t) g and v = (1 - 0.999^t) g^2, so that c m / sqrt(v) is
    # its sign; decay is multiplied by c: sqrt(0.001) / 0.1 = 0.31623, sqrt(0.001999) / 0.19 =
    # 0.23532.
    first, second = updated(1.0, 2.0, 2)
    assert first == pytest.approx(1 - 0.1 * (1 + 0.3162278 * 0.5), abs=1e-8)
    assert second == pytest.approx(first - 0.1 * (1 + 0.2353164 * 0.5 * first), abs=1e-7)


def test_decay_is_at_four_fifths_after_a_thousand_updates():
    # sqrt(1 - 0.999^1000) = sqrt(1 - 0.367695) = 0.795176; 0.9^1000 is nothing.
    *_, before, after = updated(1.0, -2.0, 1000)
    assert (before + LR - after) / (LR * DECAY * before) == pytest.approx(0.795176, abs=1e-6)


def test_eps_is_added_to_the_uncorrected_root():
    # m = 0.2, sqrt(v) = sqrt(0.004) = 0.0632456: 0.1 * 0.3162278 * (0.2 / 1.0632456 + 0.5).
    (after,) = updated(1.0, 2.0, 1, eps=1.0)
    assert after == pytest.approx(1 - 0.03162278 * (0.1881033 + 0.5), abs=1e-8)


def test_vectors_do_not_decay_and_many_updates_are_those_of_a_slow_reference():
    shapes = {"matrix": (3, 5), "vector": (7,)}
    config = AdamWConfig(form="gpt1", lr=0.01, weight_decay=0.3, betas=(0.8, 0.95), eps=1e-3)
    parameters = {
        name: nn.Parameter(value.detach().double()) for name, value in own(draw(shapes)).items()
    }
    start = {name: value.detach().clone() for name, value in parameters.items()}
    optimizer = build_optimizer(config, parameters, {"matrix": "matrix", "vector": "vector"})
    gradients = [
        {name: value.double() for name, value in draw(shapes, seed=seed).items()}
        for seed in range(1, 30)
    ]
    for each in gradients:
        take(optimizer, parameters, each)
    for name, decay in (("matrix", 0.3), ("vector", 0.0)):
        numbers = zip(
            start[name].flatten().tolist(), parameters[name].flatten().tolist(), strict=True
        )
        for place, (weight, found) in enumerate(numbers):
            m = v = 0.0
            for t, each in enumerate(gradients, start=1):
                g = each[name].flatten()[place].item()
                m, v = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g * g
                rate = 0.01 * math.sqrt(1 - 0.95**t) / (1 - 0.8**t)
                weight -= rate * (m / (math.sqrt(v) + 1e-3) + decay * weight)
            assert found == pytest.approx(weight, abs=1e-12)


@pytest.mark.parametrize("setting", ["bias_correction=false", "parameter_scale=true"])
def test_what_it_has_no_choice_of_is_refused(setting):
    with pytest.raises(ConfigError, match="counts only where optimizer.form is published"):
        load_recipe("gpt", ["optimizer.form=gpt1", f"optimizer.{setting}"])
