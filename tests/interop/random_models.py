"""Random tiny models of every kind: those that are exported as each class, and any."""

from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
from hypothesis import reject

from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.fields.messages import choices_of
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import ConfigError
from sublayer.tasks.task import Task

VOCAB_SIZE, CONTEXT = 23, 8
Values = Mapping[str, tuple[Any, ...]]

_EITHER = (True, False)
# What means nothing to a kind of model, or is written as what has no effect, may be anything.
_EVERYWHERE: Values = {
    "n_layers": (1, 2, 4),
    "d_model": (6, 12),
    "n_heads": (1, 3),
    "d_ff": (None, 5),
    "embedding_projection": ("tokens", "sum"),
    "block": ("transformer", ("attention", "ffn")),
    "ffn": ("relu", "gelu", "swish"),
    "gelu": ("exact", "tanh"),
    "norm_eps": (None, 1e-12, 1e-2),
    "sinusoids": ("tensor2tensor", "fairseq", "marian", "interleaved"),
    "first_position": (0, 3),
    "share": ("none", "all", "attention", "ffn"),
    "head_activation": ("ffn", "relu", "gelu", "swish"),
    "decoder_start": ("end", "pad"),
    "pooler": ("none", "tanh"),
    "sentence_classes": (0, 1, 2),
    "embedding_scale": ("none", "sqrt"),
    **dict.fromkeys(("norm_affine", "tie_embeddings", "bias"), _EITHER),
    "init": ("normal", "t5"),
    "vocab_size": (None, 29),
    "max_len": (None, 11),
}
_ENCODER: Values = {
    **_EVERYWHERE,
    "kind": ("encoder",),
    "norm_order": ("post",),
    "embedding_norm": (True,),
    "segments": ("none", "both", "second"),
    "positions": ("learned", "sinusoidal", "none"),
    "head": ("transform",),
    "head_activation": ("ffn",),
    "head_bias": _EITHER,
}
_SENTENCES: Values = {"pooler": ("tanh",), "sentence_classes": (2,)}
_TRANSLATOR: Values = {
    **_EVERYWHERE,
    "kind": ("encoder-decoder",),
    "n_decoder_layers": (None, 1, 3),
    "decoder_block": (None, ("attention", "cross", "ffn")),
    "norm_eps": (None, 1e-5),
    "segments": ("none", "second"),
    "positions": ("sinusoidal",),
}
_GPT2: Values = {
    **_EVERYWHERE,
    "block": ("transformer", ("attention", "ffn"), ("attention", "ffn:swish")),
    "segments": ("none", "second"),
    "final_norm": (None, "affine", "plain"),
    "positions": ("learned", "sinusoidal", "none"),
    "attention_scale": ("sqrt", "none"),
}
_GPT1: Values = {
    **_GPT2,
    "gelu": ("tanh",),
    "d_ff": (None,),
    "norm_order": ("post",),
    "final_norm": (None,),
    "attention_scale": ("sqrt",),
}
_BERT: Values = {**_ENCODER, "share": ("none", "attention", "ffn")}
_ALBERT: Values = {
    **_ENCODER,
    "d_embed": (4, 14),
    "embedding_projection": ("sum",),
    "project_embeddings": ("as-needed", "always"),
}
_ALBERT_GROUPS: Values = {
    **_ENCODER,
    "n_layers": (4,),
    "share": ("all",),
    "share_groups": (1, 2),
    "share_inner": (1, 2),
    "sentence_classes": (0,),
}
_GPT1_CHOICES: Values = {**_GPT1, "pooler": ("none",), "label_outputs": (1,)}
_GPT1_POSITIONS: Values = {
    **_GPT1,
    "softmax": ("all",),
    "positions": ("learned",),
    "tie_embeddings": (True,),
}
_LABELS: Values = {
    "head": ("none", "transform", "linear"),
    "pooler": ("tanh",),
    "label_outputs": (1, 3),
}
_CHOICES: Values = {**_LABELS, "label_outputs": (1,)}
_SPANS: Values = {"head": ("none", "transform"), "span_head": ("independent",)}
CHOICE = Task("copa", "COPA", "superglue", "choice", ("premise", "question"), ("accuracy",))
EXPORTED: dict[str, tuple[str, Values]] = {
    "gpt2": ("gpt2", _GPT2),
    "openai-gpt": ("openai-gpt", _GPT1),
    "openai-gpt with positions as classes": ("openai-gpt", _GPT1_POSITIONS),
    "openai-gpt for labels": ("openai-gpt for labels", {**_GPT1, **_LABELS, "pooler": ("none",)}),
    "openai-gpt for choices": ("openai-gpt for choices", _GPT1_CHOICES),
    "gpt2 for labels": ("gpt2 for labels", {**_GPT2, **_LABELS, "pooler": ("none",)}),
    "bert for labels": ("bert for labels", {**_BERT, **_LABELS}),
    "bert for choices": ("bert for choices", {**_BERT, **_CHOICES}),
    "bert for spans": ("bert for spans", {**_BERT, **_SPANS}),
    "albert for labels": ("albert for labels", {**_ALBERT, **_LABELS}),
    "albert for choices": ("albert for choices", {**_ALBERT, **_CHOICES}),
    "albert for spans": ("albert for spans", {**_ALBERT, **_SPANS}),
    "bert": ("bert", {**_BERT, "sentence_classes": (0,)}),
    "bert that judges pairs": ("bert", {**_BERT, **_SENTENCES}),
    "albert": ("albert", _ALBERT_GROUPS),
    "albert with another width of the table": ("albert", {**_ALBERT, **_SENTENCES}),
    "m2m_100": (
        "m2m_100",
        {
            **_TRANSLATOR,
            "sinusoids": ("fairseq",),
            "first_position": (1, 2, 4),
            "decoder_start": ("end",),
        },
    ),
    "t5": (
        "t5",
        {
            **_EVERYWHERE,
            "kind": ("encoder-decoder",),
            "n_decoder_layers": (None, 1, 3),
            "decoder_block": (None, ("attention", "cross", "ffn")),
            "d_head": (None, 5),
            "segments": ("none", "second"),
            "ffn": tuple(FFNS),
            "norm": ("rms",),
            "final_norm": (None, "affine", "plain"),
            "positions": ("relative",),
            "relative_buckets": (32, 4),
            "relative_distance": (128, 17),
            "attention_scale": ("none",),
            "output_scale": ("none", "sqrt"),
            "bias": (False,),
        },
    ),
    "marian": (
        "marian",
        {
            **_TRANSLATOR,
            "norm_order": ("post",),
            "sinusoids": ("marian",),
            "first_position": (0,),
            "head_bias": _EITHER,
        },
    ),
}
"""Models that are exported, by any combination of these values, and the class that they become."""

_ODD: Values = {
    "n_layers": (1, 3),
    "n_decoder_layers": (None, 2),
    "d_model": (2, 9, 12),
    "n_heads": (1, 2, 5),
    "d_head": (None, 2),
    "d_ff": (None, 1, 7),
    "d_embed": (None, 6, 12),
    "block": ("macaron", ("ffn", "attention"), ("attention", "ffn:swiglu"), ("ffn",)),
    "decoder_block": (None, "macaron", ("cross", "ffn"), ("attention", "cross*0.5", "ffn")),
    "norm_eps": (None, 1e-30, 1.0),
    "first_position": (2, 23, 24),
    "label_outputs": (1, 3),
    **dict.fromkeys(("share_groups", "share_inner"), (2, 3)),
    "vocab_size": (1, 3, 24),
    "max_len": (1, 9),
}
"""Numbers and blocks beside those; choices are drawn from all that a field has."""


def task_of(name: str) -> Task | None:
    """Return the task that decides what a model is exported as; None where its head does."""
    return CHOICE if name.endswith("for choices") else None


def values_of(name: str) -> tuple[Any, ...]:
    """Return values to draw of a field."""
    annotation = ModelConfig.model_fields[name].annotation
    return _ODD.get(name) or (_EITHER if annotation is bool else choices_of(annotation))


def resolved(fields: Mapping[str, Any], vocab_size: int = VOCAB_SIZE) -> ResolvedModel:
    """Build a resolved config of the fields."""
    config = ModelConfig.model_validate(fields)
    context = config.max_len or CONTEXT
    return resolve_model(config, vocab_size=config.vocab_size or vocab_size, context=context)


@st.composite
def exported_fields(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Draw the fields of a model that has always been exported."""
    values = EXPORTED[name][1]
    return {field: draw(st.sampled_from(choices)) for field, choices in values.items()}


@st.composite
def any_model(draw: st.DrawFn, most_changes: int) -> ResolvedModel:
    """Draw a model of any kind, at most ``most_changes`` fields away from one that is exported."""
    fields = draw(st.sampled_from(sorted(EXPORTED)).flatmap(exported_fields))
    names = st.sampled_from([name for name in ModelConfig.model_fields if values_of(name)])
    for name in draw(st.lists(names, max_size=most_changes, unique=True)):
        fields[name] = draw(st.sampled_from(values_of(name)))
    try:
        return resolved(fields)
    except ConfigError:
        reject()
