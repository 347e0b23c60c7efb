"""M2M100's and Marian's config.json, as transformers writes them, to and from a model's config."""

from collections.abc import Sequence
from typing import Any

from sublayer.config.architecture.stacks import stacks
from sublayer.config.resolved import ResolvedModel
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.activations import activation_name, named_activation_fields
from sublayer.interop.config_reader import Content
from sublayer.interop.huggingface.class_fields import ClassConfig

_EPS = 1e-5
"""What the layer norms of both classes add to the variance, which no config says."""


def read_m2m100(content: ClassConfig) -> ResolvedModel:
    """Convert M2M100's config.json to a resolved model config: pre-norm, fairseq's sinusoids.

    Raises CheckpointError, naming the field, where it asks for what a recipe cannot say.
    """
    given = content.fields
    start = given["decoder_start_token_id"]
    if start != given["eos_token_id"]:
        raise CheckpointError(
            f"{content.file}: decoder_start_token_id = {start} is not the end, which alone is read"
        )
    first = given["pad_token_id"] + 1
    own = {
        "norm_order": "pre",
        "sinusoids": "fairseq",
        "first_position": first,
        "decoder_start": "end",
    }
    return _read(content, own)


def read_marian(content: ClassConfig) -> ResolvedModel:
    """Convert Marian's config.json to a resolved model config.

    It is post-norm, with sinusoids of its own and a bias of the logits. Raises CheckpointError,
    naming the field, where it asks for what a recipe cannot say.
    """
    given = content.fields
    n_rows = given["vocab_size"]
    n_targets = given["decoder_vocab_size"]
    if n_targets not in (None, n_rows):
        raise CheckpointError(
            f"{content.file}: decoder_vocab_size = {n_targets} is not vocab_size = {n_rows}: "
            "two tables cannot be one"
        )
    pad = given["pad_token_id"]
    start = given["decoder_start_token_id"]
    if start not in (pad, given["eos_token_id"]):
        raise CheckpointError(
            f"{content.file}: decoder_start_token_id = {start} is neither padding nor the end"
        )
    own = {
        "norm_order": "post",
        "sinusoids": "marian",
        "decoder_start": "pad" if start == pad else "end",
    }
    return _read(content, {**own, "head_bias": True})


def _read(content: ClassConfig, own: dict[str, Any]) -> ResolvedModel:
    given = content.fields
    widths = read_widths(content, ("ffn_dim", "attention_heads"))
    fields = {
        "kind": "encoder-decoder",
        "n_layers": given["encoder_layers"],
        "n_decoder_layers": given["decoder_layers"],
        "d_model": given["d_model"],
        "n_heads": content.heads("encoder_attention_heads", "d_model", given["d_model"]),
        "d_ff": widths["ffn_dim"],
        **named_activation_fields(given["activation_function"]),
        "norm_eps": _EPS,
        "tie_embeddings": given["tie_word_embeddings"],
        "positions": "sinusoidal",
        "embedding_scale": "sqrt" if given["scale_embedding"] else "none",
        "dropout": given["dropout"],
        "dropout_attention": given["attention_dropout"],
        "dropout_ffn": given["activation_dropout"],
        "init": "normal",
        "init_std": given["init_std"],
        "vocab_size": given["vocab_size"],
        "max_len": given["max_position_embeddings"],
        **own,
    }
    return content.resolve(fields)


def read_widths(content: Content, names: Sequence[str]) -> dict[str, int]:
    """Read what is said of both stacks, ``encoder_`` and ``decoder_`` before each of ``names``.

    Raises CheckpointError where the two differ.
    """
    found = {}
    for name in names:
        encoder = content.whole(f"encoder_{name}")
        decoder = content.whole(f"decoder_{name}")
        if encoder != decoder:
            raise CheckpointError(
                f"{content.file}: encoder_{name} = {encoder} and decoder_{name} = {decoder}: "
                "both stacks have one width"
            )
        found[name] = encoder
    return found


def required_fields(config: ResolvedModel) -> dict[str, Any]:
    """Return the fields, with their values, of what both classes always have (see ``expand``)."""
    return {
        "bias": True,
        "norm_affine": True,
        "share": "none",
        "head_bias": config.norm_order == "post",
    }


def write_config(config: ResolvedModel, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Convert an expanded config to M2M100's config.json, or Marian's for post-norm models.

    Raises ConfigError where M2M100's positions do not follow the tokenizer's padding, or a special
    id is beyond the vocabulary.
    """
    encoder, decoder = stacks(config)
    is_marian = config.norm_order == "post"
    ids = _special_ids(config, tokenizer)
    start_name = "pad_token_id" if config.decoder_start == "pad" else "eos_token_id"
    start = ids[start_name]
    own: dict[str, Any] = {}
    if is_marian:
        own["decoder_vocab_size"] = config.vocab_size
        own["share_encoder_decoder_embeddings"] = True
    return {
        "architectures": ["MarianMTModel" if is_marian else "M2M100ForConditionalGeneration"],
        "model_type": "marian" if is_marian else "m2m_100",
        "activation_dropout": config.dropout_ffn,
        "activation_function": activation_name(str(encoder.block[1].variant), config.gelu),
        "attention_dropout": config.dropout_attention,
        "d_model": config.d_model,
        "decoder_attention_heads": config.n_heads,
        "decoder_ffn_dim": config.d_ff,
        "decoder_layerdrop": 0.0,
        "decoder_layers": decoder.n_layers,
        "decoder_start_token_id": start,
        "dropout": config.dropout,
        "dtype": "float32",
        "encoder_attention_heads": config.n_heads,
        "encoder_ffn_dim": config.d_ff,
        "encoder_layerdrop": 0.0,
        "encoder_layers": encoder.n_layers,
        "init_std": config.init_std,
        "is_encoder_decoder": True,
        "max_position_embeddings": config.max_len,
        "scale_embedding": config.embedding_scale == "sqrt",
        "tie_word_embeddings": config.tie_embeddings,
        "vocab_size": config.vocab_size,
        **ids,
        **own,
    }


def _special_ids(config: ResolvedModel, tokenizer: Tokenizer | None) -> dict[str, int]:
    """Return the tokenizer's special ids, and those of the class by default that it has not."""
    vocab_size = config.vocab_size
    if config.norm_order == "post":
        ids = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": vocab_size - 1}
    else:
        ids = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": config.first_position - 1}
    if tokenizer is not None:
        _check_padding(config, tokenizer)
        own = {
            "bos_token_id": tokenizer.cls_id,
            "eos_token_id": tokenizer.sep_id,
            "pad_token_id": tokenizer.pad_id,
        }
        for name, id_ in own.items():
            if id_ is not None:
                ids[name] = id_
    for name, value in ids.items():
        if value >= vocab_size:
            raise ConfigError(
                f"model.vocab_size = {vocab_size} has no room for {name} = {value}, "
                "without which the model cannot be exported"
            )
    return ids


def _check_padding(config: ResolvedModel, tokenizer: Tokenizer) -> None:
    if config.norm_order == "pre" and tokenizer.pad_id != config.first_position - 1:
        raise ConfigError(
            "M2M100's class numbers positions from its padding on: model.first_position = "
            f"{config.first_position} does not follow the tokenizer's padding, {tokenizer.pad_id}, "
            "so the model cannot be exported"
        )
