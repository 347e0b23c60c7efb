"""Derive unset fields of ``[model]`` from those that are set, by one rule per field."""

from typing import Any

from sublayer.config.contradictions import check_model
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import stacks


def resolve_model(model: ModelConfig, *, vocab_size: int, context: int) -> ResolvedModel:
    """Resolve every derived field of a model.

    ``vocab_size`` is the tokenizer's, ``context`` the training window in tokens. Raises ConfigError
    where fields contradict each other, and where the model has fewer tokens or positions than
    those.
    """
    check_model(model, vocab_size=vocab_size, context=context)
    if model.kind == "lstm":
        model = model.model_copy(update=OF_NO_BLOCKS)
    # Derived values may lie beyond the limits of a recipe's own.
    derived = derive(model, vocab_size=vocab_size, context=context)
    return ResolvedModel.model_construct(**{**dict(model), **derived})


def derive(model: ModelConfig, *, vocab_size: int, context: int) -> dict[str, Any]:
    """Return the derived fields of a model, without a check."""
    is_pre_norm = model.norm != "none" and model.norm_order == "pre"
    multiple = model.vocab_multiple
    decoder: dict[str, Any] = dict.fromkeys(DECODER_FIELDS)
    if model.kind == "encoder-decoder":
        stack = stacks(model)[-1]
        block = tuple(str(entry) for entry in stack.block)
        decoder = {"n_decoder_layers": stack.n_layers, "decoder_block": block}
    return {
        **decoder,
        "d_head": model.d_head or model.d_model // model.n_heads,
        "d_ff": model.d_ff or 4 * model.d_model,
        "d_embed": model.d_embed or model.d_model,
        "norm_eps": model.norm_eps or (1e-6 if model.norm == "rms" else 1e-5),
        "final_norm": model.final_norm or ("affine" if is_pre_norm else "none"),
        "dropout_attention": _or(model.dropout_attention, model.dropout),
        "dropout_ffn": model.dropout_ffn or 0.0,
        "dropout_embedding": _or(model.dropout_embedding, model.dropout),
        "vocab_size": model.vocab_size or -(-vocab_size // multiple) * multiple,
        "max_len": model.max_len or context,
    }


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
