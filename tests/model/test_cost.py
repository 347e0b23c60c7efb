"""The counts of a config are the published ones, the hand-worked ones, and those of the built module."""

import contextlib
import random
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sublayer.config.model import ModelConfig
from sublayer.config.objective import MaskedObjective
from sublayer.config.resolve import resolve_model
from sublayer.errors import ConfigError
from sublayer.model.build import build, compose
from sublayer.model.cost import Parameters, count_parameters, flops_per_token, n_predicting

AXES: dict[str, list[dict[str, Any]]] = {
    "depth": [{"n_layers": 1}, {"n_layers": 6}],
    "width": [{"d_model": 12, "n_heads": 3}, {"d_model": 10, "n_heads": 5, "d_head": 6}],
    "ffn": [{"ffn": ffn} for ffn in ("relu", "gelu", "swish", "glu", "bilinear", "reglu", "geglu", "swiglu")],
    "d_ff": [{}, {"d_ff": 7}],
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
    "positions": [{"positions": name} for name in ("sinusoidal", "learned", "learned-per-layer", "rotary", "none")],
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


def resolved(*, vocab_size: int = 17, context: int = 11, **fields: Any) -> ModelConfig:
    return resolve_model(ModelConfig(**fields), vocab_size=vocab_size, context=context)


def combinations(n: int) -> list[dict[str, Any]]:
    """Draw n combinations of the axes that have a meaning."""
    draw, kept = random.Random(0), list[dict[str, Any]]()
    while len(kept) < n:
        fields = {name: value for choices in AXES.values() for name, value in draw.choice(choices).items()}
        with contextlib.suppress(ConfigError):
            resolved(**fields)
            kept.append(fields)
    return kept


def encoder(n_layers: int, d_model: int, d_embed: int | None = None, *, vocab_size: int = 30_000) -> ModelConfig:
    """Make a BERT, or with ``d_embed`` an ALBERT."""
    return resolved(
        vocab_size=vocab_size,
        context=512,
        kind="encoder",
        n_layers=n_layers,
        d_model=d_model,
        n_heads=d_model // 64,
        d_embed=d_embed,
        embedding_projection="sum",
        embedding_norm=True,
        segments="both",
        norm_order="post",
        share="all" if d_embed else "none",
        head="transform",
        head_bias=True,
        pooler="tanh",
        sentence_classes=2,
    )


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


SIZES = {
    "BERT-base": ((12, 768), (108_490_752, 109_081_344, 109_705_010), (108_891_648, 109_482_240, 110_106_428)),
    "BERT-large": ((24, 1024), (333_557_760, 334_607_360, 335_691_058), (334_092_288, 335_141_888, 336_226_108)),
    "BERT-xlarge": (
        (24, 2048),
        (1_271_095_296, 1_275_291_648, 1_279_526_194),
        (1_272_164_352, 1_276_360_704, 1_280_595_772),
    ),
    "ALBERT-base": ((12, 768, 128), (11_092_992, 11_683_584, 11_813_810), (11_159_808, 11_750_400, 11_881_148)),
    "ALBERT-large": ((24, 1024, 128), (16_634_368, 17_683_968, 17_847_474), (16_701_184, 17_750_784, 17_914_812)),
    "ALBERT-xlarge": ((24, 2048, 128), (54_528_512, 58_724_864, 59_021_490), (54_595_328, 58_791_680, 59_088_828)),
    "ALBERT-xxlarge": (
        (12, 4096, 128),
        (205_814_272, 222_595_584, 223_158_450),
        (205_881_088, 222_662_400, 223_225_788),
    ),
}
"""The encoder, with pooler, with pooler and heads: at vocabularies of 30,000 and of 30,522 tokens."""


@pytest.mark.parametrize("name", SIZES)
def test_bert_and_albert_have_their_parameters_in_every_size(name: str) -> None:
    size, *expected = SIZES[name]
    for vocab_size, (alone, with_pooler, with_heads) in zip((30_000, 30_522), expected, strict=True):
        counted = count_parameters(encoder(*size, vocab_size=vocab_size))
        assert (counted.encoder, counted.with_pooler, counted.with_heads) == (alone, with_pooler, with_heads)
        assert counted.total == with_heads


PRINTED = {
    "none": {64: 87, 128: 89, 256: 93, 768: 108},
    "all": {64: 10, 128: 12, 256: 16, 768: 31},
    "attention": {128: 64, 768: 83},
    "ffn": {128: 38, 768: 57},
}
"""Millions of ALBERT base by what is shared and the width of the tokens, some with the pooler and some without."""


@pytest.mark.parametrize(("share", "d_embed"), [(share, width) for share in PRINTED for width in PRINTED[share]])
def test_the_ablations_of_albert_have_their_printed_parameters(share: str, d_embed: int) -> None:
    counted = count_parameters(encoder(12, 768, d_embed).model_copy(update={"share": share}))
    assert counted.encoder is not None and counted.with_pooler is not None
    assert PRINTED[share][d_embed] in {round(n / 1e6) for n in (counted.encoder, counted.with_pooler)}


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


@pytest.mark.parametrize("fields", combinations(150), ids=str)
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
    pooler, sentence_head = (getattr(model, name, None) or torch.nn.Identity() for name in ("pooler", "sentence_head"))
    heads = size(model.head, sentence_head)
    encoders = (total - heads - size(pooler), total - heads, total) if config.kind == "encoder" else (None, None, None)
    assert count_parameters(config) == Parameters(total, total, total - tables, total - blocks + executed, *encoders)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"share": "all", "d_embed": 7, "tie_embeddings": False, "positions": "learned-per-layer"},
        {"block": ("ffn:glu*0.5", "attention", "ffn"), "positions": "rotary", "d_embed": 29, "norm": "rms"},
        {"d_head": 6, "bias": False, "norm_order": "post", "head_bias": True},
        {"kind": "encoder", "segments": "both"},
        {"kind": "encoder", "d_embed": 7, "embedding_projection": "sum", "head": "transform", "sentence_classes": 1},
        {"kind": "encoder", "head": "transform", "share": "all", "pooler": "tanh", "sentence_classes": 2},
    ],
    ids=str,
)
def test_flops_are_those_of_the_built_model_but_for_half_of_attention(fields: dict[str, Any]) -> None:
    n_tokens, n_layers, n_heads = 13, 3, 2
    config = resolved(context=n_tokens, n_layers=n_layers, d_model=20, n_heads=n_heads, **fields)
    model = build(config, seed=0)
    tokens = torch.arange(n_tokens)[None].expand(5, -1)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        output = model(tokens)
        judged = 0.0 if output.sentence_logits is None else output.sentence_logits.sum()
        (output.logits.sum() + judged).backward()
    assert config.d_head is not None
    # Scores and weighted values over the half of the keys that no query of a decoder sees.
    unseen = 3 * n_layers * 2 * (2 * n_heads * config.d_head * n_tokens) // 2 if config.kind == "decoder" else 0
    counted = counter.get_total_flops() / tokens.numel()
    assert counted == pytest.approx(flops_per_token(config, n_tokens) + unseen, abs=0.5)  # the head of pairs, in pieces


def test_flops_of_a_tiny_model_are_those_worked_out_by_hand() -> None:
    # Multiply-adds per token: q, k, v, o 4*2*2 = 16; scores and values, half of 4 keys each, 2*2*2 = 8;
    # feed-forward 2*2*3 = 12; output 2*5 = 10. Two operations each, three passes.
    config = resolved(vocab_size=5, context=4, n_layers=1, d_model=2, n_heads=1, d_ff=3)
    assert flops_per_token(config, 4) == (16 + 8 + 12 + 10) * 2 * 3


def test_flops_of_a_tiny_encoder_are_those_worked_out_by_hand() -> None:
    # Multiply-adds per token: q, k, v, o 4*2*2 = 16; scores and values over 4 keys each, 2*2*4 = 16; feed-forward
    # 2*2*3 = 12. For each of the 2 hidden tokens of 4: transform 2*2 = 4, output 2*5 = 10. For the pair: pooler
    # 2*2 = 4, head 2*2 = 4. Two operations each, three passes.
    fields = {"n_layers": 1, "d_model": 2, "n_heads": 1, "d_ff": 3, "kind": "encoder"}
    config = resolved(vocab_size=5, context=4, head="transform", pooler="tanh", sentence_classes=2, **fields)
    objective = MaskedObjective(mask_share=0.5, sentence="sop")
    assert flops_per_token(config, 4, objective) == (16 + 16 + 12 + (2 * (4 + 10) + 4 + 4) / 4) * 2 * 3


@pytest.mark.parametrize(
    ("fields", "n"),
    [({}, 77), ({"mask_most": 20}, 20), ({"mask_most": 20, "predict_first": True}, 21), ({"mask_share": 0.001}, 1)],
    ids=str,
)
def test_the_head_runs_where_tokens_are_predicted(fields: dict[str, Any], n: int) -> None:
    assert n_predicting(MaskedObjective(**fields), 512) == n


def test_pairs_that_are_not_judged_cost_nothing() -> None:
    config = resolved(kind="encoder", pooler="tanh", sentence_classes=2)
    without = config.model_copy(update={"pooler": "none", "sentence_classes": 0})
    objective = MaskedObjective(sentence="none")
    assert flops_per_token(config, 11, objective) == flops_per_token(without, 11, objective)


def test_flops_count_shared_blocks_as_often_as_they_run() -> None:
    config = resolved(n_layers=6, d_model=8, n_heads=2)
    shared = config.model_copy(update={"share": "all"})
    assert flops_per_token(config, 11) == flops_per_token(shared, 11)


def test_flops_follow_the_width_that_the_output_product_runs_at() -> None:
    wide, narrow = (resolved(vocab_size=97, d_model=32, n_heads=2, d_embed=width) for width in (32, 8))
    projections = 2 * 32 * 8
    assert flops_per_token(wide, 11) - flops_per_token(narrow, 11) == 6 * (97 * (32 - 8) - projections)
