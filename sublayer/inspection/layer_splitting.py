"""Splitting errors of a trained model's layers: Lie's and Strang's step against the true flow."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from sublayer.inspection.layer_flows import LayerFlow, is_on_sphere
from sublayer.inspection.sample import Sample
from sublayer.model.body import Body
from sublayer.model.context.context import Memory
from sublayer.model.context.layout import Layout
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.layers.block import Sublayer
from sublayer.model.layers.embedding import TokenEmbedding
from sublayer.model.transformer import Transformer


@dataclass(frozen=True)
class LayerErrors:
    """Errors of an executed layer, from 1, as shares of the distance that its flow covers.

    All distances are L2, and means over tokens; a share is a ratio of two such means, NaN where
    the flow covers no distance.
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
    on the CPU. Returned are the encoder's layers first, each stack's in the order of execution; of
    post-norm models without the first layer of each stack, whose input no norm behind has normed.
    """
    # Errors are small differences of large states, of which float32 keeps few digits.
    model = copy.deepcopy(model).to(device="cpu", dtype=torch.float64).eval()
    source_body = model.source if isinstance(model, EncoderDecoder) else model
    # What enters the first layer is on no sphere of the norms behind.
    first_layer = 1 if is_on_sphere(model.config) else 0
    reader = _Measured(source_body, model.embedding, first_layer)
    writer = _Measured(model, model.embedding, first_layer)
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

    def __init__(self, body: Body, embedding: TokenEmbedding, first_layer: int) -> None:
        self._body = body
        self._embedding = embedding
        self._layers = range(first_layer, body.shape.n_layers)
        self._sums = torch.zeros(body.shape.n_layers, 4, dtype=torch.float64)
        self.n_tokens = 0

    def add(self, rows: Sample, memory: Memory | None = None) -> Float[Tensor, "B T D"]:
        """Compute the hidden states of rows, and add each layer's distances to the sums."""
        body = self._body
        n_layers = body.shape.n_layers
        layout = rows.layout(body.shape)
        every_state = range(n_layers + 1)
        hidden = body.states(
            self._embedding, rows.tokens, layout, memory=memory, capture=every_state
        )
        states = hidden.captured
        context = body.context(layout, torch.float64, memory)
        real = rows.is_real
        for layer in self._layers:
            before = states[layer]
            after = states[layer + 1]
            # What enters the first block was captured with its positions.
            if layer > 0:
                before = body.positions.add(before, layer, layout.positions)
            block = [each for each in body.stack.block(layer) if isinstance(each, Sublayer)]
            flow = LayerFlow(block, context)
            self._sums[layer] += _distances(flow, before, after, real)
        self.n_tokens += rows.n_tokens
        return hidden.final

    def errors(self) -> list[LayerErrors]:
        """Return the means over all tokens that were read."""
        means = (self._sums / self.n_tokens).tolist()
        errors = []
        for layer in self._layers:
            lie, strang, own, way = means[layer]
            of_layer = LayerErrors(
                stack=self._body.shape.name,
                layer=layer + 1,
                lie=_share(lie, way),
                strang=_share(strang, way),
                own=_share(own, way),
                way=way,
            )
            errors.append(of_layer)
        return errors


def _distances(flow: LayerFlow, x: Tensor, own: Tensor, real: Tensor) -> Float[Tensor, " 4"]:
    """Sum the errors of Lie, Strang and the layer, and the reference's distance, over tokens."""
    reference = flow.follow(x)
    distances = []
    for end in (flow.lie(x), flow.strang(x), own, x):
        differences = (end - reference)[real]  # [N, D]
        distances.append(differences.norm(dim=1).sum())
    return torch.stack(distances)


def _share(distance: float, way: float) -> float:
    return distance / way if way > 0.0 else math.nan
