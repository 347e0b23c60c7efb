"""The paths of tokens through a stack: where each stands after each step of a sub-layer.

Tokens are particles that move through the residual stream (Lu et al. 2019, 1906.02762, sec. 3): an
attention moves each by what all of them are, a feed-forward network each by itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.config.resolved import ResolvedModel
from sublayer.errors import ConfigError
from sublayer.inspection.plane import Plane
from sublayer.inspection.sample import Sample
from sublayer.model.body import Body
from sublayer.model.context.context import Context, Memory
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.eval_mode import evaluating
from sublayer.model.layers.block import Sublayer
from sublayer.model.layers.embedding import TokenEmbedding
from sublayer.model.transformer import Transformer


@dataclass(frozen=True)
class Step:
    """What moves all tokens at once."""

    layer: int
    """The executed block that it belongs to, from 1."""
    kind: str
    """``attention``, ``cross`` or ``ffn``, as blocks name them; ``norm``, of one behind a
    sub-layer; ``positions``, of vectors that are added before a block but the first."""
    name: str
    """The sub-layer as a block has it, with its step size, such as ``ffn:gelu*0.5``; else the kind.
    """


@dataclass(frozen=True)
class Paths:
    """The states of tokens in the residual stream: before all steps, and after each."""

    stack: str
    """``encoder`` or ``decoder``."""
    steps: tuple[Step, ...]
    """In the order of execution; those of blocks that share weights all count."""
    states: Float[Tensor, "M N D"]
    """Of N tokens, in float64 on the CPU; M is one more than there are steps."""


@dataclass(frozen=True)
class Motion:
    """What a step does to all tokens; lengths are L2, in the space of the states."""

    length: float
    """Mean distance that a token moves."""
    in_plane: float
    """Share of the squared distances that lies in the plane; NaN where no token moves."""
    spread: float
    """Root mean square of the tokens' distances from their mean, after the step."""


def check_steps(config: ResolvedModel, name: str) -> None:
    """Raise ConfigError where a model has no residual sub-layers whose steps move tokens."""
    if config.kind == "lstm":
        raise ConfigError(
            f"{name} is an LSTM, which has no sub-layers that add a step to a token's state: "
            "name a decoder, an encoder or an encoder-decoder"
        )


@torch.inference_mode()
def follow_tokens(model: Transformer, samples: Sequence[Sample], *, n_tokens: int) -> list[Paths]:
    """Follow the first ``n_tokens`` real tokens of a row through each stack that reads one.

    ``samples`` have a row each: what a decoder or an encoder reads; of an encoder-decoder what its
    encoder reads and, unless it is left out, what its decoder reads beside it. All tokens of a row
    are read, however few are followed. The model is one that ``check_steps`` lets pass; it computes
    in the type of its weights. An encoder reads its row as a first segment.

    The first state is what enters the first block, the last is before the model's final norm. A
    norm behind a sub-layer is a step of its own.
    """
    device = next(model.parameters()).device
    rows = [sample.to(device) for sample in samples]
    source = model.source if isinstance(model, EncoderDecoder) else model
    with evaluating(model):
        paths = [_follow(source, model.embedding, rows[0], n_tokens)]
        if len(rows) > 1:
            assert isinstance(model, EncoderDecoder), "two rows are of two stacks"
            memory = model.encode(rows[0].tokens, rows[0].mask, rows[0].document_ids)
            paths.append(_follow(model, model.embedding, rows[1], n_tokens, memory))
    return paths


def _follow(
    body: Body, embedding: TokenEmbedding, row: Sample, n_tokens: int, memory: Memory | None = None
) -> Paths:
    assert len(row) == 1, "paths are of one row"
    layout = row.layout(body.shape)
    body.positions.check(layout)
    followed = row.is_real[0].nonzero()[:n_tokens, 0]  # [N]

    def state(x: Tensor) -> Tensor:
        return x[0, followed].cpu().double()  # [N, D]

    x = body.enter(embedding, row.tokens, layout.positions)
    context = body.context(layout, x.dtype, memory)
    steps: list[Step] = []
    states = [state(x)]
    for layer in range(body.shape.n_layers):
        for step, after in _moves(body, layer, x, context):
            steps.append(step)
            states.append(state(after))
            x = after
    return Paths(body.shape.name, tuple(steps), torch.stack(states))


def _moves(body: Body, layer: int, x: Tensor, context: Context) -> Iterator[tuple[Step, Tensor]]:
    """Run a block, counted from 0, and yield each of its steps with the stream after it."""
    number = layer + 1
    if layer > 0:
        positioned = body.positions.add(x, layer, context.layout.positions)
        if positioned is not x:
            x = positioned
            yield Step(number, "positions", "positions"), x
    for entry, sublayer in zip(body.shape.block, body.stack.block(layer), strict=True):
        assert isinstance(sublayer, Sublayer), "the model was checked"
        x = sublayer.add(x, context)
        yield Step(number, entry.name, str(entry)), x
        if not sublayer.is_pre_norm and not isinstance(sublayer.norm, nn.Identity):
            x = sublayer.norm(x)
            yield Step(number, "norm", "norm"), x


def measure_motions(states: Float[Tensor, "M N D"], plane: Plane) -> list[Motion]:
    """Measure what each step does, from the states before and after it."""
    motions = []
    for before, after in pairwise(states):
        moved = after - before  # [N, D]
        length = float(moved.norm(dim=1).mean())
        motions.append(Motion(length, plane.share_within(moved), measure_spread(after)))
    return motions


def measure_spread(states: Float[Tensor, "N D"]) -> float:
    """Compute the root mean square of tokens' distances from their mean."""
    distances = (states - states.mean(0)).norm(dim=1)
    return float(distances.square().mean().sqrt())
