"""Paths of tokens through a stack, a step per sub-layer, and their plot.

Tokens are particles that move through the residual stream (Lu et al. 2019, 1906.02762, sec. 3): an
attention moves a token depending on all tokens, a feed-forward network depending on itself.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.config.recipe import ResolvedModel
from sublayer.errors import ConfigError
from sublayer.inspection.sample import Sample
from sublayer.model.blocks import Sublayer
from sublayer.model.context import Context, Memory
from sublayer.model.layers import TokenEmbedding
from sublayer.model.transformer import Body, EncoderDecoder, Transformer, evaluating
from sublayer.plot import MUTED, file_svg, look

_WIDTH, _HEIGHT, _ENTRY = 7.2, 4.6, 0.22  # inches of 72 units; an entry is a line of the legend
_COLUMNS = 2
_OFFSET = 3.0  # points, of a label from its token's end
_GAP = 1.0  # dots, between labels that are moved apart
_POINTS_PER_INCH = 72.0
_LEGS = {
    "positions": (look(5).placeholder, "vectors of positions"),
    "norm": (MUTED, "the norm behind a sub-layer"),
    "ffn": (look(2).placeholder, "network: each token by itself"),
    "cross": (look(7).placeholder, "attention to the source"),
    "attention": (look(1).placeholder, "attention: by all tokens that it sees"),
}
"""The colour and the name of each kind of step, in the order of drawing."""
_START, _END = "where a token starts", "where it ends"


@dataclass(frozen=True)
class Paths:
    """States of tokens in the residual stream, before the first step and after each."""

    stack: str
    """``encoder`` or ``decoder``."""
    steps: tuple[str, ...]
    """Kinds of the steps in the order of execution, those of shared blocks once per execution:
    ``attention``, ``cross`` or ``ffn``, as blocks name them; ``norm``, of one behind a sub-layer;
    ``positions``, of vectors that are added before a block but the first."""
    states: Float[Tensor, "M N D"]
    """Of N tokens, in float64 on the CPU; M is one more than there are steps."""


@dataclass(frozen=True)
class Panel:
    """Paths of a stack's tokens, projected on the plane of largest variance."""

    stack: str
    tokens: Sequence[str]
    """The texts of the tokens, [N]."""
    steps: Sequence[str]
    """The kind of each step, [M - 1]."""
    shares: tuple[float, float]
    """Of the states' variance along both axes."""
    coordinates: Sequence[Sequence[Sequence[float]]]
    """Of each state and token, [M, N, 2]."""


def check_steps(config: ResolvedModel, name: str) -> None:
    """Raise ConfigError where a model has no residual sub-layers."""
    if config.kind == "lstm":
        raise ConfigError(
            f"{name} is an LSTM, which has no sub-layers that add a step to a token's state: "
            "name a decoder, an encoder or an encoder-decoder"
        )


@torch.inference_mode()
def follow_tokens(model: Transformer, samples: Sequence[Sample], *, n_tokens: int) -> list[Paths]:
    """Follow the first ``n_tokens`` real tokens of a row through each stack.

    ``samples`` have one row: the input of a decoder or encoder; for an encoder-decoder the
    encoder's input and, optionally, the decoder's. All tokens of a row are read, however few are
    followed. The model has passed ``check_steps``; it computes in the dtype of its weights. An
    encoder reads its row as a first segment.

    The first state is the first block's input, the last is before the model's final norm. A norm
    after a sub-layer is a separate step.
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
    steps: list[str] = []
    states = [state(x)]
    for layer in range(body.shape.n_layers):
        for step, after in _moves(body, layer, x, context):
            steps.append(step)
            states.append(state(after))
            x = after
    return Paths(body.shape.name, tuple(steps), torch.stack(states))


def _moves(body: Body, layer: int, x: Tensor, context: Context) -> Iterator[tuple[str, Tensor]]:
    """Run a block, counted from 0; yield each step's kind and the stream after it."""
    if layer > 0:
        positioned = body.positions.add(x, layer, context.layout.positions)
        if positioned is not x:
            x = positioned
            yield "positions", x
    for entry, sublayer in zip(body.shape.block, body.stack.block(layer), strict=True):
        assert isinstance(sublayer, Sublayer), "the model was checked"
        x, _ = sublayer.add(x, context)
        yield entry.name, x
        if not sublayer.is_pre_norm and not isinstance(sublayer.norm, nn.Identity):
            x = sublayer.norm(x)
            yield "norm", x


def project(
    states: Float[Tensor, "*rows D"],
) -> tuple[Float[Tensor, "*rows 2"], tuple[float, float]]:
    """Project states on their first two principal components.

    Returns coordinates relative to the mean, and both axes' shares of the variance, the larger
    first; NaN where the variance is 0. The largest component of each axis is positive, so that
    coordinates are equal on every machine. Missing dimensions have coordinates 0.
    """
    rows = states.flatten(0, -2)
    centred = rows - rows.mean(0)
    _, lengths, directions = torch.linalg.svd(centred, full_matrices=False)
    axes = rows.new_zeros(2, rows.shape[1])
    variances = rows.new_zeros(2)
    for index in range(min(2, len(directions))):
        axis = directions[index]
        axes[index] = axis * axis[axis.abs().argmax()].sign()
        variances[index] = lengths[index].square()
    first, second = (variances / lengths.square().sum()).tolist()
    return (states - rows.mean(0)) @ axes.T, (first, second)


@dataclass(frozen=True)
class Box:
    """Position of a label, in any unit of length; y grows upwards."""

    left: float
    bottom: float
    right: float
    top: float

    def raised(self, height: float) -> "Box":
        """Return the box, raised."""
        return Box(self.left, self.bottom + height, self.right, self.top + height)

    def covers(self, other: "Box") -> bool:
        """Check whether the boxes overlap."""
        is_beside = self.right <= other.left or other.right <= self.left
        is_above = self.bottom >= other.top or other.bottom >= self.top
        return not (is_beside or is_above)


def raise_labels(boxes: Sequence[Box], *, gap: float) -> list[float]:
    """Compute by how much to raise each label so that none covers another.

    Labels are placed from the lowest to the highest; a free one stays, another is raised to
    ``gap``, more than 0, above all that it overlaps.
    """
    heights = [0.0] * len(boxes)
    placed: list[Box] = []
    order = sorted(range(len(boxes)), key=lambda index: (boxes[index].bottom, boxes[index].left))
    for index in order:
        box = boxes[index]
        # Each pass raises the label above all overlaps, so that none recurs.
        while in_the_way := [other for other in placed if other.covers(box)]:
            top = max(other.top for other in in_the_way)
            heights[index] += top - box.bottom + gap
            box = boxes[index].raised(heights[index])
        placed.append(box)
    return heights


def draw_paths(panels: Sequence[Panel], titles: Sequence[str]) -> str:
    """Plot the token paths of each panel, steps styled by kind; return the SVG text.

    Titles may be empty. A ring marks the start of a path, a dot its end. Both axes of a panel have
    one scale; panels have independent axes.
    """

    def draw(figure: Any) -> None:
        figure.get_layout_engine().set(h_pad=0.12)
        all_axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
        lines: dict[str, Any] = {}
        for axes, panel, title in zip(all_axes, panels, titles, strict=True):
            axes.set_title(title, loc="left", fontsize=10.0, parse_math=False)
            lines |= _draw_panel(axes, panel)
        names = [
            name for name in (*(name for _, name in _LEGS.values()), _START, _END) if name in lines
        ]
        height = _ENTRY * math.ceil(len(names) / _COLUMNS)
        figure.set_size_inches(_WIDTH, _HEIGHT * len(panels) + height)
        handles = [lines[name] for name in names]
        figure.legend(handles, names, loc="outside upper left", ncols=_COLUMNS)
        # Labels are placed last, when the layout is fixed.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for axes in all_axes:
            _move_apart(axes.texts, figure.dpi)

    return file_svg(draw, (_WIDTH, _HEIGHT), "The paths of tokens through the sub-layers")


def _draw_panel(axes: Any, panel: Panel) -> dict[str, Any]:
    """Draw the paths of a stack with the names of its tokens; return a line for each entry.

    A line connects a moved label to the end of its path.
    """
    drawn = {}
    states = np.array(panel.coordinates)  # [M, N, 2]
    for kind, (colour, name) in _LEGS.items():
        steps = np.flatnonzero(np.array(panel.steps) == kind)
        if len(steps):
            gaps = np.full_like(states[steps], np.nan)
            legs = np.stack([states[steps], states[steps + 1], gaps], axis=2)  # [K, N, 3, 2]
            (drawn[name],) = axes.plot(*legs.reshape(-1, 2).T, color=colour, linewidth=1.1)
    ring = {"color": MUTED, "markerfacecolor": "none"}
    (drawn[_START],) = axes.plot(*states[0].T, "o", zorder=3, **ring)
    ink = look(0).placeholder
    (drawn[_END],) = axes.plot(*states[-1].T, "o", zorder=4, color=ink, markersize=2.6)
    line = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.5, "shrinkA": 0.0, "shrinkB": 0.0}
    at = {"xytext": (_OFFSET, _OFFSET), "textcoords": "offset points", "arrowprops": line}
    for token, end in zip(panel.tokens, states[-1], strict=True):
        # A $ in a token must not begin a formula.
        axes.annotate(token, end, **at, fontsize=8.0, parse_math=False, zorder=5)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.08)
    first, second = panel.shares
    axes.set_xlabel(f"{panel.stack}, first component: {first:.0%} of the variance")
    axes.set_ylabel(f"second: {second:.0%}")
    return drawn


def _move_apart(labels: Sequence[Any], dots_per_inch: float) -> None:
    from matplotlib.text import Text

    # Without their lines, in dots.
    extents = [Text.get_window_extent(label) for label in labels]
    boxes = [Box(extent.x0, extent.y0, extent.x1, extent.y1) for extent in extents]
    for label, height in zip(labels, raise_labels(boxes, gap=_GAP), strict=True):
        label.xyann = (_OFFSET, _OFFSET + height * _POINTS_PER_INCH / dots_per_inch)
