"""GPT-2 and GPT-1, as transformers has them: configs and weights, to and from ours."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import entries
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import ConfigError
from sublayer.interop.answers import Answers, label_words, with_fields, with_labels
from sublayer.interop.family import ENDINGS, NO_OTHER_HEAD, OUTPUTS, Family, Fields, Oracle, Tensors
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
from sublayer.interop.representable import (
    ALL,
    ANSWERS,
    ANY,
    NO_ENCODER,
    ONE_STACK,
    Rule,
    Table,
    final_norms,
    networks,
)
from sublayer.interop.tokenizers import (
    decoder_files,
    padding_id,
    read_tokenizer,
    read_traversal_tokenizer,
    traversal_files,
)
from sublayer.interop.weight_map import Pair, Zeros, check_tied, pair_linear

_SHARED = {
    "n_embd": Field(768, WIDTH, "d_model"),
    "n_layer": Field(12, LAYERS, "n_layers"),
    "n_head": Field(12, HEADS, "n_heads"),
    "layer_norm_epsilon": Field(1e-5, EPS, "norm_eps"),
    "tie_word_embeddings": Field(True, flag, "tie_embeddings"),
    "resid_pdrop": training_only(0.1, share, "dropout"),
    "embd_pdrop": training_only(0.1, share, "dropout_embedding"),
    "attn_pdrop": training_only(0.1, share, "dropout_attention"),
    "initializer_range": training_only(0.02, FACTOR, "init_std"),
    "is_encoder_decoder": harmless(False),
    **NEVER,
}
_ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
_IGNORED = ALWAYS_IGNORED | names(
    """
    n_ctx summary_activation summary_first_dropout summary_proj_to_labels summary_type
    summary_use_proj
    """
)
GPT2_FIELDS = ClassFields(
    title="GPT2Config",
    fields={
        **_SHARED,
        "vocab_size": Field(50257, VOCABULARY, "vocab_size"),
        "n_positions": Field(1024, WINDOW, "max_len"),
        "n_inner": Field(None, optional(FFN_WIDTH), "d_ff"),
        "activation_function": Field("gelu_new", one_of(ACTIVATIONS)),
        "scale_attn_weights": Field(True, flag),
        "scale_attn_by_inverse_layer_idx": harmless(False),
        "reorder_and_upcast_attn": harmless(False),
    },
    aliases=_ALIASES,
    ignored=_IGNORED,
)
_GPT1_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}
"""GPT-1's names of activations, by transformers' others: its GELU is that by tanh."""
GPT1_FIELDS = ClassFields(
    title="OpenAIGPTConfig",
    fields={
        **_SHARED,
        "vocab_size": Field(40478, VOCABULARY, "vocab_size"),
        "n_positions": Field(512, WINDOW, "max_len"),
        "afn": Field("gelu", one_of(_GPT1_ACTIVATIONS)),
    },
    aliases=_ALIASES,
    ignored=_IGNORED | names("n_special predict_special_tokens"),
)
# Any other summary would read other states, or do more with one than a linear map.
_SUMMARY = {
    "summary_type": harmless("cls_index"),
    "summary_use_proj": harmless(True),
    "summary_proj_to_labels": harmless(True),
    "summary_activation": harmless(None, ""),
}
GPT2: Table = {
    "kind": ("decoder",),
    **ALL,
    **ONE_STACK,
    **NO_ENCODER,
    "norm_order": ("pre",),
    "final_norm": final_norms("affine", "plain"),
    "attention_scale": ("sqrt", "none"),
    "head_bias": (False,),
}
GPT1: Table = {
    **GPT2,
    "norm_order": ("post",),
    "final_norm": final_norms("none"),
    "attention_scale": ("sqrt",),
    # A GELU is that by tanh.
    "gelu": Rule(lambda config: config.gelu == "tanh" or "gelu" not in networks(config)),
    "d_ff": Rule(lambda config: config.d_ff == 4 * config.d_model),
    # Positions as classes are left out, and the certificate says it.
    "softmax": ("tokens", "all"),
}
_OUTPUT, _SCORE, _CHOOSES = "lm_head.weight", "score.weight", "multiple_choice_head."


class Gpt2(Family):
    """GPT-2's classes: of tokens, or of labels, read at a row's last token that is no padding."""

    model_type, name, base_title = "gpt2", "GPT2", "GPT-2's language model"
    base_table, base_fields = GPT2, GPT2_FIELDS
    prefix = "transformer."
    words, positions = "wte.weight", "wpe.weight"

    def __init__(self, answers: Answers = "tokens") -> None:
        self.answers = answers
        self.title, self.table, self.fields = self.base_title, self.base_table, self.base_fields
        self.heads = (_OUTPUT,)
        if answers == "labels":
            padding = {"pad_token_id": Field(None, optional(token_id))}
            fields = with_fields(with_labels(self.fields, is_typed=True), padding)
            self.fields = replace(fields, ids=tuple(padding))
            self.title = self.name + ENDINGS["labels"]
            self.table = {**self.table, **ANSWERS, "pooler": ("none",), "label_outputs": ANY}
            self.heads = (_SCORE,)
        elif answers == "choices":
            self.fields = with_fields(self.fields, _SUMMARY)
            self.title = f"{self.name}DoubleHeadsModel"
            # Beside the head that predicts tokens, which the class always has.
            self.table = {**self.table, "pooler": ("none",), "label_outputs": (1,)}
            self.heads = (_CHOOSES, _OUTPUT)

    def is_ignored(self, name: str) -> bool:
        """Return whether a tensor is a causal mask, which older versions of transformers saved."""
        return name.endswith((".attn.bias", ".attn.masked_bias"))

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Leave out an output matrix that is the embedding matrix.

        Raises CheckpointError where config.json ties the two and they differ.
        """
        weights = dict(tensors)
        if content.flag("tie_word_embeddings"):
            if self.answers == "choices" and _OUTPUT in weights and self.words not in weights:
                weights[self.words] = weights.pop(_OUTPUT)
            check_tied(weights, _OUTPUT, self.words)
            weights.pop(_OUTPUT, None)
        return weights

    def read_config(self, content: ClassConfig, weights: Tensors) -> ResolvedModel:
        """Convert config.json and the fields of the heads to a resolved model config."""
        heads: Fields = {}
        if self.answers == "labels":
            heads = {**NO_OTHER_HEAD, "label_outputs": len(label_words(content))}
        elif self.answers == "choices":
            heads = {"label_outputs": 1}
        n_heads = content.heads("n_head", "n_embd")
        fields = {**content.ours, "n_heads": n_heads, **self._class_fields(content.fields), **heads}
        return content.resolve(fields, context=content.fields["n_positions"])

    def _class_fields(self, given: Mapping[str, Any]) -> Fields:
        return {
            "d_ff": given["n_inner"] or 4 * given["n_embd"],
            **activation_fields(*ACTIVATIONS[given["activation_function"]]),
            "attention_scale": "sqrt" if given["scale_attn_weights"] else "none",
        }

    def required_fields(self, config: ResolvedModel) -> Fields:
        """Return the fields of what GPT-2 always has; scaled embeddings need a plain table, too."""
        return {
            "bias": True,
            "norm_affine": True,
            "final_norm": "affine",
            "positions": "learned",
            "share": "none",
            "tie_embeddings": config.tie_embeddings and config.embedding_scale == "none",
            "embedding_scale": "none",
            **(NO_OTHER_HEAD if self.answers == "labels" else {}),
        }

    def write_config(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Convert an expanded config, without the dropout of hidden ffn units."""
        end_id = None if tokenizer is None else tokenizer.end_id
        pad_id = None if tokenizer is None else tokenizer.pad_id
        padding: Fields = {} if pad_id is None else {"pad_token_id": pad_id}
        if self.answers == "labels":
            padding = {"pad_token_id": padding_id(tokenizer)}
        activation = activation_name(str(entries(config)[1].variant), config.gelu)
        return {
            "architectures": [self.oracle(config).name],
            "model_type": self.model_type,
            **self.base_fields.write(config),
            **self._written_fields(config, activation),
            "bos_token_id": end_id,
            "eos_token_id": end_id,
            **padding,
            "dtype": "float32",
        }

    def _written_fields(self, config: ResolvedModel, activation: str) -> Fields:
        is_scaled = config.attention_scale == "sqrt"
        return {
            "activation_function": activation,
            "scale_attn_weights": is_scaled,
            "use_cache": True,
        }

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors; norms of GPT-1 stand after a sub-layer."""
        yield Pair((self.words,), "embedding.weight")
        yield Pair((self.positions,), "positions.tables.0.weight")
        pair_map = partial(pair_linear, is_transposed=True)  # [d_in, d_out]
        for layer in range(config.n_layers):
            theirs = f"h.{layer}"
            attention, ffn = (f"decoder.sublayers.{index}.{layer}" for index in (0, 1))
            yield from pair_linear(f"{theirs}.ln_1", f"{attention}.norm")
            yield from pair_map(f"{theirs}.attn.c_attn", f"{attention}.function.projection")
            yield from pair_map(f"{theirs}.attn.c_proj", f"{attention}.function.output")
            yield from pair_linear(f"{theirs}.ln_2", f"{ffn}.norm")
            yield from pair_map(f"{theirs}.mlp.c_fc", f"{ffn}.function.input")
            yield from pair_map(f"{theirs}.mlp.c_proj", f"{ffn}.function.output")
        if config.norm_order == "pre":
            yield from pair_linear("ln_f", "final_norm")
        if config.head != "none" and not config.tie_embeddings:
            yield Pair((_OUTPUT,), "head.weight")
        if self.answers == "labels":
            yield Pair((_SCORE,), "label_head.weight")
            yield Zeros((), "label_head.bias")
        elif self.answers == "choices":
            yield from pair_linear(f"{_CHOOSES}summary", "label_head")

    def oracle(self, config: ResolvedModel) -> Oracle:
        """Return the class by its answers."""
        if self.answers == "tokens":
            return Oracle(f"{self.name}LMHeadModel", {"logits": "logits"})
        if self.answers == "labels":
            return Oracle(self.title, OUTPUTS["labels"])
        return Oracle(self.title, {"logits": "logits", "mc_logits": "choice_logits"})

    def settle(self, config: ResolvedModel, weights: Tensors) -> dict[str, Tensor]:
        """Write the bias of labels into the weights: the classifiers have none."""
        if self.answers != "labels":
            return dict(weights)
        is_pre_norm = config.norm_order == "pre"
        norm = "final_norm" if is_pre_norm else f"decoder.sublayers.1.{config.n_layers - 1}.norm"
        return without_bias(weights, norm, self.name)

    def copies(self, config: ResolvedModel) -> Mapping[str, str]:
        """Return the output matrix of two heads: some versions take it for the embedding matrix."""
        is_tied = self.answers == "choices" and config.tie_embeddings
        return {_OUTPUT: self.words} if is_tied else {}

    def tokenizer_files(self, tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
        """Return the files of a decoder, or of a classifier that reads traversals."""
        files = decoder_files if self.answers == "tokens" else traversal_files
        return files(tokenizer, max_len=max_len)

    def read_tokenizer(self, folder: Path, *, vocab_size: int) -> Tokenizer | None:
        """Read the tokenizer, with the marks of traversals where they answer."""
        read = read_tokenizer if self.answers == "tokens" else read_traversal_tokenizer
        return read(folder, vocab_size=vocab_size)


class Gpt1(Gpt2):
    """GPT-1's classes: of tokens, of labels, or of tokens and choices."""

    model_type, name, base_title = "openai-gpt", "OpenAIGPT", "GPT-1's language model"
    base_table, base_fields = GPT1, GPT1_FIELDS
    words, positions = "tokens_embed.weight", "positions_embed.weight"

    def is_ignored(self, name: str) -> bool:
        """Return whether a tensor is a mask, or the numbers of positions, which were saved, too."""
        return super().is_ignored(name) or name == "position_ids"

    def _class_fields(self, given: Mapping[str, Any]) -> Fields:
        activation = ACTIVATIONS[_GPT1_ACTIVATIONS[given["afn"]]]
        plain = {"d_ff": 4 * given["n_embd"], "norm_order": "post", "init": "normal"}
        return {**plain, **activation_fields(*activation)}

    def required_fields(self, config: ResolvedModel) -> Fields:
        """Return the fields of what GPT-1 always has."""
        return {**super().required_fields(config), "final_norm": "none", "softmax": "tokens"}

    def _written_fields(self, config: ResolvedModel, activation: str) -> Fields:
        known = _GPT1_ACTIVATIONS.items()
        return {"afn": next(name for name, elsewhere in known if elsewhere == activation)}


_WEIGHT, _BIAS = "label_head.weight", "label_head.bias"
_LEAST_SHARE = 1e-2
"""Of the root of the width: a smaller sum would be lost in the rounding of the features."""


def without_bias(weights: Tensors, norm: str, title: str) -> dict[str, Tensor]:
    """Return weights that compute the same labels with a bias of zeros, as a classifier has it.

    A layer norm's features, before its gains and offsets, add up to zero. So the features of the
    last norm, each divided by its gain, add up to the same for every text: to the sum of the
    offsets, so divided. A multiple of that sum is a bias.

    ``norm`` is the one that the head reads, and no other head. Its offsets change only where they
    add up to too little: then each becomes larger by its gain, of which the head's weights take
    account. Where there is no bias, nothing changes.

    Raises ConfigError where a gain is zero.
    """
    bias = weights[_BIAS].double()
    if not bias.any():
        return dict(weights)
    gain, offset = f"{norm}.weight", f"{norm}.bias"
    gains, offsets, matrix = (weights[name].double() for name in (gain, offset, _WEIGHT))
    shares = 1.0 / gains
    if not shares.isfinite().all():
        raise ConfigError(
            f"{norm} has a gain of zero, so that {title}'s classifier, which has no bias, cannot "
            "have this model's label_head.bias: the model cannot be exported"
        )
    total = (offsets * shares).sum()
    width = len(gains)
    if total.abs() < _LEAST_SHARE * width**0.5:
        offsets = offsets + gains
        bias = bias - matrix @ gains
        total = total + width
    dtype = weights[_WEIGHT].dtype
    return {
        **weights,
        offset: offsets.to(dtype),
        _WEIGHT: (matrix + torch.outer(bias, shares) / total).to(dtype),
        _BIAS: torch.zeros_like(weights[_BIAS]),
    }
