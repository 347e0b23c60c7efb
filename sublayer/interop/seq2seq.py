"""M2M100 and Marian, as transformers has them, and the weights of fairseq's translators."""

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import stacks
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop import translator_tokenizers
from sublayer.interop.family import Family, Fields, Oracle, Tensors
from sublayer.interop.foreign_config import (
    ACTIVATIONS,
    ALWAYS_IGNORED,
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
    activation_name,
    flag,
    harmless,
    names,
    one_of,
    optional,
    share,
    token_id,
    training_only,
)
from sublayer.interop.representable import EITHER, PAIR, Rule, Table, final_norms
from sublayer.interop.weight_map import Pair, check_tied, pair_linear
from sublayer.model.model_folder import check_float
from sublayer.model.positions import sinusoids

_EPS = 1e-5
"""Added to the variance by the layer norms of both classes, which no config says."""
_FIELDS: dict[str, Field] = {
    "max_position_embeddings": Field(1024, WINDOW, "max_len"),
    "encoder_layers": Field(12, LAYERS, "n_layers"),
    "encoder_ffn_dim": Field(4096, FFN_WIDTH, "d_ff"),
    "encoder_attention_heads": Field(16, HEADS, "n_heads"),
    "decoder_layers": Field(12, LAYERS, "n_decoder_layers"),
    "decoder_ffn_dim": Field(4096, FFN_WIDTH, "d_ff"),
    "decoder_attention_heads": Field(16, HEADS, "n_heads"),
    "d_model": Field(1024, WIDTH, "d_model"),
    "tie_word_embeddings": Field(True, flag, "tie_embeddings"),
    "dropout": training_only(0.1, share, "dropout"),
    "activation_dropout": training_only(0.0, share, "dropout_ffn"),
    "init_std": training_only(0.02, FACTOR, "init_std"),
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
_IDS = ("pad_token_id", "decoder_start_token_id", "eos_token_id")
M2M100_FIELDS = ClassFields(
    title="M2M100Config",
    fields={
        **_FIELDS,
        "vocab_size": Field(128112, VOCABULARY, "vocab_size"),
        "activation_function": Field("relu", one_of(ACTIVATIONS)),
        "attention_dropout": training_only(0.1, share, "dropout_attention"),
        "scale_embedding": Field(True, flag),
        "pad_token_id": Field(1, token_id),
        "decoder_start_token_id": training_only(2, token_id),
        "eos_token_id": training_only(2, token_id),
    },
    aliases=_ALIASES,
    ids=_IDS,
    ignored=_IGNORED,
)
MARIAN_FIELDS = ClassFields(
    title="MarianConfig",
    fields={
        **_FIELDS,
        "vocab_size": Field(58101, VOCABULARY, "vocab_size"),
        "decoder_vocab_size": Field(None, optional(VOCABULARY)),
        "activation_function": Field("gelu", one_of(ACTIVATIONS)),
        "attention_dropout": training_only(0.0, share, "dropout_attention"),
        "scale_embedding": Field(False, flag),
        "pad_token_id": Field(58100, token_id),
        "decoder_start_token_id": training_only(58100, token_id),
        "eos_token_id": training_only(0, token_id),
        "share_encoder_decoder_embeddings": harmless(True),
    },
    aliases=_ALIASES,
    ids=_IDS,
    ignored=_IGNORED,
)
_TRANSLATORS: Table = {
    **PAIR,
    # No config of theirs says another.
    "norm_eps": (_EPS,),
    "positions": ("sinusoidal",),
}
M2M100_TABLE: Table = {
    **_TRANSLATORS,
    # Two frequencies or more: the class divides by the steps between them.
    "d_model": Rule(lambda config: config.d_model > 2),
    "norm_order": ("pre",),
    "final_norm": final_norms("affine"),
    "sinusoids": ("fairseq",),
    # Positions are numbered from the id of the padding on, which is an id of the vocabulary.
    "first_position": Rule(lambda config: 0 < config.first_position <= config.vocab_size),
    # Padding has no position there, wherever it stands.
    "decoder_start": ("end",),
    "head_bias": (False,),
}
MARIAN_TABLE: Table = {
    **_TRANSLATORS,
    "norm_order": ("post",),
    "final_norm": final_norms("none"),
    "sinusoids": ("marian",),
    "first_position": (0,),
    "head_bias": EITHER,
}
_TABLE, _OUTPUT, _BIAS = "shared.weight", "lm_head.weight", "final_logits_bias"
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_POSITIONS = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
# Of a table in half precision, and of the float32 in which positions past a thousand were
# multiplied.
_ROUNDING = 2e-3
_FIRST_HALF = "macaron_"
_NORMS = {
    "attention": "self_attn_layer_norm",
    "cross": "encoder_attn_layer_norm",
    "ffn": "final_layer_norm",
}
_ATTENTIONS = {"attention": "self_attn", "cross": "encoder_attn"}


class M2M100(Family):
    """M2M100's class: pre-norm, fairseq's sinusoids."""

    title, table, fields = "M2M100", M2M100_TABLE, M2M100_FIELDS
    prefix, heads = "model.", ("lm_head.", _BIAS)
    model_type, name = "m2m_100", "M2M100ForConditionalGeneration"

    def is_ignored(self, name: str) -> bool:
        """Return whether the class computes a tensor anew, whatever a file has."""
        return "embed_positions" in name

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Leave out copies of the embedding matrix, which is ``shared.weight`` afterwards.

        The output matrix is a copy where config.json ties it. Raises CheckpointError where a copy
        differs.
        """
        if not content.flag("tie_word_embeddings"):
            return one_table(tensors)
        weights = one_table(tensors, _OUTPUT)
        check_tied(weights, _OUTPUT, _TABLE)
        weights.pop(_OUTPUT, None)
        return weights

    def read_config(self, content: ClassConfig, weights: Tensors) -> ResolvedModel:
        """Convert config.json to a resolved model config."""
        given = content.fields
        particular = self._class_fields(content)
        for name in ("ffn_dim", "attention_heads"):
            content.both_sides(name)
        fields = {
            **content.ours,
            "kind": "encoder-decoder",
            "n_heads": content.heads("encoder_attention_heads", "d_model"),
            **activation_fields(*ACTIVATIONS[given["activation_function"]]),
            "norm_eps": _EPS,
            "positions": "sinusoidal",
            "embedding_scale": "sqrt" if given["scale_embedding"] else "none",
            "init": "normal",
            **particular,
        }
        return content.resolve(fields)

    def _class_fields(self, content: ClassConfig) -> Fields:
        start = content.fields["decoder_start_token_id"]
        if start != content.fields["eos_token_id"]:
            raise CheckpointError(
                f"{content.file}: decoder_start_token_id = {start} is not the end, which alone is "
                "read"
            )
        return {
            "norm_order": "pre",
            "sinusoids": "fairseq",
            "first_position": content.fields["pad_token_id"] + 1,
            "decoder_start": "end",
        }

    def required_fields(self, config: ResolvedModel) -> Fields:
        """Return the fields of what both classes always have."""
        is_post_norm = config.norm_order == "post"
        return {"bias": True, "norm_affine": True, "share": "none", "head_bias": is_post_norm}

    def write_config(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Convert an expanded config to config.json.

        Raises ConfigError where M2M100's positions do not follow the tokenizer's padding, or a
        special id is beyond the vocabulary.
        """
        encoder, decoder = stacks(config)
        ids = special_ids(config, tokenizer, self._default_ids(config, tokenizer))
        start_name = "pad_token_id" if config.decoder_start == "pad" else "eos_token_id"
        return {
            "architectures": [self.name],
            "model_type": self.model_type,
            **self.fields.write(config),
            "activation_function": activation_name(str(encoder.block[1].variant), config.gelu),
            "decoder_layerdrop": 0.0,
            "decoder_layers": decoder.n_layers,
            "dtype": "float32",
            "encoder_layerdrop": 0.0,
            "is_encoder_decoder": True,
            "scale_embedding": config.embedding_scale == "sqrt",
            **ids,
            "decoder_start_token_id": ids[start_name],
        }

    def _default_ids(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> dict[str, int]:
        if tokenizer is not None and tokenizer.pad_id != config.first_position - 1:
            raise ConfigError(
                "M2M100's class numbers positions from its padding on: model.first_position = "
                f"{config.first_position} does not follow the tokenizer's padding, "
                f"{tokenizer.pad_id}, so the model cannot be exported"
            )
        return {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": config.first_position - 1}

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the class's tensors with an expanded model's."""
        return translator_pairs(config, table=_TABLE, output=_OUTPUT)

    def oracle(self, config: ResolvedModel) -> Oracle:
        """Return the class with which logits are compared."""
        return Oracle(self.name, {"logits": "logits"})

    def copies(self, config: ResolvedModel) -> Mapping[str, str]:
        """Return each stack's own table, where the output matrix is not the embedding matrix."""
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

    title, table, fields = "Marian", MARIAN_TABLE, MARIAN_FIELDS
    model_type, name = "marian", "MarianMTModel"

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

    def _class_fields(self, content: ClassConfig) -> Fields:
        given = content.fields
        n_rows, n_targets = given["vocab_size"], given["decoder_vocab_size"]
        if n_targets not in (None, n_rows):
            raise CheckpointError(
                f"{content.file}: decoder_vocab_size = {n_targets} is not vocab_size = {n_rows}: "
                "two tables cannot be one"
            )
        start, pad_id = given["decoder_start_token_id"], given["pad_token_id"]
        if start not in (pad_id, given["eos_token_id"]):
            raise CheckpointError(
                f"{content.file}: decoder_start_token_id = {start} is neither padding nor the end"
            )
        return {
            "norm_order": "post",
            "sinusoids": "marian",
            "decoder_start": "pad" if start == pad_id else "end",
            "head_bias": True,
        }

    def write_config(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Convert an expanded config to config.json, as M2M100's."""
        return {
            **super().write_config(config, tokenizer),
            "decoder_vocab_size": config.vocab_size,
            "share_encoder_decoder_embeddings": True,
        }

    def _default_ids(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> dict[str, int]:
        return {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": config.vocab_size - 1}


def special_ids(
    config: ResolvedModel, tokenizer: Tokenizer | None, defaults: Mapping[str, int]
) -> dict[str, int]:
    """Return the tokenizer's special ids that ``defaults`` name, and those where it has none.

    Raises ConfigError where one is beyond the vocabulary.
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
    return ids


def one_table(tensors: Tensors, *others: str) -> dict[str, Tensor]:
    """Leave out the stacks' copies of the embedding matrix, ``shared.weight`` afterwards.

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


def translator_pairs(config: ResolvedModel, *, table: str, output: str) -> Iterator[Pair]:
    """Pair the tensors of fairseq's, M2M100's and Marian's translators with an expanded model's.

    ``table`` and ``output`` name the embedding matrix and, where it is another, the output matrix.
    The feed-forward network that stands first in a block is Macaron Net's first half.
    """
    yield Pair((table,), "embedding.weight")
    for stack in stacks(config):
        # Ours is a decoder that contains the encoder as its source.
        prefix = "source." if stack.feeds_memory else ""
        for layer, (index, entry) in product(range(stack.n_layers), enumerate(stack.block)):
            theirs = f"{stack.name}.layers.{layer}"
            ours = f"{prefix}{stack.name}.sublayers.{index}.{layer}"
            norm = _NORMS[entry.name]
            if entry.ffn is None:
                attention = f"{theirs}.{_ATTENTIONS[entry.name]}"
                maps = tuple(f"{attention}.{letter}_proj" for letter in "qkv")
                yield from pair_linear(maps, f"{ours}.function.projection")
                yield from pair_linear(f"{attention}.out_proj", f"{ours}.function.output")
            else:
                half = _FIRST_HALF if index == 0 else ""
                norm = f"{half}layer_norm" if half else norm
                yield from pair_linear(f"{theirs}.{half}fc1", f"{ours}.function.input")
                yield from pair_linear(f"{theirs}.{half}fc2", f"{ours}.function.output")
            if config.norm_affine:
                yield from pair_linear(f"{theirs}.{norm}", f"{ours}.norm")
        if config.final_norm == "affine":
            yield from pair_linear(f"{stack.name}.layer_norm", f"{prefix}final_norm")
    if not config.tie_embeddings:
        yield Pair((output,), "head.weight")
    if config.head_bias:
        yield Pair((_BIAS,), "head.bias", is_row=True)
