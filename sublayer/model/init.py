"""Initial weights, each way with its source."""

import math

import torch
from torch import Tensor, nn

from sublayer.config.model import ModelConfig
from sublayer.model.embedding import SegmentTable, TokenEmbedding
from sublayer.model.feedforward import FeedForward
from sublayer.model.heads import Classifier, VocabularyHead
from sublayer.model.linear import Linear, StackedLinear
from sublayer.model.norm import LayerNorm, RMSNorm
from sublayer.model.positions import PositionTable
from sublayer.model.stack import Stack


@torch.no_grad()
def initialise(model: nn.Module, config: ModelConfig, generator: torch.Generator) -> None:
    """Set every parameter: gains to 1, biases and offsets to 0, matrices and tables at random by ``config.init``.

    normal: N(0, init_std) (Radford et al. 2018, sec. 4.1). scaled: the same, and maps that end a residual branch
    divided by the root of the number of executed sub-layers of their stack (Radford et al. 2019, sec. 2.3). truncated:
    normal, cut at two standard deviations, which leaves 0.88 of the spread (Devlin et al. 2019). xavier: uniform within
    ``sqrt(6 / (d_in + d_out))``, queries, keys and values as one matrix, tables and the output matrix
    N(0, 1 / width) (fairseq, as released). kaiming: attention N(0, 1 / d_model), feed-forward networks N(0, g / fan-in)
    with g 1 at their input and 2 at their output, all else N(0, 1 / width of what it reads) (Macaron BERT, as released;
    for the heads, where it is silent, a choice).
    """
    ffn_outputs = {id(module.output) for module in model.modules() if isinstance(module, FeedForward)}
    depths = {
        id(module): len(stack.slots) * len(stack.sublayers)
        for stack in model.modules()
        if isinstance(stack, Stack)
        for module in stack.modules()
    }
    for module in _in_order(model):
        match module:
            case LayerNorm() | RMSNorm():
                _fill(module, 0.0)
                if module.weight is not None:
                    module.weight.fill_(1.0)
            case Linear() | StackedLinear():
                _fill(module, 0.0)
                gain = 2.0 if id(module) in ffn_outputs else 1.0
                _set_matrix(module, config, generator, gain=gain, depth=depths.get(id(module), 1))
            case TokenEmbedding() | PositionTable() | SegmentTable() | VocabularyHead() | Classifier():
                _fill(module, 0.0)
                if module.weight is not None:
                    by_width = config.init in ("xavier", "kaiming")
                    std = module.weight.shape[1] ** -0.5 if by_width else config.init_std
                    _draw(module.weight, std, config, generator)
            case _:
                own = [name for name, _ in module.named_parameters(recurse=False)]
                assert not own, f"{type(module).__name__} has no initialisation for {own}"


def _in_order(model: nn.Module) -> list[nn.Module]:
    """List the modules as they draw: the token table and its projection first."""
    tables = [part for module in model.modules() if isinstance(module, TokenEmbedding) for part in module.modules()]
    known = {id(module) for module in tables}
    return tables + [module for module in model.modules() if id(module) not in known]


def _fill(module: nn.Module, value: float) -> None:
    for parameter in module.parameters(recurse=False):
        parameter.fill_(value)


def _draw(weight: Tensor, std: float, config: ModelConfig, generator: torch.Generator) -> None:
    if config.init == "truncated":
        nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std, generator=generator)
    else:
        weight.normal_(0.0, std, generator=generator)


def _set_matrix(
    module: Linear | StackedLinear, config: ModelConfig, generator: torch.Generator, *, gain: float, depth: int
) -> None:
    weight: Tensor = module.weight
    if config.init == "xavier":
        n_together = weight.shape[0] if isinstance(module, StackedLinear) and module.fans_together else 1
        bound = math.sqrt(6 / (weight.shape[-1] + n_together * weight.shape[-2]))
        weight.uniform_(-bound, bound, generator=generator)
        return
    std = math.sqrt(gain / weight.shape[-1]) if config.init == "kaiming" else config.init_std
    if config.init == "scaled" and isinstance(module, Linear) and module.ends_branch:
        std /= math.sqrt(depth)
    _draw(weight, std, config, generator)
