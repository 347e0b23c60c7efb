"""GPT-1's config.json, as transformers writes it, to and from a model's config."""

from collections.abc import Mapping
from typing import Any

from sublayer.config.architecture.stacks import entries
from sublayer.config.resolved import ResolvedModel
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.interop.activations import activation_name, named_activation_fields
from sublayer.interop.gpt1.gpt1_fields import ACTIVATIONS
from sublayer.interop.gpt2 import gpt2_config
from sublayer.interop.huggingface.class_fields import ClassConfig

_NAMES = {elsewhere: name for name, elsewhere in reversed(ACTIVATIONS.items())}


def read_config(gpt1: ClassConfig, heads: Mapping[str, Any]) -> ResolvedModel:
    """Convert GPT-1's config.json and the fields of its heads to a resolved model config.

    Raises CheckpointError, naming the field, where it asks for what a recipe cannot say.
    """
    given = gpt1.fields
    d_model = given["n_embd"]
    fields = {
        "n_layers": given["n_layer"],
        "d_model": d_model,
        "n_heads": gpt1.heads("n_head", "n_embd", d_model),
        "d_ff": 4 * d_model,
        **named_activation_fields(ACTIVATIONS[given["afn"]]),
        "norm_order": "post",
        "norm_eps": given["layer_norm_epsilon"],
        "tie_embeddings": given["tie_word_embeddings"],
        "dropout": given["resid_pdrop"],
        "dropout_attention": given["attn_pdrop"],
        "dropout_embedding": given["embd_pdrop"],
        "init": "normal",
        "init_std": given["initializer_range"],
        "vocab_size": given["vocab_size"],
        "max_len": given["n_positions"],
        **heads,
    }
    return gpt1.resolve(fields, context=given["n_positions"])


def required_fields(config: ResolvedModel) -> dict[str, Any]:
    """Return the fields, with their values, of what GPT-1 always has (see ``expand``)."""
    return {**gpt2_config.required_fields(config), "final_norm": "none", "softmax": "tokens"}


def write_config(config: ResolvedModel, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Convert an expanded model config to GPT-1's config.json.

    The dropout of hidden ffn units, which training alone sees, is left out.
    """
    end_id = None if tokenizer is None else tokenizer.end_id
    pad_id = None if tokenizer is None else tokenizer.pad_id
    activation = activation_name(str(entries(config)[1].variant), config.gelu)
    return {
        **({} if pad_id is None else {"pad_token_id": pad_id}),
        "architectures": ["OpenAIGPTLMHeadModel"],
        "model_type": "openai-gpt",
        "afn": _NAMES[activation],
        "attn_pdrop": config.dropout_attention,
        "bos_token_id": end_id,
        "embd_pdrop": config.dropout_embedding,
        "eos_token_id": end_id,
        "initializer_range": config.init_std,
        "layer_norm_epsilon": config.norm_eps,
        "n_embd": config.d_model,
        "n_head": config.n_heads,
        "n_layer": config.n_layers,
        "n_positions": config.max_len,
        "resid_pdrop": config.dropout,
        "tie_word_embeddings": config.tie_embeddings,
        "dtype": "float32",
        "vocab_size": config.vocab_size,
    }
