"""Configurations of models, and micro-batches of them."""

from dataclasses import replace
from functools import partial

from sublayer.config.load import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.objective import (
    Lengths,
    SpanObjective,
    SupervisedObjective,
    TranslationObjective,
)
from sublayer.config.resolve import resolve_model
from sublayer.model.estimates import Workload
from sublayer.model.transformer import build
from sublayer.objective.base import family_of
from sublayer.objective.supervised.family import SyntheticExamples
from sublayer.tasks.registry import TASKS, TaskSpec

VOCAB_SIZE, CONTEXT, SEQUENCES = 384, 96, 5
PARTIAL = {"positions": "rotary", "rotary_fraction": 0.5}
PRECISIONS = ("float32", "bfloat16")
MODELS = [
    {"ffn": "geglu", "block": ("ffn:relu*0.5", "attention", "ffn*0.5"), "norm_order": "post"},
    {"ffn": "swish", "swish_beta": 1.5, "head": "transform"},
    {"ffn": "bilinear", "share": "all", "norm": "none", "positions": "learned-per-layer"},
    {"ffn": "swiglu", "swish_beta": "learned", "share": "ffn"},
    {"d_embed": 32, "head_bias": True, "gelu": "exact", "tie_embeddings": False},
    {"softmax": "all", "norm_order": "post", "dropout": 0.1, "dropout_embedding_of": "matrix"},
    {"ffn": "swiglu", "norm": "rms", "positions": "rotary", "bias": False},
    {"dropout": 0.1, "dropout_ffn": 0.1},
    {"ffn": "relu", "dropout_attention": 0.5, "dropout_ffn": 0.5, "final_norm": "plain"},
    {"ffn": "reglu2", "block": ("attention+ffn", "ffn:relu2"), "norm_order": "after"},
    {"block": ("ffn+attention",), "parallel_norm": "separate", "dropout": 0.1},
    {"norm": "dyt", "norm_order": "around", "embedding_norm": "affine", "head": "transform"},
    {"norm_bias": False, "embedding_norm": "plain"},
    {"attention_window": 10, "window_pattern": "LLG", "positions": "rotary"},
    {"score_cap": 5.0, "sinks": True, "logit_cap": 3.0, "attention_scale": 2.0},
    {"positions": "rotary", "n_kv_heads": 2, "qk_norm": "rms", "bias": {"query": True}},
    {"attention_gate": "element", "value_residual": "fixed"},
    {"attention_gate": "head", "value_residual": "learned", "norm": "rms", **PARTIAL},
]
ENCODER = {"kind": "encoder", "segments": "both", "head": "transform", "dropout": 0.1}
BERT = {**ENCODER, "norm_order": "post", "embedding_norm": "affine", "pooler": "tanh"}
BERT |= {"sentence_classes": 2}
ALBERT = {**BERT, "d_embed": 32, "embedding_projection": "sum", "share": "all"}
ENCODERS = [
    {**ALBERT, "dropout": 0.0, "norm": "rms", "head_activation": "relu"}, BERT,
    {**BERT, "d_embed": 64, "ffn": "relu", "head_bias": True, "head_activation": "gelu"},
    {**ENCODER, "segments": "second", "sentence_classes": 1, "positions": "sinusoidal"},
    {"kind": "encoder", "embedding_norm": "affine", "tie_embeddings": False, "ffn": "swiglu"},
    {**ENCODER, "norm": "rms", "head_activation": "swish", "project_embeddings": "always"},
    {**ENCODER, "attention_window": 10, "window_pattern": "LG", "dropout": 0.0},
]  # fmt: skip
TRANSLATION = {"objective.kind": "translation", "objective.label_smoothing": 0.1}
TRANSLATION |= {"data.corpus": "iwslt14", "data.source_language": "de"}
TRANSLATION |= {"data.target_language": "en", "data.tokenizer": "word-bpe"}
TRANSLATOR = {"kind": "encoder-decoder", "positions": "sinusoidal", "n_layers": 3}
T5 = {"kind": "encoder-decoder", "n_layers": 3, "positions": "relative", "norm": "rms"}
T5 |= {"bias": False, "ffn": "relu", "init": "t5", "attention_scale": "none"}
T5 |= {"output_scale": "sqrt", "dropout_ffn": 0.1, "dropout_final": 0.1}
TRANSLATORS = [
    {**TRANSLATOR, "dropout": 0.1, "ffn": "relu"}, {**T5, "dropout": 0.1},
    {**TRANSLATOR, "block": "macaron", "dropout_attention": 0.2, "dropout_ffn": 0.1},
    {**TRANSLATOR, "ffn": "swiglu", "share": "all", "d_embed": 32, "positions": "rotary"},
    {**TRANSLATOR, "norm_order": "post", "n_decoder_layers": 2, "tie_embeddings": False},
    {**T5, "score_cap": 5.0, "sinks": True, "logit_cap": 3.0, "dropout_attention": 0.2},
    {**TRANSLATOR, "n_kv_heads": 2, "qk_norm": "layer", "qk_norm_over": "all"},
]  # fmt: skip
ANSWERER = {**ENCODER, "head": "none", "norm_order": "post"}
TEXT = {"format": "text", "target_length": 16}
TRAVERSAL, LABELS = {"format": "traversal"}, {"head": "none", "label_outputs": 3}
TASK_MODELS = {
    "spans": ({**ANSWERER, "span_head": "independent"}, {}),
    "text": ({**T5, "n_layers": 6, "decoder_start": "pad"}, TEXT),
    "spans of the joint head": ({**ANSWERER, "span_head": "joint"}, {}),
    "traversals and their texts": (
        {"label_outputs": 3, "d_embed": 32}, {**TRAVERSAL, "language_weight": 0.5}),
    "text of a decoder": ({}, TEXT),
    "labels without a pooler": ({**LABELS, "kind": "encoder"}, {}),
    "labels of traversals": ({**LABELS, "dropout": 0.1}, TRAVERSAL),
    "labels of pairs": ({**ANSWERER, "label_outputs": 3, "pooler": "tanh"}, {}),
}  # fmt: skip


def make_pass(fields, precision):
    model = {"n_layers": 5, "d_model": 96, **fields}
    settings = {f"model.{name}": value for name, value in model.items()}
    if fields.get("kind") == "encoder":
        settings |= {"objective.kind": "masked", "data.sentences": "lines"}
        settings |= {"data.tokenizer": "unigram"}
        settings |= {"objective.sentence": "sop"} if fields.get("sentence_classes") else {}
    if fields.get("kind") == "encoder-decoder":
        settings |= TRANSLATION
    recipe = load_recipe("gpt", settings).recipe
    config = resolve_model(recipe.model, vocab_size=VOCAB_SIZE, context=CONTEXT)
    return Workload(config, SEQUENCES, CONTEXT, precision, objective=recipe.objective)


class Uneven(TranslationObjective):
    """A translation of another length than its source."""

    n_read: int
    n_written: int

    def lengths(self, context):
        return Lengths(self.n_read, self.n_written)


def make_uneven_pass(n_read, n_written, precision):
    made = make_pass(TRANSLATOR | {"dropout": 0.1, "d_model": 64, "n_heads": 4}, precision)
    return replace(made, objective=Uneven(n_read=n_read, n_written=n_written))


def make_span_pass(fields, z_loss, precision):
    objective = SpanObjective(z_loss=z_loss).resolve(CONTEXT)
    return replace(make_pass(fields, precision), objective=objective)


def make_task_pass(name, precision):
    fields, objective = TASK_MODELS[name]
    wide = {"n_layers": 5, "d_model": 96, **fields}
    config = resolved(vocab_size=VOCAB_SIZE, context=CONTEXT, **wide)
    made = Workload(config, SEQUENCES, CONTEXT, precision, keeps_documents_apart=True)
    return replace(made, objective=SupervisedObjective(**objective))


PASSES = {
    **{str(fields): partial(make_pass, fields) for fields in (*MODELS, *ENCODERS, *TRANSLATORS)},
    "spans of an untied T5": partial(make_span_pass, {**T5, "tie_embeddings": False}, 1e-4),
    "spans of T5": partial(make_span_pass, {**T5, "dropout": 0.1}, 0.0),
    "more read than written": partial(make_uneven_pass, 96, 40),
    "more written than read": partial(make_uneven_pass, 40, 96),
    **{name: partial(make_task_pass, name) for name in TASK_MODELS},
}


def resolved(*, vocab_size=17, context=11, **fields):
    return resolve_model(ModelConfig(**fields), vocab_size=vocab_size, context=context)


def build_objective(step):
    model, spec = build(step.config, seed=0), None
    if isinstance(step.objective, SupervisedObjective):
        task = {"joint": "squad2", "independent": "squad", "none": "mnli"}[step.config.span_head]
        spec = TaskSpec((TASKS[task],), step.objective.format, step.context)
    return family_of(step.objective).build(model, step.objective, 0, spec)


def make_batches(step, n_sequences):
    objective = step.objective
    if isinstance(objective, SupervisedObjective):
        has_encoder = step.config.kind == "encoder-decoder"
        n_predicted = 0 if has_encoder else objective.n_predictions(step.lengths.written)
        sizes = {"n_predicted": n_predicted, "has_encoder": has_encoder}
        return SyntheticExamples(VOCAB_SIZE, n_sequences, step.lengths, **sizes)
    settings = {"data.context": step.context, "train.batch_sequences": n_sequences}
    recipe = load_recipe("gpt", settings).recipe
    recipe = recipe.model_copy(update={"model": step.config, "objective": objective})
    return family_of(objective).synthetic(recipe, VOCAB_SIZE)
