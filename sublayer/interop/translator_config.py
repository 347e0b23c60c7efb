"""The config.json of M2M100 and Marian, as transformers writes them, to and from a model's config."""

from collections.abc import Sequence
from typing import Any

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import stacks
from sublayer.data.vocabulary import Tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.class_fields import ClassConfig
from sublayer.interop.content import ACTIVATIONS, FFNS, Content, activation_name
from sublayer.interop.representable import TRANSLATORS, refused
from sublayer.model.cost import need

_EPS = 1e-5
"""What the layer norms of both classes add to the variance, which no config says."""


def read_m2m100(content: ClassConfig) -> ModelConfig:
    """Turn M2M100's config.json into a resolved model config: pre-norm, fairseq's sinusoids.

    Raises CheckpointError, naming the field, where it asks for what a recipe cannot say.
    """
    given = content.fields
    start = given["decoder_start_token_id"]
    if start != given["eos_token_id"]:
        raise CheckpointError(f"{content.file}: decoder_start_token_id = {start} is not the end, which alone is read")
    first = given["pad_token_id"] + 1
    own = {"norm_order": "pre", "sinusoids": "fairseq", "first_position": first, "decoder_start": "end"}
    return _read(content, own)


def read_marian(content: ClassConfig) -> ModelConfig:
    """Turn Marian's config.json into a resolved model config: post-norm, sinusoids of its own, a bias of the logits."""
    given = content.fields
    n_rows, n_targets = given["vocab_size"], given["decoder_vocab_size"]
    if n_targets not in (None, n_rows):
        raise CheckpointError(
            f"{content.file}: decoder_vocab_size = {n_targets} is not vocab_size = {n_rows}: two tables cannot be one"
        )
    pad, start = given["pad_token_id"], given["decoder_start_token_id"]
    if start not in (pad, given["eos_token_id"]):
        raise CheckpointError(f"{content.file}: decoder_start_token_id = {start} is neither padding nor the end")
    own = {"norm_order": "post", "sinusoids": "marian", "decoder_start": "pad" if start == pad else "end"}
    return _read(content, {**own, "head_bias": True})


def _read(content: ClassConfig, own: dict[str, Any]) -> ModelConfig:
    given = content.fields
    widths = read_widths(content, ("ffn_dim", "attention_heads"))
    ffn, gelu = ACTIVATIONS[given["activation_function"]]
    fields = {
        "kind": "encoder-decoder",
        "n_layers": given["encoder_layers"],
        "n_decoder_layers": given["decoder_layers"],
        "d_model": given["d_model"],
        "n_heads": content.heads("encoder_attention_heads", "d_model", given["d_model"]),
        "d_ff": widths["ffn_dim"],
        "ffn": ffn,
        "gelu": gelu,
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
    """Read what is said of the encoder and of the decoder. Raises CheckpointError where the two differ."""
    found = {}
    for name in names:
        encoder, decoder = (content.whole(f"{side}_{name}") for side in ("encoder", "decoder"))
        if encoder != decoder:
            raise CheckpointError(
                f"{content.file}: encoder_{name} = {encoder} and decoder_{name} = {decoder}: both stacks have one width"
            )
        found[name] = encoder
    return found


def written_out(config: ModelConfig) -> dict[str, Any]:
    """Name the fields, with their values, of what both classes always have (see ``written_out.write_out``)."""
    return {"bias": True, "norm_affine": True, "share": "none", "head_bias": config.norm_order == "post"}


def write_config(config: ModelConfig, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Turn a written-out model config into M2M100's config.json, or Marian's for post-norm models."""
    encoder, decoder = stacks(config)
    is_marian = config.norm_order == "post"
    ids = _special_ids(config, tokenizer)
    start = ids["pad_token_id" if config.decoder_start == "pad" else "eos_token_id"]
    own = {"decoder_vocab_size": config.vocab_size, "share_encoder_decoder_embeddings": True} if is_marian else {}
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


def _special_ids(config: ModelConfig, tokenizer: Tokenizer | None) -> dict[str, int]:
    """Give the tokenizer's special ids; where there is none, those that the classes have by default."""
    if config.norm_order == "post":
        usual = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": need(config.vocab_size) - 1}
    else:
        usual = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": config.first_position - 1}
    if tokenizer is None:
        return usual
    found = {"bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id, "pad_token_id": tokenizer.pad_id}
    known = {name: value for name, value in found.items() if value is not None}
    if config.norm_order == "pre" and known.get("pad_token_id") != usual["pad_token_id"]:
        raise ConfigError(
            f"M2M100's class numbers positions from its padding on: model.first_position = {config.first_position} "
            f"does not follow the tokenizer's padding, {known.get('pad_token_id')}, so the model cannot be exported"
        )
    return usual | known


def unrepresentable(config: ModelConfig) -> list[str]:
    """Name the fields of a resolved config that neither class has an equal for."""
    blocks = [[(entry.name, entry.step) for entry in stack.block] for stack in stacks(config)]
    usual = [[("attention", 1.0), ("ffn", 1.0)], [("attention", 1.0), ("cross", 1.0), ("ffn", 1.0)]]
    variants = {str(entry.variant) for stack in stacks(config) for entry in stack.block if entry.name == "ffn"}
    is_post = config.norm_order == "post"
    final = "none" if is_post else "affine"
    forms = ("marian",) if is_post else ("fairseq",)
    found = {
        f"model.block = {config.block}": blocks != usual,
        f"model.ffn = {', '.join(sorted(variants))}": len(variants) != 1 or not variants <= set(FFNS),
        f"model.norm = {config.norm}": config.norm != "layer",
        f"model.norm_eps = {config.norm_eps:g}": config.norm_eps != _EPS,
        f"model.final_norm = {config.final_norm}": config.norm == "layer" and config.final_norm != final,
        f"model.embedding_norm = {str(config.embedding_norm).lower()}": config.embedding_norm,
        f"model.positions = {config.positions}": config.positions != "sinusoidal",
        f"model.sinusoids = {config.sinusoids}": config.positions == "sinusoidal" and config.sinusoids not in forms,
        f"model.first_position = {config.first_position}": (config.first_position > 0) == is_post,
        # M2M100 gives padding no position, wherever it stands.
        f"model.decoder_start = {config.decoder_start}": config.decoder_start == "pad" and not is_post,
        f"model.d_head = {config.d_head}": config.d_head is None or config.d_head * config.n_heads != config.d_model,
        f"model.d_embed = {config.d_embed}": config.d_embed != config.d_model,
        f"model.project_embeddings = {config.project_embeddings}": config.project_embeddings == "always",
        f"model.attention_scale = {config.attention_scale}": config.attention_scale != "sqrt",
        f"model.head = {config.head}": config.head != "linear",
        f"model.head_bias = {str(config.head_bias).lower()}": config.head_bias and not is_post,
    }
    return refused(config, TRANSLATORS, found)
