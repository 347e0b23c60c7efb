"""A layer as a step of a flow: its fields, and the steps that both splittings make of them.

A pre-norm layer is a step of size 1 of ``dx/dt = F(x) + G(x)``, where F sums its attention
sub-layers and G its feed-forward networks, norms and step sizes included (Lu et al. 2019, sec. 3).
F and G are the layer's own, so both schemes and the flow are of one equation, whichever the layer
was trained as. A translator's decoder has a third flow, its attention to the source, which both
schemes follow after the first; what it reads there stands still.

A post-norm layer whose norms N have no gains is a step on the sphere of the states that N leaves as
they are: ``N(x + F(x))`` is an Euler step of ``dx/dt = P F(x)``, P being the projection on what is
tangent to the sphere, the derivative of N. It holds up to the norm's eps. With gains N moves what
it normed, so that a step of size 0 is none, and there is no such equation.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.architecture.stacks import stacks
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import ConfigError
from sublayer.inspection.splitting_problems import integrate
from sublayer.model.context.context import Context
from sublayer.model.layers.attention import Attention, CrossAttention
from sublayer.model.layers.block import Function, Sublayer
from sublayer.model.layers.feedforward import FeedForward
from sublayer.model.layers.norm import LayerNorm

_REFERENCE_STEPS = 16
Kind = type[Function]
"""A kind of sub-layer, of which a layer may have several."""
_KINDS: tuple[Kind, ...] = (Attention, CrossAttention, FeedForward)


def check_flows(config: ResolvedModel, name: str) -> None:
    """Raise ConfigError where a model's layers are no steps of a flow, or none can be measured."""
    if config.kind == "lstm":
        raise ConfigError(
            f"{name} is an LSTM, whose layers replace their input and add nothing to it: only "
            "blocks are steps of a flow; name a decoder, encoder or encoder-decoder"
        )
    if not is_on_sphere(config):
        return
    post = f"{name} has model.norm_order = post"
    if config.norm_affine:
        raise ConfigError(
            f"{post} and norms with gains, which move a token even where a sub-layer adds nothing: "
            "its layers are no steps of a flow; name a pre-norm model, or one with "
            "model.norm_affine = false"
        )
    if POSITIONS[config.positions].adds_before == "every":
        raise ConfigError(
            f"{post} and model.positions = {config.positions}, which take the states off the "
            "sphere of its norms before each layer: its layers are no steps of a flow on it"
        )
    if max(shape.n_layers for shape in stacks(config)) == 1:
        raise ConfigError(
            f"{post} and one layer, which reads what no such norm has normed: such models are "
            "measured from the second layer on"
        )


def is_on_sphere(config: ResolvedModel) -> bool:
    """Return whether a norm follows each step, so that the states between them are normed."""
    return config.norm_order == "post" and config.norm != "none"


class LayerFlow:
    """What a layer's sub-layers and their norms are in continuous time, for one batch.

    Each field is what sub-layers of a kind add to the states ``[B, T, D]`` in a unit of time.
    """

    def __init__(self, block: Sequence[Sublayer], context: Context) -> None:
        self._context = context
        by_kind: dict[Kind, list[Sublayer]] = {}
        for kind in _KINDS:
            sublayers = [each for each in block if isinstance(each.function, kind)]
            if sublayers:
                by_kind[kind] = sublayers
        self._by_kind = by_kind
        first = block[0]
        has_norm = not isinstance(first.norm, nn.Identity)
        self._norm = first.norm if has_norm and not first.is_pre_norm else None

    def follow(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Follow the sum of all fields for a unit of time, in 16 Runge-Kutta steps."""
        return integrate(self._velocity, x, 1.0, n_steps=_REFERENCE_STEPS)

    def lie(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Take Lie's step: an Euler step of each field, the network's last."""
        return self._steps(x, [(kind, 1.0) for kind in self._by_kind])

    def strang(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Take Strang's step: half of the network's before the others, and half behind them."""
        halves = [(kind, 0.5) for kind in self._by_kind if kind is FeedForward]
        wholes = [(kind, 1.0) for kind in self._by_kind if kind is not FeedForward]
        return self._steps(x, [*halves, *wholes, *halves])

    def _steps(self, x: Tensor, parts: Sequence[tuple[Kind, float]]) -> Tensor:
        for kind, size in parts:
            x = x + size * self._field(kind, x)
            if self._norm is not None:
                x = self._norm(x)
        return x

    def _field(self, kind: Kind, x: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for each in self._by_kind[kind]:
            given = each.norm(x) if each.is_pre_norm else x
            total = total + each.step_size * each.function(given, self._context)
        return total

    def _velocity(self, x: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for kind in self._by_kind:
            total = total + self._field(kind, x)
        if self._norm is None:
            return total
        if isinstance(self._norm, LayerNorm):
            total = total - total.mean(-1, keepdim=True)
        # What is along the state would leave the sphere.
        along = (total * x).sum(-1, keepdim=True) / x.square().sum(-1, keepdim=True)
        return total - along * x
