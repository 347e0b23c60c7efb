"""Splitting errors of a trained model's layers: Lie's and Strang's step against the true flow.

A pre-norm layer is a step of size 1 of ``dx/dt = F(x) + G(x)``, where F sums its attention
sub-layers and G its feed-forward networks, norms and step sizes included (Lu et al. 2019, sec. 3).
F and G are the layer's own, so both schemes and the reference are of one equation, whichever the
layer was trained as. A translator's decoder has a third flow, its attention to the source, which
both schemes follow after the first; what it reads there stands still.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from sublayer.errors import ConfigError
from sublayer.inspection.sample import Sample
from sublayer.inspection.splitting_problems import integrate
from sublayer.model.body import Body
from sublayer.model.context.context import Context, Memory
from sublayer.model.context.layout import Layout
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.layers.attention import Attention, CrossAttention
from sublayer.model.layers.block import Sublayer
from sublayer.model.layers.embedding import TokenEmbedding
from sublayer.model.layers.feedforward import FeedForward
from sublayer.model.transformer import Transformer

_REFERENCE_STEPS = 16
Field = Callable[[Tensor], Tensor]
"""``F(x)`` of ``dx/dt = F(x)``: what a layer adds to the states ``[B, T, D]`` in a unit of time."""


@dataclass(frozen=True)
class LayerErrors:
    """Errors of an executed layer, from 1, as shares of the distance that its flow covers.

    All distances are L2, and means over tokens; a share is a ratio of two such means.
    """

    stack: str
    """``encoder`` or ``decoder``."""
    layer: int
    lie: float
    """Distance between the end of Lie's step and the reference's, as a share of ``way``."""
    strang: float
    """The same of Strang's step."""
    own: float
    """The same of the layer's own output."""
    way: float
    """Distance from the layer's input to where its flows lead in a unit of time."""


def check_flows(model: Transformer, name: str) -> None:
    """Raise ConfigError where a model's layers are no steps of a flow.

    They are not where they end in a norm, nor where they add nothing to their input.
    """
    if model.config.kind == "lstm":
        raise ConfigError(
            f"{name} is an LSTM, whose layers replace their input and add nothing to it: only "
            "blocks are steps of a flow; name a pre-norm decoder, encoder or encoder-decoder"
        )
    if model.config.norm_order == "post" and model.config.norm != "none":
        raise ConfigError(
            f"{name} has model.norm_order = post: "
            "a layer that ends in a norm is no step of a flow; name a pre-norm one"
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
    """Compare each layer's Lie, Strang and own step with a fine integration of its flow.

    Of a translator ``sample`` are sources, which its encoder reads; ``targets`` are what its
    decoder reads beside each, without which only the encoder's layers are measured.
    ``batch_sequences`` rows are computed at a time, which changes speed and memory only;
    ``progress`` is called with the tokens done and the tokens in all. The model is one that
    ``check_flows`` lets pass.

    Lie's and Strang's steps have Euler sub-steps, as residual sub-layers are. The reference takes
    16 Runge-Kutta steps of fourth order. Everything is computed in float64 on a copy of the model,
    on the CPU. Returned are the encoder's layers first, each stack's in the order of execution.
    """
    # Errors are small differences of large states, of which float32 keeps few digits.
    model = copy.deepcopy(model).to(device="cpu", dtype=torch.float64).eval()
    source_body = model.source if isinstance(model, EncoderDecoder) else model
    reader = _Measured(source_body, model.embedding)
    writer = _Measured(model, model.embedding)
    n_tokens = sample.n_tokens
    if targets is not None:
        n_tokens += targets.n_tokens
    for low in range(0, len(sample), batch_sequences):
        high = low + batch_sequences
        rows = sample[low:high]
        states = reader.add(rows)
        if targets is not None:
            memory = Memory(states, Layout.reading(rows.tokens, rows.mask))
            writer.add(targets[low:high], memory)
        if progress is not None:
            progress(reader.n_tokens + writer.n_tokens, n_tokens)
    if targets is None:
        return reader.errors()
    return [*reader.errors(), *writer.errors()]


class _Measured:
    """A stack's layers, and the distances of the tokens that it has read."""

    def __init__(self, body: Body, embedding: TokenEmbedding) -> None:
        self._body = body
        self._embedding = embedding
        self._sums = torch.zeros(body.shape.n_layers, 4, dtype=torch.float64)
        self.n_tokens = 0

    def add(self, rows: Sample, memory: Memory | None = None) -> Float[Tensor, "B T D"]:
        """Compute the hidden states of rows, and add each layer's distances to the sums."""
        body = self._body
        n_layers = body.shape.n_layers
        lay_out = Layout.causal if body.shape.is_causal else Layout.bidirectional
        layout = lay_out(rows.tokens, rows.mask, rows.document_ids)
        every_state = range(n_layers + 1)
        hidden = body.states(
            self._embedding, rows.tokens, layout, memory=memory, capture=every_state
        )
        states = hidden.captured
        context = body.context(layout, torch.float64, memory)
        real = rows.is_real
        for layer in range(n_layers):
            before = states[layer]
            after = states[layer + 1]
            # What enters the first block was captured with its positions.
            if layer > 0:
                before = body.positions.add(before, layer, layout.positions)
            block = [each for each in body.stack.block(layer) if isinstance(each, Sublayer)]
            self._sums[layer] += _distances(block, before, after, context, real)
        self.n_tokens += rows.n_tokens
        return hidden.final

    def errors(self) -> list[LayerErrors]:
        """Return the means over all tokens that were read."""
        means = (self._sums / self.n_tokens).tolist()
        errors = []
        for layer, (lie, strang, own, way) in enumerate(means, start=1):
            of_layer = LayerErrors(
                stack=self._body.shape.name,
                layer=layer,
                lie=lie / way,
                strang=strang / way,
                own=own / way,
                way=way,
            )
            errors.append(of_layer)
        return errors


def _distances(
    block: Sequence[Sublayer], x: Tensor, own: Tensor, context: Context, real: Tensor
) -> Float[Tensor, " 4"]:
    """Sum the errors of Lie, Strang and the layer, and the reference's distance, over tokens."""
    attention = _field(block, Attention, context)
    cross = _field(block, CrossAttention, context)
    network = _field(block, FeedForward, context)

    def all_of(y: Tensor) -> Tensor:
        return attention(y) + cross(y) + network(y)

    reference = integrate(all_of, x, 1.0, n_steps=_REFERENCE_STEPS)
    lie = x
    for field in (attention, cross, network):
        lie = lie + field(lie)
    strang = x
    halved = ((network, 0.5), (attention, 1.0), (cross, 1.0), (network, 0.5))
    for field, step in halved:
        strang = strang + step * field(strang)
    distances = []
    for end in (lie, strang, own, x):
        differences = (end - reference)[real]  # [N, D]
        distances.append(differences.norm(dim=1).sum())
    return torch.stack(distances)


def _field(block: Sequence[Sublayer], kind: type, context: Context) -> Field:
    """Sum a block's sub-layers of a kind, steps and norms included; nothing where it has none."""
    sublayers = [sublayer for sublayer in block if isinstance(sublayer.function, kind)]

    def field(x: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for sublayer in sublayers:
            output = sublayer.function(sublayer.norm(x), context)
            total = total + sublayer.step_size * output
        return total

    return field
