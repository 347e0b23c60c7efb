"""Every parameter has a role."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from sublayer.model.roles import parameter_roles
from sublayer.model.transformer import Transformer


def test_roles_go_by_what_a_parameter_is(random_model: Callable[..., Transformer]) -> None:
    model = random_model(ffn="swiglu", d_embed=5, tie_embeddings=False, head_bias=True, n_layers=1)
    assert parameter_roles(model) == {
        "embedding.weight": "embedding",
        "embedding.projection.weight": "matrix",
        "embedding.projection.bias": "vector",
        "positions.tables.0.weight": "embedding",
        "decoder.sublayers.0.0.norm.weight": "vector",
        "decoder.sublayers.0.0.norm.bias": "vector",
        "decoder.sublayers.0.0.function.projection.weight": "stacked",
        "decoder.sublayers.0.0.function.projection.bias": "vector",
        "decoder.sublayers.0.0.function.output.weight": "matrix",
        "decoder.sublayers.0.0.function.output.bias": "vector",
        "decoder.sublayers.1.0.norm.weight": "vector",
        "decoder.sublayers.1.0.norm.bias": "vector",
        "decoder.sublayers.1.0.function.input.weight": "stacked",
        "decoder.sublayers.1.0.function.input.bias": "vector",
        "decoder.sublayers.1.0.function.output.weight": "matrix",
        "decoder.sublayers.1.0.function.output.bias": "vector",
        "final_norm.weight": "vector",
        "final_norm.bias": "vector",
        "head.projection.weight": "matrix",
        "head.projection.bias": "vector",
        "head.weight": "matrix",
        "head.bias": "vector",
    }


def test_a_parameter_without_a_role_is_an_error() -> None:
    module = nn.Module()
    module.stray = nn.Parameter(torch.zeros(1))
    with pytest.raises(AssertionError, match="stray"):
        parameter_roles(module)
