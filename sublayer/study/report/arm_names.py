"""Arms in English, from what sets them apart: ``model.ffn=swiglu`` is the SwiGLU feed-forward."""

from collections.abc import Mapping
from typing import Any

from sublayer.config.fields.messages import show
from sublayer.study.results import Results

_PHRASES: dict[str, dict[Any, str]] = {
    "model.kind": {"encoder-decoder": "encoder-decoder"},
    "model.ffn": {
        "relu": "ReLU feed-forward",
        "gelu": "GELU feed-forward",
        "swish": "Swish feed-forward",
        "glu": "GLU feed-forward",
        "bilinear": "bilinear feed-forward",
        "reglu": "ReGLU feed-forward",
        "geglu": "GEGLU feed-forward",
        "swiglu": "SwiGLU feed-forward",
    },
    "model.positions": {
        "sinusoidal": "sinusoidal positions",
        "learned": "learned positions",
        "learned-per-layer": "learned positions of each layer",
        "rotary": "rotary positions",
        "alibi": "ALiBi",
        "relative": "relative positions",
        "none": "no positions",
    },
    "model.block": {"transformer": "Transformer block", "macaron": "Macaron block"},
    "model.norm": {"layer": "LayerNorm", "rms": "RMSNorm", "none": "no norms"},
    "model.norm_order": {"pre": "pre-norm", "post": "post-norm"},
    "model.norm_affine": {True: "norms with gains", False: "norms without gains"},
    "model.final_norm": {
        "affine": "final norm with gain",
        "plain": "final norm without gain",
        "none": "no final norm",
    },
    "model.share": {
        "none": "no sharing",
        "all": "all weights shared",
        "attention": "attention shared",
        "ffn": "feed-forward shared",
    },
    "model.gelu": {"exact": "exact GELU", "tanh": "tanh GELU"},
    "model.swish_beta": {"learned": "learned slope of Swish"},
    "model.bias": {True: "biases", False: "no biases"},
    "model.head_bias": {True: "bias of the logits", False: "no bias of the logits"},
    "model.tie_embeddings": {True: "tied embeddings", False: "untied embeddings"},
    "model.embedding_norm": {True: "norm of embeddings", False: "no norm of embeddings"},
    "model.head": {"linear": "linear head", "transform": "transform head"},
    "model.softmax": {
        "tokens": "softmax over tokens",
        "all": "softmax over tokens and positions",
    },
    "model.init": {
        "normal": "normal initial weights",
        "scaled": "scaled initial weights",
        "truncated": "truncated normal initial weights",
        "xavier": "Xavier initial weights",
        "kaiming": "Kaiming initial weights",
        "t5": "T5's initial weights",
    },
    "model.attention_scale": {"sqrt": "scaled attention", "none": "attention not scaled"},
    "objective.masking": {
        "token": "tokens masked",
        "word": "whole words masked",
        "ngram": "n-grams masked",
    },
    "objective.sentence": {
        "none": "no sentence loss",
        "nsp": "next sentence loss",
        "sop": "sentence order loss",
    },
    "objective.noise": {
        "spans": "spans cut out",
        "iid": "single tokens cut out",
        "prefix": "prefix language model",
    },
    "objective.auxiliary": {"none": "no losses of blocks", "layers": "losses of all blocks"},
    "objective.positions": {"all": "all positions predict", "last": "last position predicts"},
    "optimizer.kind": {
        "sgd": "SGD",
        "adam": "Adam",
        "adamw": "AdamW",
        "lamb": "LAMB",
        "adafactor": "Adafactor",
    },
    "train.precision": {"float32": "float32", "bfloat16": "bfloat16"},
    "data.boundaries": {
        "ignore": "attention across documents",
        "respect": "attention within documents",
    },
}
"""A field's values, in words that stand alone."""

_FORMS = {
    "model.kind": "{}",
    "model.ffn": "{} feed-forward",
    "model.positions": "{} positions",
    "model.block": "block {}",
    "model.n_layers": "{} layers",
    "model.n_decoder_layers": "{} decoder layers",
    "model.n_heads": "{} heads",
    "model.d_model": "width {}",
    "model.d_head": "head width {}",
    "model.d_ff": "feed-forward width {}",
    "model.d_embed": "embedding width {}",
    "model.share_groups": "{} groups of shared blocks",
    "model.dropout": "dropout {}",
    "model.dropout_attention": "attention dropout {}",
    "model.dropout_ffn": "feed-forward dropout {}",
    "model.dropout_embedding": "embedding dropout {}",
    "model.dropout_embedding_of": "embedding dropout of the {}",
    "data.context": "context of {} tokens",
    "data.tokenizer": "{} tokens",
    "data.vocab_size": "vocabulary of {}",
    "objective.targets": "{} targets",
    "objective.mask_share": "{} of tokens masked",
    "objective.noise_density": "{} of tokens cut out",
    "objective.mean_span": "spans of {} tokens",
    "objective.label_smoothing": "label smoothing {}",
    "optimizer.lr": "learning rate {}",
    "optimizer.schedule": "{} schedule",
    "optimizer.weight_decay": "weight decay {}",
    "train.steps": "{} steps",
    "train.epochs": "{} epochs",
    "train.tokens": "{} tokens trained on",
    "train.batch_sequences": "batch of {} windows",
    "train.batch_tokens": "batch of {} tokens",
}
"""What any other value of a field is put into."""

_SINGULAR = {
    "model.n_layers": "1 layer",
    "model.n_decoder_layers": "1 decoder layer",
    "model.n_heads": "1 head",
    "model.share_groups": "1 group of shared blocks",
    "objective.targets": "1 target",
    "objective.mean_span": "spans of 1 token",
    "data.context": "context of 1 token",
    "train.steps": "1 step",
    "train.epochs": "1 epoch",
    "train.tokens": "1 token trained on",
    "train.batch_sequences": "batch of 1 window",
    "train.batch_tokens": "batch of 1 token",
}


def name_setting(field: str, value: Any) -> str:
    """Name a setting in English; ``field = value`` where there are no words for the field."""
    phrases = _PHRASES.get(field, {})
    # True and 1 are one key to a mapping.
    is_key = isinstance(value, bool | str)
    if is_key and value in phrases:
        return phrases[value]
    if field in _SINGULAR and value == 1:
        return _SINGULAR[field]
    form = _FORMS.get(field, f"{field.rpartition('.')[2]} = {{}}")
    return form.format(_written(value))


def name_settings(settings: Mapping[str, Any]) -> str:
    """Name an arm by all that sets it apart, one after another."""
    return " + ".join(name_setting(field, value) for field, value in settings.items())


def arm_name(results: Results, name: str) -> str:
    """Return what sentences call the arm that tables call ``name``.

    Arms of ``--vary`` are named by their settings; all others have names of their own.
    """
    for arm in results.arms:
        if arm.name == name and arm.varied:
            return name_settings(arm.varied)
    return name


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return show(value)
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return " ".join(_written(each) for each in value)
    return show(value)
