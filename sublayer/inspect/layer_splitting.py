"""How far a layer's one step is from following its own flows: Lie's and Strang's splitting on a trained model.

A pre-norm layer is a step of size 1 of ``dx/dt = F(x) + G(x)``, where F sums its attention sub-layers and G its
feed-forward networks, norms and step sizes included (Lu et al. 2019, sec. 3). F and G are the layer's own, so both
schemes and the reference are of one equation, whichever the layer was trained as. A translator's decoder has a third
flow, its attention to the source, which both schemes follow after the first; what it reads there stands still.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from sublayer.errors import ConfigError
from sublayer.inspect.sample import Sample
from sublayer.inspect.splitting import integrate
from sublayer.model.attention import Attention, CrossAttention
from sublayer.model.block import Sublayer
from sublayer.model.context import Context, Memory
from sublayer.model.embedding import TokenEmbedding
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
    ``stack`` is the encoder or the decoder.
    """

    stack: str
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
    targets: Sample | None = None,
    *,
    batch_sequences: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[LayerErrors]:
    """Compare each layer's Lie and Strang step, of Euler sub-steps, and its own, with a fine integration.

    Of a translator ``sample`` are sources, which its encoder reads; ``targets`` are what its decoder reads beside each,
    without which only the encoder's layers are measured. The reference takes 16 Runge-Kutta steps of fourth order.
    Everything is computed in float64 on a copy of the model.
    """
    model = copy.deepcopy(model).to(device="cpu", dtype=torch.float64).eval()
    first = _Measured(model.source if isinstance(model, EncoderDecoder) else model, model.embedding)
    second = _Measured(model, model.embedding)
    n_tokens = sample.n_tokens + (0 if targets is None else targets.n_tokens)
    for low in range(0, len(sample), batch_sequences):
        rows = sample[low : low + batch_sequences]
        states = first.add(rows)
        if targets is not None:
            second.add(targets[low : low + batch_sequences], Memory(states, Layout.reading(rows.tokens, rows.mask)))
        if progress is not None:
            progress(first.n_tokens + second.n_tokens, n_tokens)
    return first.errors() if targets is None else [*first.errors(), *second.errors()]


class _Measured:
    """A stack's layers, and the distances of the tokens that it has read."""

    def __init__(self, body: Body, embedding: TokenEmbedding) -> None:
        self._body, self._embedding = body, embedding
        self._sums = torch.zeros(body.shape.n_layers, 4, dtype=torch.float64)
        self.n_tokens = 0

    def add(self, rows: Sample, memory: Memory | None = None) -> Float[Tensor, "B T D"]:
        """Read rows, and give their hidden states."""
        body, n_layers = self._body, self._body.shape.n_layers
        lay_out = Layout.causal if body.shape.is_causal else Layout.bidirectional
        layout = lay_out(rows.tokens, rows.mask, rows.document_ids)
        hidden = body.states(self._embedding, rows.tokens, layout, memory=memory, capture=range(n_layers + 1))
        states = hidden.captured
        real = torch.ones_like(rows.tokens, dtype=torch.bool) if rows.mask is None else rows.mask
        context = Context(layout, body.positions.rotation(layout, torch.float64), memory=memory)
        for layer in range(n_layers):
            before = body.positions.add(states[layer], layer, layout.positions) if layer else states[0]
            self._sums[layer] += _distances(body.stack.block(layer), before, states[layer + 1], context, real)
        self.n_tokens += rows.n_tokens
        return hidden.final

    def errors(self) -> list[LayerErrors]:
        """Give the means of all that was read."""
        means = (self._sums / self.n_tokens).tolist()
        return [
            LayerErrors(self._body.shape.name, layer, lie / way, strang / way, own / way, way)
            for layer, (lie, strang, own, way) in enumerate(means, start=1)
        ]


def _distances(
    block: Sequence[Sublayer], x: Tensor, own: Tensor, context: Context, real: Tensor
) -> Float[Tensor, " 4"]:
    """Sum over real tokens how far Lie, Strang and the layer itself end from the reference, and the reference's way."""
    attention, cross, network = (_field(block, kind, context) for kind in (Attention, CrossAttention, FeedForward))
    lie = strang = x

    def all_of(y: Tensor) -> Tensor:
        return attention(y) + cross(y) + network(y)

    reference = integrate(all_of, x, 1.0, n_steps=_REFERENCE_STEPS)
    for field in (attention, cross, network):
        lie = lie + field(lie)
    for field, step in ((network, 0.5), (attention, 1.0), (cross, 1.0), (network, 0.5)):
        strang = strang + step * field(strang)
    distances = [(end - reference)[real].norm(dim=1).sum() for end in (lie, strang, own)]
    return torch.stack([*distances, (reference - x)[real].norm(dim=1).sum()])


def _field(block: Sequence[Sublayer], kind: type, context: Context) -> Field:
    """Sum a block's sub-layers of a kind, steps and norms included; nothing where it has none."""
    sublayers = [sublayer for sublayer in block if isinstance(sublayer.function, kind)]

    def field(x: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for sublayer in sublayers:
            total = total + sublayer.step * sublayer.function(sublayer.norm(x), context)
        return total

    return field
