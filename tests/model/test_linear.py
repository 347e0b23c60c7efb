"""Linear maps, alone and stacked."""

import torch
import torch.nn.functional as F

from sublayer.model.layers.linear import Linear, StackedLinear


def test_stacked_maps_equal_separate_ones() -> None:
    stacked = StackedLinear(3, 5, 7, bias=True)
    torch.nn.init.normal_(stacked.weight)
    torch.nn.init.normal_(stacked.bias)
    x = torch.randn(2, 11, 5)
    separate = [
        F.linear(x, weight, bias) for weight, bias in zip(stacked.weight, stacked.bias, strict=True)
    ]
    torch.testing.assert_close(stacked(x), torch.cat(separate, dim=-1))


def test_a_map_without_bias_maps_zero_to_zero() -> None:
    linear = Linear(5, 7, bias=False)
    torch.nn.init.normal_(linear.weight)
    assert linear(torch.zeros(2, 5)).tolist() == [[0.0] * 7] * 2
    assert [name for name, _ in linear.named_parameters()] == ["weight"]
