"""Hidden states of a sampled text: their change by each block, and their paths through sub-layers.

Tokens are particles that move through the residual stream (Lu et al. 2019, 1906.02762, sec. 3): an
attention moves a token depending on all tokens, a feed-forward network depending on itself.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sublayer.config.model import SUBLAYERS
from sublayer.config.stacks import StackShape, is_one_block
from sublayer.data.batches import PackedBatch
from sublayer.data.span import ScoredPieces, corrupted_batch
from sublayer.data.store import Split
from sublayer.data.translation_batches import TranslationBatches
from sublayer.errors import DataError
from sublayer.files.arrays import AnyInts, Floats, Ints
from sublayer.inspection.layer_change import LayerChange, Spread
from sublayer.model.blocks import Sublayer
from sublayer.model.context import Context, Layout, Memory
from sublayer.model.layers import TokenEmbedding
from sublayer.model.transformer import Body, EncoderDecoder, Transformer, evaluating
from sublayer.plot import MUTED, file_svg, look


@dataclass(frozen=True)
class Sample:
    """A batch of token rows, right-padded."""

    tokens: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"] | None = None
    """True at real tokens; None where all are."""
    document_ids: Int[Tensor, "B T"] | None = None
    """Document numbers that attention and positions must not cross; None: they may cross all."""

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def __getitem__(self, rows: slice) -> "Sample":
        """Return rows, without all-padding columns."""
        width = self.tokens.shape[1]
        if self.mask is not None:
            width = int(self.mask[rows].any(0).nonzero().max()) + 1
        return self._each(lambda values: values[rows, :width])

    def to(self, device: torch.device) -> "Sample":
        """Copy to a device."""
        return self._each(lambda values: values.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Sample":
        """Map the tokens, and the mask and document ids if present."""
        mask, ids = (
            None if values is None else change(values) for values in (self.mask, self.document_ids)
        )
        return Sample(change(self.tokens), mask, ids)

    @property
    def n_tokens(self) -> int:
        """Total number of real tokens."""
        if self.mask is None:
            return self.tokens.numel()
        return int(self.mask.sum())

    @property
    def is_real(self) -> Bool[Tensor, "B T"]:
        """True at real tokens; never None."""
        if self.mask is None:
            return torch.ones_like(self.tokens, dtype=torch.bool)
        return self.mask

    def layout(self, shape: StackShape) -> Layout:
        """Lay out the rows as a stack of this shape reads them."""
        lay_out = Layout.causal if shape.is_causal else Layout.bidirectional
        return lay_out(self.tokens, self.mask, self.document_ids)


def spread_windows(
    split: Split, *, context: int, max_tokens: int, respect_boundaries: bool = False
) -> Sample:
    """Take evenly spread windows of ``context`` tokens, without overlap, in the order of the text.

    At least one window; more have at most ``max_tokens`` tokens in total. They lack the special
    tokens that some encoders expect. ``respect_boundaries`` keeps attention and positions inside
    documents.

    Raises DataError where the text is shorter than a window.
    """
    n_whole = len(split.ids) // context
    if n_whole == 0:
        raise DataError(
            f"{' and '.join(split.sources)} gives {len(split.ids):,} tokens, "
            f"fewer than a window of {context:,}: "
            "give a longer text"
        )
    n_windows = min(n_whole, max(1, max_tokens // context))
    starts = _spread(n_whole, n_windows) * context  # [B]
    positions = starts[:, None] + np.arange(context)  # [B, T]
    ids = np.asarray(split.ids[positions], dtype=np.int64)
    tokens = torch.from_numpy(ids)
    if not respect_boundaries:
        return Sample(tokens)
    numbers = np.searchsorted(split.document_starts, positions, side="right")
    document_ids = torch.from_numpy(numbers.astype(np.int64))
    return Sample(tokens, document_ids=document_ids)


def spread_pairs(batches: TranslationBatches, *, max_tokens: int) -> tuple[Sample, Sample]:
    """Take evenly spread pairs, at least one, of about ``max_tokens`` on both sides.

    Returns sources with their ends, and decoder inputs: the first token, and the target without its
    end. Shortest pairs come first, so that batches have little padding.
    """
    lengths = batches.lengths.sum(1)  # [N], of both sides
    chosen = _spread_by_length(lengths, max_tokens)
    return _both_sides(batches.pairs(chosen))


def corrupted_rows(pieces: ScoredPieces) -> tuple[Sample, Sample]:
    """Take all pieces of a text, with their gaps, and the decoder inputs.

    A decoder input is the first token, and the target without its end.
    """
    return _both_sides(corrupted_batch(pieces.split, [pieces.pieces], pieces.rule))


def _both_sides(batch: PackedBatch) -> tuple[Sample, Sample]:
    assert batch.written is not None, "a decoder writes"
    read = Sample(batch.read.tokens, batch.read.mask)
    return read, Sample(batch.written.tokens, batch.written.mask)


def spread_rows(rows: Sequence[AnyInts], *, pad_id: int, max_tokens: int) -> Sample:
    """Take evenly spread rows, at least one, of about ``max_tokens``, the shortest first.

    Rows are right-padded with ``pad_id`` to the longest.
    """
    all_lengths = np.array([len(row) for row in rows])
    indices = _spread_by_length(all_lengths, max_tokens)  # [B]
    lengths = all_lengths[indices]
    width = lengths.max()
    tokens = np.full((len(indices), width), pad_id, dtype=np.int64)  # [B, T]
    for row_number, index in enumerate(indices.tolist()):
        tokens[row_number, : lengths[row_number]] = rows[index]
    is_real = np.arange(width) < lengths[:, None]  # [B, T]
    mask = None if is_real.all() else torch.from_numpy(is_real)
    return Sample(torch.from_numpy(tokens), mask)


def _spread_by_length(lengths: Ints, max_tokens: int) -> Ints:
    """Choose evenly spread items of about ``max_tokens`` in total, shortest first."""
    n_wanted = int(max_tokens / lengths.mean())
    n_chosen = min(len(lengths), max(1, n_wanted))
    chosen = _spread(len(lengths), n_chosen)
    by_length = np.argsort(lengths[chosen], kind="stable")
    return chosen[by_length]


def _spread(n_items: int, n_chosen: int) -> Ints:
    return np.arange(n_chosen) * n_items // n_chosen


def measure_layers(
    model: Transformer,
    sample: Sample,
    *,
    batch_sequences: int,
    beyond: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[LayerChange]:
    """Compare input and output of every executed block over a sample's real tokens.

    A block's input includes position vectors added before it; its output is taken after the norm of
    a post-norm block, before the model's final norm. Blocks that share weights all count. An
    encoder reads its rows as first segments. The single block of a model (``is_one_block``) is
    executed ``beyond`` more times, on its last output. ``batch_sequences``, the rows per batch,
    changes speed and memory only; ``progress`` receives the tokens done and the total.

    Blocks compute in the dtype of the weights, the comparison in float64; a state of 0 has no
    angle, and makes the block's NaN. Source: Lan et al. 2020 (1909.11942), sec. 3.1 and Fig. 1,
    which do not name the text; the angle is averaged over tokens, not computed from the mean
    cosine. Departure: executions beyond the model's blocks, which the figure lacks.
    """
    assert beyond == 0 or is_one_block(model.config), "only a shared block runs further"
    device = next(model.parameters()).device
    batches: list[list[Floats]] = []  # by batch and block, [5, N]
    n_done = 0
    n_layers = model.config.n_layers
    with evaluating(model), torch.inference_mode():
        for low in range(0, len(sample), batch_sequences):
            high = low + batch_sequences
            rows = sample[low:high].to(device)
            layout = rows.layout(model.shape)
            states = model.hidden(rows.tokens, layout, capture=range(n_layers + 1)).captured
            real = rows.is_real
            compared = []  # of each block, [5, N]
            for layer in range(n_layers):
                before = states[layer]
                # What enters the first block was captured with its positions.
                if layer > 0:
                    before = model.positions.add(before, layer, layout.positions)
                compared.append(compare_states(before[real], states[layer + 1][real]))
            x = states[n_layers]
            context = model.context(layout, x.dtype)
            if beyond:
                context = model.stack.after_first(states[0], context)
            for layer in range(beyond):
                before = x
                x, _ = model.stack.run_block(layer % n_layers, x, context)
                compared.append(compare_states(before[real], x[real]))
            batches.append([values.cpu().numpy() for values in compared])
            n_done += rows.n_tokens
            if progress is not None:
                progress(n_done, sample.n_tokens)
    changes = []
    layers = zip(*batches, strict=True)
    for layer, of_batches in enumerate(layers, start=1):
        values = np.concatenate(of_batches, axis=1)  # [5, all tokens]
        spreads = []
        for row in values:
            lower, median, upper = np.quantile(row, (0.25, 0.5, 0.75)).tolist()
            spreads.append(Spread(float(row.mean()), (lower, median, upper)))
        is_beyond = layer > n_layers
        changes.append(LayerChange(layer, *spreads, is_beyond=is_beyond))
    return changes


def compare_states(
    before: Float[Tensor, "N D"], after: Float[Tensor, "N D"]
) -> Float[Tensor, "5 N"]:
    """Compute the quantities of ``LayerChange`` for each token, in its order, in float64.

    A state of 0 has no direction: its cosine and its angle are NaN.
    """
    before = before.double()
    after = after.double()
    norm_in = before.norm(dim=1)  # [N], like all quantities
    norm_out = after.norm(dim=1)
    unit_in = before / norm_in[:, None]
    unit_out = after / norm_out[:, None]
    distance = (after - before).norm(dim=1)
    product = (unit_in * unit_out).sum(1)
    cosine = product.clamp(-1.0, 1.0)
    # The arc cosine would lose small angles to rounding.
    half_sine = (unit_in - unit_out).norm(dim=1)
    half_cosine = (unit_in + unit_out).norm(dim=1)
    angle = 2.0 * torch.atan2(half_sine, half_cosine)
    return torch.stack([distance, cosine, angle.rad2deg(), norm_in, norm_out])


_WIDTH, _HEIGHT, _ENTRY = 7.2, 4.6, 0.22  # inches of 72 units; an entry is a line of the legend
_COLUMNS = 2
_OFFSET = 3.0  # points, of a label from its token's end
_GAP = 1.0  # dots, between labels that are moved apart
_POINTS_PER_INCH = 72.0
_LEGS = {
    "positions": (look(5).placeholder, "vectors of positions"),
    "norm": (MUTED, "the norm behind a sub-layer"),
    "nothing": (look(2).placeholder, "network: each token by itself"),
    "memory": (look(7).placeholder, "attention to the source"),
    "itself": (look(1).placeholder, "attention: by all tokens that it sees"),
}
"""Colour and name of the steps, in drawing order; those of sub-layers by what they attend to."""
_START, _END = "where a token starts", "where it ends"


@dataclass(frozen=True)
class Paths:
    """States of tokens in the residual stream, before the first step and after each."""

    stack: str
    """``encoder`` or ``decoder``."""
    steps: tuple[str, ...]
    """Kinds of the steps in the order of execution, once per execution for shared blocks: those of
    sub-layers, such as ``attention`` and ``ffn``, as blocks name them; ``norm``, a norm after a
    sub-layer; ``positions``, position vectors added before any block but the first."""
    states: Float[Tensor, "M N D"]
    """States of N tokens, in float64 on the CPU; M is the number of steps plus one."""


@dataclass(frozen=True)
class Panel:
    """Paths of a stack's tokens, projected on the plane of largest variance."""

    stack: str
    tokens: Sequence[str]
    """Texts of the tokens, [N]."""
    steps: Sequence[str]
    """Kind of each step, [M - 1]."""
    shares: tuple[float, float]
    """Shares of the states' variance along both axes."""
    coordinates: Sequence[Sequence[Sequence[float]]]
    """Coordinates of each state and token, [M, N, 2]."""


@torch.inference_mode()
def follow_tokens(model: Transformer, samples: Sequence[Sample], *, n_tokens: int) -> list[Paths]:
    """Follow the first ``n_tokens`` real tokens of a row through each stack.

    ``samples`` have one row: the input of a decoder or encoder; for an encoder-decoder the
    encoder's input and, optionally, the decoder's. All tokens of a row are read, however few are
    followed. The model is no LSTM; it computes in the dtype of its weights. An
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
    block: list[Sublayer] = body.stack.block(layer)  # type: ignore[assignment]  # it was checked
    for group in body.stack.groups:
        sublayer = block[group.start]
        before = x
        parallel = [(block[index], context.of(layer, index)) for index in group[1:]]
        # Branches in parallel are added one after another.
        for n, index in enumerate(group):
            x, _ = sublayer.add(before, context.of(layer, group.start), parallel[:n])  # type: ignore[arg-type]
            yield body.shape.block[index].name, x
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
    ``gap``, more than 0, above every label that it overlaps.
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
        from matplotlib.text import Text

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
            # Without their lines, in dots.
            extents = [Text.get_window_extent(label) for label in axes.texts]
            boxes = [Box(extent.x0, extent.y0, extent.x1, extent.y1) for extent in extents]
            for label, height in zip(axes.texts, raise_labels(boxes, gap=_GAP), strict=True):
                label.xyann = (_OFFSET, _OFFSET + height * _POINTS_PER_INCH / figure.dpi)

    return file_svg(draw, (_WIDTH, _HEIGHT), "The paths of tokens through the sub-layers")


def _draw_panel(axes: Any, panel: Panel) -> dict[str, Any]:
    """Draw the paths of a stack with the names of its tokens; return a line for each entry.

    A line connects a moved label to the end of its path.
    """
    drawn = {}
    states = np.array(panel.coordinates)  # [M, N, 2]
    legs_of_steps = [
        SUBLAYERS[step].attends_to if step in SUBLAYERS else step for step in panel.steps
    ]
    for leg, (colour, name) in _LEGS.items():
        steps = np.flatnonzero(np.array(legs_of_steps) == leg)
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
