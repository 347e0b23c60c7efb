"""How far a layer's one step is from following its own flows: Lie's and Strang's splitting on a trained model.

A pre-norm layer is a step of size 1 of ``dx/dt = F(x) + G(x)``, where F sums its attention sub-layers and G its
feed-forward networks, norms and step sizes included (Lu et al. 2019, sec. 3). F and G are the layer's own, so both
schemes and the reference are of one equation, whichever the layer was trained as.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from sublayer.errors import ConfigError
from sublayer.inspect.sample import Sample
from sublayer.inspect.splitting import integrate
from sublayer.model.block import Sublayer
from sublayer.model.context import Context
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.feedforward import FeedForward
from sublayer.model.layout import Layout
from sublayer.model.transformer import Body, Transformer

_REFERENCE_STEPS = 16
Field = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LayerErrors:
    """Of an executed layer, counted from 1: how far both schemes end from the reference, as shares of its way.

    The way is the distance from the layer's input to where its flows lead in the same time; both are means over tokens.
    """

    layer: int
    lie: float
    strang: float
    own: float
    way: float


def check_flows(model: Transformer, name: str) -> None:
    """Raise ConfigError where a model's layers are no steps of a flow: they end in a norm."""
    if model.config.norm_order == "post" and model.config.norm != "none":
        raise ConfigError(
            f"{name} has model.norm_order = post: a layer that ends in a norm is no step of a flow; name a pre-norm one"
        )


@torch.inference_mode()
def measure_splitting(
    model: Transformer,
    sample: Sample,
    *,
    batch_sequences: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[LayerErrors]:
    """Compare each layer's Lie and Strang step, of Euler sub-steps, and its own, with a fine integration.

    Of an encoder-decoder it is the encoder's layers. The reference takes 16 Runge-Kutta steps of fourth order.
    Everything is computed in float64 on a copy of the model.
    """
    model = copy.deepcopy(model).to(device="cpu", dtype=torch.float64).eval()
    body = model.source if isinstance(model, EncoderDecoder) else model
    n_layers = body.shape.n_layers
    sums = torch.zeros(n_layers, 4, dtype=torch.float64)
    n_tokens = 0
    for low in range(0, len(sample), batch_sequences):
        rows = sample[low : low + batch_sequences]
        lay_out = Layout.causal if body.shape.is_causal else Layout.bidirectional
        layout = lay_out(rows.tokens, rows.mask, rows.document_ids)
        states = body.states(model.embedding, rows.tokens, layout, capture=range(n_layers + 1)).captured
        real = torch.ones_like(rows.tokens, dtype=torch.bool) if rows.mask is None else rows.mask
        context = Context(layout, body.positions.rotation(layout, torch.float64))
        for layer in range(n_layers):
            before = body.positions.add(states[layer], layer, layout.positions) if layer else states[0]
            sums[layer] += _distances(body, layer, before, states[layer + 1], context, real)
        n_tokens += rows.n_tokens
        if progress is not None:
            progress(n_tokens, sample.n_tokens)
    means = (sums / n_tokens).tolist()
    return [
        LayerErrors(layer, lie / way, strang / way, own / way, way)
        for layer, (lie, strang, own, way) in enumerate(means, start=1)
    ]


def _distances(body: Body, layer: int, x: Tensor, own: Tensor, context: Context, real: Tensor) -> Float[Tensor, " 4"]:
    """Sum over real tokens how far Lie, Strang and the layer itself end from the reference, and the reference's way."""
    attention, network = _fields(body.stack.block(layer), context)

    def both(y: Tensor) -> Tensor:
        return attention(y) + network(y)

    reference = integrate(both, x, 1.0, n_steps=_REFERENCE_STEPS)
    lie = x + attention(x)
    lie = lie + network(lie)
    strang = x + network(x) / 2
    strang = strang + attention(strang)
    strang = strang + network(strang) / 2
    ends = (lie, strang, own)
    distances = [(end - reference)[real].norm(dim=1).sum() for end in ends]
    return torch.stack([*distances, (reference - x)[real].norm(dim=1).sum()])


def _fields(block: list[Sublayer], context: Context) -> tuple[Field, Field]:
    networks = [sublayer for sublayer in block if isinstance(sublayer.function, FeedForward)]
    attentions = [sublayer for sublayer in block if not isinstance(sublayer.function, FeedForward)]

    def field_of(sublayers: list[Sublayer]) -> Field:
        def field(x: Tensor) -> Tensor:
            total = torch.zeros_like(x)
            for sublayer in sublayers:
                total = total + sublayer.step * sublayer.function(sublayer.norm(x), context)
            return total

        return field

    return field_of(attentions), field_of(networks)
