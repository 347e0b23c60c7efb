"""What a recipe leaves unset, derived from what it says: one rule per field."""

from dataclasses import dataclass
from typing import Any, Literal

from sublayer.config.block import Entry, parse_block, with_cross
from sublayer.config.model import ModelConfig
from sublayer.errors import ConfigError

GATED = ("glu", "bilinear", "reglu", "geglu", "swiglu")


def resolve_model(model: ModelConfig, *, vocab_size: int, context: int) -> ModelConfig:
    """Fill every derived field of a model; the result has no None.

    ``vocab_size`` is the tokenizer's, ``context`` the training window in tokens. Raises ConfigError where fields
    contradict each other.
    """
    check_model(model)
    d_head = model.d_head or model.d_model // model.n_heads
    rows = model.vocab_size or vocab_size
    if rows < vocab_size:
        raise ConfigError(f"model.vocab_size = {rows} is smaller than the tokenizer's vocabulary of {vocab_size}")
    max_len = model.max_len or context
    if max_len < context:
        raise ConfigError(f"model.max_len = {max_len} is shorter than data.context = {context}")
    default_final = "affine" if model.norm != "none" and model.norm_order == "pre" else "none"
    return model.model_copy(
        update={
            **_decoder_fields(model),
            "d_head": d_head,
            "d_ff": model.d_ff or 4 * model.d_model,
            "d_embed": model.d_embed or model.d_model,
            "norm_eps": model.norm_eps or (1e-6 if model.norm == "rms" else 1e-5),
            "final_norm": model.final_norm or default_final,
            "dropout_attention": model.dropout if model.dropout_attention is None else model.dropout_attention,
            "dropout_ffn": model.dropout_ffn or 0.0,
            "dropout_embedding": model.dropout if model.dropout_embedding is None else model.dropout_embedding,
            "vocab_size": rows,
            "max_len": max_len,
        }
    )


DECODER_FIELDS = ("n_decoder_layers", "decoder_block")
"""What only a decoder beside an encoder has; None elsewhere, also in a resolved config."""


@dataclass(frozen=True)
class StackShape:
    """A stack of a model: executed blocks, and the sub-layers of each in order, each ffn with its variant."""

    name: Literal["encoder", "decoder"]
    n_layers: int
    block: tuple[Entry, ...]

    @property
    def is_causal(self) -> bool:
        """Whether a token sees only itself and what is before it."""
        return self.name == "decoder"


def stacks(model: ModelConfig) -> tuple[StackShape, ...]:
    """The stacks of a model, the one that gives its output last."""
    block = parse_block(model.block, default_ffn=model.ffn)
    if model.kind != "encoder-decoder":
        return (StackShape(model.kind, model.n_layers, block),)
    if model.decoder_block is None:
        decoder_block = with_cross(block)
    else:
        decoder_block = parse_block(model.decoder_block, default_ffn=model.ffn, field="model.decoder_block")
    n_decoder_layers = model.n_decoder_layers or model.n_layers
    return StackShape("encoder", model.n_layers, block), StackShape("decoder", n_decoder_layers, decoder_block)


def entries(model: ModelConfig) -> tuple[Entry, ...]:
    """Every kind of sub-layer that a model has, stack by stack."""
    return tuple(entry for stack in stacks(model) for entry in stack.block)


def shares(model: ModelConfig, entry: Entry) -> bool:
    """Whether the blocks of a stack share the weights of an entry; ``attention`` stands for cross entries too."""
    return model.share == "all" or model.share == ("attention" if entry.name == "cross" else entry.name)


def _decoder_fields(model: ModelConfig) -> dict[str, Any]:
    if model.kind != "encoder-decoder":
        return dict.fromkeys(DECODER_FIELDS)
    decoder = stacks(model)[-1]
    return {"n_decoder_layers": decoder.n_layers, "decoder_block": tuple(map(str, decoder.block))}


def is_factorised(model: ModelConfig) -> bool:
    """Whether projections stand between the token table's width and the model's."""
    return model.project_embeddings == "always" or (model.d_embed or model.d_model) != model.d_model


def embedding_width(model: ModelConfig) -> int:
    """The width of the sum of token, position and segment vectors."""
    return (model.d_embed or model.d_model) if model.embedding_projection == "sum" else model.d_model


def head_activation(model: ModelConfig) -> str:
    """The activation of a transform head: relu, gelu or swish."""
    if model.head_activation != "ffn":
        return model.head_activation
    return "gelu" if model.ffn in GATED else model.ffn


def check_model(model: ModelConfig) -> None:
    """Raise ConfigError where two fields of a model contradict each other, naming both."""
    names = [entry.name for entry in entries(model)]
    if any(entry.name == "cross" for entry in parse_block(model.block, default_ffn=model.ffn)):
        what = "the encoder" if model.kind == "encoder-decoder" else f"model.kind = {model.kind}"
        raise ConfigError(f"model.block has a cross entry, but {what} has nothing for it to attend to")
    if model.kind == "encoder-decoder" and "cross" not in names:
        field = "block" if model.decoder_block is None else "decoder_block"
        raise ConfigError(
            f"model.kind = encoder-decoder needs a cross entry in the decoder's block: model.{field} does not give one"
        )
    if "attention" in names or "cross" in names:
        _check_heads(model)
    if model.positions == "sinusoidal" and embedding_width(model) % 2:
        name = "d_embed" if model.embedding_projection == "sum" and model.d_embed else "d_model"
        raise ConfigError(f"model.positions = sinusoidal needs an even model.{name}, not {embedding_width(model)}")
    if model.norm == "none" and model.final_norm in ("affine", "plain"):
        raise ConfigError(f"model.final_norm = {model.final_norm} contradicts model.norm = none")
    if model.share != "none":
        _check_sharing(model)


def _check_heads(model: ModelConfig) -> None:
    if model.d_head is None and model.d_model % model.n_heads:
        raise ConfigError(
            f"model.n_heads = {model.n_heads} must divide model.d_model = {model.d_model} (or give model.d_head)"
        )
    d_head = model.d_head or model.d_model // model.n_heads
    if model.positions == "rotary" and d_head % 2:
        raise ConfigError(f"model.positions = rotary needs an even model.d_head, not {d_head}")


def _check_sharing(model: ModelConfig) -> None:
    if model.share in ("attention", "ffn") and not any(shares(model, entry) for entry in entries(model)):
        raise ConfigError(f"model.share = {model.share} has nothing to share: model.block has no {model.share} entry")
    for stack in stacks(model):
        field = "n_layers" if stack.n_layers == model.n_layers else "n_decoder_layers"
        if stack.n_layers % model.share_inner:
            raise ConfigError(f"model.share_inner = {model.share_inner} must divide model.{field} = {stack.n_layers}")
        units = stack.n_layers // model.share_inner
        if model.share_groups > units:
            raise ConfigError(
                f"model.share_groups = {model.share_groups} is more than the {units} units of {model.share_inner} "
                f"block(s) in model.{field} = {stack.n_layers}"
            )
