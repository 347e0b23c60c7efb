"""GPT-2's config.json, as transformers writes it, to and from a model's config."""

from typing import Any

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import entries, resolve_model
from sublayer.data.vocabulary import Tokenizer
from sublayer.interop.content import FFNS, Content, activation_name

# Fields that change what GPT-2 computes in a way that a recipe cannot say.
_REFUSED = ("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention", "quantization_config")


def read_config(gpt2: Content) -> ModelConfig:
    """Turn GPT-2's config.json into a resolved model config.

    Raises CheckpointError, naming the field, where it is malformed, or asks for what a recipe cannot say.
    """
    gpt2.refuse(_REFUSED)
    d_model, max_len = gpt2.whole("n_embd", 768), gpt2.whole("n_positions", 1024)
    vocab_size = gpt2.whole("vocab_size", 50257)
    fields = {
        "n_layers": gpt2.whole("n_layer", 12),
        "d_model": d_model,
        "n_heads": gpt2.heads("n_head", 12, "n_embd", d_model),
        "d_ff": gpt2.whole("n_inner", 4 * d_model),
        **gpt2.activation("activation_function", "gelu_new"),
        "norm_eps": gpt2.positive("layer_norm_epsilon", 1e-5),
        "tie_embeddings": gpt2.flag("tie_word_embeddings"),
        "attention_scale": "sqrt" if gpt2.flag("scale_attn_weights") else "none",
        "dropout": gpt2.share("resid_pdrop", 0.1),
        "dropout_attention": gpt2.share("attn_pdrop", 0.1),
        "dropout_embedding": gpt2.share("embd_pdrop", 0.1),
        "init_std": gpt2.positive("initializer_range", 0.02),
        "vocab_size": vocab_size,
        "max_len": max_len,
    }
    config = ModelConfig.model_validate(fields)
    return resolve_model(config, vocab_size=vocab_size, context=max_len)


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
        f"model.positions = {config.positions}": config.positions in ("rotary", "learned-per-layer"),
        f"model.d_head = {config.d_head}": config.d_head is None or config.d_head * config.n_heads != config.d_model,
        f"model.d_embed = {config.d_embed}": config.d_embed != config.d_model,
        f"model.project_embeddings = {config.project_embeddings}": config.project_embeddings == "always",
        f"model.head = {config.head}": config.head != "linear",
        f"model.head_bias = {str(config.head_bias).lower()}": config.head_bias,
    }
    return [name for name, is_refused in found.items() if is_refused]


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
