"""An equal model that has all of what another system's class always has."""

import re
from collections.abc import Mapping
from itertools import product
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
    weights = dict(weights)
    if config.embedding_scale == "sqrt" and full.embedding_scale == "none":
        # As the model computes it: one rounding, of the product.
        table = weights["embedding.weight"]
        weights = {"head.weight": table, **weights, "embedding.weight": table * table.shape[1] ** 0.5}
    return full, {
        name: _tensor(name, sources.get(name, name), shape, weights, config) for name, shape in shapes_of(full).items()
    }


def _sources(config: ModelConfig, full: ModelConfig) -> dict[str, str]:
    """Name the tensor of the model that each tensor of the full model's blocks is written from."""
    is_pair = config.kind == "encoder-decoder"
    places = {}
    for stack in stacks(config):
        prefix = "source.encoder" if is_pair and stack.name == "encoder" else stack.name
        for layer, (place, entry) in product(range(stack.n_layers), enumerate(stack.block)):
            numbers = (slot(each, stack, layer, entry) for each in (full, config))
            written, own = (f"{prefix}.sublayers.{place}.{number}." for number in numbers)
            places[written] = own
    names = [name for name in shapes_of(full) if ".sublayers." in name]
    found = {name: re.match(r".*\.sublayers\.\d+\.\d+\.", name) for name in names}
    cut = {name: place[0] for name, place in found.items() if place is not None}
    return {name: places[cut[name]] + name.removeprefix(cut[name]) for name in names}


def _tensor(name: str, source: str, shape: torch.Size, weights: Mapping[str, Tensor], config: ModelConfig) -> Tensor:
    table = weights["embedding.weight"]
    match name:
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
