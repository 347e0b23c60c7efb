"""M2M100, Marian, BART and T5 of transformers, and the weights of fairseq's translators."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import processors
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import entries
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.data.tokenizers.sentencepiece import UnigramTokenizer
from sublayer.data.tokenizers.settings import AS_MODEL, AS_WRITTEN, CONFIG_NAME
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.family import Family, Fields, Tensors
from sublayer.interop.foreign_config import (
    ACTIVATIONS,
    ALWAYS_IGNORED,
    ANY,
    NEVER,
    ClassConfig,
    ClassFields,
    Field,
    Link,
    Rule,
    Table,
    flag,
    format_value,
    harmless,
    names,
    network,
    one_of,
    optional,
    rule_of,
    same,
    switch,
    token_id,
    training_only,
)
from sublayer.interop.tokenizers import (
    ANY_CLASS,
    FILE,
    as_library,
    describe_unread,
    framing_files,
    has_language_rules,
    library_file,
    read_translators,
    settings_file,
    split_marks,
    translator_files,
)
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
# Layer dropout affects only training; the others are former options of Marian's class.
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
BART_FIELDS = ClassFields(
    title="BartConfig",
    fields={
        **_FIELDS,
        "vocab_size": same(50265, "vocab_size"),
        "activation_function": network("gelu", ACTIVATIONS),
        "attention_dropout": same(0.0, "dropout_attention"),
        "scale_embedding": switch(False, "embedding_scale", "sqrt", "none"),
        "pad_token_id": Field(1, token_id),
        "decoder_start_token_id": training_only(2, token_id),
        "eos_token_id": training_only(2, token_id),
    },
    aliases=_ALIASES,
    ignored=_IGNORED,
)
_TABLE, _OUTPUT, _BIAS = "shared.weight", "lm_head.weight", "final_logits_bias"
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_POSITIONS = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
# Rounding of a table in half precision, and of products in float32 at positions past a thousand.
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
        # The class has no setting for it.
        "norm_eps": 1e-5,
        "bias": True,
        "positions": "sinusoidal",
        "sinusoids": "fairseq",
        "share": "none",
        "head_bias": False,
        "init": "normal",
    }
    exceptions: Table = {
        # Padding has no position in this class.
        "decoder_start": ("end",),
        # At least two frequencies: the class divides by their number less one.
        "d_model": Rule(lambda config: config.d_model > 2),
        "final_norm": ("affine",),
        # Positions are numbered from the padding id, which must be in the vocabulary.
        "first_position": Rule(lambda config: 0 < config.first_position <= config.vocab_size),
    }
    prefix, heads = "model.", ("lm_head.", _BIAS)
    ties = {_OUTPUT: _TABLE}
    parts: tuple[tuple[str, str], ...] = (
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
        """Return the first position; raise CheckpointError for targets not begun by the end id."""
        start = content.fields["decoder_start_token_id"]
        if start != content.fields["eos_token_id"]:
            raise CheckpointError(
                f"{content.file}: decoder_start_token_id = {start} is not eos_token_id, the only "
                "start that can be imported"
            )
        return {"first_position": content.fields["pad_token_id"] + 1}

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids.

        Raises ConfigError where M2M100's positions do not start from the tokenizer's padding id, or
        a special id is beyond the vocabulary.
        """
        return special_ids(config, tokenizer, self.default_ids(config, tokenizer))

    def default_ids(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> dict[str, int]:
        """Return the special ids of a model without a tokenizer."""
        pad_id = config.first_position - 1
        if tokenizer is not None and tokenizer.pad_id != pad_id:
            raise ConfigError(
                "M2M100's class numbers positions from the padding id plus 1: "
                f"model.first_position = {config.first_position} does not follow the tokenizer's "
                f"padding id, {tokenizer.pad_id}, so the model cannot be exported"
            )
        return {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": pad_id}

    def copies(self, config: ResolvedModel) -> Mapping[str, str]:
        """Return each stack's table, where the output matrix is untied."""
        return {} if config.tie_embeddings else dict.fromkeys(_COPIES, _TABLE)

    def tokenizer_files(self, tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
        """Return the files of a tokenizer of two languages."""
        return translator_files(tokenizer, max_len=max_len)

    def read_tokenizer(self, folder: Path, *, vocab_size: int) -> Tokenizer | None:
        """Read a tokenizer of two languages."""
        return read_translators(folder, vocab_size=vocab_size)

    def describe_unread(self, folder: Path) -> str | None:
        """Return why the tokenizer cannot be read; None where it can."""
        return describe_unread(folder)


class Marian(M2M100):
    """Marian's class: post-norm, its own sinusoids and a bias of the logits."""

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
        """Return False: tables of sinusoids are checked."""
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
                    f"{name} has shape {list(table.shape)}, not that of a table of sinusoids"
                )
            expected = sinusoids(
                torch.arange(len(table)),
                d_model=table.shape[1],
                dtype=torch.float32,
                form="marian",
            )
            if not torch.allclose(table.float(), expected, rtol=0, atol=_ROUNDING):
                raise CheckpointError(
                    f"{name} does not hold Marian's sinusoids, the only positions that can be "
                    "imported"
                )
        return super().prepare(content, others)

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return a target's first token; raise CheckpointError for vocabularies of two sizes."""
        n_rows, n_targets = (content.fields[f"{side}vocab_size"] for side in ("", "decoder_"))
        if n_targets not in (None, n_rows):
            raise CheckpointError(
                f"{content.file}: decoder_vocab_size = {n_targets} is not vocab_size = {n_rows}: "
                "source and target must share one embedding table"
            )
        return {"decoder_start": read_start(content)}

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors; the bias of the logits is a row."""
        yield from super().pairs(config)
        yield Pair((_BIAS,), "head.bias", is_row=True)

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids, and the target's vocabulary size, equal to the source's."""
        ids = super().written(config, tokenizer)
        return {**ids, "decoder_vocab_size": config.vocab_size}

    def default_ids(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> dict[str, int]:
        """Return the special ids of a model without a tokenizer."""
        return {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": config.vocab_size - 1}


_UNREAD_ROWS, _OF_M2M100 = 2, ("sinusoids", "head_bias")
_TABLES = ("positions.tables.0.weight", "source.positions.tables.0.weight")


class _OfTexts(Family):
    """Classes of translators, and of models of one language."""

    def read_tokenizer(self, folder: Path, *, vocab_size: int) -> Tokenizer | None:
        """Read the tokenizer: a bilingual one where an export kept both languages' rules."""
        if has_language_rules(folder):
            return read_translators(folder, vocab_size=vocab_size)
        return Family.read_tokenizer(self, folder, vocab_size=vocab_size)

    def describe_unread(self, folder: Path) -> str | None:
        """Return why a translator's tokenizer cannot be read; None where it can."""
        return describe_unread(folder) if has_language_rules(folder) else None


class Bart(_OfTexts, M2M100):
    """BART's class: post-norm, a norm of embeddings, and tables of positions after two rows."""

    model_type, name, title, fields = "bart", "Bart", "BART", BART_FIELDS
    always: Fields = {
        **{key: each for key, each in M2M100.always.items() if key not in _OF_M2M100},
        "norm_order": "post",
        "final_norm": "none",
        "embedding_norm": "affine",
        "positions": "learned",
    }
    exceptions: Table = {"decoder_start": ("end", "pad"), "head_bias": ANY}
    parts = (
        ("embedding", "shared"),
        ("positions.tables.0", "decoder.embed_positions"),
        ("embedding_norm", "decoder.layernorm_embedding"),
        ("source.positions.tables.0", "encoder.embed_positions"),
        ("source.embedding_norm", "encoder.layernorm_embedding"),
        ("head.weight", _OUTPUT),
    )

    def is_ignored(self, name: str) -> bool:
        """Return False: every tensor holds weights."""
        return False

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Drop the rows before the first position, a bias of zeros, and copies as M2M100 does."""
        weights = super().prepare(content, tensors)
        for name in _POSITIONS:
            if name in weights and weights[name].dim() == 2:
                weights[name] = weights[name][_UNREAD_ROWS:]
        if _BIAS in weights and not weights[_BIAS].any():
            del weights[_BIAS]
        return weights

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return a target's first token, and whether there is a bias of the logits."""
        return {"decoder_start": read_start(content), "head_bias": _BIAS in weights}

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors; the bias of the logits is a row."""
        yield from super().pairs(config)
        yield Pair((_BIAS,), "head.bias", is_row=True)

    def settle(
        self, config: ResolvedModel, weights: Tensors, tokenizer: Tokenizer | None = None
    ) -> dict[str, Tensor]:
        """Add rows of zeros before the first position."""
        unread = weights[_TABLES[0]].new_zeros(_UNREAD_ROWS, config.d_model)
        return {**weights, **{name: torch.cat([unread, weights[name]]) for name in _TABLES}}

    def default_ids(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> dict[str, int]:
        """Return the special ids of a model without a tokenizer."""
        return {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}

    def tokenizer_files(self, tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
        """Return the files of a tokenizer of two languages, or of one with marks around a text."""
        if isinstance(tokenizer, BilingualTokenizer):
            return translator_files(tokenizer, max_len=max_len)
        return framing_files(tokenizer, max_len=max_len, reads_segments=False)


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
            f"{content.file}: decoder_start_token_id = {start} is neither pad_token_id nor "
            "eos_token_id"
        )
    return "end"


def special_ids(
    config: ResolvedModel, tokenizer: Tokenizer | None, defaults: Mapping[str, int]
) -> dict[str, int]:
    """Return the tokenizer's special ids that ``defaults`` name, falling back to the defaults.

    Targets begin with one of them. Raises ConfigError where one is beyond the vocabulary.
    """
    ids = dict(defaults)
    roles = {"bos_token_id": "cls_id", "eos_token_id": "sep_id", "pad_token_id": "pad_id"}
    for name, default in defaults.items():
        id_ = getattr(tokenizer, roles[name], None)
        ids[name] = default if id_ is None else id_
        if ids[name] >= config.vocab_size:
            raise ConfigError(
                f"model.vocab_size = {config.vocab_size} has no room for {name} = {ids[name]}, "
                "which an export needs"
            )
    start = "pad_token_id" if config.decoder_start == "pad" else "eos_token_id"
    return {**ids, "decoder_start_token_id": ids[start]}


def one_table(tensors: Tensors, *others: str) -> dict[str, Tensor]:
    """Drop the stacks' copies of the embedding matrix, which becomes ``shared.weight``.

    Files keep only one of several tied tensors; it may be one of ``others``, which stay.

    Raises CheckpointError where a copy differs.
    """
    weights = dict(tensors)
    if _TABLE not in weights:
        present = [name for name in (*_COPIES, *others) if name in weights]
        if present:
            weights[_TABLE] = weights[present[0]]
    for name in _COPIES:
        if name in weights and not torch.equal(weights[name], weights[_TABLE]):
            raise CheckpointError(
                f"{name} differs from {_TABLE}: the stacks must share one embedding table"
            )
        weights.pop(name, None)
    return weights


_GATED = "gated-"
_NETWORKS: dict[str, tuple[str, str]] = {
    **ACTIVATIONS,
    # In gated networks only, the class reads "gelu" as the tanh form; the exact form has another
    # name.
    "gated-gelu": ("geglu", "tanh"),
    "gated-gelu_new": ("geglu", "tanh"),
    "gated-gelu_pytorch_tanh": ("geglu", "tanh"),
    "gated-gelu_python": ("geglu", "exact"),
    "gated-relu": ("reglu", "tanh"),
    "gated-silu": ("swiglu", "tanh"),
    "gated-swish": ("swiglu", "tanh"),
    "gated-sigmoid": ("glu", "tanh"),
    "gated-linear": ("bilinear", "tanh"),
}
_PROJECTION = "feed_forward_proj"


def _derived_fields(network: str) -> Fields:
    """Return the fields that the class derives from ``feed_forward_proj``."""
    activation = "gelu_new" if network == f"{_GATED}gelu" else network.removeprefix(_GATED)
    return {"dense_act_fn": activation, "is_gated_act": network.startswith(_GATED)}


T5_FIELDS = ClassFields(
    title="T5Config",
    fields={
        "vocab_size": same(32128, "vocab_size"),
        "d_model": same(512, "d_model"),
        "d_kv": same(64, "d_head"),
        "d_ff": same(2048, "d_ff"),
        "num_layers": same(6, "n_layers"),
        "num_decoder_layers": same(None, "n_decoder_layers"),
        "num_heads": same(8, "n_heads"),
        "relative_attention_num_buckets": same(32, "relative_buckets"),
        "relative_attention_max_distance": same(128, "relative_distance"),
        "layer_norm_epsilon": same(1e-6, "norm_eps"),
        _PROJECTION: network("relu", _NETWORKS),
        # Derived from the field above: a file may repeat it, but not contradict it.
        "dense_act_fn": Field(
            None, one_of(tuple(dict.fromkeys(name.removeprefix(_GATED) for name in _NETWORKS)))
        ),
        "is_gated_act": Field(None, flag),
        "tie_word_embeddings": same(True, "tie_embeddings"),
        # By default the output is scaled, unless a file has tie_word_embeddings = false.
        "scale_decoder_outputs": Field(None, flag),
        "dropout_rate": same(0.1, "dropout"),
        "initializer_factor": training_only(1.0, rule_of("init_std")),
        "pad_token_id": training_only(0, token_id),
        "eos_token_id": training_only(1, token_id),
        "decoder_start_token_id": training_only(None, optional(token_id)),
        # From former versions' files: the length that a model was trained at.
        "n_positions": training_only(512, rule_of("max_len"), Link("max_len")),
        "is_encoder_decoder": harmless(True),
        **NEVER,
    },
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    },
    ignored=ALWAYS_IGNORED,
)
_RELATIVE_BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias"


def _t5_attention(name: str) -> BlockNames:
    return "layer_norm", tuple(f"{name}.{letter}" for letter in "qkv"), f"{name}.o"


_T5_CLASS, _T5_UNK_ID = "T5Tokenizer", 2
"""The class of T5's tokenizer, and its unknown token, fixed in the class."""


class T5(_OfTexts):
    """T5's class, v1.0 and v1.1."""

    model_type, name, title, fields = "t5", "T5", "T5", T5_FIELDS
    constants: Fields = {"is_encoder_decoder": True}
    always: Fields = {
        "kind": "encoder-decoder",
        "norm": "rms",
        "norm_order": "pre",
        "norm_affine": True,
        "final_norm": "affine",
        "bias": False,
        "positions": "relative",
        "attention_scale": "none",
        "embedding_scale": "none",
        "share": "none",
        "init": "t5",
    }
    exceptions: Table = {"output_scale": ("none", "sqrt"), "decoder_start": ("end", "pad")}
    prefix, heads = "", (_OUTPUT,)
    # The first block's relative positions, shared by all blocks of a stack.
    parts = (
        ("embedding", "shared"),
        ("head.weight", _OUTPUT),
        ("source.positions.table", f"encoder.{_RELATIVE_BIAS}"),
        ("source.final_norm", "encoder.final_layer_norm"),
        ("positions.table", f"decoder.{_RELATIVE_BIAS}"),
        ("final_norm", "decoder.final_layer_norm"),
    )
    unit = "{stack}.block.{layer}.layer.{index}."

    def is_ignored(self, name: str) -> bool:
        """Check whether the class ignores a tensor: older files have cross-attention biases."""
        return name.endswith("EncDecAttention.relative_attention_bias.weight")

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Drop copies of the embedding matrix, which becomes ``shared.weight``.

        The output matrix is a copy where it equals the table and config.json does not untie them.
        An output matrix that differs is untied even where config.json ties it, as in the class.

        Raises CheckpointError where a stack's table differs.
        """
        weights = one_table(tensors, _OUTPUT)
        is_tied = content.fields["tie_word_embeddings"]
        if is_tied and _OUTPUT in weights and torch.equal(weights[_OUTPUT], weights[_TABLE]):
            del weights[_OUTPUT]
        return weights

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the fields of ties, output scale and a target's first token.

        ``weights``, not the config, determine whether the output matrix is tied, as in the class.
        ``scale_decoder_outputs`` determines whether the output is scaled; where it is unset,
        ``tie_word_embeddings`` does.
        """
        fields = content.fields
        for name, value in _derived_fields(fields[_PROJECTION]).items():
            if fields[name] not in (None, value):
                raise CheckpointError(
                    f"{content.file}: {name} = {format_value(fields[name])} contradicts "
                    f"{_PROJECTION} = {format_value(fields[_PROJECTION])}: leave it out"
                )
        is_scaled = fields["scale_decoder_outputs"]
        if is_scaled is None:
            is_scaled = fields["tie_word_embeddings"]
        return {
            "tie_embeddings": _OUTPUT not in weights,
            "output_scale": "sqrt" if is_scaled else "none",
            "decoder_start": read_start(content),
            "dropout_ffn": fields["dropout_rate"],
            "dropout_final": fields["dropout_rate"],
        }

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids and the fields derived from the network.

        Raises ConfigError where a special id is beyond the vocabulary.
        """
        return {
            **_derived_fields(self.fields.write(config)[_PROJECTION]),
            "scale_decoder_outputs": config.output_scale == "sqrt",
            **special_ids(config, tokenizer, {"eos_token_id": 1, "pad_token_id": 0}),
        }

    def block_names(self, config: ResolvedModel) -> Mapping[str, BlockNames]:
        """Return the names of a block's parts: a gated network has two input maps."""
        is_gated = any(entry.ffn is not None and entry.ffn.is_gated for entry in entries(config))
        into = ("wi_0", "wi_1") if is_gated else ("wi",)
        return {
            "attention": _t5_attention("SelfAttention"),
            "cross": _t5_attention("EncDecAttention"),
            "ffn": (
                "layer_norm",
                tuple(f"DenseReluDense.{name}" for name in into),
                "DenseReluDense.wo",
            ),
        }

    def tokenizer_files(self, tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
        """Return the files of a transformers AutoTokenizer with equal ids; empty where impossible.

        For a tokenizer of two languages they are a translator's. Contents are by file name. The
        tokenizer puts the end after a text, and reads the names of special ids in a text, such as
        ``<extra_id_0>``, as those ids. ``max_len`` becomes its ``model_max_length``.

        T5's layout, of any size, becomes a ``T5Tokenizer``, with its ``spiece.model``. Any other
        SentencePiece unigram or ``tokenizer.json`` with an end and padding becomes a tokenizer of
        the generic class. A vocabulary with a piece that has a sentinel's name cannot be exported.
        """
        if isinstance(tokenizer, BilingualTokenizer):
            return translator_files(tokenizer, max_len=max_len)
        if tokenizer is None or tokenizer.sep_id is None or tokenizer.pad_id is None:
            return {}
        converted = as_library(tokenizer)
        more: dict[str, Any] = {"tokenizer_class": ANY_CLASS}
        if converted is None:
            return {}
        library, names, files = converted
        if isinstance(tokenizer, UnigramTokenizer):
            if len(set(names)) < len(names):
                return {}
            layout = [names[id_] for id_ in (tokenizer.pad_id, tokenizer.sep_id)]
            if (
                [*layout, *names[_T5_UNK_ID : _T5_UNK_ID + 1]] == ["<pad>", "</s>", "<unk>"]
                and tokenizer.unk_id == _T5_UNK_ID
                and tokenizer.normalization in (AS_WRITTEN, AS_MODEL)
            ):
                more = {"tokenizer_class": _T5_CLASS, "extra_ids": len(tokenizer.sentinel_ids)}
        if library.post_processor is None:
            end = names[tokenizer.sep_id]
            library.post_processor = processors.TemplateProcessing(
                single=["$A", end],
                pair=["$A", end, "$B", end],
                special_tokens=[(end, tokenizer.sep_id)],
            )
        ids = {"eos": tokenizer.sep_id, "pad": tokenizer.pad_id, "unk": tokenizer.unk_id}
        settings = {
            **more,
            "model_input_names": ["input_ids", "attention_mask"],
            "clean_up_tokenization_spaces": False,
            **{f"{name}_token": names[id_] for name, id_ in ids.items() if id_ is not None},
            "model_max_length": max_len,
            **split_marks(tokenizer),
        }
        return {**files, FILE: library_file(library), CONFIG_NAME: settings_file(settings)}
