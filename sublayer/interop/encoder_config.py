"""BERT's config.json, as transformers writes it, to and from a model's config; what ALBERT's has in common with it."""

from typing import Any

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import entries, head_activation, is_factorised
from sublayer.data.vocabulary import Tokenizer
from sublayer.interop.class_fields import ClassConfig
from sublayer.interop.content import ACTIVATIONS, activation_name
from sublayer.interop.gpt2_config import unusual_blocks
from sublayer.interop.representable import ENCODERS, refused

Fields = dict[str, Any]


def read_bert(bert: ClassConfig, heads_found: Fields) -> ModelConfig:
    """Turn BERT's config.json into a resolved model config, with the fields of the heads that were found.

    Departure: what would be initialised anew is cut at two standard deviations, as BERT was released; transformers
    does not cut.

    Raises CheckpointError, naming the field, where it asks for what a recipe cannot say.
    """
    fields = {**shared_fields(bert), **heads_found, "n_layers": bert.fields["num_hidden_layers"]}
    return bert.resolve(fields, context=bert.fields["max_position_embeddings"])


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
        f"model.positions = {config.positions}": config.positions not in ENCODERS["positions"],
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
    return refused(config, ENCODERS, found)


def _ffns(config: ModelConfig) -> set[str]:
    return {str(entry.variant) for entry in entries(config) if entry.name == "ffn"}


def shared_fields(content: ClassConfig) -> Fields:
    """Read the fields that BERT and ALBERT both have."""
    given = content.fields
    ffn, gelu = ACTIVATIONS[given["hidden_act"]]
    return {
        "kind": "encoder",
        "d_model": given["hidden_size"],
        "n_heads": content.heads("num_attention_heads", "hidden_size", given["hidden_size"]),
        "d_ff": given["intermediate_size"],
        "ffn": ffn,
        "gelu": gelu,
        "norm_order": "post",
        "norm_eps": given["layer_norm_eps"],
        "embedding_norm": True,
        "segments": "both",
        "head": "transform",
        "head_bias": True,
        "tie_embeddings": given["tie_word_embeddings"],
        "dropout": given["hidden_dropout_prob"],
        "dropout_attention": given["attention_probs_dropout_prob"],
        "init": "truncated",
        "init_std": given["initializer_range"],
        "vocab_size": given["vocab_size"],
        "max_len": given["max_position_embeddings"],
    }
