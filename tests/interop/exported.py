"""A small model of every kind that is exported as a class of transformers."""

import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.tasks.task import Task

VOCAB_SIZE, CONTEXT = 23, 8

_SIZES = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_ff": 5, "init_std": 0.3}
_GPT2 = {**_SIZES, "positions": "learned"}
_GPT1 = {**_SIZES, "d_ff": None, "norm_order": "post", "gelu": "tanh", "ffn": "gelu"}
_ENCODER = {**_SIZES, "kind": "encoder", "norm_order": "post", "embedding_norm": True}
_ENCODER |= {"segments": "both", "head": "transform", "head_bias": True}
_ALBERT = {**_ENCODER, "d_embed": 4, "embedding_projection": "sum"}
_PAIRS = {"pooler": "tanh", "sentence_classes": 2}
_LABELS = {"head": "none", "pooler": "tanh", "label_outputs": 3}
_CHOICES = {**_LABELS, "label_outputs": 1}
_SPANS = {"head": "none", "span_head": "independent"}
_TRANSLATOR = {**_SIZES, "kind": "encoder-decoder", "ffn": "relu"}
_T5 = {**_TRANSLATOR, "norm": "rms", "positions": "relative", "attention_scale": "none"}
_T5 |= {"bias": False, "decoder_start": "pad"}
_TRANSLATOR |= {"positions": "sinusoidal", "embedding_scale": "sqrt"}
_M2M100 = {**_TRANSLATOR, "sinusoids": "fairseq", "first_position": 2}
_MARIAN = {**_TRANSLATOR, "sinusoids": "marian", "norm_order": "post", "head_bias": True}
CHOICE = Task("copa", "COPA", "superglue", "choice", ("premise", "question"), ("accuracy",))
EXPORTED = {
    "gpt2": ("gpt2", _GPT2), "openai-gpt": ("openai-gpt", _GPT1),
    "openai-gpt with positions as classes": ("openai-gpt", {**_GPT1, "softmax": "all"}),
    "openai-gpt for labels": ("openai-gpt for labels", {**_GPT1, **_LABELS, "pooler": "none"}),
    "openai-gpt for choices": ("openai-gpt for choices", {**_GPT1, "label_outputs": 1}),
    "gpt2 for labels": ("gpt2 for labels", {**_GPT2, **_LABELS, "pooler": "none"}),
    "bert for labels": ("bert for labels", {**_ENCODER, **_LABELS}),
    "bert for choices": ("bert for choices", {**_ENCODER, **_CHOICES}),
    "bert for spans": ("bert for spans", {**_ENCODER, **_SPANS}),
    "albert for labels": ("albert for labels", {**_ALBERT, **_LABELS}),
    "albert for choices": ("albert for choices", {**_ALBERT, **_CHOICES}),
    "albert for spans": ("albert for spans", {**_ALBERT, **_SPANS}), "bert": ("bert", _ENCODER),
    "bert that judges pairs": ("bert", {**_ENCODER, **_PAIRS}),
    "albert": ("albert", {**_ENCODER, "share": "all"}),
    "albert with another width of the table": ("albert", {**_ALBERT, **_PAIRS}),
    "m2m_100": ("m2m_100", _M2M100), "marian": ("marian", _MARIAN), "t5": ("t5", _T5),
}  # fmt: skip
"""The class that each becomes, and the fields of one that does."""


def task_of(name):
    """Return the task that decides what a model is exported as; None where its head does."""
    return CHOICE if name.endswith("for choices") else None


def resolved(fields, vocab_size=VOCAB_SIZE):
    config = ModelConfig.model_validate(fields)
    context = config.max_len or CONTEXT
    return resolve_model(config, vocab_size=config.vocab_size or vocab_size, context=context)


def config_of(name, **changes):
    return resolved({**EXPORTED[name][1], **changes})


@torch.no_grad()
def with_random_vectors(model, std=0.1):
    """Add noise to biases and norms, which are built as zeros and ones; give the model."""
    generator = torch.Generator().manual_seed(2)
    for each in (parameter for parameter in model.parameters() if parameter.dim() == 1):
        each.add_(torch.empty_like(each).normal_(std=std, generator=generator))
    return model.eval()
