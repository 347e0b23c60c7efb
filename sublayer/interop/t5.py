"""T5, as transformers has it: config, feed-forward networks and weights, to and from ours."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import entries
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.errors import CheckpointError
from sublayer.interop import translator_tokenizers
from sublayer.interop.family import Family, Fields, Tensors
from sublayer.interop.foreign_config import (
    ACTIVATIONS,
    ALWAYS_IGNORED,
    NEVER,
    ClassConfig,
    ClassFields,
    Field,
    Link,
    flag,
    format_value,
    harmless,
    network,
    one_of,
    optional,
    rule_of,
    same,
    token_id,
    training_only,
)
from sublayer.interop.representable import Table
from sublayer.interop.seq2seq import one_table, read_start, special_ids
from sublayer.interop.tokenizers import t5_files
from sublayer.interop.weight_map import BlockNames

_GATED = "gated-"
_NETWORKS: dict[str, tuple[str, str]] = {
    **ACTIVATIONS,
    # Of a gate alone the class takes "gelu" for the tanh form, whatever it is elsewhere; the exact
    # one has another name.
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
    """Return the class's own reading of a ``feed_forward_proj``."""
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
        # What follows from that: a file may say it too, but nothing else.
        "dense_act_fn": Field(
            None, one_of(tuple(dict.fromkeys(name.removeprefix(_GATED) for name in _NETWORKS)))
        ),
        "is_gated_act": Field(None, flag),
        "tie_word_embeddings": same(True, "tie_embeddings"),
        # Without it the output is scaled, unless a file says that its table is not tied.
        "scale_decoder_outputs": Field(None, flag),
        "dropout_rate": same(0.1, "dropout"),
        "initializer_factor": training_only(1.0, rule_of("init_std")),
        "pad_token_id": training_only(0, token_id),
        "eos_token_id": training_only(1, token_id),
        "decoder_start_token_id": training_only(None, optional(token_id)),
        # Of files of former versions: the length that a model was trained at.
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
_TABLE, _OUTPUT = "shared.weight", "lm_head.weight"
_BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias"


def _attention(name: str) -> BlockNames:
    return "layer_norm", tuple(f"{name}.{letter}" for letter in "qkv"), f"{name}.o"


class T5(Family):
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
    # Of relative positions the first block's, which all blocks of a stack use.
    parts = (
        ("embedding", "shared"),
        ("head.weight", _OUTPUT),
        ("source.positions.table", f"encoder.{_BIAS}"),
        ("source.final_norm", "encoder.final_layer_norm"),
        ("positions.table", f"decoder.{_BIAS}"),
        ("final_norm", "decoder.final_layer_norm"),
    )
    unit = "{stack}.block.{layer}.layer.{index}."

    def is_ignored(self, name: str) -> bool:
        """Check whether the class ignores a tensor: older files have cross-attention biases."""
        return name.endswith("EncDecAttention.relative_attention_bias.weight")

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Drop copies of the embedding matrix, which becomes ``shared.weight``.

        The output matrix is one where it is equal to the table and config.json does not say that
        they are apart. What config.json ties, and differs, is not tied, as in the class.

        Raises CheckpointError where a stack's table differs.
        """
        weights = one_table(tensors, _OUTPUT)
        is_tied = content.fields["tie_word_embeddings"]
        if is_tied and _OUTPUT in weights and torch.equal(weights[_OUTPUT], weights[_TABLE]):
            del weights[_OUTPUT]
        return weights

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Return the fields of ties, output scale and a target's first token.

        ``weights`` say whether the output matrix is the table, of which the class makes no question
        of the config. The output is scaled where ``scale_decoder_outputs`` says so, and without it
        unless ``tie_word_embeddings`` is false.
        """
        given = content.fields
        for name, value in _derived_fields(given[_PROJECTION]).items():
            if given[name] not in (None, value):
                raise CheckpointError(
                    f"{content.file}: {name} = {format_value(given[name])} contradicts "
                    f"{_PROJECTION} = {format_value(given[_PROJECTION])}: leave it out"
                )
        is_scaled = given["scale_decoder_outputs"]
        if is_scaled is None:
            is_scaled = given["tie_word_embeddings"]
        return {
            "tie_embeddings": _OUTPUT not in weights,
            "output_scale": "sqrt" if is_scaled else "none",
            "decoder_start": read_start(content),
            "dropout_ffn": given["dropout_rate"],
            "dropout_final": given["dropout_rate"],
        }

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids and what follows from the network.

        Raises ConfigError where a special id is beyond the vocabulary.
        """
        return {
            **_derived_fields(self.fields.write(config)[_PROJECTION]),
            "scale_decoder_outputs": config.output_scale == "sqrt",
            **special_ids(config, tokenizer, {"eos_token_id": 1, "pad_token_id": 0}),
        }

    def block_names(self, config: ResolvedModel) -> Mapping[str, BlockNames]:
        """Return the names of a block's parts: a network with a gate has two maps."""
        is_gated = any(entry.ffn is not None and entry.ffn.is_gated for entry in entries(config))
        into = ("wi_0", "wi_1") if is_gated else ("wi",)
        return {
            "attention": _attention("SelfAttention"),
            "cross": _attention("EncDecAttention"),
            "ffn": (
                "layer_norm",
                tuple(f"DenseReluDense.{name}" for name in into),
                "DenseReluDense.wo",
            ),
        }

    def tokenizer_files(self, tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
        """Return the files of T5's tokenizer, or a translator's of a tokenizer of two languages."""
        if isinstance(tokenizer, BilingualTokenizer):
            return translator_tokenizers.translator_files(tokenizer, max_len=max_len)
        return t5_files(tokenizer, max_len=max_len)

    def read_tokenizer(self, folder: Path, *, vocab_size: int) -> Tokenizer | None:
        """Read the tokenizer, of two languages where an export kept their rules."""
        if translator_tokenizers.has_language_rules(folder):
            return translator_tokenizers.read_translators(folder, vocab_size=vocab_size)
        return super().read_tokenizer(folder, vocab_size=vocab_size)

    def describe_unread(self, folder: Path) -> str | None:
        """Return why a translator's tokenizer is not read."""
        if not translator_tokenizers.has_language_rules(folder):
            return None
        return translator_tokenizers.describe_unread(folder)
