"""Splitting errors of a trained model's layers: Lie's and Strang's step against the true flow.

A pre-norm layer is a step of size 1 of ``dx/dt = F(x) + G(x)``, where F sums its attention
sub-layers and G its feed-forward networks, norms and step sizes included (Lu et al. 2019, sec. 3).
F and G are the trained layer's, so that schemes and flow belong to one equation, whichever scheme
the layer was trained with. A translator's decoder has a third flow, cross-attention to a constant
source, which both schemes follow after the first.

A post-norm layer whose norms N have no gains is a step on the sphere of the fixed points of N:
``N(x + F(x))`` is an Euler step of ``dx/dt = P F(x)``, where P, the derivative of N, projects on
the tangent space. It holds up to the norm's eps. With gains N is not the identity on normed states,
a step of size 0 is not the identity, and there is no such equation.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.config.model import POSITIONS
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import stacks
from sublayer.errors import ConfigError
from sublayer.inspection.sample import Sample
from sublayer.inspection.splitting import integrate
from sublayer.model.blocks import Attention, CrossAttention, FeedForward, Function, Sublayer
from sublayer.model.context import Context, Layout, Memory
from sublayer.model.layers import LayerNorm, TokenEmbedding
from sublayer.model.transformer import Body, EncoderDecoder, Transformer
from sublayer.plot import dots, look, panels_svg

_REFERENCE_STEPS = 16
Kind = type[Function]
"""A kind of sub-layer, of which a layer may have several."""
_KINDS: tuple[Kind, ...] = (Attention, CrossAttention, FeedForward)


def check_flows(config: ResolvedModel, name: str) -> None:
    """Raise ConfigError where a model's layers are not measurable steps of a flow."""
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
    """Check whether a norm follows each step, so that states lie on a sphere."""
    return config.norm_order == "post" and config.norm != "none"


class LayerFlow:
    """A layer's sub-layers and norms in continuous time, for one batch.

    A field is the derivative of states ``[B, T, D]`` due to one kind of sub-layer.
    """

    def __init__(self, block: Sequence[Sublayer], context: Context) -> None:
        self._context = context
        by_kind: dict[Kind, list[Sublayer]] = {}
        for kind in _KINDS:
            sublayers = [sublayer for sublayer in block if isinstance(sublayer.function, kind)]
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
        """Take Lie's step: an Euler step of each field, the feed-forward network's last."""
        return self._steps(x, [(kind, 1.0) for kind in self._by_kind])

    def strang(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Take Strang's step: the others between two half steps of the feed-forward network."""
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
        for sublayer in self._by_kind[kind]:
            normed = sublayer.norm(x) if sublayer.is_pre_norm else x
            total = total + sublayer.step_size * sublayer.function(normed, self._context)
        return total

    def _velocity(self, x: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for kind in self._by_kind:
            total = total + self._field(kind, x)
        if self._norm is None:
            return total
        if isinstance(self._norm, LayerNorm):
            total = total - total.mean(-1, keepdim=True)
        # A component along the state would leave the sphere.
        along = (total * x).sum(-1, keepdim=True) / x.square().sum(-1, keepdim=True)
        return total - along * x


@dataclass(frozen=True)
class LayerErrors:
    """Errors of an executed layer, numbered from 1, relative to the distance of its flow.

    Distances are L2, averaged over tokens; an error is a ratio of two averages, NaN where the
    flow's is 0.
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
    """Compare each layer's step, and Lie's and Strang's, with a fine integration of its flow.

    For a translator ``sample`` holds sources and ``targets`` the decoder's inputs; without them
    only the encoder's layers are measured. ``batch_sequences``, the rows per batch, changes speed
    and memory only; ``progress`` receives the tokens done and the total. The model has passed
    ``check_flows``.

    Lie's and Strang's steps have Euler sub-steps, as residual sub-layers are. The reference takes
    16 Runge-Kutta steps of fourth order. Everything is computed in float64 on a copy of the model,
    on the CPU. Returns the encoder's layers first, in the order of execution; for post-norm models
    without the first layer of each stack, whose input is not normed.
    """
    # Small differences of large states have few digits in float32.
    model = copy.deepcopy(model).to(device="cpu", dtype=torch.float64).eval()
    source_body = model.source if isinstance(model, EncoderDecoder) else model
    # The first layer's input is not on the norms' sphere.
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
    """A stack's layers, with summed distances over tokens."""

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
            # The first block's captured input contains its positions.
            if layer > 0:
                before = body.positions.add(before, layer, layout.positions)
            modules = body.stack.block(layer)
            block = [module for module in modules if isinstance(module, Sublayer)]
            flow = LayerFlow(block, context)
            self._sums[layer] += _distances(flow, before, after, real)
        self.n_tokens += rows.n_tokens
        return hidden.final

    def errors(self) -> list[LayerErrors]:
        """Return the means over all tokens."""
        means = (self._sums / self.n_tokens).tolist()
        errors = []
        for layer in self._layers:
            lie, strang, output, way = means[layer]
            of_layer = LayerErrors(
                stack=self._body.shape.name,
                layer=layer + 1,
                lie=_share(lie, way),
                strang=_share(strang, way),
                own=_share(output, way),
                way=way,
            )
            errors.append(of_layer)
        return errors


def _distances(flow: LayerFlow, x: Tensor, output: Tensor, real: Tensor) -> Float[Tensor, " 4"]:
    """Sum the errors of Lie, Strang and the layer, and the reference's distance, over tokens."""
    reference = flow.follow(x)
    distances = []
    for end in (flow.lie(x), flow.strang(x), output, x):
        differences = (end - reference)[real]  # [N, D]
        distances.append(differences.norm(dim=1).sum())
    return torch.stack(distances)


def _share(distance: float, way: float) -> float:
    return distance / way if way > 0.0 else math.nan


_HEIGHT = 3.0  # inches of 72 units
_SCHEMES = {"lie": "Lie", "strang": "Strang"}


def draw_layers(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Plot both schemes' errors of each layer of each run, a panel per stack; return the SVG.

    ``runs`` maps names to the fields of ``LayerErrors`` of every layer. Panels share the axis of
    relative errors, from 0.
    """
    # Each stack once, in order of appearance.
    stacks = list(dict.fromkeys(layer["stack"] for layers in runs.values() for layer in layers))

    def fill(panels: Any) -> Mapping[str, Any]:
        lines: dict[str, Any] = {}
        for name, layers in runs.items():
            for quantity, scheme in _SCHEMES.items():
                style = look(len(lines))
                # The legend shows one panel's lines for all.
                for axes, stack in zip(panels, stacks, strict=True):
                    sub = [layer for layer in layers if layer["stack"] == stack]
                    numbers, values = ([layer[key] for layer in sub] for key in ("layer", quantity))
                    lines[f"{name}: {scheme}"] = dots(axes, numbers, values, style)
        for axes, stack in zip(panels, stacks, strict=True):
            axes.set_xlabel(f"layer of the {stack}")
            axes.set_ylim(bottom=0.0)
            axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        panels[0].set_ylabel("error, fraction of the way")
        return lines

    title = "How far layers are from following their own flows"
    return panels_svg(fill, len(stacks), _HEIGHT, title, is_shared=True)
