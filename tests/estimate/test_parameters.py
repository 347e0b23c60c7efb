"""Parameters that a config is said to have: those of the built module, and worked out by hand."""

import contextlib
import random
from typing import Any

import pytest
import torch

from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.architecture.positions import POSITIONS
from sublayer.errors import ConfigError
from sublayer.estimate.cost import Parameters, count_parameters
from sublayer.model.build import compose
from tests.breadth import rows

from .configurations import resolved

AXES: dict[str, list[dict[str, Any]]] = {
    "depth": [{"n_layers": 1}, {"n_layers": 6}],
    "width": [{"d_model": 12, "n_heads": 3}, {"d_model": 10, "n_heads": 5, "d_head": 6}],
    "ffn": [{"ffn": ffn} for ffn in FFNS],
    "d_ff": [{}, {"d_ff": 7}],
    "swish_beta": [{}, {"swish_beta": 2.0}, {"swish_beta": "learned"}],
    "block": [
        {"block": block}
        for block in (
            "transformer",
            "macaron",
            ("ffn:glu*0.5", "attention", "attention*2", "ffn"),
            ("attention",),
            ("ffn", "ffn:relu"),
        )
    ],
    "share": [
        {},
        {"share": "all"},
        {"share": "all", "share_groups": 2, "share_inner": 3},
        {"share": "attention", "share_groups": 5},
        {"share": "ffn", "share_inner": 2},
    ],
    "embedding": [{}, {"d_embed": 5}, {"d_embed": 19}, {"d_embed": 12}],
    "tie": [{"tie_embeddings": True}, {"tie_embeddings": False}],
    "positions": [{"positions": name} for name in POSITIONS],
    "bias": [{"bias": True}, {"bias": False}],
    "head_bias": [{"head_bias": True}, {"head_bias": False}],
    "norm": [
        {},
        {"norm": "rms"},
        {"norm": "none"},
        {"norm": "rms", "norm_affine": False},
        {"norm": "layer", "norm_affine": False, "final_norm": "plain"},
        {"norm_order": "post"},
        {"norm_order": "post", "final_norm": "affine"},
    ],
    "embedding_projection": [{}, {"embedding_projection": "sum"}, {"project_embeddings": "always"}],
    "embedding_norm": [{}, {"embedding_norm": True}],
    "head": [{}, {"head": "transform"}],
    "kind": [
        {},
        {"kind": "encoder"},
        {"kind": "encoder", "segments": "both", "pooler": "tanh", "sentence_classes": 2},
        {"kind": "encoder", "segments": "second", "sentence_classes": 1},
        {"kind": "encoder", "pooler": "tanh"},
    ],
}


def combinations(n: int) -> list[dict[str, Any]]:
    """Draw n combinations of the axes that have a meaning."""
    draw, kept = random.Random(0), list[dict[str, Any]]()
    while len(kept) < n:
        fields = {
            name: value for choices in AXES.values() for name, value in draw.choice(choices).items()
        }
        with contextlib.suppress(ConfigError):
            resolved(**fields)
            kept.append(fields)
    return kept


def block_parameters(**fields: Any) -> int:
    one, two = (count_parameters(resolved(n_layers=n, **fields)).total for n in (1, 2))
    return two - one


@pytest.mark.parametrize("width", [768, 1024, 2048])
def test_a_block_has_twelve_squares_and_thirteen_vectors(width: int) -> None:
    assert block_parameters(d_model=width, n_heads=8) == 12 * width**2 + 13 * width


@pytest.mark.parametrize(("width", "d_ff"), [(512, 2048), (768, 3072)])
def test_a_macaron_block_has_three_vectors_more_than_a_transformer_block(
    width: int, d_ff: int
) -> None:
    transformer = block_parameters(d_model=width, d_ff=d_ff)
    macaron = block_parameters(d_model=width, d_ff=d_ff // 2, block="macaron")
    assert macaron == transformer + 3 * width


def test_two_thirds_of_the_width_make_a_gated_network_equal() -> None:
    plain = block_parameters(d_model=768, d_ff=3072, ffn="relu", bias=False)
    assert block_parameters(d_model=768, d_ff=2048, ffn="reglu", bias=False) == plain


@pytest.mark.parametrize("ffn", FFNS)
def test_t5_base_has_its_parameters_with_either_kind_of_network(ffn: str) -> None:
    fields: dict[str, Any] = {
        "kind": "encoder-decoder",
        "n_layers": 12,
        "d_model": 768,
        "n_heads": 12,
        "ffn": ffn,
        "d_ff": 2048 if FFNS[ffn].is_gated else 3072,
        "norm": "rms",
        "bias": False,
        "positions": "relative",
        "vocab_multiple": 128,
    }
    tied = resolved(vocab_size=32_100, context=512, **fields)
    assert count_parameters(tied).total == 222_903_552
    untied = resolved(vocab_size=32_100, context=512, tie_embeddings=False, **fields)
    assert count_parameters(untied).total == 247_577_856


def test_shared_weights_are_unique_once_and_executed_each_time() -> None:
    alone = count_parameters(resolved(n_layers=12, d_model=8, n_heads=2))
    shared = count_parameters(
        resolved(n_layers=12, d_model=8, n_heads=2, share="all", share_groups=2, share_inner=3)
    )
    block = 12 * 8**2 + 13 * 8
    assert alone.total - shared.total == (12 - 2 * 3) * block
    assert shared.executed == alone.executed == alone.total


def test_sharing_one_kind_of_sublayer_leaves_the_other_alone() -> None:
    n_layers, width = 5, 8
    attention, ffn = 4 * width**2 + 6 * width, 8 * width**2 + 7 * width
    none, shared_attention, shared_ffn = (
        count_parameters(resolved(n_layers=n_layers, d_model=width, n_heads=2, share=share)).total
        for share in ("none", "attention", "ffn")
    )
    assert none - shared_attention == (n_layers - 1) * attention
    assert none - shared_ffn == (n_layers - 1) * ffn


@pytest.mark.parametrize("fields", rows(combinations(150), 14), ids=str)
def test_the_built_model_has_the_parameters_that_are_counted(fields: dict[str, Any]) -> None:
    config = resolved(**fields)
    with torch.device("meta"):
        model = compose(config)

    def size(*modules: torch.nn.Module) -> int:
        return sum(parameter.numel() for module in modules for parameter in module.parameters())

    total, blocks = size(model), size(model.stack)
    segments = [] if model.segment_table is None else [model.segment_table]
    tables = model.embedding.weight.numel() + size(model.positions, *segments)
    executed = sum(size(*model.stack.block(layer)) for layer in range(config.n_layers))
    pooler, sentence_head = (
        getattr(model, name, None) or torch.nn.Identity() for name in ("pooler", "sentence_head")
    )
    heads = size(model.head, sentence_head)
    encoders = (
        (total - heads - size(pooler), total - heads, total)
        if config.kind == "encoder"
        else (None, None, None)
    )
    assert count_parameters(config) == Parameters(
        total, total, total - tables, total - blocks + executed, *encoders
    )
