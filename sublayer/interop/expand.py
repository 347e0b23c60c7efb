"""Expand a model to the full parameter set that another system's class requires."""

import re
from collections.abc import Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor

from sublayer.config.architecture.derived import embedding_width
from sublayer.config.architecture.stacks import slot, stacks
from sublayer.config.resolved import ResolvedModel
from sublayer.interop.weight_map import shapes_of
from sublayer.model.positions.sinusoidal import sinusoids


def expand(
    weights: Mapping[str, Tensor], config: ResolvedModel, required: Mapping[str, Any]
) -> tuple[ResolvedModel, dict[str, Tensor]]:
    """Return the config with the ``required`` fields, and weights by which it computes the same.

    What the model lacks is written as what has no effect: biases as zeros, norms without parameters
    as gain 1 and offset 0, a projection as the identity, segments as zeros; shared weights once per
    block; positions that are a fixed table or none as a table; scaled embeddings as a scaled table
    beside a plain output matrix.

    ``required`` is what a class's ``required_fields`` returns for the config. Tensors that are
    written more than once are one in memory.
    """
    full = config.model_copy(update=dict(required))
    sources = _sources(config, full)
    weights = dict(weights)
    if config.embedding_scale == "sqrt" and full.embedding_scale == "none":
        # As the model computes it: one rounding, of the product.
        table = weights["embedding.weight"]
        weights = {
            "head.weight": table,
            **weights,
            "embedding.weight": table * table.shape[1] ** 0.5,
        }
    expanded = {}
    for name, shape in shapes_of(full).items():
        source = sources.get(name, name)
        expanded[name] = _tensor(name, source, shape, weights, config)
    return full, expanded


def _sources(config: ResolvedModel, full: ResolvedModel) -> dict[str, str]:
    """Map each tensor of the full model's blocks to the model's own that it is written from."""
    is_pair = config.kind == "encoder-decoder"
    own_prefixes = {}
    for stack in stacks(config):
        prefix = "source.encoder" if is_pair and stack.name == "encoder" else stack.name
        for layer, (index, entry) in product(range(stack.n_layers), enumerate(stack.block)):
            full_slot = slot(full, stack, layer, entry)
            own_slot = slot(config, stack, layer, entry)
            sublayers = f"{prefix}.sublayers.{index}"
            own_prefixes[f"{sublayers}.{full_slot}."] = f"{sublayers}.{own_slot}."
    sources = {}
    for name in shapes_of(full):
        in_block = re.match(r".*\.sublayers\.\d+\.\d+\.", name)
        if in_block is not None:
            full_prefix = in_block[0]
            sources[name] = own_prefixes[full_prefix] + name.removeprefix(full_prefix)
    return sources


def _tensor(
    name: str, source: str, shape: torch.Size, weights: Mapping[str, Tensor], config: ResolvedModel
) -> Tensor:
    table = weights["embedding.weight"]
    match name:
        case "head.weight":
            return weights.get("head.weight", table)
        case "segment_table.weight" if config.segments == "second":
            second = weights[name]
            return torch.cat([torch.zeros_like(second), second])
        case "positions.tables.0.weight" if config.positions == "sinusoidal":
            positions = torch.arange(shape[0]) + config.first_position
            width = embedding_width(config)
            return sinusoids(positions, d_model=width, dtype=table.dtype, form=config.sinusoids)
    if source in weights:
        return weights[source]
    if name == "embedding.projection.weight":
        return torch.eye(*shape, dtype=table.dtype)
    fillable = (".bias", "norm.weight", "positions.tables.0.weight", "segment_table.weight")
    assert name.endswith(fillable), source
    fill = torch.ones if name.endswith("norm.weight") else torch.zeros
    return fill(shape, dtype=table.dtype)
