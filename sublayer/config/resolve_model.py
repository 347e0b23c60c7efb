"""Derive unset fields of ``[model]`` from those that are set, by one rule per field."""

from typing import Any

from sublayer.config.architecture import POSITIONS, n_exact_buckets
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import StackShape, embedding_width, entries, shares, stacks
from sublayer.counts import count
from sublayer.errors import ConfigError


def resolve_model(model: ModelConfig, *, vocab_size: int, context: int) -> ResolvedModel:
    """Resolve every derived field of a model.

    ``vocab_size`` is the tokenizer's, ``context`` the training window in tokens. Raises ConfigError
    where fields contradict each other, and where the model has fewer tokens or positions than
    those.
    """
    check_model(model)
    if model.kind == "lstm":
        model = model.model_copy(update=OF_NO_BLOCKS)
    rows = _table_rows(model, vocab_size)
    max_len = model.max_len or context
    if max_len < context:
        raise ConfigError(
            f"model.max_len = {max_len} is shorter than data.context = {context}: give "
            f"data.context={max_len}, or a longer model.max_len"
        )
    is_pre_norm = model.norm != "none" and model.norm_order == "pre"
    default_eps = 1e-6 if model.norm == "rms" else 1e-5
    derived = {
        **_decoder_fields(model),
        "d_head": model.d_head or model.d_model // model.n_heads,
        "d_ff": model.d_ff or 4 * model.d_model,
        "d_embed": model.d_embed or model.d_model,
        "norm_eps": model.norm_eps or default_eps,
        "final_norm": model.final_norm or ("affine" if is_pre_norm else "none"),
        "dropout_attention": _or(model.dropout_attention, model.dropout),
        "dropout_ffn": model.dropout_ffn or 0.0,
        "dropout_embedding": _or(model.dropout_embedding, model.dropout),
        "vocab_size": rows,
        "max_len": max_len,
    }
    # Derived values may lie beyond the limits of a recipe's own.
    return ResolvedModel.model_construct(**{**dict(model), **derived})


def _table_rows(model: ModelConfig, vocab_size: int) -> int:
    multiple = model.vocab_multiple
    if model.vocab_size is None:
        return -(-vocab_size // multiple) * multiple
    if model.vocab_size < vocab_size:
        raise ConfigError(
            f"model.vocab_size = {model.vocab_size} is smaller than the tokenizer's vocabulary of "
            f"{vocab_size}"
        )
    return model.vocab_size


DECODER_FIELDS = ("n_decoder_layers", "decoder_block")
"""Fields that only a decoder beside an encoder has; None elsewhere, also in a resolved config."""


OF_NO_BLOCKS: dict[str, Any] = {
    "norm": "none",
    "embedding_norm": False,
    "positions": "none",
    "share": "none",
    "dropout_attention": 0.0,
    "dropout_final": 0.0,
    "max_len": None,
}
"""Fields of blocks of a resolved LSTM: none, which is how all that reads a config knows that there
is none."""


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _decoder_fields(model: ModelConfig) -> dict[str, Any]:
    if model.kind != "encoder-decoder":
        return dict.fromkeys(DECODER_FIELDS)
    decoder = stacks(model)[-1]
    written = tuple(str(entry) for entry in decoder.block)
    return {"n_decoder_layers": decoder.n_layers, "decoder_block": written}


def check_model(model: ModelConfig) -> None:
    """Raise ConfigError where two fields of a model contradict each other, naming both."""
    _check_cross(model)
    if any(entry.kind.attends_to != "nothing" for entry in entries(model)):
        _check_heads(model)
    _check_embedding(model)
    if model.positions == "relative":
        _check_buckets(model)
    if model.softmax == "all" and model.d_embed not in (None, model.d_model):
        raise ConfigError(
            f"model.softmax = all needs tokens as wide as positions, and model.d_embed = "
            f"{model.d_embed} is not model.d_model = {model.d_model}: leave one of them out"
        )
    if model.norm == "none" and model.final_norm in ("affine", "plain"):
        raise ConfigError(f"model.final_norm = {model.final_norm} contradicts model.norm = none")
    if model.share != "none":
        _check_sharing(model)
    if model.kind == "lstm" and model.init in ("kaiming", "t5"):
        raise ConfigError(
            f"model.init = {model.init} draws the maps of attention and of feed-forward networks, "
            "which a model.kind = lstm has not: give normal, truncated or xavier"
        )
    if model.vocab_size is not None and model.vocab_size % model.vocab_multiple:
        raise ConfigError(
            f"model.vocab_size = {model.vocab_size} is no multiple of model.vocab_multiple = "
            f"{model.vocab_multiple}: leave one of them out"
        )


def _check_cross(model: ModelConfig) -> None:
    *encoders, last = stacks(model)
    first = encoders[0] if encoders else last
    if _attends_to_memory(first):
        what = "the encoder" if encoders else f"model.kind = {model.kind}"
        raise ConfigError(
            f"model.block has a cross entry, but {what} has nothing for it to attend to"
        )
    if encoders and not _attends_to_memory(last):
        field = "block" if model.decoder_block is None else "decoder_block"
        raise ConfigError(
            "model.kind = encoder-decoder needs a cross entry in the decoder's block: "
            f"model.{field} does not give one"
        )


def _attends_to_memory(stack: StackShape) -> bool:
    return any(entry.kind.attends_to == "memory" for entry in stack.block)


def _check_heads(model: ModelConfig) -> None:
    if model.d_head is None and model.d_model % model.n_heads:
        raise ConfigError(
            f"model.n_heads = {model.n_heads} must divide model.d_model = {model.d_model} (or give "
            "model.d_head)"
        )
    d_head = model.d_head or model.d_model // model.n_heads
    scheme = POSITIONS[model.positions]
    if scheme.even_width == "head" and d_head % 2:
        raise ConfigError(
            f"model.positions = {model.positions} needs an even model.d_head, not {d_head}"
        )


def _check_embedding(model: ModelConfig) -> None:
    width = embedding_width(model)
    scheme = POSITIONS[model.positions]
    if scheme.even_width != "embedding" or width % 2 == 0:
        return
    is_narrow = model.embedding_projection == "sum" and model.d_embed
    name = "d_embed" if is_narrow else "d_model"
    raise ConfigError(
        f"model.positions = {model.positions} needs an even model.{name}, not {width}"
    )


def _check_buckets(model: ModelConfig) -> None:
    n_buckets = model.relative_buckets
    if n_buckets % 2:
        raise ConfigError(
            f"model.relative_buckets = {n_buckets} is odd, and half of them have one distance "
            f"each: give {n_buckets - 1} or {n_buckets + 1}"
        )
    for stack in stacks(model):
        n_of_side = n_buckets if stack.is_causal else n_buckets // 2
        n_exact = n_exact_buckets(n_of_side)
        if model.relative_distance <= n_exact:
            raise ConfigError(
                f"model.relative_distance = {model.relative_distance} is within the {n_exact} "
                f"exact buckets of a side that model.relative_buckets = {n_buckets} makes in the "
                f"{stack.name}: give more than {n_exact}, or fewer buckets"
            )


def _check_sharing(model: ModelConfig) -> None:
    has_shared = any(shares(model, entry) for entry in entries(model))
    if model.share in ("attention", "ffn") and not has_shared:
        raise ConfigError(
            f"model.share = {model.share} has nothing to share: model.block has no {model.share} "
            "entry"
        )
    for stack in stacks(model):
        name = "n_layers" if stack.n_layers == model.n_layers else "n_decoder_layers"
        layers = f"model.{name} = {stack.n_layers}"
        if stack.n_layers % model.share_inner:
            raise ConfigError(f"model.share_inner = {model.share_inner} must divide {layers}")
        units = stack.n_layers // model.share_inner
        if model.share_groups > units:
            raise ConfigError(
                f"model.share_groups = {model.share_groups} is more than the "
                f"{count(units, 'unit')} of {count(model.share_inner, 'block')} in {layers}"
            )
