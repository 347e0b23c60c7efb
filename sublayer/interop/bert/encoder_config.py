"""BERT's config.json to and from a model's config, and what ALBERT's has in common with it."""

from typing import Any

from sublayer.config.architecture.stacks import entries
from sublayer.config.resolved import ResolvedModel
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.interop.activations import activation_name, named_activation_fields
from sublayer.interop.huggingface.class_fields import ClassConfig

Fields = dict[str, Any]


def read_bert(bert: ClassConfig, heads_found: Fields) -> ResolvedModel:
    """Convert BERT's config.json and the fields of its heads to a resolved config.

    Departure: what would be initialised anew is cut at two standard deviations, as BERT was
    released; transformers does not cut.

    Raises CheckpointError, naming the field, where it asks for what a recipe cannot say.
    """
    n_layers = bert.fields["num_hidden_layers"]
    fields = {**shared_fields(bert), **heads_found, "n_layers": n_layers}
    return bert.resolve(fields, context=bert.fields["max_position_embeddings"])


def required_fields(config: ResolvedModel) -> Fields:
    """Return the fields, with their values, of what BERT always has (see ``expand``)."""
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


def write_bert(
    config: ResolvedModel, tokenizer: Tokenizer | None, *, architecture: str
) -> dict[str, Any]:
    """Convert an expanded model config to BERT's config.json.

    Dropout that training alone sees and BERT has not (of hidden ffn units, or another of the
    embeddings) is left out, as is the initialisation's cut, which transformers does not make.
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


def shared_fields(content: ClassConfig) -> Fields:
    """Read the fields that BERT and ALBERT both have, as fields of a model.

    Raises CheckpointError where the heads do not divide the width.
    """
    given = content.fields
    return {
        "kind": "encoder",
        "d_model": given["hidden_size"],
        "n_heads": content.heads("num_attention_heads", "hidden_size", given["hidden_size"]),
        "d_ff": given["intermediate_size"],
        **named_activation_fields(given["hidden_act"]),
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
