"""Rates that fall from block to block towards the input, worked out by hand."""

from typing import Any

import pytest
import torch

from sublayer.config.layering.layers import load_recipe
from sublayer.config.objectives.causal import CausalObjective
from sublayer.config.optimizers.adam import AdamConfig, AdamWConfig
from sublayer.config.optimizers.kinds import OptimizerConfig
from sublayer.errors import ConfigError
from sublayer.model.roles import parameter_roles
from sublayer.objective.causal.family import CAUSAL
from sublayer.training.optimizers.build import build_optimizer, set_learning_rate
from sublayer.training.optimizers.layer_decay import rate_shares
from tests.training.test_warm_start import make_model

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


@pytest.mark.parametrize(
    "config", [AdamConfig(), AdamWConfig(), AdamWConfig(bias_correction=False)]
)
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


def test_a_decay_of_one_leaves_parameters_in_the_groups_of_their_roles() -> None:
    objective = CAUSAL.build(make_model(1), CausalObjective(), 0)
    parameters = dict(objective.named_parameters())
    roles = parameter_roles(objective)
    plain = build_optimizer(AdamWConfig(), parameters, roles)
    same = build_optimizer(AdamWConfig(), parameters, roles, rate_shares(objective, 1.0))
    sizes = [len(group["params"]) for group in plain.param_groups]
    assert [len(group["params"]) for group in same.param_groups] == sizes


def test_a_model_of_two_stacks_has_no_order_of_blocks() -> None:
    settings = {"model.kind": "encoder-decoder", "objective.kind": "span"}
    with pytest.raises(ConfigError, match="optimizer.layer_decay = 0.8 has no effect"):
        load_recipe("gpt", {**settings, "optimizer.layer_decay": 0.8})
