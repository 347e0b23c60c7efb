"""GPT-2's config.json, as transformers writes it, to and from a model's config."""

from collections.abc import Mapping
from typing import Any

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import entries, resolve_model
from sublayer.errors import CheckpointError, ConfigError

# transformers' activation -> (model.ffn, model.gelu). The two tanh forms are one formula.
ACTIVATIONS: dict[str, tuple[str, str]] = {
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "gelu": ("gelu", "exact"),
    "gelu_python": ("gelu", "exact"),
    "relu": ("relu", "tanh"),
    "silu": ("swish", "tanh"),
    "swish": ("swish", "tanh"),
}
# Fields that change what GPT-2 computes in a way that a recipe cannot say, and the only value that is understood.
_REFUSED = ("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention", "quantization_config")


def read_config(gpt2: Mapping[str, Any]) -> ModelConfig:
    """Turn GPT-2's config.json into a resolved model config.

    Raises CheckpointError, naming the field, where it is of another model, is malformed, or asks for what a recipe
    cannot say.
    """
    if gpt2.get("model_type") != "gpt2":
        raise CheckpointError(f"config.json has model_type = {gpt2.get('model_type')!r}; only 'gpt2' can be imported")
    if named := [f"{name} = {gpt2[name]!r}" for name in _REFUSED if gpt2.get(name)]:
        raise CheckpointError(f"config.json asks for what a recipe cannot say: {', '.join(named)}")
    ffn, gelu = _activation(gpt2)
    d_model, max_len = _whole(gpt2, "n_embd", 768), _whole(gpt2, "n_positions", 1024)
    n_heads = _whole(gpt2, "n_head", 12)
    if d_model % n_heads:
        raise CheckpointError(f"config.json: n_head = {n_heads} does not divide n_embd = {d_model}")
    vocab_size = _whole(gpt2, "vocab_size", 50257)
    fields = {
        "n_layers": _whole(gpt2, "n_layer", 12),
        "d_model": d_model,
        "n_heads": n_heads,
        "d_ff": _whole(gpt2, "n_inner", 4 * d_model),
        "ffn": ffn,
        "gelu": gelu,
        "norm_eps": _positive(gpt2, "layer_norm_epsilon", 1e-5),
        "tie_embeddings": _flag(gpt2, "tie_word_embeddings"),
        "attention_scale": "sqrt" if _flag(gpt2, "scale_attn_weights") else "none",
        "dropout": _share(gpt2, "resid_pdrop", 0.1),
        "dropout_attention": _share(gpt2, "attn_pdrop", 0.1),
        "dropout_embedding": _share(gpt2, "embd_pdrop", 0.1),
        "init_std": _positive(gpt2, "initializer_range", 0.02),
        "vocab_size": vocab_size,
        "max_len": max_len,
    }
    config = ModelConfig.model_validate(fields)
    return resolve_model(config, vocab_size=vocab_size, context=max_len)


def write_config(config: ModelConfig, *, end_id: int | None) -> dict[str, Any]:
    """Turn a resolved model config into GPT-2's config.json.

    What GPT-2 always has and the model lacks is written as what has no effect: no biases as zeros, norms without
    parameters as gain 1 and offset 0, shared weights once per block, positions that are a fixed table or none as a
    table, scaled embeddings as an untied table. The dropout of hidden ffn units, which training alone sees, is left
    out.

    Raises ConfigError that names every field GPT-2's class cannot represent.
    """
    if refused := unrepresentable(config):
        raise ConfigError(f"GPT-2's class cannot represent {', '.join(refused)}: the model cannot be exported")
    names = {pair: name for name, pair in reversed(ACTIVATIONS.items())}
    ffn = entries(config)[1].variant
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": names[str(ffn), config.gelu if ffn == "gelu" else "tanh"],
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
        "tie_word_embeddings": is_tied(config),
        "dtype": "float32",
        "use_cache": True,
        "vocab_size": config.vocab_size,
    }


def is_tied(config: ModelConfig) -> bool:
    """Whether the export has one table for input and output: scaled embeddings need a scaled one and a plain one."""
    return config.tie_embeddings and config.embedding_scale == "none"


def unrepresentable(config: ModelConfig) -> list[str]:
    """Name the fields of a resolved config that GPT-2's class has no equal for."""
    block = entries(config)
    shape = [(entry.name, entry.step) for entry in block]
    is_standard = shape == [("attention", 1.0), ("ffn", 1.0)]
    variants = {str(entry.variant) for entry in block if entry.name == "ffn"} - {ffn for ffn, _ in ACTIVATIONS.values()}
    found = {
        f"model.kind = {config.kind}": config.kind != "decoder",
        f"model.block = {_shown(config.block)}": not is_standard,
        f"model.ffn = {', '.join(sorted(variants))}": bool(variants),
        f"model.norm = {config.norm}": config.norm != "layer",
        f"model.norm_order = {config.norm_order}": config.norm == "layer" and config.norm_order != "pre",
        f"model.final_norm = {config.final_norm}": config.norm == "layer" and config.final_norm == "none",
        f"model.positions = {config.positions}": config.positions in ("rotary", "learned-per-layer"),
        f"model.d_head = {config.d_head}": config.d_head is None or config.d_head * config.n_heads != config.d_model,
        f"model.d_embed = {config.d_embed}": config.d_embed != config.d_model,
        f"model.head_bias = {str(config.head_bias).lower()}": config.head_bias,
    }
    return [name for name, is_refused in found.items() if is_refused]


def _shown(block: str | tuple[str, ...]) -> str:
    return block if isinstance(block, str) else str(list(block))


def _activation(gpt2: Mapping[str, Any]) -> tuple[str, str]:
    name = gpt2.get("activation_function", "gelu_new")
    if name not in ACTIVATIONS:
        raise CheckpointError(f"config.json: activation_function = {name!r} is not one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _whole(gpt2: Mapping[str, Any], name: str, default: int) -> int:
    value = gpt2.get(name)
    if value is None:
        return default
    if type(value) is not int or value < 1:
        raise CheckpointError(f"config.json: {name} = {value!r} is not a whole number of at least 1")
    return value


def _share(gpt2: Mapping[str, Any], name: str, default: float) -> float:
    value = gpt2.get(name, default)
    if type(value) not in (int, float) or not 0 <= value < 1:
        raise CheckpointError(f"config.json: {name} = {value!r} is not a number of at least 0 and less than 1")
    return float(value)


def _positive(gpt2: Mapping[str, Any], name: str, default: float) -> float:
    value = gpt2.get(name, default)
    if type(value) not in (int, float) or not 0 < value < float("inf"):
        raise CheckpointError(f"config.json: {name} = {value!r} is not a number greater than 0")
    return float(value)


def _flag(gpt2: Mapping[str, Any], name: str) -> bool:
    value = gpt2.get(name, True)
    if type(value) is not bool:
        raise CheckpointError(f"config.json: {name} = {value!r} is not true or false")
    return value
