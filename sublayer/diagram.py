"""Architecture diagrams of recipes, as SVG and as text, from the input up to the losses."""

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain, zip_longest
from typing import Literal

from sublayer.config.load import LoadedRecipe
from sublayer.config.model import POSITIONS, Entry, parallel_entries
from sublayer.config.objective import ObjectiveTable
from sublayer.config.recipe import ResolvedModel
from sublayer.config.resolve import resolve_model
from sublayer.config.stacks import (
    HEADS,
    StackShape,
    asked_heads,
    embedding_width,
    has_head_projection,
    has_input_norm,
    head_activation,
    is_factorised,
    key_heads,
    learns_beta,
    shares,
    stacks,
)
from sublayer.numbers import count
from sublayer.plot import palette
from sublayer.values import show

Role = Literal["embedding", "norm", "attention", "recurrent", "ffn", "linear", "head", "loss"]
"""Kind of a box, which sets its colour."""

_NORMS = {"layer": "LayerNorm", "rms": "RMSNorm", "dyt": "Dynamic tanh"}
_SEGMENTS = {"both": "segment A or B", "second": "segment B, or none"}
_SHARED = {"attention": "attention weights", "ffn": "feed-forward weights"}


@dataclass(frozen=True)
class FigureBox:
    """A computation."""

    role: Role
    title: str
    notes: tuple[str, ...] = ()
    """Short lines below the title."""


@dataclass(frozen=True)
class Residual:
    """A residual sub-layer, or several in parallel: the stream past boxes, and their sum."""

    function: FigureBox
    before: FigureBox | None
    """Norm of the function's input."""
    after: FigureBox | None
    """Norm of its output."""
    behind: FigureBox | None
    """Norm of the sum."""
    step: str
    """Step size in words; empty for 1."""
    reads_memory: bool
    """Whether its keys and values are an encoder's states."""


@dataclass(frozen=True)
class Block:
    """Repeated block, with its parts from first to last."""

    parts: tuple[str | Residual | FigureBox, ...]
    """Parts of the block: a string names a vector added to the stream, such as a position
    embedding; a box replaces the stream, like an LSTM layer."""
    n_layers: int
    notes: tuple[str, ...] = ()
    """Weights shared by its layers."""
    loss: FigureBox | None = None
    """Loss of every layer below the last."""

    @property
    def often(self) -> str:
        """Number of its layers, in words."""
        return f"× {self.n_layers} layers" if self.n_layers > 1 else "1 layer"


@dataclass(frozen=True)
class FigureColumn:
    """A stack with its input and its readers."""

    name: str
    """Name of the stack; empty if it is the only one."""
    reads: str
    below: tuple[FigureBox | str, ...]
    block: Block
    above: tuple[FigureBox, ...] = ()
    """Parts between the last block and the heads."""
    heads: tuple[tuple[FigureBox, ...], ...] = ()
    """Parallel chains of boxes, each from the stack to its loss."""
    feeds_memory: bool = False
    """Whether the blocks of the next column attend to its output."""


@dataclass(frozen=True)
class RecipeFigure:
    """Architecture of a recipe."""

    name: str
    title: str
    sizes: str
    """Widths, heads and layers, in a line."""
    columns: tuple[FigureColumn, ...]


class Drawer(ABC):
    """Drawer of a column, from its foot, part by part."""

    def column(self, column: FigureColumn) -> None:
        """Draw a column except its heads."""
        for part in column.below:
            self.part(part)
        self.block(column.block, column.name)
        for box in column.above:
            self.box(box)

    def part(self, part: FigureBox | str | Residual) -> None:
        """Draw a part on the stream."""
        if isinstance(part, Residual):
            split = self.split()
            if part.before is not None:
                self.box(part.before)
            self.box(part.function)
            if part.reads_memory:
                self.read_memory(part.function)
            if part.after is not None:
                self.box(part.after)
            self.join(split, part.step)
            if part.behind is not None:
                self.box(part.behind)
        elif isinstance(part, str):
            self.sum(part)
        else:
            self.box(part)

    @abstractmethod
    def box(self, box: FigureBox) -> None:
        """Draw a box."""

    @abstractmethod
    def sum(self, added: str) -> None:
        """Draw a sum sign with its term."""

    @abstractmethod
    def block(self, block: Block, name: str) -> None:
        """Draw the block, its number of repetitions, and the weights that its layers share."""

    @abstractmethod
    def split(self) -> float:
        """Begin a residual sub-layer; return the position of the split."""

    @abstractmethod
    def join(self, split: float, step: str) -> None:
        """Add the sub-layer's output to the residual stream."""

    @abstractmethod
    def read_memory(self, box: FigureBox) -> None:
        """Note that the last box reads an encoder's states."""


def describe(loaded: LoadedRecipe) -> RecipeFigure:
    """Return the figure of a recipe, from its settings only.

    The embedding matrix has V rows if the tokenizer sets their number.
    """
    recipe = loaded.recipe
    n_rows = recipe.model.vocab_size
    model = resolve_model(recipe.model, vocab_size=n_rows or 1, context=recipe.data.context)
    vocabulary = "V" if n_rows is None else f"{n_rows:,}"
    shapes = stacks(model)
    final_norm = None
    if model.final_norm != "none":
        final_norm = _norm(model, affine=model.final_norm == "affine")
    is_one_of_two = len(shapes) > 1
    columns = []
    for shape in shapes:
        is_last = shape is shapes[-1]
        writes = is_one_of_two and is_last
        column = FigureColumn(
            name=shape.name.capitalize() if is_one_of_two else "",
            reads="what it has written so far" if writes else recipe.objective.reads(),
            below=_embeddings(model, vocabulary, is_shared=is_one_of_two),
            block=_block(model, shape, recipe.objective if is_last else None),
            above=() if final_norm is None else (final_norm,),
            heads=_heads(model, recipe.objective, vocabulary) if is_last else (),
            feeds_memory=shape.feeds_memory,
        )
        columns.append(column)
    return RecipeFigure(loaded.name, _title(loaded), _sizes(model, shapes), tuple(columns))


def _title(loaded: LoadedRecipe) -> str:
    """Return the recipe's title, or its changed fields, which may contradict the title."""
    changed = []
    for field, origin in loaded.origins.items():
        table, _, name = field.partition(".")
        if origin == "command line" and table in ("model", "objective"):
            value = getattr(getattr(loaded.recipe, table), name)
            changed.append(f"{field} = {value if isinstance(value, str) else show(value)}")
    return f"with {', '.join(changed)}" if changed else loaded.recipe.title


def _sizes(model: ResolvedModel, shapes: tuple[StackShape, ...]) -> str:
    layers = count(shapes[0].n_layers, "layer")
    if len(shapes) > 1:
        layers = f"{' + '.join(str(shape.n_layers) for shape in shapes)} layers"
    parts = [f"{model.kind}, {layers}", f"d_model {model.d_model:,}"]
    entries = [entry for shape in shapes for entry in shape.block]
    if any(entry.ffn is not None for entry in entries):
        parts.append(f"d_ff {model.d_ff:,}")
    if any(entry.kind.attends_to != "nothing" for entry in entries):
        parts.append(f"{count(model.n_heads, 'head')} of {model.d_head}")
    if model.d_embed != model.d_model:
        parts.append(f"d_embed {model.d_embed:,}")
    return ", ".join(parts)


def _norm(model: ResolvedModel, *, affine: bool) -> FigureBox | None:
    """Return the model's norm; None if it has none."""
    if model.norm == "none":
        return None
    name = _NORMS.get(model.norm, f"{model.norm} norm")
    return FigureBox("norm", name if affine else f"{name}, no parameters")


def _embeddings(
    model: ResolvedModel, vocabulary: str, *, is_shared: bool
) -> tuple[FigureBox | str, ...]:
    """Return the parts between tokens and the first block.

    ``is_shared`` says that two stacks share one embedding matrix. The first block's positions are
    drawn here, unless more than the sum of embeddings may precede the block.
    """
    notes = [f"{vocabulary} × {model.d_embed:,}"]
    if model.embedding_scale != "none":
        is_root = model.embedding_scale == "sqrt"
        notes.append(f"times √{model.d_embed}" if is_root else f"times {model.embedding_scale:g}")
    if is_shared:
        notes.append("one for both stacks")
    parts: list[FigureBox | str] = [FigureBox("embedding", "Embedding matrix", tuple(notes))]
    projection = FigureBox("linear", "Projection", (f"{model.d_embed:,} × {model.d_model:,}",))
    is_of_sum = model.embedding_projection == "sum"
    if is_factorised(model) and not is_of_sum:
        parts.append(projection)
    adds_before = POSITIONS[model.positions].adds_before
    name = model.positions.removesuffix("-per-layer")
    if adds_before == "every" and _is_changed_after_sum(model):
        parts.append(f"{name} positions of layer 1")
    elif adds_before == "first":
        parts.append(f"{name} positions")
    if model.segments != "none":
        parts.append(_SEGMENTS.get(model.segments, f"segments: {model.segments}"))
    norm = _norm(model, affine=model.embedding_norm == "affine")
    if model.embedding_norm != "none" and norm is not None:
        parts.append(norm)
    if is_factorised(model) and is_of_sum:
        assert embedding_width(model) == model.d_embed, "the sum is as wide as the embedding"
        parts.append(projection)
    return tuple(parts)


def _is_changed_after_sum(model: ResolvedModel) -> bool:
    has_norm = model.embedding_norm != "none"
    return has_norm or (model.embedding_projection == "sum" and model.d_embed != model.d_model)


def _block(model: ResolvedModel, stack: StackShape, objective: ObjectiveTable | None) -> Block:
    """Return the block of a stack, with the objective's loss of its layers below the last."""
    parts: list[str | Residual | FigureBox] = []
    if POSITIONS[model.positions].adds_before == "every":
        layers = "from layer 2 on" if _is_changed_after_sum(model) else "of the layer"
        parts.append(f"{model.positions.removesuffix('-per-layer')} positions {layers}")
    for group in parallel_entries(stack.block):
        entry = stack.block[group.start]
        if entry.kind.is_recurrent:
            units = f"{count(model.d_model, 'unit')}"
            about = (units, "reads its state at the token before")
            parts.append(FigureBox("recurrent", entry.kind.title, about))
        else:
            together = stack.block[group.start : group.stop]
            parts.append(_residual(model, stack, together, is_first=group.start == 0))
    notes: tuple[str, ...] = ()
    if model.share != "none":
        what = _SHARED.get(model.share, "weights")
        n_groups, n_inner = model.share_groups, model.share_inner
        n_units = stack.n_layers // n_inner
        unit = "layers" if n_inner == 1 else f"units of {n_inner} layers"
        size = f" of {n_units // n_groups}" if n_units % n_groups == 0 else ""
        sharing = f"{what} shared in {n_groups} groups{size} {unit}"
        if n_groups == 1:
            sharing = f"one set of {what} for all {unit}"
        elif n_groups == n_units:
            sharing = f"{what} of their own in all {n_units} {unit}"
        notes = (sharing,)
    losses = () if objective is None else objective.losses()
    of_each_layer = next((loss for loss in losses if loss.is_of_each_layer), None)
    loss = None
    if of_each_layer is not None:
        title = "Losses of the lower layers"
        loss = FigureBox("loss", title, (of_each_layer.title, *of_each_layer.notes))
    return Block(tuple(parts), stack.n_layers, notes, loss)


def _step(step: float) -> str:
    words = {0.5: "½", 0.25: "¼"}.get(step, f"{step:g}".replace("-", "−"))
    return "" if step == 1.0 else f"× {words}"


def _residual(
    model: ResolvedModel, stack: StackShape, together: Sequence[Entry], *, is_first: bool
) -> Residual:
    """Return the figure of an entry of a block, or of several in parallel as one box."""
    boxes = [_function(model, stack, entry) for entry in together]
    steps = [_step(entry.step * model.residual_scale) for entry in together]
    step = steps[0] if len(set(steps)) == 1 else None
    function = boxes[0]
    if len(boxes) > 1:
        factors = steps if step is None else [""] * len(boxes)
        titles = [f"{box.title} {by}".rstrip() for box, by in zip(boxes, factors, strict=True)]
        notes = ("in parallel", *chain(*(box.notes for box in boxes)))
        function = FigureBox(boxes[0].role, " + ".join(titles), notes)
    norm = _norm(model, affine=model.norm_affine)
    each = norm
    if norm is not None and len(boxes) > 1:
        each = FigureBox(norm.role, norm.title, ("one for each",))
    of_input = each if model.parallel_norm == "separate" else norm
    if norm is not None and is_first and not model.first_norm:
        of_input = FigureBox(norm.role, norm.title, ("none in the first layer",))
    return Residual(
        function=function,
        before=of_input if has_input_norm(model) else None,
        after=each if model.norm_order in ("around", "after") else None,
        behind=norm if model.norm_order == "post" else None,
        step=step or "",
        reads_memory=any(entry.kind.attends_to == "memory" for entry in together),
    )


def _function(model: ResolvedModel, stack: StackShape, entry: Entry) -> FigureBox:
    title = entry.kind.title
    notes: list[str] = []
    role: Role = "linear"
    if entry.kind.attends_to != "nothing":
        role = "attention"
        notes.append(f"{count(model.n_heads, 'head')} of {model.d_head}")
        if key_heads(model) < model.n_heads:
            notes.append(f"{count(key_heads(model), 'head')} of keys and values")
        if model.qk_norm != "none":
            name = _NORMS.get(model.qk_norm, model.qk_norm)
            notes.append(f"{name} of q and k")
        if entry.kind.attends_to == "memory":
            notes.append("reads the encoder's states")
        else:
            if stack.is_causal:
                title = f"Causal {title[:1].lower()}{title[1:]}"
            in_attention = POSITIONS[model.positions].in_attention
            layers = f", {model.position_pattern}" if "N" in model.position_pattern else ""
            if in_attention == "rotation":
                notes.append(f"{model.positions}: q and k rotated{layers}")
            elif in_attention == "bias":
                notes.append(f"{model.positions} biases of scores{layers}")
            if not isinstance(model.attention_window, str):
                layers = f", {model.window_pattern}" if "G" in model.window_pattern else ""
                notes.append(f"window of {count(model.attention_window, 'token')}{layers}")
            if model.value_residual != "none":
                notes.append("values mixed with the first layer's")
            if model.attention_gate != "none":
                notes.append(f"output gated by {model.attention_gate}")
        if model.attention_scale == "none":
            notes.append("scores not scaled")
        elif model.attention_scale != "sqrt":
            notes.append(f"scores divided by {model.attention_scale:g}")
        if model.score_cap != "none":
            notes.append(f"scores capped at {model.score_cap:g}")
        if model.sinks:
            notes.append("a sink in each head's softmax")
    elif entry.ffn is not None:
        role = "ffn"
        name = entry.ffn.activation
        if learns_beta(model, name):
            name = f"{name}_β"
        inner = {"identity": "x W", "relu2": "relu(x W)²"}.get(name, f"{name}(x W)")
        formula = f"({inner} ⊙ x V) W₂" if entry.ffn.is_gated else f"{inner} W₂"
        is_named_alike = entry.variant == entry.ffn.activation
        notes.append(formula if is_named_alike else f"{entry.variant}: {formula}")
        notes.append(f"d_ff {model.d_ff:,}")
    is_part_shared = model.share not in ("none", "all") and shares(model, entry)
    if is_part_shared:
        notes.append("shared by layers")
    return FigureBox(role, title, tuple(notes))


def _heads(
    model: ResolvedModel, objective: ObjectiveTable, vocabulary: str
) -> tuple[tuple[FigureBox, ...], ...]:
    """Return chains of boxes from the last block to each loss.

    A head that reads another head follows it in its chain.
    """
    losses = [loss for loss in objective.losses() if not loss.is_of_each_layer]
    by_input: dict[str, list[str]] = {}
    for name, row in asked_heads(model).items():
        key = "text" if row.reads == "pooled" else row.reads
        by_input.setdefault(key, []).append(name)
    chains = []
    for reads, names in by_input.items():
        chain: list[FigureBox] = []
        for name in names:
            title = HEADS[name].title
            head = FigureBox("head", f"{title[:1].upper()}{title[1:]}")
            chain += _vocabulary_head(model, vocabulary) if name == "vocabulary" else [head]
        if reads == "text":
            chain[0] = FigureBox("head", chain[0].title, ("of the first state",))
        for loss in losses:
            if loss.head in names:
                chain.append(FigureBox("loss", f"Loss: {loss.title}", loss.notes))
        chains.append(tuple(chain))
    for loss in losses:
        if loss.head is None:
            size = f"{model.d_model:,} × {vocabulary} for each token"
            classifier = FigureBox("head", "Training-only classifier", (size,))
            chains.append((classifier, FigureBox("loss", f"Loss: {loss.title}", loss.notes)))
    return tuple(chains)


def _vocabulary_head(model: ResolvedModel, vocabulary: str) -> list[FigureBox]:
    parts: list[FigureBox] = []
    if has_head_projection(model):
        notes = [f"{model.d_model:,} × {model.d_embed:,}"]
        if model.head == "transform":
            norm = _norm(model, affine=True)
            after = f", {norm.title}" if norm is not None else ""
            notes.append(f"{head_activation(model)}{after}")
        title = "Transform" if model.head == "transform" else "Projection"
        parts.append(FigureBox("head", title, tuple(notes)))
    tied = "the embedding matrix (tied)" if model.tie_embeddings else "not tied"
    notes = [f"{model.d_embed:,} × {vocabulary}", tied]
    if model.output_scale != "none":
        is_root = model.output_scale == "sqrt"
        divisor = f"√{model.d_model}" if is_root else f"{model.output_scale:g}"
        notes.append(f"input divided by {divisor}")
    if model.head_bias:
        notes.append("with a bias")
    if model.softmax == "all":
        notes.append(f"and {model.max_len:,} positions")
    if model.logit_cap != "none":
        notes.append(f"logits capped at {model.logit_cap:g}")
    parts.append(FigureBox("head", "Output matrix, softmax", tuple(notes)))
    return parts


_COLOURS = {
    "embedding": "series-4",
    "norm": "series-5",
    "attention": "series-1",
    "recurrent": "series-1",
    "ffn": "series-3",
    "linear": "series-4",
    "head": "series-7",
    "loss": "series-2",
}
_STYLE = """
text { font-family: var(--sans); fill: var(--ink); font-size: 12.5px; }
.name { font-size: 19px; font-weight: 650; }
.title { font-size: 13px; }
.sizes, .note, .input { fill: var(--muted); }
.sizes { font-size: 12.5px; }
.note { font-size: 11.5px; }
.input { font-size: 12.5px; font-style: italic; }
.step { font-weight: 650; }
.strong, .box-title { font-weight: 600; }
.strong { font-size: 13.5px; }
.paper { fill: var(--paper); }
.panel { fill: var(--panel); stroke: var(--rule); }
.wire { fill: none; stroke: var(--ink); stroke-width: 1.2; stroke-linejoin: round; }
.arrow { fill: var(--ink); }
.sum { fill: var(--paper); stroke: var(--ink); stroke-width: 1.2; }
"""
_BOX = 222.0
"""Width of a box."""
_MARGIN = 24.0
_RADIUS = 9.0
_PANEL = _BOX + 72.0
_BYPASS = _BOX / 2 + 19.0
"""Distance of the residual stream from its sub-layer."""
_GAP = 17.0
_BETWEEN = 52.0
"""Gap between two columns, crossed by an encoder's states."""
_LANE = _BOX + 28.0
"""Width of a chain of heads next to another."""
_SIDE = 104.0
"""Room for the number of repetitions of a block."""
_TITLE_LINE, _NOTE_LINE, _PADDING = 17.0, 14.5, 7.0
_TITLE_LETTERS, _NOTE_LETTERS, _SIDE_LETTERS, _SUM_LETTERS = 31, 38, 17, 19
_HEADING_LINE = 21.0
_HEADING_LETTER = 6.9
"""Upper bound on the width of a letter of the heading."""
_ABOVE = 14.0
"""Gap between the heading and the diagram."""
_LEAST_WIDTH = 440.0

_Point = tuple[float, float]
"""Coordinates: to the right of the left edge, and above the foot."""


def draw_svg(figure: RecipeFigure) -> str:
    """Draw a figure as an SVG file; equal figures give equal bytes."""
    drawing = _draw(figure)
    width = max(drawing.width, _LEAST_WIDTH)
    shift = (width - drawing.width) / 2
    heading = [("name", figure.name)]
    n_letters = int((width - 2 * _MARGIN) / _HEADING_LETTER)
    for style, text in (("title", figure.title), ("sizes", figure.sizes)):
        heading += [(style, line) for line in textwrap.wrap(text, n_letters)]
    foot = _MARGIN + _HEADING_LINE * len(heading) + _ABOVE + drawing.height
    parts = [_file_head(width, foot + _MARGIN, figure)]
    for index, (style, line) in enumerate(heading):
        at = {"x": _MARGIN, "y": _MARGIN + 14.0 + _HEADING_LINE * index}
        parts.append(_tag("text", style, line, **at))
    parts.append(f'<g transform="translate({shift:g} {foot:g})">')
    return "\n".join([*parts, *chain(*drawing.layers.values()), "</g>", "</svg>", ""])


def _tag(name: str, style: str, content: str | None = None, /, **attributes: float | str) -> str:
    """Return an element; its content is escaped."""
    listed = "".join(
        f' {key.replace("_", "-")}="{value if isinstance(value, str) else format(value, "g")}"'
        for key, value in attributes.items()
    )
    end = "/>" if content is None else f">{escape(content)}</{name}>"
    return f'<{name} class="{style}"{listed}{end}'


def _file_head(width: float, height: float, figure: RecipeFigure) -> str:
    name = escape(f"{figure.name}: {figure.sizes}", quote=True)
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    colours = "".join(
        f".{role} {{ fill: color-mix(in srgb, var(--{colour}) 15%, var(--paper)); "
        f"stroke: var(--{colour}); }}\n"
        for role, colour in _COLOURS.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{name}">\n'
        f"<title>{name}</title>\n<style>\n{palette()}{_STYLE}{colours}</style>\n"
        '<rect class="paper" width="100%" height="100%"/>'
    )


class _Drawing:
    """Elements of a diagram, in layers from back to front."""

    def __init__(self) -> None:
        self.width = 0.0
        self.height = 0.0
        names = ("panels", "wires", "boxes", "sums", "labels")
        self.layers: dict[str, list[str]] = {name: [] for name in names}

    def add(self, layer: str, *elements: str) -> None:
        """Add elements to a layer."""
        self.layers[layer].append("\n".join(elements))

    def add_box(self, box: FigureBox, x: float, bottom: float) -> None:
        """Draw a rounded box with centred lines of text."""
        title, notes, height = _lines(box)
        elements = [_rectangle(box.role, x, bottom, _BOX, height, 5.0)]
        y = -bottom - height + _PADDING
        lines = [("box-title", line, _TITLE_LINE, 4.5) for line in title]
        lines += [("note", line, _NOTE_LINE, 4.0) for line in notes]
        for style, line, line_height, above in lines:
            y += line_height
            middle = x + _BOX / 2
            elements.append(_tag("text", style, line, x=middle, y=y - above, text_anchor="middle"))
        self.add("boxes", *elements)

    def add_wire(self, *points: _Point, has_arrow: bool = False) -> None:
        """Draw a line through points, with an arrow at its end if it enters a box."""
        corners = " ".join(f"{x:g},{-height:g}" for x, height in points)
        elements = [_tag("polyline", "wire", points=corners)]
        if has_arrow:
            (from_x, from_height), (x, height) = points[-2:]
            dx = (x > from_x) - (x < from_x)
            dy = (height < from_height) - (height > from_height)
            tips = [(x, -height)]
            for side in (-3.5, 3.5):
                tips.append((x - 7 * dx + side * dy, -height - 7 * dy + side * dx))
            shown = " ".join(f"{tip_x:g},{tip_y:g}" for tip_x, tip_y in tips)
            elements.append(_tag("polygon", "arrow", points=shown))
        self.add("wires", *elements)

    def add_label(self, text: str, style: str, at: _Point, anchor: str = "middle") -> None:
        """Write a line of text next to its subject."""
        x, height = at
        self.add("labels", _tag("text", style, text, x=x, y=-height, text_anchor=anchor))


def _rectangle(
    style: str, x: float, bottom: float, width: float, height: float, radius: float
) -> str:
    return _tag("rect", style, x=x, y=-bottom - height, width=width, height=height, rx=radius)


def _lines(box: FigureBox) -> tuple[list[str], list[str], float]:
    """Return a box's title and notes as lines that fit, and its height."""
    title = textwrap.wrap(box.title, _TITLE_LETTERS)
    notes = [line for note in box.notes for line in textwrap.wrap(note, _NOTE_LETTERS)]
    return title, notes, len(title) * _TITLE_LINE + len(notes) * _NOTE_LINE + 2 * _PADDING


def _draw(figure: RecipeFigure) -> _Drawing:
    """Draw all parts of a figure."""
    drawing = _Drawing()
    left = _MARGIN
    memory: _Pen | None = None
    for index, column in enumerate(figure.columns):
        is_labelled_right = index > 0
        width = max(_PANEL, _LANE * len(column.heads))
        overhang = (width - _PANEL) / 2
        before = 0.0 if is_labelled_right else max(0.0, _SIDE - overhang)
        after = _SIDE if is_labelled_right else 0.0
        if column.block.loss is not None:
            after = max(after, _BOX + 44.0)
        pen = _Pen(drawing, left + before + width / 2, is_labelled_right=is_labelled_right)
        pen.whole(column)
        if memory is not None:
            # The encoder's states enter their readers in the decoder.
            between = pen.centre - _PANEL / 2 - _BETWEEN / 2
            start = (memory.centre, memory.height)
            for height in pen.readers:
                corners = ((between, memory.height), (between, height))
                target = (pen.centre - _BOX / 2, height)
                drawing.add_wire(start, *corners, target, has_arrow=True)
        memory = pen if column.feeds_memory else None
        drawing.height = max(drawing.height, pen.height)
        left += before + width + max(0.0, after - overhang) + _BETWEEN
    drawing.width = left - _BETWEEN + _MARGIN
    return drawing


class _Pen(Drawer):
    """Drawer of a column as SVG."""

    def __init__(self, drawing: _Drawing, centre: float, *, is_labelled_right: bool) -> None:
        self.drawing = drawing
        self.centre = centre
        self.height = 0.0
        self.readers: list[float] = []
        """Heights at which an encoder's states are read."""
        self._is_labelled_right = is_labelled_right

    def whole(self, column: FigureColumn) -> None:
        """Draw a column."""
        self.drawing.add_label(column.reads, "input", (self.centre, 0.0))
        self.height = 20.0
        self.column(column)
        if column.feeds_memory or len(column.heads) > 1:
            self._up(_GAP)
        start, stream, highest = self.height, self.centre, self.height
        for index, boxes in enumerate(column.heads):
            self.centre = stream + _LANE * (index - (len(column.heads) - 1) / 2)
            self.height = start
            if self.centre != stream:
                self.drawing.add_wire((stream, start), (self.centre, start))
            for box in boxes:
                self.box(box)
            highest = max(highest, self.height)
        self.centre, self.height = stream, highest

    def sum(self, added: str) -> None:
        """Draw a sum sign, with the term to its right."""
        lines = textwrap.wrap(added, _SUM_LETTERS)
        self._up(_GAP + 5.0 * len(lines), has_arrow=True)
        at = self._plus()
        self.drawing.add_wire((self.centre + 40.0, at), (self.centre + _RADIUS, at), has_arrow=True)
        top = at + (len(lines) - 1) * _NOTE_LINE / 2 - 4.0
        for index, line in enumerate(lines):
            beside = (self.centre + 45.0, top - index * _NOTE_LINE)
            self.drawing.add_label(line, "note", beside, "start")
        self._up(6.0 * (len(lines) - 1))

    def _plus(self) -> float:
        """Draw a sum sign on the stream; return the height of its middle."""
        at, arm, x = self.height + _RADIUS, _RADIUS - 4.0, self.centre
        path = f"M{x - arm:g} {-at:g}h{2 * arm:g}M{x:g} {-at - arm:g}v{2 * arm:g}"
        circle = _tag("circle", "sum", cx=x, cy=-at, r=_RADIUS)
        self.drawing.add("sums", circle, _tag("path", "wire", d=path))
        self.height = at + _RADIUS
        return at

    def block(self, block: Block, name: str) -> None:
        """Draw a block on its panel, with its loss to the right."""
        self._up(_GAP)
        foot = self.height
        self._up(6.0)
        for part in block.parts:
            self.part(part)
        self._up(_GAP)
        top, left = self.height, self.centre - _PANEL / 2
        panel = _rectangle("panel", left, foot, _PANEL, top - foot, 10.0)
        self.drawing.add("panels", panel)
        # Next to it: the block's number of repetitions, and the weights its layers share.
        notes = [line for note in block.notes for line in textwrap.wrap(note, _SIDE_LETTERS)]
        edge = self.centre + (_PANEL / 2 + 10.0) * (1 if self._is_labelled_right else -1)
        anchor = "start" if self._is_labelled_right else "end"
        lines = [("strong", text, _TITLE_LINE) for text in (name, block.often) if text]
        lines += [("note", text, _NOTE_LINE) for text in notes]
        label_height = (foot + top) / 2 + len(lines) * 8.0
        for style, text, line_height in lines:
            self.drawing.add_label(text, style, (edge, label_height), anchor)
            label_height -= line_height
        if block.loss is not None:
            start, x = top - 8.0, self.centre + _PANEL / 2 + 44.0
            *_, height = _lines(block.loss)
            self.drawing.add_box(block.loss, x, start - height / 2)
            self.drawing.add_wire((self.centre, start), (x, start), has_arrow=True)

    def split(self) -> float:
        """Begin a residual sub-layer."""
        self._up(10.0)
        return self.height

    def read_memory(self, box: FigureBox) -> None:
        """Keep the height of the last box."""
        *_, height = _lines(box)
        self.readers.append(self.height - height / 2)

    def join(self, split: float, step: str) -> None:
        """Draw the residual stream past a sub-layer, and the sum."""
        self._up(_GAP + (4.0 if step else 0.0), has_arrow=True)
        if step:
            beside = (self.centre - 11.0, self.height - 15.0)
            self.drawing.add_label(step, "step", beside, "end")
        at, side = self._plus(), self.centre + _BYPASS
        corners = (self.centre, split), (side, split), (side, at), (self.centre + _RADIUS, at)
        self.drawing.add_wire(*corners, has_arrow=True)

    def box(self, box: FigureBox) -> None:
        """Draw a box on the stream."""
        self._up(_GAP, has_arrow=True)
        self.drawing.add_box(box, self.centre - _BOX / 2, self.height)
        *_, height = _lines(box)
        self.height += height

    def _up(self, by: float, *, has_arrow: bool = False) -> None:
        above = (self.centre, self.height + by)
        self.drawing.add_wire((self.centre, self.height), above, has_arrow=has_arrow)
        self.height += by


WIDTH = 79
"""Columns of the longest line."""
_COLUMN = 38
_TEXT_BOX = 26
"""Characters within a box, without an edge character on either side."""
_STREAM = 16
"""Characters of a column before the stream."""
_TEXT_SIDE = _TEXT_BOX - _STREAM + 5
"""Characters between the stream and its residual bypass."""


def draw_text(figure: RecipeFigure) -> str:
    """Draw a figure in lines of at most ``WIDTH`` characters."""
    lines = [figure.name]
    for text in (figure.title, figure.sizes):
        lines += textwrap.wrap(text, WIDTH)
    lines.append("")
    columns = []
    for column in figure.columns:
        drawn = _Column()
        drawn.whole(column)
        columns.append(drawn.lines)
    for row in reversed(list(zip_longest(*columns, fillvalue=""))):
        lines.append("  ".join(f"{part:<{_COLUMN}}" for part in row).rstrip())
    return "\n".join(lines)


class _Column(Drawer):
    """Drawer of a column as text, line by line."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def whole(self, column: FigureColumn) -> None:
        """Write a column."""
        self._centred(column.reads)
        self.column(column)
        if column.feeds_memory:
            self._put("│")
            self._centred("states for the decoder ▸")
        chains = column.heads
        if len(chains) > 1:
            between = "─" * (_COLUMN + 1)
            self._put(f"├{'┴'.join([between] * (len(chains) - 1))}╯")
        beside = []
        for boxes in chains:
            drawn = _Column()
            for box in boxes:
                drawn.box(box)
            drawn.lines[-1] = drawn.lines[-1].replace("┴", "─")
            beside.append(drawn.lines)
        for row in zip_longest(*beside, fillvalue=""):
            self.lines.append("  ".join(f"{part:<{_COLUMN}}" for part in row).rstrip())

    def sum(self, added: str) -> None:
        """Write a sum sign, with the term to its right."""
        self._put("│")
        first, *rest = textwrap.wrap(added, _COLUMN - _STREAM - 6)
        for line in reversed(rest):
            self._put(f"│   {line}")
        self._put(f"⊕ ◂ {first}")

    def block(self, block: Block, name: str) -> None:
        """Write the parts of a block in a frame, and its notes above."""
        foot = len(self.lines)
        for part in block.parts:
            self.part(part)
        self._put("│")
        inside = [f"║{line[1:]:<{_COLUMN - 2}}║" for line in self.lines[foot:]]
        before, after = "═" * (_STREAM - 1), "═" * (_COLUMN - _STREAM - 2)
        self.lines[foot:] = [f"╚{before}╤{after}╝", *inside, f"╔{before}╧{after}╗"]
        notes = [f"{name} {block.often}".strip(), *block.notes]
        if block.loss is not None:
            notes += [block.loss.title, *(f"  {note}" for note in block.loss.notes)]
        wrapped = [
            line
            for note in notes
            for line in textwrap.wrap(note, _COLUMN - 2, subsequent_indent="  ")
        ]
        self.lines += [f" {line}" for line in reversed(wrapped)]

    def split(self) -> float:
        """Write the corner where the residual stream splits off."""
        self._put(f"├{'─' * _TEXT_SIDE}╯")
        return len(self.lines)

    def join(self, split: float, step: str) -> None:
        """Write the residual stream's return, and the sum."""
        self._put(f"│  {step}".rstrip())
        for index in range(int(split), len(self.lines)):
            self.lines[index] = f"{self.lines[index]:<{_STREAM + _TEXT_SIDE + 1}}│"
        self._put(f"⊕ ◂{'─' * (_TEXT_SIDE - 2)}╮")

    def read_memory(self, box: FigureBox) -> None:
        """Write an arrow at the edge of the last box."""
        line = self.lines[-2]
        self.lines[-2] = f"{line[0]}▸{line[2:]}"

    def box(self, box: FigureBox) -> None:
        """Write a box, or the name of a norm in brackets."""
        self._put("│")
        if box.role == "norm" and not box.notes:
            self._centred(f"[ {box.title} ]")
            return
        texts = (box.title, *box.notes)
        content = [line for text in texts for line in textwrap.wrap(text, _TEXT_BOX)]
        left, middle = "  ", _STREAM - 3
        before, after = "─" * middle, "─" * (_TEXT_BOX - middle - 1)
        self.lines.append(f"{left}└{before}┬{after}┘")
        self.lines += [f"{left}│{line:^{_TEXT_BOX}}│" for line in reversed(content)]
        self.lines.append(f"{left}┌{before}┴{after}┐")

    def _put(self, text: str) -> None:
        self.lines.append(f"{'':<{_STREAM}}{text}")

    def _centred(self, text: str) -> None:
        self.lines.append(f"{text:^{2 * _STREAM + 1}}".rstrip())
