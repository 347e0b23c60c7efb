"""Configurations of models that are estimated and measured, and micro-batches of them."""

from dataclasses import replace
from typing import Any

from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.objectives.span import SpanObjective
from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.config.resolve_model import resolve_model
from sublayer.estimate.micro_batch import MicroBatch

VOCAB_SIZE, CONTEXT, SEQUENCES = 384, 96, 5
PRECISIONS = ("float32", "bfloat16")
MODELS: list[dict[str, Any]] = [
    {},
    {"dropout": 0.1, "dropout_ffn": 0.1},
    {"ffn": "swiglu", "norm": "rms", "positions": "rotary", "bias": False},
    {"ffn": "geglu", "block": ("ffn:relu*0.5", "attention", "ffn*0.5"), "norm_order": "post"},
    {"ffn": "bilinear", "share": "all", "norm": "none", "positions": "learned-per-layer"},
    {
        "ffn": "relu",
        "positions": "learned-per-layer",
        "dropout_attention": 0.5,
        "dropout_ffn": 0.5,
        "final_norm": "plain",
    },
    {"d_embed": 32, "head_bias": True, "gelu": "exact", "tie_embeddings": False},
    {"ffn": "swish", "swish_beta": 1.5, "head": "transform"},
    {"ffn": "swiglu", "swish_beta": "learned", "share": "ffn"},
    {"softmax": "all", "norm_order": "post", "dropout": 0.1},
    {"softmax": "all", "dropout": 0.1, "dropout_embedding_of": "matrix"},
]
ENCODER: dict[str, Any] = {
    "kind": "encoder",
    "segments": "both",
    "head": "transform",
    "dropout": 0.1,
}
BERT = {
    **ENCODER,
    "norm_order": "post",
    "embedding_norm": True,
    "pooler": "tanh",
    "sentence_classes": 2,
}
ENCODERS: list[dict[str, Any]] = [
    BERT,
    {**BERT, "d_embed": 32, "embedding_projection": "sum", "share": "all", "dropout": 0.0},
    {
        **BERT,
        "d_embed": 32,
        "embedding_projection": "sum",
        "share": "all",
        "norm": "rms",
        "head_activation": "relu",
    },
    {
        **BERT,
        "d_embed": 64,
        "ffn": "relu",
        "head_bias": True,
        "gelu": "exact",
        "head_activation": "gelu",
    },
    {
        **ENCODER,
        "segments": "second",
        "sentence_classes": 1,
        "norm_affine": False,
        "positions": "sinusoidal",
    },
    {
        **ENCODER,
        "norm": "rms",
        "positions": "rotary",
        "head_activation": "swish",
        "project_embeddings": "always",
    },
    {"kind": "encoder", "embedding_norm": True, "tie_embeddings": False, "ffn": "swiglu"},
]
TRANSLATION = {
    "objective.kind": "translation",
    "objective.label_smoothing": 0.1,
    "data.corpus": "iwslt14",
    "data.source_language": "de",
    "data.target_language": "en",
    "data.tokenizer": "word-bpe",
}
TRANSLATOR: dict[str, Any] = {"kind": "encoder-decoder", "positions": "sinusoidal", "n_layers": 3}
TRANSLATORS: list[dict[str, Any]] = [
    {**TRANSLATOR, "dropout": 0.1, "ffn": "relu"},
    {
        **TRANSLATOR,
        "block": "macaron",
        "dropout": 0.1,
        "dropout_attention": 0.2,
        "dropout_ffn": 0.1,
    },
    {
        **TRANSLATOR,
        "norm_order": "post",
        "n_decoder_layers": 2,
        "tie_embeddings": False,
        "positions": "learned",
    },
    {
        **TRANSLATOR,
        "ffn": "swiglu",
        "norm": "rms",
        "bias": False,
        "share": "all",
        "d_embed": 32,
        "positions": "rotary",
    },
    {
        **TRANSLATOR,
        "ffn": "relu",
        "norm": "rms",
        "bias": False,
        "positions": "relative",
        "init": "t5",
        "attention_scale": "none",
        "output_scale": "sqrt",
        "dropout": 0.1,
        "dropout_ffn": 0.1,
        "dropout_final": 0.1,
    },
]
T5: dict[str, Any] = {
    "kind": "encoder-decoder",
    "n_layers": 3,
    "positions": "relative",
    "norm": "rms",
    "bias": False,
    "ffn": "relu",
    "init": "t5",
    "attention_scale": "none",
    "output_scale": "sqrt",
    "decoder_start": "pad",
}
T5S: list[dict[str, Any]] = [
    T5,
    {**T5, "dropout": 0.1, "dropout_ffn": 0.1, "dropout_final": 0.1},
    {**T5, "ffn": "geglu", "output_scale": "none", "tie_embeddings": False},
]
ANSWERER: dict[str, Any] = {**ENCODER, "head": "none", "norm_order": "post"}
TASK_MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "labels of pairs": ("mnli", {**ANSWERER, "label_outputs": 3, "pooler": "tanh"}, {}),
    "labels without a pooler": (
        "mnli",
        {"kind": "encoder", "head": "none", "label_outputs": 3},
        {},
    ),
    "spans": ("squad", {**ANSWERER, "span_head": "independent"}, {}),
    "spans of the joint head": ("squad2", {**ANSWERER, "span_head": "joint"}, {}),
    "labels of traversals": (
        "mnli",
        {"head": "none", "label_outputs": 3, "dropout": 0.1},
        {"format": "traversal"},
    ),
    "traversals and their texts": (
        "mnli",
        {"label_outputs": 3, "d_embed": 32},
        {"format": "traversal", "language_weight": 0.5},
    ),
    "text": (
        "mnli",
        {**T5, "n_layers": 6, "dropout": 0.1},
        {"format": "text", "target_length": 16},
    ),
    "text of a decoder": ("mnli", {}, {"format": "text", "target_length": 16}),
}
"""What answers tasks: the task, the model, the objective."""


def make_pass(fields: dict[str, Any], precision: Any) -> MicroBatch:
    settings = {
        "model.n_layers": 5,
        "model.d_model": 96,
        **{f"model.{k}": v for k, v in fields.items()},
    }
    if fields.get("kind") == "encoder":
        settings |= {
            "objective.kind": "masked",
            "data.sentences": "lines",
            "data.tokenizer": "unigram",
        }
        settings |= {"objective.sentence": "sop"} if fields.get("sentence_classes") else {}
    if fields.get("kind") == "encoder-decoder":
        settings |= TRANSLATION
    recipe = load_recipe("gpt", settings).recipe
    config = resolve_model(recipe.model, vocab_size=VOCAB_SIZE, context=CONTEXT)
    return MicroBatch(
        config,
        sequences=SEQUENCES,
        context=CONTEXT,
        precision=precision,
        objective=recipe.objective,
    )


def make_span_pass(fields: dict[str, Any], precision: Any, z_loss: float) -> MicroBatch:
    made = make_pass(fields, precision)
    objective = SpanObjective(z_loss=z_loss).resolve(CONTEXT)
    return replace(made, objective=objective)


def make_task_pass(name: str, precision: Any) -> MicroBatch:
    _, fields, objective = TASK_MODELS[name]
    config = ModelConfig.model_validate({"n_layers": 5, "d_model": 96, **fields})
    return MicroBatch(
        resolve_model(config, vocab_size=VOCAB_SIZE, context=CONTEXT),
        sequences=SEQUENCES,
        context=CONTEXT,
        precision=precision,
        objective=SupervisedObjective(**objective),
        keeps_documents_apart=True,
    )


def resolved(*, vocab_size: int = 17, context: int = 11, **fields: Any) -> ModelConfig:
    return resolve_model(ModelConfig(**fields), vocab_size=vocab_size, context=context)
