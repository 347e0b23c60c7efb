"""GPT-2 and GPT-1, as transformers has them: configs and weights, to and from ours."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import ConfigError
from sublayer.interop.answers import TYPED_LABELS, Answers
from sublayer.interop.family import Answering, Family, Fields, Tensors
from sublayer.interop.foreign_config import (
    ACTIVATIONS,
    ALWAYS_IGNORED,
    NEVER,
    ClassFields,
    Field,
    harmless,
    names,
    network,
    optional,
    same,
    switch,
    token_id,
)
from sublayer.interop.tokenizers import (
    decoder_files,
    padding_id,
    read_tokenizer,
    read_traversal_tokenizer,
    traversal_files,
)
from sublayer.interop.weight_map import Pair, Zeros, pair_linear
from sublayer.tasks.task import Task

_SHARED = {
    "n_embd": same(768, "d_model"),
    "n_layer": same(12, "n_layers"),
    "n_head": same(12, "n_heads"),
    "layer_norm_epsilon": same(1e-5, "norm_eps"),
    "tie_word_embeddings": same(True, "tie_embeddings"),
    "resid_pdrop": same(0.1, "dropout"),
    "embd_pdrop": same(0.1, "dropout_embedding"),
    "attn_pdrop": same(0.1, "dropout_attention"),
    "initializer_range": same(0.02, "init_std"),
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
        "vocab_size": same(50257, "vocab_size"),
        "n_positions": same(1024, "max_len"),
        "n_inner": same(None, "d_ff"),
        "activation_function": network("gelu_new", ACTIVATIONS),
        "scale_attn_weights": switch(True, "attention_scale", "sqrt", "none"),
        "scale_attn_by_inverse_layer_idx": harmless(False),
        "reorder_and_upcast_attn": harmless(False),
    },
    aliases=_ALIASES,
    ignored=_IGNORED,
)
# Its GELU is that by tanh, of whatever name.
_GPT1_ACTIVATIONS = {
    "gelu": ("gelu", "tanh"),
    "relu": ("relu", "tanh"),
    "silu": ("swish", "tanh"),
    "swish": ("swish", "tanh"),
}
GPT1_FIELDS = ClassFields(
    title="OpenAIGPTConfig",
    fields={
        **_SHARED,
        "vocab_size": same(40478, "vocab_size"),
        "n_positions": same(512, "max_len"),
        "afn": network("gelu", _GPT1_ACTIVATIONS),
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
_OUTPUT, _SCORE, _CHOOSES = "lm_head.weight", "score.weight", "multiple_choice_head."
_LABELS = Answering(
    "ForSequenceClassification",
    heads=(_SCORE,),
    outputs={"logits": "label_logits"},
    always={"pooler": "none"},
    fields={**TYPED_LABELS, "pad_token_id": Field(None, optional(token_id))},
)
# Beside the head that predicts tokens, which the class always has.
_CHOICES = Answering(
    "DoubleHeadsModel",
    heads=(_CHOOSES, _OUTPUT),
    outputs={"logits": "logits", "mc_logits": "choice_logits"},
    always={"pooler": "none", "label_outputs": 1},
    left_out={},
    fields=_SUMMARY,
)


_PARTS = (("final_norm", "ln_f"), ("head.weight", _OUTPUT))


class Gpt2(Family):
    """GPT-2's classes: of tokens, or of labels, read at a row's last token that is no padding."""

    model_type, name, title, predicts = "gpt2", "GPT2", "GPT-2", "LMHeadModel"
    fields = GPT2_FIELDS
    constants: Fields = {"use_cache": True}
    always: Fields = {
        "kind": "decoder",
        "norm_order": "pre",
        "norm_affine": True,
        "final_norm": "affine",
        "bias": True,
        "positions": "learned",
        "share": "none",
        "embedding_scale": "none",
    }
    answering: Mapping[Answers, Answering] = {"labels": _LABELS}
    prefix, heads = "transformer.", (_OUTPUT,)
    parts = (("embedding", "wte"), ("positions.tables.0", "wpe"), *_PARTS)
    ties = {_OUTPUT: "wte.weight"}
    unit, is_transposed = "h.{layer}.", True
    block = {
        "attention": ("ln_1", "attn.c_attn", "attn.c_proj"),
        "ffn": ("ln_2", "mlp.c_fc", "mlp.c_proj"),
    }

    def is_ignored(self, name: str) -> bool:
        """Return whether a tensor is a causal mask, which older versions of transformers saved."""
        return name.endswith((".attn.bias", ".attn.masked_bias"))

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids: the end is the beginning, too."""
        end_id = None if tokenizer is None else tokenizer.end_id
        ids: Fields = {"bos_token_id": end_id, "eos_token_id": end_id}
        if self.answers == "labels":
            ids["pad_token_id"] = padding_id(tokenizer)
        elif tokenizer is not None and tokenizer.pad_id is not None:
            ids["pad_token_id"] = tokenizer.pad_id
        return ids

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors; norms of GPT-1 follow a sub-layer."""
        yield from super().pairs(config)
        if self.answers == "labels":
            yield Pair((_SCORE,), _WEIGHT)
            yield Zeros((), _BIAS)
        elif self.answers == "choices":
            yield from pair_linear(f"{_CHOOSES}summary", "label_head")

    def describe_unanswered(self, task: Task) -> str | None:
        """Describe a task's rows where the class reads only one."""
        if task.kind == "choice":
            return None if "choices" in self.answering else "a row for each choice"
        return "both orders of its texts, whose states are added" if task.is_symmetric else None

    def settle(self, config: ResolvedModel, weights: Tensors) -> dict[str, Tensor]:
        """Write the bias of labels into the weights: the classifiers have none."""
        if self.answers != "labels":
            return dict(weights)
        is_pre_norm = config.norm_order == "pre"
        norm = "final_norm" if is_pre_norm else f"decoder.sublayers.1.{config.n_layers - 1}.norm"
        return without_bias(weights, norm, self.name)

    def copies(self, config: ResolvedModel) -> Mapping[str, str]:
        """Return the output matrix of two heads: some versions take it for the embedding matrix."""
        return self.ties if self.answers == "choices" and config.tie_embeddings else {}

    def tokenizer_files(self, tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
        """Return the tokenizer files of a decoder, or of a classifier of traversals."""
        files = decoder_files if self.answers == "tokens" else traversal_files
        return files(tokenizer, max_len=max_len)

    def read_tokenizer(self, folder: Path, *, vocab_size: int) -> Tokenizer | None:
        """Read the tokenizer, with the marks of traversals where they answer."""
        read = read_tokenizer if self.answers == "tokens" else read_traversal_tokenizer
        return read(folder, vocab_size=vocab_size)


class Gpt1(Gpt2):
    """GPT-1's classes: of tokens, of labels, or of tokens and choices."""

    model_type, name, title = "openai-gpt", "OpenAIGPT", "GPT-1"
    fields = GPT1_FIELDS
    constants: Fields = {}
    always: Fields = {
        **Gpt2.always,
        "norm_order": "post",
        "final_norm": "none",
        # Positions as classes are left out, and the certificate says it.
        "softmax": "tokens",
        "init": "normal",
    }
    answering = {"labels": _LABELS, "choices": _CHOICES}
    parts = (("embedding", "tokens_embed"), ("positions.tables.0", "positions_embed"), *_PARTS)
    ties = {_OUTPUT: "tokens_embed.weight"}

    def is_ignored(self, name: str) -> bool:
        """Return whether a tensor is a mask, or the numbers of positions, which were saved, too."""
        return super().is_ignored(name) or name == "position_ids"


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
