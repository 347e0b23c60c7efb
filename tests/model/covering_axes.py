"""The axes of models, what has no meaning among them, and two hundred combinations of the rest."""

from collections.abc import Iterable
from typing import Any

from sublayer.config.architecture.block import BLOCKS
from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.fields.messages import choices_of
from sublayer.config.model import ModelConfig

from .covering import cover, with_implied

N_ROWS = 200

Setting = tuple[str, Any]
"""A field of ``[model]`` and a value of it."""
Pair = tuple[Setting, Setting]


def choices(field: str) -> tuple[Any, ...]:
    """Return the values that a field of ``[model]`` takes, its default first."""
    info = ModelConfig.model_fields[field]
    others = [each for each in choices_of(info.annotation) if each != info.default]
    return (info.default, *others)


AXES: dict[str, tuple[Any, ...]] = {
    "kind": choices("kind"),
    "n_decoder_layers": (None, 6),
    "decoder_block": (
        None,
        ("ffn*0.5", "attention", "cross", "ffn*0.5"),
        ("cross*0.5", "ffn:swiglu", "attention", "cross"),
    ),
    "block": (*BLOCKS, ("attention", "ffn:relu*0.5", "ffn*2", "attention*0.5")),
    "ffn": choices("ffn"),
    "gelu": choices("gelu"),
    "norm": choices("norm"),
    "norm_order": choices("norm_order"),
    "norm_affine": (True, False),
    "final_norm": choices("final_norm"),
    "positions": choices("positions"),
    "sinusoids": choices("sinusoids"),
    "first_position": (0, 2),
    "relative_buckets": (32, 6),
    "relative_distance": (128, 20),
    "share": choices("share"),
    "share_groups": (1, 2),
    "share_inner": (1, 2),
    "d_embed": (6, 8, 14),
    "embedding_projection": choices("embedding_projection"),
    "project_embeddings": choices("project_embeddings"),
    "embedding_norm": (False, True),
    "segments": choices("segments"),
    # Without logits there is nothing to compare: tests/model/test_task_heads.py.
    "head": tuple(each for each in choices("head") if each != "none"),
    "softmax": choices("softmax"),
    "head_activation": choices("head_activation"),
    "pooler": choices("pooler"),
    "sentence_classes": choices("sentence_classes"),
    "tie_embeddings": (True, False),
    "embedding_scale": choices("embedding_scale"),
    "output_scale": choices("output_scale"),
    "attention_scale": choices("attention_scale"),
    "bias": (True, False),
    "head_bias": (False, True),
    "dropout": (0.0, 0.1),
    "dropout_attention": (None, 0.0, 0.2),
    "dropout_ffn": (None, 0.1),
    "dropout_embedding": (None, 0.0, 0.2),
    "dropout_embedding_of": choices("dropout_embedding_of"),
    "dropout_final": (0.0, 0.2),
    "init": choices("init"),
    "zero_padding": (False, True),
    "vocab_multiple": (1, 5),
}


def each_with(name: str, values: Iterable[Any], other: str, *others: Any) -> list[Pair]:
    """Pair each of an axis's values with each of another's."""
    return [((name, value), (other, each)) for value in values for each in others]


def without(values: Iterable[Any], *left_out: Any) -> tuple[Any, ...]:
    return tuple(each for each in values if each not in left_out)


ONE_STACK = without(AXES["kind"], "encoder-decoder")
NOT_ENCODERS = without(AXES["kind"], "encoder")
NOT_SINUSOIDAL = without(POSITIONS, "sinusoidal")
NOT_RELATIVE = without(POSITIONS, "relative")
OF_BLOCKS = (
    "block",
    "norm",
    "norm_order",
    "norm_affine",
    "final_norm",
    "positions",
    "share",
    "embedding_norm",
    "attention_scale",
    "dropout_attention",
    "dropout_ffn",
    "dropout_final",
)
"""What an LSTM has not."""

WITHOUT_MEANING: list[Pair] = [
    *each_with("norm", ["none"], "norm_order", "post"),
    *each_with("norm", ["none"], "norm_affine", False),
    *each_with("norm", ["none"], "final_norm", "affine", "plain"),
    *each_with("share", ["none"], "share_groups", 2),
    *each_with("share", ["none"], "share_inner", 2),
    *each_with("norm", ["none"], "embedding_norm", True),
    *each_with("head", ["linear"], "head_activation", *without(AXES["head_activation"], "ffn")),
    *each_with("kind", NOT_ENCODERS, "segments", *without(AXES["segments"], "none")),
    *each_with("kind", NOT_ENCODERS, "pooler", "tanh"),
    *each_with("kind", NOT_ENCODERS, "sentence_classes", 1, 2),
    *each_with("kind", ["decoder", "lstm"], "zero_padding", True),
    *each_with("kind", ["lstm"], "init", "kaiming", "t5"),
    *[pair for name in OF_BLOCKS for pair in each_with("kind", ["lstm"], name, *AXES[name][1:])],
    *each_with("kind", without(AXES["kind"], "decoder"), "softmax", "all"),
    *each_with("positions", without(POSITIONS, "learned"), "softmax", "all"),
    *each_with("tie_embeddings", [False], "softmax", "all"),
    *each_with("d_embed", [6, 14], "softmax", "all"),
    *each_with("kind", without(AXES["kind"], "decoder"), "dropout_embedding_of", "matrix"),
    *each_with("positions", without(POSITIONS, "learned"), "dropout_embedding_of", "matrix"),
    *each_with("dropout_embedding", [0.0], "dropout_embedding_of", "matrix"),
    *each_with("kind", ONE_STACK, "n_decoder_layers", 6),
    *each_with("kind", ONE_STACK, "decoder_block", *AXES["decoder_block"][1:]),
    *each_with("positions", NOT_SINUSOIDAL, "sinusoids", "fairseq", "marian", "interleaved"),
    *each_with("positions", NOT_SINUSOIDAL, "first_position", 2),
    *each_with("positions", NOT_RELATIVE, "relative_buckets", 6),
    *each_with("positions", NOT_RELATIVE, "relative_distance", 20),
]
"""Pairs of values that contradict each other, or of which one would have no effect."""


def numbered(pair: Pair) -> frozenset[tuple[str, int]]:
    """Return the numbers that a pair's values have on their axes."""
    return frozenset((name, AXES[name].index(value)) for name, value in pair)


FORBIDDEN = with_implied(AXES, [numbered(pair) for pair in WITHOUT_MEANING])
ROWS = cover(AXES, FORBIDDEN, N_ROWS)
