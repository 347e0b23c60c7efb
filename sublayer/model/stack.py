"""n layers of blocks, and which of them share weights."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sublayer.config.block import Entry
from sublayer.config.model import ModelConfig
from sublayer.config.resolve import StackShape, shares
from sublayer.model.block import Sublayer
from sublayer.model.cache import Cache
from sublayer.model.context import Context
from sublayer.model.positions import Positions


def slot(config: ModelConfig, shape: StackShape, layer: int, entry: Entry) -> int:
    """Tell which set of weights an entry of an executed block of a stack uses.

    Shared entries: of ``n_units`` units of ``share_inner`` blocks, unit u belongs to group
    ``floor(u * share_groups / n_units)``; within a unit blocks are distinct. Others have one set per block.
    Source: ALBERT's group and inner-group indices, as released.
    """
    if not shares(config, entry):
        return layer
    unit, inner = divmod(layer, config.share_inner)
    n_units = shape.n_layers // config.share_inner
    group = unit * config.share_groups // n_units
    return group * config.share_inner + inner


class Stack(nn.Module):
    """Executed blocks in order. Each set of weights exists once: ``sublayers[entry][slot]``.

    While ``recomputes`` is set, a backward pass runs every block again instead of keeping what it needs of it, dropout
    included: the same gradients for less memory and one more forward pass (Chen et al. 2016, 1604.06174).
    """

    def __init__(self, config: ModelConfig, shape: StackShape) -> None:
        super().__init__()
        self.recomputes = False
        self.slots = [[slot(config, shape, layer, entry) for entry in shape.block] for layer in range(shape.n_layers)]
        self.sublayers = nn.ModuleList(
            nn.ModuleList(Sublayer(config, entry) for _ in range(1 + max(layer[place] for layer in self.slots)))
            for place, entry in enumerate(shape.block)
        )

    def block(self, layer: int) -> list[Sublayer]:
        """Give the sub-layers of an executed block."""
        return [self.sublayers[place][index] for place, index in enumerate(self.slots[layer])]  # type: ignore[index]

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        context: Context,
        positions: Positions,
        cache: Cache | None = None,
        capture: Sequence[int] = (),
    ) -> tuple[Float[Tensor, "B T D"], dict[int, Tensor]]:
        """Run every block; also give the residual stream after as many blocks as each number in ``capture``."""
        captured = {0: x} if 0 in capture else {}
        for layer in range(len(self.slots)):
            if layer > 0:
                x = positions.add(x, layer, context.layout.positions)
            if self.recomputes and torch.is_grad_enabled():
                x = checkpoint(self._run, layer, x, context, cache, use_reentrant=False)
            else:
                x = self._run(layer, x, context, cache)
            if layer + 1 in capture:
                captured[layer + 1] = x
        return x, captured

    def _run(self, layer: int, x: Tensor, context: Context, cache: Cache | None) -> Tensor:
        for place, sublayer in enumerate(self.block(layer)):
            x = sublayer(x, context if cache is None else replace(context, kept=cache.kept(layer, place)))
        return x
