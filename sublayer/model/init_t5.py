"""T5's initial weights: each map by what it reads and what its output is for."""

import math
from collections.abc import Collection

import torch
from torch import Tensor, nn

from sublayer.config.resolved import ResolvedModel
from sublayer.model.layers.embedding import SegmentTable, TokenEmbedding
from sublayer.model.layers.linear import Linear, StackedLinear
from sublayer.model.positions.learned_table import PositionTable
from sublayer.model.positions.relative import BucketTable


def draw_t5(
    module: nn.Module,
    weight: Tensor,
    config: ResolvedModel,
    ffn_outputs: Collection[int],
    generator: torch.Generator,
) -> None:
    """Draw a matrix or a table as Raffel et al. 2020 (1910.10683) began, as released.

    ``module`` owns ``weight``; ``ffn_outputs`` are the ids of the maps that end feed-forward
    networks. The source is Mesh-TensorFlow's code:

    - queries N(0, 1 / (d_model d_head)): what their scores are not divided by; keys and values
      N(0, 1 / d_model); the map of an attention's output N(0, 1 / (heads d_head));
    - maps of feed-forward networks, gates and values each, and an output matrix that is not the
      table: N(0, 1 / fan-in), cut at two standard deviations without correction;
    - the embedding matrix N(0, 1);
    - the table of relative positions uniform within ``sqrt(6 / (heads + buckets))``: it is given no
      initialisation there, and Glorot's uniform one is TensorFlow's default. Departure of
      transformers' class: N(0, 1 / d_model).

    Choices where T5 has nothing: queries of scores that are divided by the root of d_head
    N(0, 1 / d_model), for which nothing is to be replaced; tables of learned positions and of
    segments as the embedding matrix, to which they are added; all other maps as those of a
    feed-forward network.
    """
    match module:
        case BucketTable():
            bound = math.sqrt(6 / sum(weight.shape))
            weight.uniform_(-bound, bound, generator=generator)
        case TokenEmbedding() | PositionTable() | SegmentTable():
            weight.normal_(0.0, 1.0, generator=generator)
        case StackedLinear() if module.fans_together:
            _draw_attention(weight, config, generator)
        case Linear() if module.ends_branch and id(module) not in ffn_outputs:
            weight.normal_(0.0, _fan_in_std(weight), generator=generator)
        case _:
            std = _fan_in_std(weight)
            bound = 2 * std
            nn.init.trunc_normal_(weight, std=std, a=-bound, b=bound, generator=generator)


def _draw_attention(weight: Tensor, config: ResolvedModel, generator: torch.Generator) -> None:
    query, *key_and_value = weight
    std = _fan_in_std(weight)
    query_std = std
    if config.attention_scale == "none":
        query_std *= config.d_head**-0.5
    query.normal_(0.0, query_std, generator=generator)
    for each in key_and_value:
        each.normal_(0.0, std, generator=generator)


def _fan_in_std(weight: Tensor) -> float:
    return float(weight.shape[-1] ** -0.5)
