"""T5, as transformers has it: config, feed-forward networks and weights, to and from ours."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from sublayer.config.architecture import FFNS
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import stacks
from sublayer.config.table import MOST_BUCKETS
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.errors import CheckpointError
from sublayer.interop import translator_tokenizers
from sublayer.interop.family import Family, Fields, Oracle, Tensors
from sublayer.interop.foreign_config import (
    ACTIVATIONS,
    ALWAYS_IGNORED,
    EPS,
    FACTOR,
    FFN_WIDTH,
    HEADS,
    LAYERS,
    NEVER,
    VOCABULARY,
    WIDTH,
    WINDOW,
    ClassConfig,
    ClassFields,
    Field,
    activation_fields,
    flag,
    format_value,
    harmless,
    one_of,
    optional,
    share,
    token_id,
    training_only,
    whole,
)
from sublayer.interop.representable import ANY, PAIR, Table, final_norms, one_network
from sublayer.interop.seq2seq import one_table, special_ids
from sublayer.interop.tokenizers import t5_files
from sublayer.interop.weight_map import Pair

_GATED = "gated-"
# Of a gate alone the class takes "gelu" for the tanh form, whatever it is elsewhere; the exact one
# has another name. The first name of several is written.
_GATES: dict[str, tuple[str, str]] = {
    "gelu": ("gelu", "tanh"),
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "gelu_python": ("gelu", "exact"),
    "relu": ("relu", "tanh"),
    "silu": ("swish", "tanh"),
    "swish": ("swish", "tanh"),
    "sigmoid": ("sigmoid", "tanh"),
    "linear": ("identity", "tanh"),
}
_NETWORKS: tuple[str, ...] = (*ACTIVATIONS, *(_GATED + name for name in _GATES))
"""The values of ``feed_forward_proj`` that name one of our networks."""


def _network_fields(name: str) -> dict[str, str]:
    """Return the fields ``ffn`` and ``gelu`` of the network that ``feed_forward_proj`` names."""
    if not name.startswith(_GATED):
        return activation_fields(*ACTIVATIONS[name])
    activation, gelu = _GATES[name.removeprefix(_GATED)]
    gated = (n for n, row in FFNS.items() if row.is_gated and row.activation == activation)
    return {"ffn": next(gated), "gelu": gelu}


def _network_name(ffn: str, gelu: str) -> str:
    """Return the ``feed_forward_proj`` of a network; ``gelu`` counts only where it is one."""
    row = FFNS[ffn]
    known, prefix = (_GATES, _GATED) if row.is_gated else (ACTIVATIONS, "")
    wanted = (row.activation, gelu if row.activation == "gelu" else "tanh")
    return prefix + next(name for name, meaning in known.items() if meaning == wanted)


def _has_network_name(ffn: str) -> bool:
    row = FFNS.get(ffn)
    if row is None:
        return False
    known = _GATES if row.is_gated else ACTIVATIONS
    return row.activation in [activation for activation, _ in known.values()]


def _derived_fields(network: str) -> Fields:
    """Return the class's own reading of a ``feed_forward_proj``."""
    activation = "gelu_new" if network == f"{_GATED}gelu" else network.removeprefix(_GATED)
    return {"dense_act_fn": activation, "is_gated_act": network.startswith(_GATED)}


T5_FIELDS = ClassFields(
    title="T5Config",
    fields={
        "vocab_size": Field(32128, VOCABULARY, "vocab_size"),
        "d_model": Field(512, WIDTH, "d_model"),
        "d_kv": Field(64, WIDTH, "d_head"),
        "d_ff": Field(2048, FFN_WIDTH, "d_ff"),
        "num_layers": Field(6, LAYERS, "n_layers"),
        "num_decoder_layers": Field(None, optional(LAYERS), "n_decoder_layers"),
        "num_heads": Field(8, HEADS, "n_heads"),
        "relative_attention_num_buckets": Field(32, whole(MOST_BUCKETS), "relative_buckets"),
        "relative_attention_max_distance": Field(128, WINDOW, "relative_distance"),
        "layer_norm_epsilon": Field(1e-6, EPS, "norm_eps"),
        "feed_forward_proj": Field("relu", one_of(_NETWORKS)),
        # What follows from that: a file may say it too, but nothing else.
        "dense_act_fn": Field(None, one_of(tuple(dict.fromkeys((*ACTIVATIONS, *_GATES))))),
        "is_gated_act": Field(None, flag),
        "tie_word_embeddings": Field(True, flag, "tie_embeddings"),
        # Without it the output is scaled, unless a file says that its table is not tied.
        "scale_decoder_outputs": Field(None, flag),
        "dropout_rate": training_only(0.1, share, "dropout"),
        "initializer_factor": training_only(1.0, FACTOR),
        "pad_token_id": training_only(0, token_id),
        "eos_token_id": training_only(1, token_id),
        "decoder_start_token_id": training_only(None, optional(token_id)),
        # Of files of former versions: the length that a model was trained at.
        "n_positions": training_only(512, WINDOW, "max_len"),
        "is_encoder_decoder": harmless(True),
        **NEVER,
    },
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    },
    ids=("pad_token_id", "decoder_start_token_id", "eos_token_id"),
    ignored=ALWAYS_IGNORED,
)
T5_TABLE: Table = {
    **PAIR,
    # The same in every block, gated or not, that the class has a name for.
    "ffn": one_network(_has_network_name),
    "norm": ("rms",),
    "norm_order": ("pre",),
    "final_norm": final_norms("affine", "plain", norm="rms"),
    "positions": ("relative",),
    "d_head": ANY,
    "attention_scale": ("none",),
    "output_scale": ("none", "sqrt"),
    "bias": (False,),
    "head_bias": (False,),
}
_TABLE, _OUTPUT = "shared.weight", "lm_head.weight"
_PARTS = {"attention": "SelfAttention", "cross": "EncDecAttention", "ffn": "DenseReluDense"}


class T5(Family):
    """T5's class, v1.0 and v1.1."""

    title, table, fields = "T5", T5_TABLE, T5_FIELDS
    prefix, heads = "", (_OUTPUT,)

    def is_ignored(self, name: str) -> bool:
        """Return whether the class has no use for a tensor: former files have biases across."""
        return name.endswith("EncDecAttention.relative_attention_bias.weight")

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Leave out copies of the embedding matrix, which is ``shared.weight`` afterwards.

        The output matrix is one where it is equal to the table and config.json does not say that
        they are apart. What config.json ties, and differs, is not tied, as in the class.

        Raises CheckpointError where a stack's table differs.
        """
        weights = one_table(tensors, _OUTPUT)
        is_tied = content.flag("tie_word_embeddings")
        if is_tied and _OUTPUT in weights and torch.equal(weights[_OUTPUT], weights[_TABLE]):
            del weights[_OUTPUT]
        return weights

    def read_config(self, content: ClassConfig, weights: Tensors) -> ResolvedModel:
        """Convert config.json to a resolved model config.

        ``weights`` say whether the output matrix is the table, of which the class makes no question
        of the config. The output is scaled where ``scale_decoder_outputs`` says so, and without it
        unless ``tie_word_embeddings`` is false.
        """
        given = content.fields
        network = given["feed_forward_proj"]
        for name, value in _derived_fields(network).items():
            if given[name] not in (None, value):
                raise CheckpointError(
                    f"{content.file}: {name} = {format_value(given[name])} contradicts "
                    f"feed_forward_proj = {format_value(network)}: leave it out"
                )
        start, pad_id = given["decoder_start_token_id"], given["pad_token_id"]
        if start not in (None, pad_id, given["eos_token_id"]):
            raise CheckpointError(
                f"{content.file}: decoder_start_token_id = {start} is neither padding nor the end"
            )
        is_scaled = given["scale_decoder_outputs"]
        if is_scaled is None:
            is_scaled = given["tie_word_embeddings"]
        fields = {
            **content.ours,
            "kind": "encoder-decoder",
            **_network_fields(network),
            "norm": "rms",
            "positions": "relative",
            "attention_scale": "none",
            "bias": False,
            "tie_embeddings": _OUTPUT not in weights,
            "output_scale": "sqrt" if is_scaled else "none",
            "decoder_start": "pad" if start in (None, pad_id) else "end",
            "dropout_ffn": given["dropout_rate"],
            "dropout_final": given["dropout_rate"],
            "init": "t5",
        }
        return content.resolve(fields)

    def required_fields(self, config: ResolvedModel) -> Fields:
        """Return the fields of all that the class always has."""
        return {
            "norm_affine": True,
            "final_norm": "affine",
            "share": "none",
            "tie_embeddings": config.tie_embeddings and config.embedding_scale == "none",
            "embedding_scale": "none",
        }

    def write_config(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Convert an expanded config to config.json.

        Raises ConfigError where a special id is beyond the vocabulary.
        """
        encoder, decoder = stacks(config)
        ids = special_ids(config, tokenizer, {"eos_token_id": 1, "pad_token_id": 0})
        start_name = "pad_token_id" if config.decoder_start == "pad" else "eos_token_id"
        network = _network_name(str(encoder.block[1].variant), config.gelu)
        return {
            "architectures": ["T5ForConditionalGeneration"],
            "model_type": "t5",
            **self.fields.write(config),
            "num_decoder_layers": decoder.n_layers,
            "feed_forward_proj": network,
            **_derived_fields(network),
            "scale_decoder_outputs": config.output_scale == "sqrt",
            **ids,
            "decoder_start_token_id": ids[start_name],
            "is_encoder_decoder": True,
            "dtype": "float32",
        }

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors: ours is a decoder that contains the encoder as its source."""
        yield Pair((_TABLE,), "embedding.weight")
        if not config.tie_embeddings:
            yield Pair((_OUTPUT,), "head.weight")
        for stack in stacks(config):
            prefix = "source." if stack.feeds_memory else ""
            # The first block's, which all blocks of a stack use.
            table = f"{stack.name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            yield Pair((table,), f"{prefix}positions.table.weight")
            yield Pair((f"{stack.name}.final_layer_norm.weight",), f"{prefix}final_norm.weight")
            for layer, (index, entry) in product(range(stack.n_layers), enumerate(stack.block)):
                theirs = f"{stack.name}.block.{layer}.layer.{index}"
                ours = f"{prefix}{stack.name}.sublayers.{index}.{layer}"
                yield Pair((f"{theirs}.layer_norm.weight",), f"{ours}.norm.weight")
                into: tuple[str, ...] = ("q", "k", "v")
                part, out, first = f"{theirs}.{_PARTS[entry.name]}", "o", "projection"
                if entry.ffn is not None:
                    into = ("wi_0", "wi_1") if entry.ffn.is_gated else ("wi",)
                    out, first = "wo", "input"
                maps = tuple(f"{part}.{name}.weight" for name in into)
                yield Pair(maps, f"{ours}.function.{first}.weight")
                yield Pair((f"{part}.{out}.weight",), f"{ours}.function.output.weight")

    def oracle(self, config: ResolvedModel) -> Oracle:
        """Return the class with which logits are compared."""
        return Oracle("T5ForConditionalGeneration", {"logits": "logits"})

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
