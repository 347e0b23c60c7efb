"""The stack: n layers of blocks, of which some may share weights."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sublayer.config.architecture.stacks import StackShape, slot
from sublayer.config.resolved import ResolvedModel
from sublayer.model.context.cache import Cache
from sublayer.model.context.context import Context
from sublayer.model.context.queries import Queries
from sublayer.model.layers.block import AnySublayer, build_sublayer
from sublayer.model.positions.base import Positions

_T = TypeVar("_T")


class Stack(nn.Module):
    """Executed blocks in order. Each set of weights exists once: ``sublayers[entry][slot]``.

    While ``recomputes`` is set, a backward pass runs every block again instead of keeping what it
    needs of it, dropout included: the same gradients for less memory and one more forward pass
    (Chen et al. 2016, 1604.06174).
    """

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__()
        self.recomputes = False
        self.slots = [
            [slot(config, shape, layer, entry) for entry in shape.block]
            for layer in range(shape.n_layers)
        ]
        self.last_attention = shape.last_attention
        self.sublayers = nn.ModuleList()
        for index, entry in enumerate(shape.block):
            last = max(slots[index] for slots in self.slots)
            n_sets = last + 1
            own = [build_sublayer(config, entry) for _ in range(n_sets)]
            self.sublayers.append(nn.ModuleList(own))

    def block(self, layer: int) -> list[AnySublayer]:
        """Return the sub-layers of an executed block, in order; layers count from 0."""
        sets: list[list[AnySublayer]] = list(self.sublayers)  # type: ignore[arg-type]
        return [own[slot] for own, slot in zip(sets, self.slots[layer], strict=True)]

    def map_slots(self, function: Callable[[AnySublayer], _T]) -> list[list[_T]]:
        """Apply a function once to each set of weights; return the results by block and entry.

        Executed blocks that share weights have the very same result.
        """
        sets: list[list[AnySublayer]] = list(self.sublayers)  # type: ignore[arg-type]
        results = [[function(sublayer) for sublayer in own] for own in sets]  # by entry and set
        by_layer = []
        for slots in self.slots:
            chosen = [own[slot] for own, slot in zip(results, slots, strict=True)]
            by_layer.append(chosen)
        return by_layer

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        context: Context,
        positions: Positions,
        cache: Cache | None = None,
        capture: Sequence[int] = (),
        queries: Queries | None = None,
    ) -> tuple[Float[Tensor, "B Q D"], dict[int, Tensor]]:
        """Run every block; also return the residual stream after as many as ``capture`` says.

        ``positions`` are added before every block but the first, before which ``Body.enter`` adds
        them: 0 in ``capture`` is the stream after that. A ``cache`` is appended to. With
        ``queries`` the last attention has those alone, and what follows it is computed at them: Q
        of the output counts them.
        """
        has_more = cache is not None or context.memory is not None or len(capture) > 0
        assert queries is None or not has_more, "all states are kept, read or asked for"
        last = None if queries is None else context.at(queries)
        captured = {0: x} if 0 in capture else {}
        for layer in range(len(self.slots)):
            if layer > 0:
                x = positions.add(x, layer, context.layout.positions)
            if self.recomputes and torch.is_grad_enabled():
                x = checkpoint(self._run, layer, x, context, cache, last, use_reentrant=False)
            else:
                x = self._run(layer, x, context, cache, last)
            if layer + 1 in capture:
                captured[layer + 1] = x
        if queries is not None and self.last_attention is None:
            x = queries.pick(x)
        return x, captured

    def _run(
        self, layer: int, x: Tensor, context: Context, cache: Cache | None, last: Context | None
    ) -> Tensor:
        is_last = layer == len(self.slots) - 1
        for index, sublayer in enumerate(self.block(layer)):
            own = context
            if cache is not None:
                own = replace(context, key_values=cache.key_values(layer, index))
            if last is not None and is_last and index == self.last_attention:
                own = last
            x = sublayer(x, own)
        return x
