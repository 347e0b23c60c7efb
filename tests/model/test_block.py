"""Residual sub-layers: steps, and where the norm stands."""

from typing import Any

import pytest
import torch
from torch import nn

from sublayer.config.architecture.block import Entry
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.model.context.context import Context
from sublayer.model.context.layout import Layout
from sublayer.model.layers.block import Sublayer

CONTEXT = Context(Layout.causal(torch.zeros(1, 1, dtype=torch.long)), None)


def make_config(**fields: Any) -> ModelConfig:
    return resolve_model(
        ModelConfig(n_layers=1, d_model=2, n_heads=1, **fields), vocab_size=3, context=5
    )


def constant_ffn(output: list[float], *, step: float, **fields: Any) -> Sublayer:
    """A feed-forward sub-layer that gives the same output whatever its input."""
    sublayer = Sublayer(make_config(**fields), Entry("ffn", "relu", step))
    with torch.no_grad():
        for parameter in sublayer.function.parameters():
            parameter.zero_()
        assert sublayer.function.output.bias is not None
        sublayer.function.output.bias.copy_(torch.tensor(output))
    return sublayer


@pytest.mark.parametrize(
    ("step", "expected"), [(1.0, [11.0, 22.0]), (0.5, [6.0, 12.0]), (-2.0, [-19.0, -38.0])]
)
def test_the_output_is_added_with_its_step(step: float, expected: list[float]) -> None:
    sublayer = constant_ffn([10.0, 20.0], step=step, norm="none")
    assert sublayer(torch.tensor([[[1.0, 2.0]]]), CONTEXT).flatten().tolist() == expected


def test_pre_norm_leaves_the_residual_stream_as_it_is() -> None:
    sublayer = constant_ffn([10.0, 20.0], step=0.5, norm_affine=False)
    assert sublayer(torch.tensor([[[1.0, 2.0]]]), CONTEXT).flatten().tolist() == [6.0, 12.0]


def test_post_norm_normalises_the_sum() -> None:
    # 1/4 + 0.5 * 2.5 = 1.5 and 1/2 + 0.5 * 6 = 3.5: mean 2.5, variance 1, and with an eps of 9/16
    # the divisor is 5/4.
    sublayer = constant_ffn(
        [2.5, 6.0], step=0.5, norm_order="post", norm_affine=False, norm_eps=9 / 16
    )
    torch.testing.assert_close(
        sublayer(torch.tensor([[[0.25, 0.5]]]), CONTEXT).flatten(), torch.tensor([-0.8, 0.8])
    )


def test_pre_norm_normalises_the_input_of_the_function() -> None:
    sublayer = Sublayer(make_config(norm_affine=False, norm_eps=5 / 16), Entry("ffn", "relu", 1.0))
    with torch.no_grad():
        for parameter in sublayer.function.parameters():
            parameter.zero_()
        sublayer.function.input.weight[0, 1] = 3.0
        sublayer.function.output.weight[0, 0] = 1.0
    # (1/4, 5/4) is normalised to (-2/3, 2/3): relu(3 * 2/3) = 2 is added to the first feature.
    found = sublayer(torch.tensor([[[0.25, 1.25]]]), CONTEXT).flatten()
    torch.testing.assert_close(found, torch.tensor([2.25, 1.25]))


def test_dropout_acts_on_the_output_alone() -> None:
    sublayer = constant_ffn([10.0, 20.0], step=0.5, norm="none", dropout=0.5).train()
    torch.manual_seed(0)
    values = {
        tuple(sublayer(torch.tensor([[[1.0, 2.0]]]), CONTEXT).flatten().tolist()) for _ in range(50)
    }
    assert values == {(1.0, 2.0), (11.0, 2.0), (1.0, 22.0), (11.0, 22.0)}


def test_a_sublayer_owns_its_norm() -> None:
    sublayer = constant_ffn([0.0, 0.0], step=1.0)
    assert isinstance(sublayer.norm, nn.Module)
    assert {name for name, _ in sublayer.named_parameters()} >= {"norm.weight", "norm.bias"}
