"""The counts of a config are the published ones, the hand-worked ones, and those of the built module."""

from typing import Any

import pytest

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.model.cost import Parameters, count_parameters, flops_per_token


def resolved(*, vocab_size: int = 17, context: int = 11, **fields: Any) -> ModelConfig:
    return resolve_model(ModelConfig(**fields), vocab_size=vocab_size, context=context)


def block_parameters(**fields: Any) -> int:
    one, two = (count_parameters(resolved(n_layers=n, **fields)).total for n in (1, 2))
    return two - one


def test_gpt2_small_has_its_published_parameters() -> None:
    config = resolved(vocab_size=50257, context=1024, n_layers=12, d_model=768, n_heads=12)
    total = 124_439_808
    tables = (50257 + 1024) * 768
    assert count_parameters(config) == Parameters(total, total, total - tables, total)


@pytest.mark.parametrize(("n_layers", "total"), [(12, 41_236_736), (64, 218_792_192)])
def test_deep_character_transformers_have_their_published_parameters(n_layers: int, total: int) -> None:
    config = resolved(
        vocab_size=256,
        context=512,
        n_layers=n_layers,
        d_model=512,
        n_heads=2,
        ffn="relu",
        positions="learned-per-layer",
        tie_embeddings=False,
        head_bias=True,
        final_norm="plain",
    )
    assert count_parameters(config).total == total
    assert count_parameters(config).non_embedding == total - 256 * 512 - n_layers * 512 * 512


@pytest.mark.parametrize("width", [768, 1024, 2048])
def test_a_block_has_twelve_squares_and_thirteen_vectors(width: int) -> None:
    assert block_parameters(d_model=width, n_heads=8) == 12 * width**2 + 13 * width


@pytest.mark.parametrize(("width", "d_ff"), [(512, 2048), (768, 3072)])
def test_a_macaron_block_has_three_vectors_more_than_a_transformer_block(width: int, d_ff: int) -> None:
    transformer = block_parameters(d_model=width, d_ff=d_ff)
    macaron = block_parameters(d_model=width, d_ff=d_ff // 2, block="macaron")
    assert macaron == transformer + 3 * width


def test_two_thirds_of_the_width_make_a_gated_network_equal() -> None:
    plain = block_parameters(d_model=768, d_ff=3072, ffn="relu", bias=False)
    assert block_parameters(d_model=768, d_ff=2048, ffn="reglu", bias=False) == plain


def test_shared_weights_are_unique_once_and_executed_each_time() -> None:
    alone = count_parameters(resolved(n_layers=12, d_model=8, n_heads=2))
    shared = count_parameters(resolved(n_layers=12, d_model=8, n_heads=2, share="all", share_groups=2, share_inner=3))
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


def test_flops_of_a_tiny_model_are_those_worked_out_by_hand() -> None:
    # Multiply-adds per token: q, k, v, o 4*2*2 = 16; scores and values, half of 4 keys each, 2*2*2 = 8;
    # feed-forward 2*2*3 = 12; output 2*5 = 10. Two operations each, three passes.
    config = resolved(vocab_size=5, context=4, n_layers=1, d_model=2, n_heads=1, d_ff=3)
    assert flops_per_token(config, 4) == (16 + 8 + 12 + 10) * 2 * 3


def test_flops_count_shared_blocks_as_often_as_they_run() -> None:
    config = resolved(n_layers=6, d_model=8, n_heads=2)
    shared = config.model_copy(update={"share": "all"})
    assert flops_per_token(config, 11) == flops_per_token(shared, 11)


def test_flops_follow_the_width_that_the_output_product_runs_at() -> None:
    wide, narrow = (resolved(vocab_size=97, d_model=32, n_heads=2, d_embed=width) for width in (32, 8))
    projections = 2 * 32 * 8
    assert flops_per_token(wide, 11) - flops_per_token(narrow, 11) == 6 * (97 * (32 - 8) - projections)
