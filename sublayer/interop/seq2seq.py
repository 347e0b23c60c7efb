"""M2M100 and Marian, as transformers has them, and the weights of fairseq's translators."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop import translator_tokenizers
from sublayer.interop.family import Family, Fields, Tensors
from sublayer.interop.foreign_config import (
    ACTIVATIONS,
    ALWAYS_IGNORED,
    NEVER,
    ClassConfig,
    ClassFields,
    Field,
    harmless,
    names,
    network,
    optional,
    rule_of,
    same,
    switch,
    token_id,
    training_only,
)
from sublayer.interop.representable import Rule, Table
from sublayer.interop.weight_map import BlockNames, Pair
from sublayer.model.model_folder import check_float
from sublayer.model.positions import sinusoids

_FIELDS: dict[str, Field] = {
    "max_position_embeddings": same(1024, "max_len"),
    "encoder_layers": same(12, "n_layers"),
    "encoder_ffn_dim": same(4096, "d_ff"),
    "encoder_attention_heads": same(16, "n_heads"),
    "decoder_layers": same(12, "n_decoder_layers"),
    "decoder_ffn_dim": same(4096, "d_ff"),
    "decoder_attention_heads": same(16, "n_heads"),
    "d_model": same(1024, "d_model"),
    "tie_word_embeddings": same(True, "tie_embeddings"),
    "dropout": same(0.1, "dropout"),
    "activation_dropout": same(0.0, "dropout_ffn"),
    "init_std": same(0.02, "init_std"),
    "is_encoder_decoder": harmless(True),
    **NEVER,
}
_ALIASES = {
    "num_attention_heads": "encoder_attention_heads",
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
}
# Layers that training drops are not dropped here; what Marian's class once took for other models it
# takes no more.
_IGNORED = ALWAYS_IGNORED | names(
    """
    add_bias_logits add_final_layer_norm classif_dropout decoder_layerdrop encoder_layerdrop
    extra_pos_embeddings normalize_before normalize_embedding save_step static_position_embeddings
    """
)
M2M100_FIELDS = ClassFields(
    title="M2M100Config",
    fields={
        **_FIELDS,
        "vocab_size": same(128112, "vocab_size"),
        "activation_function": network("relu", ACTIVATIONS),
        "attention_dropout": same(0.1, "dropout_attention"),
        "scale_embedding": switch(True, "embedding_scale", "sqrt", "none"),
        "pad_token_id": Field(1, token_id),
        "decoder_start_token_id": training_only(2, token_id),
        "eos_token_id": training_only(2, token_id),
    },
    aliases=_ALIASES,
    ignored=_IGNORED,
)
MARIAN_FIELDS = ClassFields(
    title="MarianConfig",
    fields={
        **_FIELDS,
        "vocab_size": same(58101, "vocab_size"),
        "decoder_vocab_size": Field(None, optional(rule_of("vocab_size"))),
        "activation_function": network("gelu", ACTIVATIONS),
        "attention_dropout": same(0.0, "dropout_attention"),
        "scale_embedding": switch(False, "embedding_scale", "sqrt", "none"),
        "pad_token_id": Field(58100, token_id),
        "decoder_start_token_id": training_only(58100, token_id),
        "eos_token_id": training_only(0, token_id),
        "share_encoder_decoder_embeddings": harmless(True),
    },
    aliases=_ALIASES,
    ignored=_IGNORED,
)
_TABLE, _OUTPUT, _BIAS = "shared.weight", "lm_head.weight", "final_logits_bias"
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_POSITIONS = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
# Of a table in half precision, and of the float32 in which positions past a thousand were
# multiplied.
_ROUNDING = 2e-3


def _attention(norm: str, name: str) -> tuple[str, tuple[str, ...], str]:
    return norm, tuple(f"{name}.{letter}_proj" for letter in "qkv"), f"{name}.out_proj"


UNIT = "{stack}.layers.{layer}."
BLOCK: Mapping[str, BlockNames] = {
    "attention": _attention("self_attn_layer_norm", "self_attn"),
    "cross": _attention("encoder_attn_layer_norm", "encoder_attn"),
    "ffn": ("final_layer_norm", "fc1", "fc2"),
}


class M2M100(Family):
    """M2M100's class: pre-norm, fairseq's sinusoids."""

    model_type, name, title, fields = "m2m_100", "M2M100", "M2M100", M2M100_FIELDS
    constants: Fields = {
        "decoder_layerdrop": 0.0,
        "encoder_layerdrop": 0.0,
        "is_encoder_decoder": True,
    }
    always: Fields = {
        "kind": "encoder-decoder",
        "norm_order": "pre",
        "norm_affine": True,
        # No config says another.
        "norm_eps": 1e-5,
        "bias": True,
        "positions": "sinusoidal",
        "sinusoids": "fairseq",
        "share": "none",
        "head_bias": False,
        "init": "normal",
    }
    exceptions: Table = {
        # Padding has no position there.
        "decoder_start": ("end",),
        # Two frequencies or more: the class divides by the steps between them.
        "d_model": Rule(lambda config: config.d_model > 2),
        "final_norm": ("affine",),
        # Positions are numbered from the id of the padding on, which is an id of the vocabulary.
        "first_position": Rule(lambda config: 0 < config.first_position <= config.vocab_size),
    }
    prefix, heads = "model.", ("lm_head.", _BIAS)
    ties = {_OUTPUT: _TABLE}
    parts = (
        ("embedding", "shared"),
        ("final_norm", "decoder.layer_norm"),
        ("source.final_norm", "encoder.layer_norm"),
        ("head.weight", _OUTPUT),
    )
    unit, block = UNIT, BLOCK

    def is_ignored(self, name: str) -> bool:
        """Check whether the class computes a tensor itself."""
        return "embed_positions" in name

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Drop copies of the embedding matrix, which becomes ``shared.weight``.

        The output matrix is a copy where config.json ties it. Raises CheckpointError where a copy
        differs.
        """
        others = (_OUTPUT,) if content.fields["tie_word_embeddings"] else ()
        return super().prepare(content, one_table(tensors, *others))

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the first position. Raises CheckpointError where a target begins otherwise."""
        start = content.fields["decoder_start_token_id"]
        if start != content.fields["eos_token_id"]:
            raise CheckpointError(
                f"{content.file}: decoder_start_token_id = {start} is not the end, which alone is "
                "read"
            )
        return {"first_position": content.fields["pad_token_id"] + 1}

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids.

        Raises ConfigError where M2M100's positions do not follow the tokenizer's padding, or a
        special id is beyond the vocabulary.
        """
        return special_ids(config, tokenizer, self.default_ids(config, tokenizer))

    def default_ids(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> dict[str, int]:
        """Return the special ids of a model without a tokenizer."""
        pad_id = config.first_position - 1
        if tokenizer is not None and tokenizer.pad_id != pad_id:
            raise ConfigError(
                "M2M100's class numbers positions from its padding on: model.first_position = "
                f"{config.first_position} does not follow the tokenizer's padding, "
                f"{tokenizer.pad_id}, so the model cannot be exported"
            )
        return {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": pad_id}

    def copies(self, config: ResolvedModel) -> Mapping[str, str]:
        """Return each stack's table, where the output matrix is untied."""
        return {} if config.tie_embeddings else dict.fromkeys(_COPIES, _TABLE)

    def tokenizer_files(self, tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
        """Return the files of a tokenizer of two languages."""
        return translator_tokenizers.translator_files(tokenizer, max_len=max_len)

    def read_tokenizer(self, folder: Path, *, vocab_size: int) -> Tokenizer | None:
        """Read a tokenizer of two languages."""
        return translator_tokenizers.read_translators(folder, vocab_size=vocab_size)

    def describe_unread(self, folder: Path) -> str | None:
        """Return why the tokenizer is not read."""
        return translator_tokenizers.describe_unread(folder)


class Marian(M2M100):
    """Marian's class: post-norm, sinusoids of its own and a bias of the logits."""

    model_type, name, title, fields = "marian", "Marian", "Marian", MARIAN_FIELDS
    predicts = "MTModel"
    constants: Fields = {**M2M100.constants, "share_encoder_decoder_embeddings": True}
    always: Fields = {
        **M2M100.always,
        "norm_order": "post",
        "final_norm": "none",
        "sinusoids": "marian",
        "first_position": 0,
        "head_bias": True,
    }
    exceptions: Table = {"decoder_start": ("end", "pad")}

    def is_ignored(self, name: str) -> bool:
        """Return False: tables of sinusoids are compared."""
        return False

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Leave out tables of sinusoids, and the copies that M2M100 leaves out.

        Raises CheckpointError where such a table holds other numbers.
        """
        others = dict(tensors)
        for name in _POSITIONS:
            table = others.pop(name, None)
            if table is None:
                continue
            check_float(name, table)
            if table.dim() != 2 or not table.numel() or table.shape[1] % 2:
                raise CheckpointError(
                    f"{name} has shape {list(table.shape)}, which is no table of sinusoids"
                )
            expected = sinusoids(
                torch.arange(len(table)),
                d_model=table.shape[1],
                dtype=torch.float32,
                form="marian",
            )
            if not torch.allclose(table.float(), expected, rtol=0, atol=_ROUNDING):
                raise CheckpointError(
                    f"{name} holds other numbers than Marian's sinusoids, which alone are read"
                )
        return super().prepare(content, others)

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the first token of a target. Raises CheckpointError where it has other rows."""
        n_rows, n_targets = (content.fields[f"{side}vocab_size"] for side in ("", "decoder_"))
        if n_targets not in (None, n_rows):
            raise CheckpointError(
                f"{content.file}: decoder_vocab_size = {n_targets} is not vocab_size = {n_rows}: "
                "two tables cannot be one"
            )
        return {"decoder_start": read_start(content)}

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors; the bias of the logits is a row."""
        yield from super().pairs(config)
        yield Pair((_BIAS,), "head.bias", is_row=True)

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids, and the size of the target's vocabulary, the same."""
        ids = super().written(config, tokenizer)
        return {**ids, "decoder_vocab_size": config.vocab_size}

    def default_ids(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> dict[str, int]:
        """Return the special ids of a model without a tokenizer."""
        return {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": config.vocab_size - 1}


def read_start(content: ClassConfig) -> str:
    """Return the first token of targets, ``pad`` or ``end``.

    Raises CheckpointError where it is neither.
    """
    ids = content.fields
    start = ids["decoder_start_token_id"]
    if start in (None, ids["pad_token_id"]):
        return "pad"
    if start != ids["eos_token_id"]:
        raise CheckpointError(
            f"{content.file}: decoder_start_token_id = {start} is neither padding nor the end"
        )
    return "end"


def special_ids(
    config: ResolvedModel, tokenizer: Tokenizer | None, defaults: Mapping[str, int]
) -> dict[str, int]:
    """Return the tokenizer's special ids that ``defaults`` name, and those where it has none.

    The id that a target begins with is one of them. Raises ConfigError where one is beyond the
    vocabulary.
    """
    ids = dict(defaults)
    roles = {"bos_token_id": "cls_id", "eos_token_id": "sep_id", "pad_token_id": "pad_id"}
    for name, default in defaults.items():
        known = getattr(tokenizer, roles[name], None)
        ids[name] = default if known is None else known
        if ids[name] >= config.vocab_size:
            raise ConfigError(
                f"model.vocab_size = {config.vocab_size} has no room for {name} = {ids[name]}, "
                "without which the model cannot be exported"
            )
    start = "pad_token_id" if config.decoder_start == "pad" else "eos_token_id"
    return {**ids, "decoder_start_token_id": ids[start]}


def one_table(tensors: Tensors, *others: str) -> dict[str, Tensor]:
    """Drop the stacks' copies of the embedding matrix, which becomes ``shared.weight``.

    Files keep one of the tensors that are one; ``others`` may be it, too, and are not left out.

    Raises CheckpointError where a copy differs.
    """
    weights = dict(tensors)
    if _TABLE not in weights:
        kept = [name for name in (*_COPIES, *others) if name in weights]
        if kept:
            weights[_TABLE] = weights[kept[0]]
    for name in _COPIES:
        if name in weights and not torch.equal(weights[name], weights[_TABLE]):
            raise CheckpointError(
                f"the weights hold {name} that differs from {_TABLE}: several tables cannot be one"
            )
        weights.pop(name, None)
    return weights
