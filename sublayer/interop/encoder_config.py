"""The config.json of BERT and of ALBERT, as transformers writes them, to and from a model's config."""

from typing import Any

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import entries, head_activation, is_factorised, resolve_model
from sublayer.errors import CheckpointError
from sublayer.interop.fields import Content, activation, activation_name, flag, heads, positive, refuse, share, whole
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
_ALBERT_DEFAULTS: Fields = {
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "hidden_act": "gelu_new",
    "vocab_size": 30000,
    "dropout": 0.0,
}


def read_bert(bert: Content, heads_found: Fields) -> ModelConfig:
    """Turn BERT's config.json into a resolved model config, with the fields of the heads that were found.

    Raises CheckpointError, naming the field, where it is malformed, or asks for what a recipe cannot say.
    """
    fields = _shared_fields(bert, _BERT_DEFAULTS)
    return _resolved({**fields, **heads_found, "n_layers": whole(bert, "num_hidden_layers", 12)})


def read_albert(albert: Content, heads_found: Fields, *, has_projection: bool) -> ModelConfig:
    """Turn ALBERT's config.json into a resolved model config, with the fields of the heads that were found.

    A group for each layer is no sharing. ``has_projection`` says that embeddings are projected also where they are as
    wide as the model. Raises CheckpointError, naming the field, where it is malformed, or asks for
    what a recipe cannot say.
    """
    fields = _shared_fields(albert, _ALBERT_DEFAULTS)
    n_units, n_groups = whole(albert, "num_hidden_layers", 12), whole(albert, "num_hidden_groups", 1)
    n_inner = whole(albert, "inner_group_num", 1)
    if n_groups > n_units:
        raise CheckpointError(f"config.json: num_hidden_groups = {n_groups} is more than num_hidden_layers = {n_units}")
    sharing: Fields = {"share": "all", "share_groups": n_groups, "share_inner": n_inner}
    if n_groups == n_units > 1 and n_inner == 1:
        sharing = {"share": "none"}
    d_embed = whole(albert, "embedding_size", 128)
    is_forced = has_projection and d_embed == fields["d_model"]
    width: Fields = {
        "d_embed": d_embed,
        "embedding_projection": "sum",
        "project_embeddings": "always" if is_forced else "as-needed",
    }
    return _resolved({**fields, **sharing, **width, **heads_found, "n_layers": n_units * n_inner})


def written_out(config: ModelConfig, *, is_albert: bool) -> Fields:
    """Name the fields, with their values, of what BERT, or ALBERT, always has (see ``written_out.write_out``).

    ALBERT always projects the embeddings; what shares in another way than in groups is written with a group a layer.
    """
    shared = {
        "bias": True,
        "norm_affine": True,
        "head_bias": True,
        "positions": "learned",
        "segments": "both",
        "tie_embeddings": config.tie_embeddings and config.embedding_scale == "none",
        "embedding_scale": "none",
    }
    if is_albert:
        shared |= {"embedding_projection": "sum", "project_embeddings": "always"}
    if not (is_albert and config.share == "all" and groups_as_released(config)):
        shared |= {"share": "none", "share_groups": 1, "share_inner": 1}
    return shared


def groups_as_released(config: ModelConfig) -> bool:
    """Whether transformers' ALBERT, which divides in floating point, gives each unit of blocks the same group."""
    n_units, n_groups = config.n_layers // config.share_inner, config.share_groups
    return all(int(unit / (n_units / n_groups)) == unit * n_groups // n_units for unit in range(n_units))


def write_bert(config: ModelConfig, *, architecture: str, end_id: int | None) -> dict[str, Any]:
    """Turn a written-out model config into BERT's config.json.

    Dropout that training alone sees and BERT has not (of hidden ffn units, or another of the embeddings) is left out,
    as is the initialisation's cut, which transformers does not make.
    """
    return {
        "architectures": [architecture],
        "model_type": "bert",
        "attention_probs_dropout_prob": config.dropout_attention,
        "bos_token_id": end_id,
        "eos_token_id": end_id,
        "hidden_act": activation_name(str(entries(config)[1].variant), config.gelu),
        "hidden_dropout_prob": config.dropout,
        "hidden_size": config.d_model,
        "initializer_range": config.init_std,
        "intermediate_size": config.d_ff,
        "layer_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_len,
        "num_attention_heads": config.n_heads,
        "num_hidden_layers": config.n_layers,
        "pad_token_id": None,
        "tie_word_embeddings": config.tie_embeddings,
        "dtype": "float32",
        "type_vocab_size": 2,
        "vocab_size": config.vocab_size,
    }


def write_albert(config: ModelConfig, *, architecture: str, end_id: int | None) -> dict[str, Any]:
    """Turn a written-out model config into ALBERT's config.json, leaving out what ``write_bert`` does."""
    n_groups = config.share_groups if config.share == "all" else config.n_layers
    return {
        **write_bert(config, architecture=architecture, end_id=end_id),
        "model_type": "albert",
        "embedding_size": config.d_embed,
        "inner_group_num": config.share_inner,
        "num_hidden_groups": n_groups,
        "num_hidden_layers": config.n_layers // config.share_inner,
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


def _shared_fields(content: Content, defaults: Fields) -> Fields:
    refuse(content, _REFUSED)
    if (kind := content.get("position_embedding_type") or "absolute") != "absolute":
        raise CheckpointError(f"config.json asks for what a recipe cannot say: position_embedding_type = {kind!r}")
    if (n_types := whole(content, "type_vocab_size", 2)) != 2:
        raise CheckpointError(f"config.json asks for what a recipe cannot say: type_vocab_size = {n_types}, not 2")
    ffn, gelu = activation(content, "hidden_act", defaults["hidden_act"])
    d_model = whole(content, "hidden_size", defaults["hidden_size"])
    dropout = share(content, "hidden_dropout_prob", defaults["dropout"])
    return {
        "kind": "encoder",
        "d_model": d_model,
        "n_heads": heads(content, "num_attention_heads", defaults["num_attention_heads"], "hidden_size", d_model),
        "d_ff": whole(content, "intermediate_size", defaults["intermediate_size"]),
        "ffn": ffn,
        "gelu": gelu,
        "norm_order": "post",
        "norm_eps": positive(content, "layer_norm_eps", 1e-12),
        "embedding_norm": True,
        "segments": "both",
        "head": "transform",
        "head_bias": True,
        "tie_embeddings": flag(content, "tie_word_embeddings"),
        "dropout": dropout,
        "dropout_attention": share(content, "attention_probs_dropout_prob", defaults["dropout"]),
        "init": "truncated",
        "init_std": positive(content, "initializer_range", 0.02),
        "vocab_size": whole(content, "vocab_size", defaults["vocab_size"]),
        "max_len": whole(content, "max_position_embeddings", 512),
    }


def _resolved(fields: Fields) -> ModelConfig:
    config = ModelConfig.model_validate(fields)
    return resolve_model(config, vocab_size=fields["vocab_size"], context=fields["max_len"])
