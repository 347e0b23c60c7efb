"""The eight feed-forward networks against numbers worked out by hand."""

from typing import Any

import pytest
import torch

from sublayer.config.architecture.feedforward import FFNS
from sublayer.model.context.context import Context
from sublayer.model.context.layout import Layout
from sublayer.model.layers.feedforward import FeedForward

CONTEXT = Context(Layout.causal(torch.zeros(1, 1, dtype=torch.long)), None)

# One feature, one hidden unit, W x = x, V x = 3 x, and 1 as the output's weight. With sigmoid(2) =
# 0.880797 and the normal distribution's Phi(2) = 0.977250.
BY_HAND = [
    ("relu", "exact", 2.0, 2.0),
    ("relu", "exact", -2.0, 0.0),
    ("gelu", "exact", 2.0, 1.954500),
    ("gelu", "exact", -2.0, -0.045500),
    ("gelu", "tanh", 2.0, 1.954598),
    ("swish", "exact", 2.0, 1.761594),
    ("swish", "exact", -2.0, -0.238406),
    ("glu", "exact", 2.0, 5.284782),
    ("glu", "exact", -2.0, -0.715218),
    ("bilinear", "exact", 2.0, 12.0),
    ("bilinear", "exact", -2.0, 12.0),
    ("reglu", "exact", 2.0, 12.0),
    ("reglu", "exact", -2.0, 0.0),
    ("geglu", "exact", -2.0, 0.273000),
    ("geglu", "tanh", 2.0, 11.727586),
    ("swiglu", "exact", 2.0, 10.569564),
    ("swiglu", "exact", -2.0, 1.430436),
]


@pytest.mark.parametrize(("variant", "gelu", "x", "expected"), BY_HAND)
def test_each_network_by_hand(variant: str, gelu: str, x: float, expected: float) -> None:
    form: Any = {"gelu": gelu, "swish_beta": 1.0}
    network = FeedForward(1, 1, FFNS[variant], **form, bias=False, p_hidden=0.0)
    with torch.no_grad():
        network.output.weight.fill_(1.0)
        network.input.weight.copy_(
            torch.tensor([1.0, 3.0][: network.input.weight.numel()]).view_as(network.input.weight)
        )
    assert network(torch.tensor([[[x]]]), CONTEXT).item() == pytest.approx(expected, abs=2e-6)


def test_biases_are_added_before_the_activation_and_after_the_output() -> None:
    network = FeedForward(
        1, 1, FFNS["reglu"], gelu="exact", swish_beta=1.0, bias=True, p_hidden=0.0
    )
    with torch.no_grad():
        network.input.weight.fill_(1.0)
        network.input.bias.copy_(torch.tensor([[5.0], [7.0]]))
        network.output.weight.fill_(2.0)
        network.output.bias.fill_(100.0)
    # relu(1 + 5) * (1 + 7) = 48, times 2, plus 100.
    assert network(torch.tensor([[[1.0]]]), CONTEXT).item() == 196.0


@pytest.mark.parametrize("variant", FFNS)
def test_shapes_hold_for_unequal_widths(variant: str) -> None:
    network = FeedForward(3, 7, FFNS[variant], gelu="tanh", swish_beta=1.0, bias=True, p_hidden=0.0)
    assert network(torch.randn(2, 5, 3), CONTEXT).shape == (2, 5, 3)
    assert network.output.weight.shape == (3, 7)


def test_hidden_dropout_acts_between_the_two_products() -> None:
    network = FeedForward(
        1, 1000, FFNS["relu"], gelu="exact", swish_beta=1.0, bias=False, p_hidden=0.5
    )
    with torch.no_grad():
        network.input.weight.fill_(1.0)
        network.output.weight.fill_(1.0)
    torch.manual_seed(0)
    total = network(torch.ones(1, 1, 1), CONTEXT).item()
    assert total != 1000.0
    assert total == pytest.approx(1000.0, abs=4 * 1000**0.5)
    assert total % 2 == 0  # kept units count twice
    assert network.eval()(torch.ones(1, 1, 1), CONTEXT).item() == 1000.0
