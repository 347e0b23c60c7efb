"""BERT's config.json, as transformers writes it, to and from a model's config; what ALBERT's has in common with it."""

from typing import Any

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import entries, head_activation, is_factorised, resolve_model
from sublayer.data.vocabulary import Tokenizer
from sublayer.errors import CheckpointError
from sublayer.interop.content import Content, activation_name
from sublayer.interop.gpt2_config import unusual_blocks

# Fields that change what BERT and ALBERT compute in a way that a recipe cannot say.
_REFUSED = ("is_decoder", "add_cross_attention", "is_encoder_decoder", "pruned_heads", "quantization_config")

Fields = dict[str, Any]

# What transformers takes for a field that a config.json leaves out.
_BERT_DEFAULTS: Fields = {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "vocab_size": 30522,
    "dropout": 0.1,
}


def read_bert(bert: Content, heads_found: Fields) -> ModelConfig:
    """Turn BERT's config.json into a resolved model config, with the fields of the heads that were found.

    Departure: what would be initialised anew is cut at two standard deviations, as BERT was released; transformers
    does not cut.

    Raises CheckpointError, naming the field, where it is malformed, or asks for what a recipe cannot say.
    """
    fields = shared_fields(bert, _BERT_DEFAULTS)
    return resolved({**fields, **heads_found, "n_layers": bert.whole("num_hidden_layers", 12)})


def written_out(config: ModelConfig) -> Fields:
    """Name the fields, with their values, of what BERT always has (see ``written_out.write_out``)."""
    return {
        "bias": True,
        "norm_affine": True,
        "head_bias": True,
        "positions": "learned",
        "segments": "both",
        "tie_embeddings": config.tie_embeddings and config.embedding_scale == "none",
        "embedding_scale": "none",
        "share": "none",
        "share_groups": 1,
        "share_inner": 1,
    }


def write_bert(config: ModelConfig, tokenizer: Tokenizer | None, *, architecture: str) -> dict[str, Any]:
    """Turn a written-out model config into BERT's config.json.

    Dropout that training alone sees and BERT has not (of hidden ffn units, or another of the embeddings) is left out,
    as is the initialisation's cut, which transformers does not make.
    """
    return {
        "architectures": [architecture],
        "model_type": "bert",
        "attention_probs_dropout_prob": config.dropout_attention,
        "bos_token_id": None if tokenizer is None else tokenizer.cls_id,
        "eos_token_id": None if tokenizer is None else tokenizer.sep_id,
        "hidden_act": activation_name(str(entries(config)[1].variant), config.gelu),
        "hidden_dropout_prob": config.dropout,
        "hidden_size": config.d_model,
        "initializer_range": config.init_std,
        "intermediate_size": config.d_ff,
        "layer_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_len,
        "num_attention_heads": config.n_heads,
        "num_hidden_layers": config.n_layers,
        "pad_token_id": None if tokenizer is None else tokenizer.pad_id,
        "tie_word_embeddings": config.tie_embeddings,
        "dtype": "float32",
        "type_vocab_size": 2,
        "vocab_size": config.vocab_size,
    }


def unrepresentable(config: ModelConfig) -> list[str]:
    """Name the fields of a resolved config that ALBERT's class has no equal for; BERT's has none for more."""
    head = head_activation(config)
    found = {
        f"model.kind = {config.kind}": config.kind != "encoder",
        **unusual_blocks(config),
        f"model.norm_order = {config.norm_order}": config.norm == "layer" and config.norm_order != "post",
        f"model.final_norm = {config.final_norm}": config.final_norm != "none",
        f"model.embedding_norm = {str(config.embedding_norm).lower()}": not config.embedding_norm,
        f"model.positions = {config.positions}": config.positions in ("rotary", "learned-per-layer"),
        f"model.d_head = {config.d_head}": config.d_head is None or config.d_head * config.n_heads != config.d_model,
        f"model.embedding_projection = {config.embedding_projection}": (
            is_factorised(config) and config.embedding_projection != "sum"
        ),
        f"model.attention_scale = {config.attention_scale}": config.attention_scale != "sqrt",
        f"model.head = {config.head}": config.head != "transform",
        f"model.head_activation = {head}": config.head == "transform" and head not in _ffns(config),
        f"model.sentence_classes = {config.sentence_classes}": config.sentence_classes == 1,
        f"model.pooler = {config.pooler}": config.sentence_classes == 2 and config.pooler == "none",
    }
    return [name for name, is_refused in found.items() if is_refused]


def _ffns(config: ModelConfig) -> set[str]:
    return {str(entry.variant) for entry in entries(config) if entry.name == "ffn"}


def shared_fields(content: Content, defaults: Fields) -> Fields:
    """Read the fields that BERT and ALBERT both have; ``defaults`` are taken for those that a file leaves out."""
    content.refuse(_REFUSED)
    if (kind := content.fields.get("position_embedding_type") or "absolute") != "absolute":
        raise CheckpointError(f"{content.file} asks for what a recipe cannot say: position_embedding_type = {kind!r}")
    if (n_types := content.whole("type_vocab_size", 2)) != 2:
        raise CheckpointError(f"{content.file} asks for what a recipe cannot say: type_vocab_size = {n_types}, not 2")
    d_model = content.whole("hidden_size", defaults["hidden_size"])
    dropout = content.share("hidden_dropout_prob", defaults["dropout"])
    return {
        "kind": "encoder",
        "d_model": d_model,
        "n_heads": content.heads("num_attention_heads", defaults["num_attention_heads"], "hidden_size", d_model),
        "d_ff": content.whole("intermediate_size", defaults["intermediate_size"]),
        **content.activation("hidden_act", defaults["hidden_act"]),
        "norm_order": "post",
        "norm_eps": content.positive("layer_norm_eps", 1e-12),
        "embedding_norm": True,
        "segments": "both",
        "head": "transform",
        "head_bias": True,
        "tie_embeddings": content.flag("tie_word_embeddings"),
        "dropout": dropout,
        "dropout_attention": content.share("attention_probs_dropout_prob", defaults["dropout"]),
        "init": "truncated",
        "init_std": content.positive("initializer_range", 0.02),
        "vocab_size": content.whole("vocab_size", defaults["vocab_size"]),
        "max_len": content.whole("max_position_embeddings", 512),
    }


def resolved(fields: Fields) -> ModelConfig:
    """Make a resolved config of all its fields."""
    config = ModelConfig.model_validate(fields)
    return resolve_model(config, vocab_size=fields["vocab_size"], context=fields["max_len"])
