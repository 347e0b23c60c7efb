"""T5's config.json, as transformers writes it, to and from a model's config."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sublayer.config.architecture.stacks import stacks
from sublayer.config.resolved import ResolvedModel
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.huggingface.class_fields import ClassConfig
from sublayer.interop.t5.t5_networks import (
    computed_activation,
    is_gated,
    network_fields,
    network_name,
)
from sublayer.interop.t5.t5_weights import OUTPUT
from sublayer.interop.values import format_value


def read_config(content: ClassConfig, weights: Mapping[str, Tensor]) -> ResolvedModel:
    """Convert T5's config.json to a resolved model config.

    ``weights`` are those that ``prepare`` left: they say whether the output matrix is the table,
    of which the class makes no question of the config. The output is scaled where
    ``scale_decoder_outputs`` says so, and without it unless ``tie_word_embeddings`` is false.

    Raises CheckpointError, naming the field, where it asks for what a recipe cannot say.
    """
    given = content.fields
    _check_network(content)
    is_scaled = given["scale_decoder_outputs"]
    if is_scaled is None:
        is_scaled = given["tie_word_embeddings"]
    dropout = given["dropout_rate"]
    fields = {
        "kind": "encoder-decoder",
        "n_layers": given["num_layers"],
        "n_decoder_layers": given["num_decoder_layers"],
        "d_model": given["d_model"],
        "n_heads": given["num_heads"],
        "d_head": given["d_kv"],
        "d_ff": given["d_ff"],
        **network_fields(given["feed_forward_proj"]),
        "norm": "rms",
        "norm_eps": given["layer_norm_epsilon"],
        "positions": "relative",
        "relative_buckets": given["relative_attention_num_buckets"],
        "relative_distance": given["relative_attention_max_distance"],
        "attention_scale": "none",
        "bias": False,
        "tie_embeddings": OUTPUT not in weights,
        "output_scale": "sqrt" if is_scaled else "none",
        "decoder_start": _read_start(content),
        "dropout": dropout,
        "dropout_ffn": dropout,
        "dropout_final": dropout,
        "init": "t5",
        "vocab_size": given["vocab_size"],
        "max_len": given["n_positions"],
    }
    return content.resolve(fields)


def _check_network(content: ClassConfig) -> None:
    """Raise CheckpointError where a file has another activation than its ``feed_forward_proj``."""
    network = content.fields["feed_forward_proj"]
    computed = {
        "dense_act_fn": computed_activation(network),
        "is_gated_act": is_gated(network),
    }
    for name, value in computed.items():
        if content.fields[name] not in (None, value):
            raise CheckpointError(
                f"{content.file}: {name} = {format_value(content.fields[name])} contradicts "
                f"feed_forward_proj = {format_value(network)}: leave it out"
            )


def _read_start(content: ClassConfig) -> str:
    given = content.fields
    start = given["decoder_start_token_id"]
    if start in (None, given["pad_token_id"]):
        return "pad"
    if start != given["eos_token_id"]:
        raise CheckpointError(
            f"{content.file}: decoder_start_token_id = {start} is neither padding nor the end"
        )
    return "end"


def required_fields(config: ResolvedModel) -> dict[str, Any]:
    """Return the fields, with their values, of what the class always has (see ``expand``)."""
    return {
        "norm_affine": True,
        "final_norm": "affine",
        "share": "none",
        "tie_embeddings": config.tie_embeddings and config.embedding_scale == "none",
        "embedding_scale": "none",
    }


def write_config(config: ResolvedModel, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Convert an expanded config to T5's config.json.

    Raises ConfigError where a special id is beyond the vocabulary.
    """
    encoder, decoder = stacks(config)
    ids = _special_ids(config, tokenizer)
    start_name = "pad_token_id" if config.decoder_start == "pad" else "eos_token_id"
    network = network_name(str(encoder.block[1].variant), config.gelu)
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "d_ff": config.d_ff,
        "d_kv": config.d_head,
        "d_model": config.d_model,
        "decoder_start_token_id": ids[start_name],
        "dense_act_fn": computed_activation(network),
        "dropout_rate": config.dropout,
        "dtype": "float32",
        "feed_forward_proj": network,
        "is_encoder_decoder": True,
        "is_gated_act": is_gated(network),
        "layer_norm_epsilon": config.norm_eps,
        "n_positions": config.max_len,
        "num_decoder_layers": decoder.n_layers,
        "num_heads": config.n_heads,
        "num_layers": encoder.n_layers,
        "relative_attention_max_distance": config.relative_distance,
        "relative_attention_num_buckets": config.relative_buckets,
        "scale_decoder_outputs": config.output_scale == "sqrt",
        "tie_word_embeddings": config.tie_embeddings,
        "vocab_size": config.vocab_size,
        **ids,
    }


def _special_ids(config: ResolvedModel, tokenizer: Tokenizer | None) -> dict[str, int]:
    """Return the tokenizer's padding and end, and T5's own where it has none."""
    ids = {"eos_token_id": 1, "pad_token_id": 0}
    if tokenizer is not None:
        own = {"eos_token_id": tokenizer.sep_id, "pad_token_id": tokenizer.pad_id}
        ids |= {name: id_ for name, id_ in own.items() if id_ is not None}
    for name, value in ids.items():
        if value >= config.vocab_size:
            raise ConfigError(
                f"model.vocab_size = {config.vocab_size} has no room for {name} = {value}, "
                "without which the model cannot be exported"
            )
    return ids
