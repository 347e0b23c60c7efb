"""Initial weights: their statistics, their seed, and that nothing is left unset."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.model.build import build, compose
from sublayer.model.init import initialise


def config_of(**fields: Any) -> ModelConfig:
    sizes = {"n_layers": 3, "d_model": 64, "n_heads": 2, "d_ff": 160, "d_embed": 48}
    return resolve_model(ModelConfig(**{**sizes, **fields}), vocab_size=211, context=101)


def weights_of(model: nn.Module, ending: str) -> Tensor:
    found = [value.flatten() for name, value in model.state_dict().items() if name.endswith(ending)]
    assert found, ending
    return torch.cat(found)


def assert_std(values: Tensor, std: float) -> None:
    # The standard error of a standard deviation is at most std / sqrt(2 n) for these distributions.
    assert values.std().item() == pytest.approx(std, abs=5 * std / math.sqrt(2 * values.numel()))
    assert abs(values.mean().item()) < 5 * std / math.sqrt(values.numel())


@pytest.mark.parametrize("init", ["normal", "scaled", "xavier"])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_every_parameter_is_set(init: str, norm: str) -> None:
    config = config_of(init=init, norm=norm, tie_embeddings=False, head_bias=True, ffn="swiglu")
    model = compose(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float("nan"))
    initialise(model, config, torch.Generator().manual_seed(0))
    assert not [name for name, value in model.named_parameters() if value.isnan().any()]


def test_normal_has_one_standard_deviation_everywhere() -> None:
    model = build(config_of(init="normal", init_std=0.05, tie_embeddings=False), seed=0)
    for ending in ("projection.weight", "input.weight", "output.weight", "embedding.weight", "head.weight"):
        assert_std(weights_of(model, ending), 0.05)
    assert_std(weights_of(model, "tables.0.weight"), 0.05)


def test_scaled_divides_branch_outputs_by_the_root_of_the_executed_sublayers() -> None:
    # Macaron: 3 sub-layers in each of 3 blocks, also where blocks share weights.
    model = build(config_of(init="scaled", block="macaron", share="all"), seed=0)
    assert_std(weights_of(model, "output.weight"), 0.02 / 3)
    assert_std(weights_of(model, "input.weight"), 0.02)
    assert_std(weights_of(model, "embedding.projection.weight"), 0.02)


def test_xavier_is_uniform_with_queries_keys_and_values_as_one_matrix() -> None:
    model = build(config_of(init="xavier", ffn="swiglu", tie_embeddings=False), seed=0)
    bounds = {
        "function.projection.weight": math.sqrt(6 / (64 + 3 * 64)),
        "input.weight": math.sqrt(6 / (64 + 160)),  # a gate and its value are two matrices
        "1.0.function.output.weight": math.sqrt(6 / (160 + 64)),
        "embedding.projection.weight": math.sqrt(6 / (48 + 64)),
    }
    for ending, bound in bounds.items():
        values = weights_of(model, ending)
        assert values.abs().max() <= bound
        assert values.abs().max() > 0.99 * bound
        assert_std(values, bound / math.sqrt(3))
    assert_std(weights_of(model, "embedding.weight"), 48**-0.5)
    assert_std(weights_of(model, "head.weight"), 48**-0.5)
    assert_std(weights_of(model, "tables.0.weight"), 64**-0.5)


def test_gains_start_at_one_and_offsets_at_zero() -> None:
    model = build(config_of(head_bias=True), seed=0)
    for name, value in model.state_dict().items():
        if name.endswith("norm.weight"):
            assert (value == 1).all(), name
        if name.endswith("bias"):
            assert (value == 0).all(), name


def test_weights_depend_on_the_seed_alone() -> None:
    config = config_of()
    torch.manual_seed(1)
    first = build(config, seed=7).state_dict()
    state = torch.get_rng_state()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    again = build(config, seed=7).state_dict()
    torch.set_num_threads(threads)
    other = build(config, seed=8).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])
