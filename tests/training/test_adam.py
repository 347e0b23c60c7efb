"""AdamW as GPT-1 has it, scaled by the weights, and with rates that fall towards the input."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from sublayer.config.layering.layers import load_recipe
from sublayer.config.objectives.causal import CausalObjective
from sublayer.config.optimizers.adam import AdamConfig, AdamWConfig
from sublayer.config.optimizers.kinds import OptimizerConfig
from sublayer.errors import ConfigError
from sublayer.model.roles import parameter_roles
from sublayer.objective.causal.family import CAUSAL
from sublayer.training.optimizers.build import build_optimizer, set_learning_rate
from sublayer.training.optimizers.division import WHOLE
from sublayer.training.optimizers.layer_decay import rate_shares
from sublayer.training.optimizers.parameter_scale import parameter_scales
from tests.training.optimizer_steps import own, take
from tests.training.test_warm_start import make_model

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


@pytest.mark.parametrize("setting", ["bias_correction=false", "parameter_scale=true"])
def test_what_it_has_no_choice_of_is_refused(setting):
    with pytest.raises(ConfigError, match="counts only where optimizer.form is published"):
        load_recipe("gpt", ["optimizer.form=gpt1", f"optimizer.{setting}"])


VARIABLES = {"matrix": (5, 7), "stacked": (2, 6, 5), "embedding": (11, 4), "vector": (3, 13)}
"""Of each role one, of its name."""
ROLES = {name: name for name in VARIABLES}


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


EMBEDDINGS, FIRST, SECOND, THIRD, HEADS = 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1.0
"""Of three blocks, with a decay of a half."""


def shares(**fields: Any) -> dict[str, float]:
    objective = CAUSAL.build(make_model(1, **fields), CausalObjective(), 0)
    found = rate_shares(objective, 0.5)
    return {name.removeprefix("model."): share for name, share in found.items()}


def test_each_block_has_half_the_rate_of_the_next() -> None:
    found = shares(positions="learned-per-layer", d_embed=4, label_outputs=2)
    expected = {
        "embedding.": EMBEDDINGS,
        "positions.tables.0.": EMBEDDINGS,
        "positions.tables.1.": SECOND,
        "positions.tables.2.": THIRD,
        "decoder.sublayers.0.0.": FIRST,
        "decoder.sublayers.1.0.": FIRST,
        "decoder.sublayers.0.1.": SECOND,
        "decoder.sublayers.1.1.": SECOND,
        "decoder.sublayers.0.2.": THIRD,
        "decoder.sublayers.1.2.": THIRD,
        "final_norm.": HEADS,
        "head.": HEADS,
        "label_head.": HEADS,
    }
    for name, share in found.items():
        (of_prefix,) = [value for prefix, value in expected.items() if name.startswith(prefix)]
        assert share == of_prefix, name


def test_what_blocks_share_has_the_rate_of_the_last_of_them() -> None:
    found = shares(share="ffn", share_groups=1, positions="relative")
    assert {share for name, share in found.items() if ".sublayers.1." in name} == {THIRD}
    assert found["positions.table.weight"] == THIRD
    assert found["embedding.weight"] == EMBEDDINGS


@pytest.mark.parametrize("config", [AdamConfig(), AdamWConfig(bias_correction=False)])
def test_an_update_is_as_long_as_its_share_of_the_rate(config: OptimizerConfig) -> None:
    model = make_model(1)
    objective = CAUSAL.build(model, CausalObjective(), 0)
    parameters = dict(objective.named_parameters())
    bare = config.model_copy(update={"weight_decay": 0.0, "betas": (0.0, 0.0)})
    optimizer = build_optimizer(
        bare, parameters, parameter_roles(objective), rate_shares(objective, 0.5)
    )
    before = {name: value.detach().clone() for name, value in parameters.items()}
    for parameter in parameters.values():
        parameter.grad = torch.ones_like(parameter)
    set_learning_rate(optimizer, 0.1)
    optimizer.step()
    lengths = {
        name: float((before[name] - value.detach()).abs().mean())
        for name, value in parameters.items()
    }
    # Without memory of earlier gradients every number moves by its rate.
    assert lengths["model.embedding.weight"] == pytest.approx(0.1 * EMBEDDINGS, rel=1e-4)
    second = [value for name, value in lengths.items() if ".sublayers.0.1." in name]
    assert second == pytest.approx([0.1 * SECOND] * len(second), rel=1e-4)
    assert lengths["model.head.bias"] == pytest.approx(0.1, rel=1e-4)


def test_a_model_of_two_stacks_has_no_order_of_blocks() -> None:
    settings = {"model.kind": "encoder-decoder", "objective.kind": "span"}
    with pytest.raises(ConfigError, match="optimizer.layer_decay = 0.8 has no effect"):
        load_recipe("gpt", {**settings, "optimizer.layer_decay": 0.8})
