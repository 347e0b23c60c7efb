"""An equal model that has all of what another system's class always has."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import embedding_width, stacks
from sublayer.interop.pairs import shapes_of
from sublayer.model.positions import sinusoids
from sublayer.model.stack import slot


def write_out(
    weights: Mapping[str, Tensor], config: ModelConfig, always: Mapping[str, Any]
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Give the config with the fields of ``always``, and the weights with which it computes the same.

    What the model lacks is written as what has no effect: biases as zeros, norms without parameters as gain 1 and
    offset 0, a projection as the identity, segments as zeros; shared weights once per block; positions that are a
    fixed table or none as a table; scaled embeddings as a scaled table beside a plain output matrix.
    """
    full = config.model_copy(update=dict(always))
    sources = _sources(config, full)
    return full, {
        name: _tensor(name, sources.get(name, name), shape, weights, config) for name, shape in shapes_of(full).items()
    }


def _sources(config: ModelConfig, full: ModelConfig) -> dict[str, str]:
    """Name the tensor of the model that each tensor of the full model's blocks is written from."""
    (stack,) = stacks(config)
    places = {
        f"{stack.name}.sublayers.{place}.{slot(full, stack, layer, entry)}.": (
            f"{stack.name}.sublayers.{place}.{slot(config, stack, layer, entry)}."
        )
        for place, entry in enumerate(stack.block)
        for layer in range(stack.n_layers)
    }
    names = [name for name in shapes_of(full) if ".sublayers." in name]
    cut = {name: ".".join(name.split(".")[:4]) + "." for name in names}
    return {name: places[cut[name]] + name.removeprefix(cut[name]) for name in names}


def _tensor(name: str, source: str, shape: torch.Size, weights: Mapping[str, Tensor], config: ModelConfig) -> Tensor:
    table = weights["embedding.weight"]
    match name:
        case "embedding.weight" if config.embedding_scale == "sqrt":
            # As the model computes it: one rounding, of the product.
            scaled: Tensor = table * table.shape[1] ** 0.5
            return scaled
        case "head.weight":
            return weights.get("head.weight", table)
        case "segment_table.weight" if config.segments == "second":
            return torch.cat([torch.zeros_like(weights[name]), weights[name]])
        case "positions.tables.0.weight" if config.positions == "sinusoidal":
            places = torch.arange(shape[0]) + config.first_position
            return sinusoids(places, d_model=embedding_width(config), dtype=table.dtype, form=config.sinusoids)
    if source in weights:
        return weights[source]
    if name == "embedding.projection.weight":
        return torch.eye(*shape, dtype=table.dtype)
    assert name.endswith((".bias", "norm.weight", "positions.tables.0.weight", "segment_table.weight")), source
    fill = torch.ones if name.endswith("norm.weight") else torch.zeros
    return fill(shape, dtype=table.dtype)
