"""The ends of a model, as a diagram shows them: embeddings below its blocks, heads above them."""

from sublayer.config.architecture.derived import embedding_width, head_activation, is_factorised
from sublayer.config.architecture.heads import HEADS, asked_heads, has_head_projection
from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.objectives.base import ObjectiveTable
from sublayer.config.objectives.losses import Loss
from sublayer.config.resolved import ResolvedModel
from sublayer.diagram.blocks import adds_at_input, norm_box
from sublayer.diagram.figure import Box, Sum

_SEGMENTS = {"both": "segment A or B", "second": "segment B, or none"}


def draw_embeddings(
    model: ResolvedModel, *, vocabulary: str, is_shared: bool
) -> tuple[Box | Sum, ...]:
    """Return what stands between tokens and the first block.

    ``vocabulary`` says its size; ``is_shared``: two stacks have one embedding matrix.
    """
    notes = [f"{vocabulary} × {model.d_embed:,}"]
    if model.embedding_scale == "sqrt":
        notes.append(f"times √{model.d_embed}")
    if is_shared:
        notes.append("one for both stacks")
    parts: list[Box | Sum] = [Box("embedding", "Embedding matrix", tuple(notes))]
    projection = Box("linear", "Projection", (f"{model.d_embed:,} × {model.d_model:,}",))
    is_of_sum = model.embedding_projection == "sum"
    if is_factorised(model) and not is_of_sum:
        parts.append(projection)
    width = embedding_width(model)
    if adds_at_input(model):
        name = model.positions.removesuffix("-per-layer")
        which = " of layer 1" if POSITIONS[model.positions].adds_before == "every" else ""
        parts.append(Sum(f"{name} positions{which}"))
    if model.segments != "none":
        parts.append(Sum(_SEGMENTS.get(model.segments, f"segments: {model.segments}")))
    norm = norm_box(model, affine=True)
    if model.embedding_norm and norm is not None:
        parts.append(norm)
    if is_factorised(model) and is_of_sum:
        assert width == model.d_embed, "the sum is as wide as what is projected"
        parts.append(projection)
    return tuple(parts)


def draw_final_norm(model: ResolvedModel) -> tuple[Box, ...]:
    """Return the norm after the last block, if there is one."""
    if model.final_norm == "none":
        return ()
    norm = norm_box(model, affine=model.final_norm == "affine")
    return () if norm is None else (norm,)


def draw_heads(
    model: ResolvedModel, objective: ObjectiveTable, *, vocabulary: str
) -> tuple[tuple[Box, ...], ...]:
    """Return chains of boxes from the last block to each loss."""
    losses = [loss for loss in objective.losses() if not loss.is_of_each_layer]
    chains = []
    for reads, names in _chains(model).items():
        chain: list[Box] = []
        for name in names:
            chain += _vocabulary_head(model, vocabulary) if name == "vocabulary" else [_head(name)]
        if reads == "text":
            chain[0] = Box("head", chain[0].title, ("of the first state",))
        chain += [loss_box(loss) for loss in losses if loss.head in names]
        chains.append(tuple(chain))
    for loss in losses:
        if loss.head is None:
            size = f"{model.d_model:,} × {vocabulary} for each token"
            classifier = Box("head", "Training-only classifier", (size,))
            chains.append((classifier, loss_box(loss)))
    return tuple(chains)


def loss_box(loss: Loss) -> Box:
    """Return a loss as a box."""
    return Box("loss", f"Loss: {loss.title}", loss.notes)


def layer_loss(objective: ObjectiveTable) -> Box | None:
    """Return the loss of every layer below the last; None where there is none."""
    for loss in objective.losses():
        if loss.is_of_each_layer:
            return Box("loss", "Losses of the lower layers", (loss.title, *loss.notes))
    return None


def _chains(model: ResolvedModel) -> dict[str, list[str]]:
    """Return the heads that a model has by what they read, those that read another one after it."""
    chains: dict[str, list[str]] = {}
    for name, row in asked_heads(model).items():
        key = "text" if row.reads == "pooled" else row.reads
        chains.setdefault(key, []).append(name)
    return chains


def _head(name: str) -> Box:
    title = HEADS[name].title
    return Box("head", f"{title[:1].upper()}{title[1:]}")


def _vocabulary_head(model: ResolvedModel, vocabulary: str) -> list[Box]:
    parts: list[Box] = []
    if has_head_projection(model):
        size = f"{model.d_model:,} × {model.d_embed:,}"
        notes = [size]
        if model.head == "transform":
            norm = norm_box(model, affine=True)
            after = f", {norm.title}" if norm is not None else ""
            notes.append(f"{head_activation(model)}{after}")
        title = "Transform" if model.head == "transform" else "Projection"
        parts.append(Box("head", title, tuple(notes)))
    notes = ["the embedding matrix (tied)" if model.tie_embeddings else "not tied"]
    notes = [f"{model.d_embed:,} × {vocabulary}", *notes]
    if model.output_scale == "sqrt":
        notes.append(f"input divided by √{model.d_model}")
    if model.head_bias:
        notes.append("with a bias")
    if model.softmax == "all":
        notes.append(f"and {model.max_len:,} positions")
    parts.append(Box("head", "Output matrix, softmax", tuple(notes)))
    return parts
