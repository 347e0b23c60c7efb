"""The block of a stack, as a diagram shows it: its sub-layers in order, and what layers share."""

from sublayer.config.architecture.block import Entry
from sublayer.config.architecture.derived import learns_beta
from sublayer.config.architecture.feedforward import Ffn
from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.architecture.stacks import StackShape, shares
from sublayer.config.resolved import ResolvedModel
from sublayer.counts import count
from sublayer.diagram.figure import Block, Box, Residual, Role, Sum

_NORMS = {"layer": "LayerNorm", "rms": "RMSNorm"}
_SHARED = {"attention": "attention weights", "ffn": "feed-forward weights"}


def draw_block(model: ResolvedModel, stack: StackShape, loss: Box | None = None) -> Block:
    """Return the block of a stack; ``loss`` is what its layers below the last learn beside."""
    parts: list[Sum | Residual | Box] = []
    if POSITIONS[model.positions].adds_before == "every":
        parts.append(Sum(positions_of_layers(model)))
    for entry in stack.block:
        if entry.kind.is_recurrent:
            parts.append(_recurrent(model, entry))
        else:
            parts.append(_residual(model, stack, entry))
    return Block(tuple(parts), stack.n_layers, _sharing(model, stack), loss)


def norm_box(model: ResolvedModel, *, affine: bool) -> Box | None:
    """Return a norm of the model's kind, as a box; None where it has none."""
    if model.norm == "none":
        return None
    name = _NORMS.get(model.norm, f"{model.norm} norm")
    return Box("norm", name if affine else f"{name}, no parameters")


def adds_at_input(model: ResolvedModel) -> bool:
    """Return whether the first block's positions are drawn at the embeddings, not in the block.

    They are where nothing but the sum of embeddings could stand between the two.
    """
    scheme = POSITIONS[model.positions]
    if scheme.adds_before == "every":
        return _is_changed_after_sum(model)
    return scheme.adds_before == "first"


def positions_of_layers(model: ResolvedModel) -> str:
    """Say what positions each layer adds, where a scheme adds some before every block."""
    first = "from layer 2 on" if _is_changed_after_sum(model) else "of the layer"
    return f"{model.positions.removesuffix('-per-layer')} positions {first}"


def _is_changed_after_sum(model: ResolvedModel) -> bool:
    has_norm = model.embedding_norm and model.norm != "none"
    return has_norm or (model.embedding_projection == "sum" and model.d_embed != model.d_model)


def _recurrent(model: ResolvedModel, entry: Entry) -> Box:
    notes = (f"{count(model.d_model, 'unit')}", "reads its state at the token before")
    return Box("recurrent", entry.kind.title, notes)


def _residual(model: ResolvedModel, stack: StackShape, entry: Entry) -> Residual:
    return Residual(
        function=_function(model, stack, entry),
        norm=norm_box(model, affine=model.norm_affine),
        is_pre_norm=model.norm_order == "pre",
        step=entry.step,
        reads_memory=entry.kind.attends_to == "memory",
    )


def _function(model: ResolvedModel, stack: StackShape, entry: Entry) -> Box:
    title = entry.kind.title
    notes: list[str] = []
    role: Role = "linear"
    if entry.kind.attends_to != "nothing":
        role = "attention"
        notes.append(f"{count(model.n_heads, 'head')} of {model.d_head}")
        if entry.kind.attends_to == "itself":
            if stack.is_causal:
                title = f"Causal {title[:1].lower()}{title[1:]}"
            notes += _positions_inside(model)
        else:
            notes.append("reads the encoder's states")
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
    return Box(role, title, tuple(notes))


def _positions_inside(model: ResolvedModel) -> list[str]:
    scheme = POSITIONS[model.positions]
    if scheme.in_attention == "rotation":
        return [f"{model.positions}: q and k rotated"]
    if scheme.in_attention == "bias":
        return [f"{model.positions} biases of scores"]
    return []


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
