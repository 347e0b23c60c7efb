"""Sub-layers, blocks, and the stack of n blocks, which may share weights."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sublayer.config.architecture import Entry
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import StackShape, slot
from sublayer.model.cache import Cache
from sublayer.model.context import Context, Queries
from sublayer.model.kernels.dropout import add_branch
from sublayer.model.layers.attention import Attention, CrossAttention
from sublayer.model.layers.feedforward import FeedForward
from sublayer.model.layers.lstm import LstmLayer
from sublayer.model.layers.norm import build_norm
from sublayer.model.positions import Positions

Passed = tuple[Float[Tensor, "B Q D"], Float[Tensor, ""] | None]
"""The residual stream after sub-layers, and their auxiliary losses, summed over the batch's
sequences; None where none has any. The function of a sub-layer with such losses returns them with
its output, only in training."""


def add_losses(
    one: Float[Tensor, ""] | None, other: Float[Tensor, ""] | None
) -> Float[Tensor, ""] | None:
    """Add auxiliary losses, of which either may be None."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


Function = Attention | CrossAttention | FeedForward
FUNCTIONS: dict[str, type[Function]] = {
    "attention": Attention,
    "cross": CrossAttention,
    "ffn": FeedForward,
}
"""The class of each kind of sub-layer, by its name in a block."""


class Sublayer(nn.Module):
    """Compute ``x + step * f(norm(x))`` (pre-norm) or ``norm(x + step * f(x))`` (post-norm).

    Dropout acts on the output of f, before the step (Macaron Net, as released). The step size is
    the entry's: 1/2 for Macaron's two feed-forward networks.
    """

    def __init__(self, config: ResolvedModel, entry: Entry) -> None:
        super().__init__()
        self.norm = build_norm(
            config.norm, config.d_model, eps=config.norm_eps, affine=config.norm_affine
        )
        self.function = FUNCTIONS[entry.name].from_config(config, entry)
        self.step_size = entry.step
        self.p_output = config.dropout
        self.is_pre_norm = config.norm_order == "pre"

    def forward(self, x: Float[Tensor, "B T D"], context: Context) -> Passed:
        """Apply the sub-layer, with the norm before or after.

        Q is T, or the number of the context's queries.
        """
        total, auxiliary = self.add(x, context)
        return (total if self.is_pre_norm else self.norm(total)), auxiliary

    def add(self, x: Float[Tensor, "B T D"], context: Context) -> Passed:
        """Apply the sub-layer without a norm after it."""
        stream = x if context.queries is None else context.queries.pick(x)
        branch = self.function(self.norm(x) if self.is_pre_norm else x, context)
        auxiliary = None
        if isinstance(branch, tuple):
            branch, auxiliary = branch
        total = add_branch(
            stream, branch, step=self.step_size, p=self.p_output, training=self.training
        )
        return total, auxiliary


AnySublayer = Sublayer | LstmLayer


def build_sublayer(config: ResolvedModel, entry: Entry) -> AnySublayer:
    """Build an entry of a block: a residual sub-layer, or a layer of an LSTM."""
    return LstmLayer(config) if entry.kind.is_recurrent else Sublayer(config, entry)


_T = TypeVar("_T")


class Stack(nn.Module):
    """Executed blocks in order. A set of weights exists once: ``sublayers[entry][slot]``.

    With ``recomputes``, a backward pass recomputes every block, dropout included, instead of
    keeping activations: equal gradients for less memory and one more forward pass (Chen et al.
    2016, 1604.06174).
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
            by_slot = [build_sublayer(config, entry) for _ in range(n_sets)]
            self.sublayers.append(nn.ModuleList(by_slot))

    def block(self, layer: int) -> list[AnySublayer]:
        """Return the sub-layers of an executed block, counted from 0, in order."""
        sets: list[list[AnySublayer]] = list(self.sublayers)  # type: ignore[arg-type]
        return [by_slot[slot] for by_slot, slot in zip(sets, self.slots[layer], strict=True)]

    def map_slots(self, function: Callable[[AnySublayer], _T]) -> list[list[_T]]:
        """Apply a function once per set of weights; return results by block and entry.

        Blocks that share weights have the same result object.
        """
        sets: list[list[AnySublayer]] = list(self.sublayers)  # type: ignore[arg-type]
        results = [
            [function(sublayer) for sublayer in by_slot] for by_slot in sets
        ]  # by entry and set
        by_layer = []
        for slots in self.slots:
            chosen = [by_slot[slot] for by_slot, slot in zip(results, slots, strict=True)]
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
    ) -> tuple[Passed, dict[int, Tensor]]:
        """Run every block; also return the residual stream at the places in ``capture``.

        A place is the number of blocks before it, from 0. ``positions`` are added before every
        block but the first, where ``Body.enter`` adds them: place 0 is after that. A ``cache`` is
        appended to. With ``queries`` the last attention and everything after it are computed only
        at these: Q of the output counts them.
        """
        has_more = cache is not None or context.memory is not None or len(capture) > 0
        assert queries is None or not has_more, "all states are kept, read or asked for"
        last = None if queries is None else context.at(queries)
        captured = {0: x} if 0 in capture else {}
        auxiliary = None
        for layer in range(len(self.slots)):
            if layer > 0:
                x = positions.add(x, layer, context.layout.positions)
            if self.recomputes and torch.is_grad_enabled():
                passed = checkpoint(self._run, layer, x, context, cache, last, use_reentrant=False)
            else:
                passed = self._run(layer, x, context, cache, last)
            x = passed[0]
            auxiliary = add_losses(auxiliary, passed[1])
            if layer + 1 in capture:
                captured[layer + 1] = x
        if queries is not None and self.last_attention is None:
            x = queries.pick(x)
        return (x, auxiliary), captured

    def _run(
        self, layer: int, x: Tensor, context: Context, cache: Cache | None, last: Context | None
    ) -> Passed:
        auxiliary = None
        is_last = layer == len(self.slots) - 1
        for index, sublayer in enumerate(self.block(layer)):
            sub_context = context
            if cache is not None:
                sub_context = replace(context, key_values=cache.key_values(layer, index))
            if last is not None and is_last and index == self.last_attention:
                sub_context = last
            x, loss = sublayer(x, sub_context)
            auxiliary = add_losses(auxiliary, loss)
        return x, auxiliary
