"""T5's initial weights: their spreads by role, each of the maps stored together its own."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.objectives.causal import CausalObjective
from sublayer.config.resolve_model import resolve_model
from sublayer.model.build import build, compose
from sublayer.model.init import initialise
from sublayer.objective.causal.loss import Causal

D_MODEL, D_HEAD, N_HEADS, D_FF = 64, 9, 5, 150
TRUNCATED = 0.8796256610342398
"""Standard deviation of a standard normal variable that is cut at two."""


def config_of(**fields: Any) -> ModelConfig:
    given: dict[str, Any] = {
        "kind": "encoder-decoder",
        "n_layers": 3,
        "d_model": D_MODEL,
        "d_head": D_HEAD,
        "n_heads": N_HEADS,
        "d_ff": D_FF,
        "norm": "rms",
        "attention_scale": "none",
        "positions": "relative",
        "ffn": "geglu",
        "init": "t5",
        **fields,
    }
    return resolve_model(ModelConfig(**given), vocab_size=311, context=101)


def weights_of(config: ModelConfig, ending: str) -> Tensor:
    """Collect the weights of a name, each map on a row."""
    model = build(config, seed=0)
    found = [value for name, value in model.state_dict().items() if name.endswith(ending)]
    assert found, ending
    return torch.stack(found)


def assert_normal(values: Tensor, std: float) -> None:
    n = values.numel()
    # The standard error of a standard deviation is std / sqrt(2 n).
    assert values.std().item() == pytest.approx(std, abs=5 * std / math.sqrt(2 * n))
    assert abs(values.mean().item()) < 5 * std / math.sqrt(n)
    assert values.abs().max() > 3 * std


def assert_truncated(values: Tensor, std: float) -> None:
    n = values.numel()
    spread = TRUNCATED * std
    assert values.std().item() == pytest.approx(spread, abs=5 * spread / math.sqrt(2 * n))
    assert abs(values.mean().item()) < 5 * spread / math.sqrt(n)
    assert 1.9 * std < values.abs().max() <= 2 * std


def test_queries_replace_the_scale_that_keys_and_values_do_not_have() -> None:
    projection = weights_of(config_of(), "function.projection.weight")  # of both attentions
    assert projection.shape == (9, 3, N_HEADS * D_HEAD, D_MODEL)
    assert_normal(projection[:, 0], (D_MODEL * D_HEAD) ** -0.5)
    assert_normal(projection[:, 1], D_MODEL**-0.5)
    assert_normal(projection[:, 2], D_MODEL**-0.5)
    output = weights_of(config_of(), "0.0.function.output.weight")
    assert_normal(output, (N_HEADS * D_HEAD) ** -0.5)


def test_queries_of_scaled_attention_have_nothing_to_replace() -> None:
    projection = weights_of(config_of(attention_scale="sqrt"), "function.projection.weight")
    assert_normal(projection[:, 0], D_MODEL**-0.5)


@pytest.mark.parametrize("ffn", ["geglu", "relu"])
def test_networks_are_cut_at_two_deviations_of_their_fan_in(ffn: str) -> None:
    into = weights_of(config_of(ffn=ffn), "function.input.weight")
    for each in (into[:, 0], into[:, 1]) if ffn == "geglu" else (into,):
        assert_truncated(each, D_MODEL**-0.5)
    # Not the attention's, whose width differs: an encoder's block has it at 1, a decoder's at 2.
    out = weights_of(config_of(ffn=ffn, kind="encoder"), "1.0.function.output.weight")
    assert_truncated(out, D_FF**-0.5)


def test_tables() -> None:
    assert_normal(weights_of(config_of(), "embedding.weight"), 1.0)
    relative = weights_of(config_of(relative_buckets=512, relative_distance=999), "table.weight")
    bound = math.sqrt(6 / (512 + N_HEADS))
    assert 0.99 * bound < relative.abs().max() <= bound
    assert relative.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    learned = weights_of(config_of(positions="learned"), "tables.0.weight")
    assert_normal(learned, 1.0)


def test_what_t5_is_silent_about_is_as_its_other_maps() -> None:
    config = config_of(tie_embeddings=False, d_embed=48, head="transform", head_bias=True)
    assert_truncated(weights_of(config, "head.weight"), 48**-0.5)
    assert_truncated(weights_of(config, "embedding.projection.weight"), 48**-0.5)
    assert_truncated(weights_of(config, "head.projection.weight"), D_MODEL**-0.5)
    decoder = build(config_of(kind="decoder"), seed=0)
    objective = Causal(decoder, CausalObjective(targets=2))
    (classifier,) = objective.classifiers.values()
    assert_truncated(classifier.weight.detach(), D_MODEL**-0.5)  # type: ignore[arg-type]


def test_every_parameter_is_set_gains_at_one_and_biases_at_zero() -> None:
    config = config_of(head_bias=True, tie_embeddings=False, ffn="swish", swish_beta="learned")
    model = compose(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float("nan"))
    initialise(model, config, seed=0)
    for name, value in model.named_parameters():
        assert not value.isnan().any(), name
        if name.endswith(("norm.weight", "beta")):
            assert (value == 1).all(), name
        if name.endswith("bias"):
            assert (value == 0).all(), name
