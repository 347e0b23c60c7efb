"""Where fields of ``[model]`` have an effect: what the block, the head or other widths decide."""

from sublayer.config.architecture.block import parse_block
from sublayer.config.architecture.derived import head_activation, is_factorised
from sublayer.config.architecture.feedforward import networks_with
from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.architecture.stacks import entries
from sublayer.config.fields.use import Use
from sublayer.config.recipe import Recipe

TRANSFORMERS = ("decoder", "encoder", "encoder-decoder")
"""The kinds of model that are made of blocks, as ``model.block`` composes them."""


def _has_attention(recipe: Recipe) -> bool:
    return any(entry.kind.attends_to == "itself" for entry in entries(recipe.model))


def _has_ffn(recipe: Recipe) -> bool:
    return any(entry.ffn is not None for entry in entries(recipe.model))


def _follows_ffn_field(recipe: Recipe) -> bool:
    """Return whether an entry, or a transform head, takes its network from ``model.ffn``."""
    model = recipe.model
    if model.head == "transform" and model.head_activation == "ffn":
        return True
    for block in (model.block, model.decoder_block) if model.kind in TRANSFORMERS else ():
        # A default without a name marks the entries that name no variant.
        written = parse_block(block, default_ffn="") if block else ()
        if any(entry.variant == "" for entry in written):
            return True
    return False


def _has_activation(recipe: Recipe, activation: str) -> bool:
    model = recipe.model
    found = {entry.ffn.activation for entry in entries(model) if entry.ffn is not None}
    if model.head == "transform":
        found.add(head_activation(model))
    return activation in found


def _positions_act(recipe: Recipe) -> bool:
    scheme = POSITIONS[recipe.model.positions]
    return scheme.in_attention == "nothing" or _has_attention(recipe)


def _activation_use(activation: str) -> Use:
    names = " or ".join(networks_with(activation))
    return Use(
        f"an ffn entry is {names}, or a transform head has {activation}",
        lambda recipe: _has_activation(recipe, activation),
        ("model.ffn", "model.block", "model.head"),
    )


def _drops_embeddings(recipe: Recipe) -> bool:
    model = recipe.model
    p = model.dropout if model.dropout_embedding is None else model.dropout_embedding
    return p > 0.0


_IN_ATTENTION = [name for name, each in POSITIONS.items() if each.in_attention != "nothing"]
_ATTENTION = Use("the block has an attention entry", _has_attention, ("model.block",))
_FFN = Use("the block has an ffn entry", _has_ffn, ("model.block",))
_PLAIN_FFN = Use(
    "an ffn entry of the block names no variant, or a transform head follows it",
    _follows_ffn_field,
    ("model.block",),
)
_POSITIONS = Use(
    f"the block has an attention entry, for {' and '.join(_IN_ATTENTION)}",
    _positions_act,
    ("model.block",),
)
_FACTORISED = Use(
    "model.d_embed differs from model.d_model, or model.project_embeddings is always",
    lambda recipe: is_factorised(recipe.model),
    ("model.d_embed", "model.d_model", "model.project_embeddings"),
)

_DROPS_EMBEDDINGS = Use(
    "model.dropout_embedding, or model.dropout where it is not given, is more than 0",
    _drops_embeddings,
    ("model.dropout_embedding", "model.dropout"),
)

_OF_BLOCKS = Use(
    "model.kind is not lstm", lambda recipe: recipe.model.kind in TRANSFORMERS, ("model.kind",)
)
_NETWORKS = Use(
    f"{_OF_BLOCKS.when}, or model.head is transform",
    lambda recipe: _OF_BLOCKS.holds(recipe) or recipe.model.head == "transform",
    ("model.kind", "model.head"),
)

KIND_USES: dict[str, Use] = {
    **dict.fromkeys(
        (
            "model.n_heads",
            "model.d_head",
            "model.d_ff",
            "model.embedding_norm",
            "model.block",
            "model.norm",
            "model.norm_order",
            "model.norm_affine",
            "model.norm_eps",
            "model.final_norm",
            "model.positions",
            "model.sinusoids",
            "model.first_position",
            "model.rotary_base",
            "model.relative_buckets",
            "model.relative_distance",
            "model.share",
            "model.share_groups",
            "model.share_inner",
            "model.attention_scale",
            "model.dropout_attention",
            "model.dropout_ffn",
            "model.dropout_final",
            "model.max_len",
        ),
        _OF_BLOCKS,
    ),
    "model.ffn": _NETWORKS,
    "model.gelu": _NETWORKS,
    "model.swish_beta": _NETWORKS,
    # PyTorch compiles no recurrent layer, nor what is computed around it.
    "train.compile": _OF_BLOCKS,
}
"""What is of blocks, which an LSTM has not; asked before all else, so that no advice misleads."""
MODEL_USES: dict[str, tuple[Use, ...]] = {
    "model.n_heads": (_ATTENTION,),
    "model.d_head": (_ATTENTION,),
    "model.attention_scale": (_ATTENTION,),
    "model.dropout_attention": (_ATTENTION,),
    "model.positions": (_POSITIONS,),
    "model.d_ff": (_FFN,),
    "model.dropout_ffn": (_FFN,),
    "model.ffn": (_PLAIN_FFN,),
    "model.gelu": (_activation_use("gelu"),),
    "model.swish_beta": (_activation_use("swish"),),
    "model.embedding_projection": (_FACTORISED,),
    "model.dropout_embedding_of": (_DROPS_EMBEDDINGS,),
}
"""By field; beyond the ``needs`` of its declaration."""
