"""GPT-2's config.json, as transformers writes it, to and from a model's config."""

from typing import Any

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import entries
from sublayer.data.vocabulary import Tokenizer
from sublayer.interop.class_fields import ClassConfig
from sublayer.interop.content import ACTIVATIONS, FFNS, activation_name
from sublayer.interop.representable import GPT2, refused


def read_config(gpt2: ClassConfig) -> ModelConfig:
    """Turn GPT-2's config.json into a resolved model config.

    Raises CheckpointError, naming the field, where it asks for what a recipe cannot say.
    """
    given = gpt2.fields
    d_model = given["n_embd"]
    ffn, gelu = ACTIVATIONS[given["activation_function"]]
    fields = {
        "n_layers": given["n_layer"],
        "d_model": d_model,
        "n_heads": gpt2.heads("n_head", "n_embd", d_model),
        "d_ff": given["n_inner"] or 4 * d_model,
        "ffn": ffn,
        "gelu": gelu,
        "norm_eps": given["layer_norm_epsilon"],
        "tie_embeddings": given["tie_word_embeddings"],
        "attention_scale": "sqrt" if given["scale_attn_weights"] else "none",
        "dropout": given["resid_pdrop"],
        "dropout_attention": given["attn_pdrop"],
        "dropout_embedding": given["embd_pdrop"],
        "init_std": given["initializer_range"],
        "vocab_size": given["vocab_size"],
        "max_len": given["n_positions"],
    }
    return gpt2.resolve(fields, context=given["n_positions"])


def written_out(config: ModelConfig) -> dict[str, Any]:
    """Name the fields, with their values, of what GPT-2 always has (see ``written_out.write_out``).

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


def write_config(config: ModelConfig, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Turn a written-out model config into GPT-2's config.json.

    The dropout of hidden ffn units, which training alone sees, is left out.
    """
    end_id = None if tokenizer is None else tokenizer.end_id
    return {
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


def unrepresentable(config: ModelConfig) -> list[str]:
    """Name the fields of a resolved config that GPT-2's class has no equal for."""
    found = {
        f"model.kind = {config.kind}": config.kind != "decoder",
        **unusual_blocks(config),
        f"model.norm_order = {config.norm_order}": config.norm == "layer" and config.norm_order != "pre",
        f"model.final_norm = {config.final_norm}": config.norm == "layer" and config.final_norm == "none",
        f"model.embedding_norm = {str(config.embedding_norm).lower()}": config.embedding_norm,
        f"model.positions = {config.positions}": config.positions not in GPT2["positions"],
        f"model.d_head = {config.d_head}": config.d_head is None or config.d_head * config.n_heads != config.d_model,
        f"model.d_embed = {config.d_embed}": config.d_embed != config.d_model,
        f"model.project_embeddings = {config.project_embeddings}": config.project_embeddings == "always",
        f"model.head = {config.head}": config.head != "linear",
        f"model.head_bias = {str(config.head_bias).lower()}": config.head_bias,
    }
    return refused(config, GPT2, found)


def unusual_blocks(config: ModelConfig) -> dict[str, bool]:
    """Tell of the fields of a block which are beyond attention, one plain network and LayerNorm."""
    block = entries(config)
    is_standard = [(entry.name, entry.step) for entry in block] == [("attention", 1.0), ("ffn", 1.0)]
    variants = {str(entry.variant) for entry in block if entry.name == "ffn"} - set(FFNS)
    shown = config.block if isinstance(config.block, str) else str(list(config.block))
    return {
        f"model.block = {shown}": not is_standard,
        f"model.ffn = {', '.join(sorted(variants))}": bool(variants),
        f"model.norm = {config.norm}": config.norm != "layer",
    }
