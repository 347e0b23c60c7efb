"""Figure of a recipe's architecture, from the input at the foot to the losses on top."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from sublayer.config.load import LoadedRecipe
from sublayer.config.messages import show
from sublayer.config.model import POSITIONS, Entry, Ffn
from sublayer.config.objective import ObjectiveTable
from sublayer.config.recipe import Recipe, ResolvedModel
from sublayer.config.resolve import resolve_model
from sublayer.config.stacks import (
    HEADS,
    StackShape,
    asked_heads,
    embedding_width,
    has_head_projection,
    head_activation,
    is_factorised,
    learns_beta,
    shares,
    stacks,
)
from sublayer.counts import count

Role = Literal["embedding", "norm", "attention", "recurrent", "ffn", "linear", "head", "loss"]
"""The kind of a box, which sets its colour."""

_NORMS = {"layer": "LayerNorm", "rms": "RMSNorm"}
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
class Sum:
    """A vector added to the stream, such as a position embedding."""

    added: str


@dataclass(frozen=True)
class Residual:
    """A residual sub-layer: ``x + step * f(norm(x))``, or ``norm(x + step * f(x))``."""

    function: FigureBox
    norm: FigureBox | None
    is_pre_norm: bool
    step: float
    reads_memory: bool
    """True if its keys and values are an encoder's states."""


@dataclass(frozen=True)
class Block:
    """The repeated block, its parts from first to last."""

    parts: tuple[Sum | Residual | FigureBox, ...]
    """A box replaces the stream, as an LSTM layer does."""
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
    """Empty if it is the only one."""
    reads: str
    below: tuple[FigureBox | Sum, ...]
    block: Block
    above: tuple[FigureBox, ...] = ()
    """Parts between the last block and the heads."""
    heads: tuple[tuple[FigureBox, ...], ...] = ()
    """Parallel chains of boxes, each from the stack to its loss."""
    feeds_memory: bool = False
    """True if the next column's blocks attend to its output."""


@dataclass(frozen=True)
class RecipeFigure:
    """The architecture of a recipe."""

    name: str
    title: str
    sizes: str
    """Its widths, heads and layers, in a line."""
    columns: tuple[FigureColumn, ...]


class Drawer(ABC):
    """Draws a column from its foot, part by part."""

    def column(self, column: FigureColumn) -> None:
        """Draw a column except its heads."""
        for part in column.below:
            self.part(part)
        self.block(column.block, column.name)
        for box in column.above:
            self.box(box)

    def part(self, part: FigureBox | Sum | Residual) -> None:
        """Draw a part on the stream."""
        if isinstance(part, Residual):
            split = self.split()
            if part.norm is not None and part.is_pre_norm:
                self.box(part.norm)
            self.box(part.function)
            if part.reads_memory:
                self.read_memory(part.function)
            step = {0.5: "½", 0.25: "¼"}.get(part.step, f"{part.step:g}".replace("-", "−"))
            self.join(split, "" if part.step == 1.0 else f"× {step}")
            if part.norm is not None and not part.is_pre_norm:
                self.box(part.norm)
        elif isinstance(part, Sum):
            self.sum(part)
        else:
            self.box(part)

    @abstractmethod
    def box(self, box: FigureBox) -> None:
        """Draw a box."""

    @abstractmethod
    def sum(self, part: Sum) -> None:
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
    columns = tuple(_column(recipe, model, shape, shapes, vocabulary) for shape in shapes)
    return RecipeFigure(loaded.name, _title(loaded), _sizes(model, shapes), columns)


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


def _column(
    recipe: Recipe,
    model: ResolvedModel,
    shape: StackShape,
    shapes: tuple[StackShape, ...],
    vocabulary: str,
) -> FigureColumn:
    is_one_of_two = len(shapes) > 1
    is_last = shape is shapes[-1]
    reads = recipe.objective.reads()
    if is_one_of_two and is_last:
        reads = "what it has written so far"
    final_norm = None
    if model.final_norm != "none":
        final_norm = _norm(model, affine=model.final_norm == "affine")
    return FigureColumn(
        name=shape.name.capitalize() if is_one_of_two else "",
        reads=reads,
        below=_embeddings(model, vocabulary, is_shared=is_one_of_two),
        block=_block(model, shape, _loss_below(recipe.objective) if is_last else None),
        above=() if final_norm is None else (final_norm,),
        heads=_heads(model, recipe.objective, vocabulary) if is_last else (),
        feeds_memory=shape.feeds_memory,
    )


def _norm(model: ResolvedModel, *, affine: bool) -> FigureBox | None:
    """Return the model's norm; None if it has none."""
    if model.norm == "none":
        return None
    name = _NORMS.get(model.norm, f"{model.norm} norm")
    return FigureBox("norm", name if affine else f"{name}, no parameters")


def _embeddings(
    model: ResolvedModel, vocabulary: str, *, is_shared: bool
) -> tuple[FigureBox | Sum, ...]:
    """Return the parts between tokens and the first block.

    ``is_shared``: two stacks share one embedding matrix. The first block's positions are drawn here
    if only the sum of embeddings could lie between.
    """
    notes = [f"{vocabulary} × {model.d_embed:,}"]
    if model.embedding_scale == "sqrt":
        notes.append(f"times √{model.d_embed}")
    if is_shared:
        notes.append("one for both stacks")
    parts: list[FigureBox | Sum] = [FigureBox("embedding", "Embedding matrix", tuple(notes))]
    projection = FigureBox("linear", "Projection", (f"{model.d_embed:,} × {model.d_model:,}",))
    is_of_sum = model.embedding_projection == "sum"
    if is_factorised(model) and not is_of_sum:
        parts.append(projection)
    adds_before = POSITIONS[model.positions].adds_before
    name = model.positions.removesuffix("-per-layer")
    if adds_before == "every" and _is_changed_after_sum(model):
        parts.append(Sum(f"{name} positions of layer 1"))
    elif adds_before == "first":
        parts.append(Sum(f"{name} positions"))
    if model.segments != "none":
        parts.append(Sum(_SEGMENTS.get(model.segments, f"segments: {model.segments}")))
    norm = _norm(model, affine=True)
    if model.embedding_norm and norm is not None:
        parts.append(norm)
    if is_factorised(model) and is_of_sum:
        assert embedding_width(model) == model.d_embed, "the sum is as wide as the embedding"
        parts.append(projection)
    return tuple(parts)


def _is_changed_after_sum(model: ResolvedModel) -> bool:
    has_norm = model.embedding_norm and model.norm != "none"
    return has_norm or (model.embedding_projection == "sum" and model.d_embed != model.d_model)


def _block(model: ResolvedModel, stack: StackShape, loss: FigureBox | None) -> Block:
    """Return the block of a stack; ``loss`` is the loss of its layers below the last."""
    parts: list[Sum | Residual | FigureBox] = []
    if POSITIONS[model.positions].adds_before == "every":
        layers = "from layer 2 on" if _is_changed_after_sum(model) else "of the layer"
        parts.append(Sum(f"{model.positions.removesuffix('-per-layer')} positions {layers}"))
    for entry in stack.block:
        if entry.kind.is_recurrent:
            notes = (f"{count(model.d_model, 'unit')}", "reads its state at the token before")
            parts.append(FigureBox("recurrent", entry.kind.title, notes))
        else:
            residual = Residual(
                function=_function(model, stack, entry),
                norm=_norm(model, affine=model.norm_affine),
                is_pre_norm=model.norm_order == "pre",
                step=entry.step,
                reads_memory=entry.kind.attends_to == "memory",
            )
            parts.append(residual)
    return Block(tuple(parts), stack.n_layers, _sharing(model, stack), loss)


def _function(model: ResolvedModel, stack: StackShape, entry: Entry) -> FigureBox:
    title = entry.kind.title
    notes: list[str] = []
    role: Role = "linear"
    if entry.kind.attends_to != "nothing":
        role = "attention"
        notes.append(f"{count(model.n_heads, 'head')} of {model.d_head}")
        if entry.kind.attends_to == "memory":
            notes.append("reads the encoder's states")
        else:
            if stack.is_causal:
                title = f"Causal {title[:1].lower()}{title[1:]}"
            in_attention = POSITIONS[model.positions].in_attention
            if in_attention == "rotation":
                notes.append(f"{model.positions}: q and k rotated")
            elif in_attention == "bias":
                notes.append(f"{model.positions} biases of scores")
        if model.attention_scale == "none":
            notes.append("scores not scaled")
    elif entry.ffn is not None:
        role = "ffn"
        formula = _formula(model, entry.ffn)
        is_named_alike = entry.variant == entry.ffn.activation
        notes.append(formula if is_named_alike else f"{entry.variant}: {formula}")
        notes.append(f"d_ff {model.d_ff:,}")
    is_part_shared = model.share not in ("none", "all") and shares(model, entry)
    if is_part_shared:
        notes.append("shared by layers")
    return FigureBox(role, title, tuple(notes))


def _formula(model: ResolvedModel, ffn: Ffn) -> str:
    name = ffn.activation
    if learns_beta(model, name):
        name = f"{name}_β"
    inner = "x W" if name == "identity" else f"{name}(x W)"
    return f"({inner} ⊙ x V) W₂" if ffn.is_gated else f"{inner} W₂"


def _sharing(model: ResolvedModel, stack: StackShape) -> tuple[str, ...]:
    if model.share == "none":
        return ()
    what = _SHARED.get(model.share, "weights")
    n_groups, n_inner = model.share_groups, model.share_inner
    n_units = stack.n_layers // n_inner
    unit = "layers" if n_inner == 1 else f"units of {n_inner} layers"
    if n_groups == 1:
        return (f"one set of {what} for all {unit}",)
    if n_groups == n_units:
        return (f"{what} of their own in all {n_units} {unit}",)
    size = f" of {n_units // n_groups}" if n_units % n_groups == 0 else ""
    return (f"{what} shared in {n_groups} groups{size} {unit}",)


def _loss_below(objective: ObjectiveTable) -> FigureBox | None:
    """Return the loss of every layer below the last; None without one."""
    for loss in objective.losses():
        if loss.is_of_each_layer:
            return FigureBox("loss", "Losses of the lower layers", (loss.title, *loss.notes))
    return None


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
    if model.output_scale == "sqrt":
        notes.append(f"input divided by √{model.d_model}")
    if model.head_bias:
        notes.append("with a bias")
    if model.softmax == "all":
        notes.append(f"and {model.max_len:,} positions")
    parts.append(FigureBox("head", "Output matrix, softmax", tuple(notes)))
    return parts
