"""GPT-2's config.json, as transformers writes it, to and from a model's config."""

from collections.abc import Mapping
from typing import Any

from sublayer.config.architecture.stacks import entries
from sublayer.config.resolved import ResolvedModel
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.interop.activations import activation_name, named_activation_fields
from sublayer.interop.huggingface.class_fields import ClassConfig


def read_config(gpt2: ClassConfig, heads: Mapping[str, Any]) -> ResolvedModel:
    """Convert GPT-2's config.json and the fields of its heads to a resolved model config.

    Raises CheckpointError, naming the field, where it asks for what a recipe cannot say.
    """
    given = gpt2.fields
    d_model = given["n_embd"]
    fields = {
        "n_layers": given["n_layer"],
        "d_model": d_model,
        "n_heads": gpt2.heads("n_head", "n_embd", d_model),
        "d_ff": given["n_inner"] or 4 * d_model,
        **named_activation_fields(given["activation_function"]),
        "norm_eps": given["layer_norm_epsilon"],
        "tie_embeddings": given["tie_word_embeddings"],
        "attention_scale": "sqrt" if given["scale_attn_weights"] else "none",
        "dropout": given["resid_pdrop"],
        "dropout_attention": given["attn_pdrop"],
        "dropout_embedding": given["embd_pdrop"],
        "init_std": given["initializer_range"],
        "vocab_size": given["vocab_size"],
        "max_len": given["n_positions"],
        **heads,
    }
    return gpt2.resolve(fields, context=given["n_positions"])


def required_fields(config: ResolvedModel) -> dict[str, Any]:
    """Return the fields, with their values, of what GPT-2 always has (see ``expand``).

    Scaled embeddings need a scaled table and a plain one.
    """
    return {
        "bias": True,
        "norm_affine": True,
        "final_norm": "affine",
        "positions": "learned",
        "share": "none",
        "tie_embeddings": config.tie_embeddings and config.embedding_scale == "none",
        "embedding_scale": "none",
    }


def write_config(config: ResolvedModel, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Convert an expanded model config to GPT-2's config.json.

    The dropout of hidden ffn units, which training alone sees, is left out.
    """
    end_id = None if tokenizer is None else tokenizer.end_id
    pad_id = None if tokenizer is None else tokenizer.pad_id
    return {
        **({} if pad_id is None else {"pad_token_id": pad_id}),
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": activation_name(str(entries(config)[1].variant), config.gelu),
        "attn_pdrop": config.dropout_attention,
        "bos_token_id": end_id,
        "embd_pdrop": config.dropout_embedding,
        "eos_token_id": end_id,
        "initializer_range": config.init_std,
        "layer_norm_epsilon": config.norm_eps,
        "n_embd": config.d_model,
        "n_head": config.n_heads,
        "n_inner": config.d_ff,
        "n_layer": config.n_layers,
        "n_positions": config.max_len,
        "resid_pdrop": config.dropout,
        "scale_attn_weights": config.attention_scale == "sqrt",
        "tie_word_embeddings": config.tie_embeddings,
        "dtype": "float32",
        "use_cache": True,
        "vocab_size": config.vocab_size,
    }
