"""Translators of transformers, M2M100 to T5: a family, a table a class."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import entries
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.settings import read_settings
from sublayer.data.tokenizers.subword import SubwordTokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop import tokenizers
from sublayer.interop.decoders import GATED_OF
from sublayer.interop.family import Family, Fields, Tensors
from sublayer.interop.foreign_config import (
    ACTIVATIONS,
    ANY,
    NEVER,
    ClassConfig,
    ClassFields,
    Field,
    Link,
    Rule,
    Table,
    Unsayable,
    flag,
    harmless,
    linked,
    network,
    one_of,
    optional,
    pairs_of,
    rule_of,
    switch,
    token_id,
    training_only,
)
from sublayer.interop.weight_map import BlockNames, Pair
from sublayer.model.model_folder import check_float
from sublayer.model.positions import sinusoids
from sublayer.text_model import TextModel


def _refuse(value: Any) -> None:
    raise Unsayable("it would change one of the two stacks")


_CAUSAL = Field(None, _refuse, is_computed=False)


def _fields(title: str, own: str, ids: tuple[int, int, int], **more: Field) -> ClassFields:
    """Build the fields of a class; ``ids`` are its padding, its end and a target's start."""
    pad_id, end_id, start_id = ids
    fields = {
        **NEVER,
        **linked(
            """
            max_position_embeddings:max_len=1024 d_model=1024 encoder_layers:n_layers=12
            encoder_attention_heads:n_heads=16 encoder_ffn_dim:d_ff=4096
            decoder_layers:n_decoder_layers=12 decoder_attention_heads:n_heads=16
            decoder_ffn_dim:d_ff=4096 tie_word_embeddings:tie_embeddings=True init_std=0.02
            dropout=0.1 attention_dropout:dropout_attention=0.0 activation_dropout:dropout_ffn=0.0
            """
        ),
        **linked(own),
        "activation_function": network("gelu", ACTIVATIONS),
        "scale_embedding": switch(False, "embedding_scale", "sqrt", "none"),
        "pad_token_id": Field(pad_id, token_id),
        "eos_token_id": training_only(end_id, token_id),
        "decoder_start_token_id": training_only(start_id, token_id),
        "is_causal": _CAUSAL,
        "is_encoder_decoder": harmless(True),
    }
    aliases = {"hidden_size": "d_model", "num_hidden_layers": "encoder_layers"}
    aliases |= {"num_attention_heads": "encoder_attention_heads"}
    return ClassFields(title, fields | more, aliases)


class IfGiven(Link):
    """A field that repeats another, or is null."""

    def read(self, value: Any) -> dict[str, Any]:
        """Convert the file's value; nothing where it is null."""
        return {} if value is None else super().read(value)


def _attention(norm: str, name: str, ending: str = "_proj", output: str = "out_proj") -> BlockNames:
    return norm, tuple(f"{name}.{letter}{ending}" for letter in "qkv"), f"{name}.{output}"


UNIT = "{stack}.layers.{layer}."
BLOCK: Mapping[str, BlockNames] = {
    "attention": _attention("self_attn_layer_norm", "self_attn"),
    "cross": _attention("encoder_attn_layer_norm", "encoder_attn"),
    "ffn": ("final_layer_norm", "fc1", "fc2"),
}
_TABLE, _OUTPUT, _BIAS = "shared.weight", "lm_head.weight", "final_logits_bias"
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_POSITIONS = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
_ALWAYS: Fields = {"kind": "encoder-decoder", "norm_affine": True, "bias": True, "share": "none"}
# The classes have no setting for the eps.
_ALWAYS |= {"norm_eps": 1e-5, "init": "normal"}
_POST_NORM: Fields = {"norm_order": "post", "final_norm": "none"}


class Translator(Family):
    """The base of these classes: one table of tokens, and a target's first token by its id."""

    constants: Fields = {"is_encoder_decoder": True}
    exceptions: Table = {"decoder_start": ("end", "pad")}
    prefix = "model."
    heads: tuple[str, ...] = ("lm_head.", _BIAS)
    ties: Mapping[str, str] = {_OUTPUT: _TABLE}
    # A class has only some of them.
    parts = pairs_of(
        f"""
        embedding:shared positions.tables.0:decoder.embed_positions
        embedding_norm:decoder.layernorm_embedding final_norm:decoder.layer_norm
        source.positions.tables.0:encoder.embed_positions head.weight:{_OUTPUT}
        source.embedding_norm:encoder.layernorm_embedding source.final_norm:encoder.layer_norm
        """
    )
    unit, block = UNIT, BLOCK
    default_ids: Mapping[str, int] = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    """Special ids of a model without a tokenizer; -1 is the vocabulary's last."""
    plain_files: Callable[..., dict[str, bytes]] | None = None
    """Writes a tokenizer of single texts; None where the class has only those of two languages."""

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Drop the stacks' copies of the embedding matrix; raise CheckpointError for another."""
        weights = dict(tensors)
        for name in _COPIES:
            # Files keep only one of several tied tensors.
            copy = weights.pop(name, None)
            if copy is not None and not torch.equal(copy, weights.setdefault(_TABLE, copy)):
                raise CheckpointError(
                    f"{name} differs from {_TABLE}: the stacks must share one embedding table"
                )
        return super().prepare(content, weights)

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return a target's first token, ``pad`` or ``end``; raise CheckpointError for another."""
        ids, allowed = content.fields, self.table["decoder_start"]
        start_id, pad_id = ids["decoder_start_token_id"], ids["pad_token_id"]
        known = {ids["eos_token_id"]: "end", pad_id: "pad", None: "pad"}
        assert isinstance(allowed, tuple), "its values are a target's first tokens"
        if known.get(start_id) not in allowed:
            starts = "eos_token_id" + " or pad_token_id" * ("pad" in allowed)
            raise content.error(
                f"decoder_start_token_id = {start_id} is not {starts}, the only starts that can be "
                "imported"
            )
        return {"decoder_start": known[start_id]}

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids; raise ConfigError where one is beyond the vocabulary."""
        ids = super().written(config, tokenizer)
        for name, id_ in ids.items():
            default = self.default_ids[name]
            default += config.vocab_size if default < 0 else 0
            ids[name] = default if id_ is None else id_
            if ids[name] >= config.vocab_size:
                raise ConfigError(
                    f"model.vocab_size = {config.vocab_size} has no room for {name} = {ids[name]}, "
                    "which an export needs"
                )
        start = "pad_token_id" if config.decoder_start == "pad" else "eos_token_id"
        return {**ids, "decoder_start_token_id": ids[start]}

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors; the bias of the logits is a row."""
        yield from super().pairs(config)
        yield Pair((_BIAS,), "head.bias", is_row=True)

    def copies(self, config: ResolvedModel) -> Mapping[str, str]:
        """Return each stack's table, where the output matrix could be tied and is not."""
        return dict.fromkeys(_COPIES, _TABLE) if self.ties and not config.tie_embeddings else {}

    def tokenizer_files(self, tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
        """Return the files of a tokenizer of two languages, or of single texts."""
        files = tokenizers.translator_files(tokenizer, max_len=max_len)
        if not files and self.plain_files is not None:
            files = self.plain_files(tokenizer, max_len=max_len)
        return files

    def _is_of_languages(self, folder: Path) -> bool:
        # An export keeps both languages' rules.
        return self.plain_files is None or tokenizers.SIDES in read_settings(folder)

    def read_tokenizer(self, folder: Path, *, vocab_size: int) -> Tokenizer | None:
        """Read the tokenizer, of two languages or of single texts."""
        if self._is_of_languages(folder):
            return tokenizers.read_translators(folder, vocab_size=vocab_size)
        return super().read_tokenizer(folder, vocab_size=vocab_size)

    def describe_unread(self, folder: Path) -> str | None:
        """Return why a translator's tokenizer cannot be read; None where it can."""
        return tokenizers.describe_unread(folder) if self._is_of_languages(folder) else None


class M2M100(Translator):
    """M2M100's class: pre-norm, fairseq's sinusoids."""

    model_type, name, title = "m2m_100", "M2M100", "M2M100"
    fields = _fields(
        "M2M100Config",
        "vocab_size=128112 attention_dropout:dropout_attention=0.1",
        (1, 2, 2),
        activation_function=network("relu", ACTIVATIONS),
        scale_embedding=switch(True, "embedding_scale", "sqrt", "none"),
    )
    constants: Fields = {**Translator.constants, "decoder_layerdrop": 0.0, "encoder_layerdrop": 0.0}
    always: Fields = {**_ALWAYS, "norm_order": "pre", "head_bias": False}
    always |= {"positions": "sinusoidal", "sinusoids": "fairseq"}
    exceptions: Table = {
        # Padding has no position in this class.
        "decoder_start": ("end",),
        # At least two frequencies: the class divides by their number less one.
        "d_model": Rule(lambda config: config.d_model > 2),
        "final_norm": ("affine",),
        # Positions are numbered from the padding id, which must be in the vocabulary.
        "first_position": Rule(lambda config: 0 < config.first_position <= config.vocab_size),
    }

    def is_ignored(self, name: str) -> bool:
        """Return whether the class computes a tensor itself."""
        return "embed_positions" in name

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return a target's first token, and the first position."""
        first = content.fields["pad_token_id"] + 1
        return {**super().particular(content, weights), "first_position": first}

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids; raise ConfigError also where positions do not follow padding."""
        pad_id = config.first_position - 1
        if tokenizer is not None and tokenizer.pad_id != pad_id:
            raise ConfigError(
                "M2M100's class numbers positions from the padding id plus 1: "
                f"model.first_position = {config.first_position} does not follow the tokenizer's "
                f"padding id, {tokenizer.pad_id}, so the model cannot be exported"
            )
        return {**super().written(config, tokenizer), "pad_token_id": pad_id}


class Marian(Translator):
    """Marian's class: post-norm, its own sinusoids and a bias of the logits."""

    model_type, name, title, predicts = "marian", "Marian", "Marian", "MTModel"
    fields = _fields(
        "MarianConfig",
        "vocab_size=58101",
        (58100, 0, 58100),
        decoder_vocab_size=Field(None, optional(rule_of("vocab_size")), IfGiven("vocab_size")),
        share_encoder_decoder_embeddings=harmless(True),
    )
    constants: Fields = {**M2M100.constants, "share_encoder_decoder_embeddings": True}
    always: Fields = {**_ALWAYS, **_POST_NORM, "head_bias": True}
    always |= {"positions": "sinusoidal", "sinusoids": "marian", "first_position": 0}
    default_ids = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": -1}

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Drop copies as others do, and tables of sinusoids; others raise CheckpointError."""
        others = dict(tensors)
        n_rows, width = content.fields["max_position_embeddings"], content.fields["d_model"]
        for name, table in [(name, others.pop(name)) for name in _POSITIONS if name in others]:
            check_float(name, table)
            are_sinusoids = table.shape == (n_rows, width) and width % 2 == 0
            if are_sinusoids:
                positions = torch.arange(n_rows)
                expected = sinusoids(positions, d_model=width, dtype=torch.float32, form="marian")
                # Rounding of a table in half precision, and of products in float32 at positions
                # past a thousand.
                are_sinusoids = torch.allclose(table.float(), expected, rtol=0, atol=2e-3)
            if not are_sinusoids:
                raise CheckpointError(
                    f"{name} does not hold Marian's sinusoids, the only positions that can be "
                    "imported"
                )
        return super().prepare(content, others)


_UNREAD_ROWS = 2
_TABLES = ("positions.tables.0.weight", "source.positions.tables.0.weight")


def _bart_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of a tokenizer with marks around a text as an import had; else an end."""
    if isinstance(tokenizer, SubwordTokenizer) and tokenizer.library_content["post_processor"]:
        return tokenizers.framing_files(tokenizer, max_len=max_len, reads_segments=False)
    return tokenizers.ending_files(tokenizer, max_len=max_len)


class Bart(Translator):
    """BART's class: post-norm, a norm of embeddings, and tables of positions after two rows."""

    model_type, name, title = "bart", "Bart", "BART"
    fields = _fields("BartConfig", "vocab_size=50265", (1, 2, 2))
    constants = M2M100.constants
    always: Fields = {**_ALWAYS, **_POST_NORM, "embedding_norm": "affine", "positions": "learned"}
    exceptions: Table = {**Translator.exceptions, "head_bias": ANY}
    plain_files = staticmethod(_bart_files)

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Drop the rows before the first position, a bias of zeros, and copies as others do."""
        weights = super().prepare(content, tensors)
        for name in _POSITIONS:
            if name in weights and weights[name].dim() == 2:
                weights[name] = weights[name][_UNREAD_ROWS:]
        if _BIAS in weights and not weights[_BIAS].any():
            del weights[_BIAS]
        return weights

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return a target's first token, and whether there is a bias of the logits."""
        return {**super().particular(content, weights), "head_bias": _BIAS in weights}

    def settle(
        self, config: ResolvedModel, weights: Tensors, tokenizer: Tokenizer | None = None
    ) -> dict[str, Tensor]:
        """Add rows of zeros before the first position."""
        unread = weights[_TABLES[0]].new_zeros(_UNREAD_ROWS, config.d_model)
        return {**weights, **{name: torch.cat([unread, weights[name]]) for name in _TABLES}}

    def folder_files(
        self, text_model: TextModel, described: Fields, config: ResolvedModel
    ) -> dict[str, bytes]:
        """Return a folder's files: a fine-tuned model reads an end after a text, and no start."""
        tokenizer = text_model.tokenizer
        if text_model.task is not None and isinstance(tokenizer, SubwordTokenizer):
            plain = {**tokenizer.library_content, "post_processor": None}
            tokenizer = tokenizer.replaced(plain, reads_marks=tokenizer.reads_marks)
            text_model = replace(text_model, tokenizer=tokenizer)
        return super().folder_files(text_model, described, config)


_NETWORKS: dict[str, tuple[str, str]] = {
    **ACTIVATIONS,
    # In gated networks only, the class reads "gelu" as the tanh form; the exact form has another
    # name.
    "gated-gelu": ("geglu", "tanh"),
    **{
        f"gated-{name}": (GATED_OF[ffn], gelu)
        for name, (ffn, gelu) in ACTIVATIONS.items()
        if name != "gelu"
    },
    "gated-sigmoid": ("glu", "tanh"),
    "gated-linear": ("bilinear", "tanh"),
}
_PROJECTION = "feed_forward_proj"


def _derived_fields(network: str) -> Fields:
    activation = "gelu_new" if network == "gated-gelu" else network.removeprefix("gated-")
    return {"dense_act_fn": activation, "is_gated_act": network.startswith("gated-")}


_RELATIVE_BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias"


class T5(Translator):
    """T5's class, v1.0 and v1.1."""

    model_type, name, title = "t5", "T5", "T5"
    fields = ClassFields(
        "T5Config",
        {
            **NEVER,
            **linked(
                """
                vocab_size=32128 d_model=512 d_kv:d_head=64 d_ff=2048 num_layers:n_layers=6
                num_decoder_layers:n_decoder_layers=None num_heads:n_heads=8
                relative_attention_num_buckets:relative_buckets=32 layer_norm_epsilon:norm_eps=1e-6
                relative_attention_max_distance:relative_distance=128 dropout_rate:dropout=0.1
                tie_word_embeddings:tie_embeddings=True
                """
            ),
            _PROJECTION: network("relu", _NETWORKS),
            # Derived from the field above: a file may repeat it, but not contradict it.
            "dense_act_fn": Field(
                None, one_of([name.removeprefix("gated-") for name in _NETWORKS])
            ),
            "is_gated_act": Field(None, flag),
            # By default the output is scaled, unless a file has tie_word_embeddings = false.
            "scale_decoder_outputs": Field(None, flag, write=lambda c: c.output_scale == "sqrt"),
            "initializer_factor": training_only(1.0, rule_of("init_std")),
            "pad_token_id": training_only(0, token_id),
            "eos_token_id": training_only(1, token_id),
            "decoder_start_token_id": training_only(None, optional(token_id)),
            # From former versions' files: the length that a model was trained at.
            "n_positions": training_only(512, rule_of("max_len"), Link("max_len")),
            "is_causal": _CAUSAL,
            "is_encoder_decoder": harmless(True),
        },
        {"hidden_size": "d_model", "num_attention_heads": "num_heads", "head_dim": "d_kv"}
        | {"num_hidden_layers": "num_layers"},
    )
    always: Fields = {"kind": "encoder-decoder", "norm": "rms", "norm_affine": True, "bias": False}
    always |= {"norm_order": "pre", "final_norm": "affine", "positions": "relative"}
    always |= {"attention_scale": "none", "embedding_scale": "none", "share": "none", "init": "t5"}
    exceptions: Table = {**Translator.exceptions, "output_scale": ("none", "sqrt")}
    prefix, heads = "", (_OUTPUT,)
    ties: Mapping[str, str] = {}
    # The first block's relative positions, shared by all blocks of a stack.
    parts = pairs_of(
        f"""
        embedding:shared head.weight:{_OUTPUT} source.positions.table:encoder.{_RELATIVE_BIAS}
        source.final_norm:encoder.final_layer_norm positions.table:decoder.{_RELATIVE_BIAS}
        final_norm:decoder.final_layer_norm
        """
    )
    unit = "{stack}.block.{layer}.layer.{index}."
    roles = {"eos_token_id": "sep_id", "pad_token_id": "pad_id"}
    default_ids = {"eos_token_id": 1, "pad_token_id": 0}
    plain_files = staticmethod(tokenizers.ending_files)

    def is_ignored(self, name: str) -> bool:
        """Return whether the class ignores a tensor: older files have cross-attention biases."""
        return name.endswith("EncDecAttention.relative_attention_bias.weight")

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Drop copies as others do; an output matrix that differs is untied, as in the class."""
        weights = super().prepare(content, tensors)
        if content.fields["tie_word_embeddings"] and _OUTPUT in weights:
            output = weights.pop(_OUTPUT)
            if not torch.equal(weights.setdefault(_TABLE, output), output):
                weights[_OUTPUT] = output
        return weights

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the fields of ties, which the weights decide, of scale and of a target's start."""
        fields = content.fields
        for name, value in _derived_fields(fields[_PROJECTION]).items():
            if fields[name] not in (None, value):
                network = f"{_PROJECTION} = {fields[_PROJECTION]}"
                raise content.error(f"{name} contradicts {network}: leave it out")
        is_scaled = fields["scale_decoder_outputs"]
        if is_scaled is None:
            is_scaled = fields["tie_word_embeddings"]
        return {
            **super().particular(content, weights),
            "tie_embeddings": _OUTPUT not in weights,
            "output_scale": "sqrt" if is_scaled else "none",
            "dropout_ffn": fields["dropout_rate"],
            "dropout_final": fields["dropout_rate"],
        }

    def write_config(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Convert a config, with the fields derived from the network."""
        described = super().write_config(config, tokenizer)
        return described | _derived_fields(described[_PROJECTION])

    def block_names(self, config: ResolvedModel) -> Mapping[str, BlockNames]:
        """Return the names of a block's parts: a gated network has two input maps."""
        is_gated = any(entry.ffn is not None and entry.ffn.is_gated for entry in entries(config))
        maps = ("wi_0", "wi_1") if is_gated else ("wi",)
        into = tuple(f"DenseReluDense.{name}" for name in maps)
        return {
            "attention": _attention("layer_norm", "SelfAttention", "", "o"),
            "cross": _attention("layer_norm", "EncDecAttention", "", "o"),
            "ffn": ("layer_norm", into, "DenseReluDense.wo"),
        }
