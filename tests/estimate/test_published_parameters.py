"""Parameters of published models, as printed or as released."""

import pytest

from sublayer.config.model import ModelConfig
from sublayer.estimate.cost import Parameters, count_parameters

from .configurations import resolved


def encoder(
    n_layers: int, d_model: int, d_embed: int | None = None, *, vocab_size: int = 30_000
) -> ModelConfig:
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


def test_gpt2_small_has_its_published_parameters() -> None:
    config = resolved(vocab_size=50257, context=1024, n_layers=12, d_model=768, n_heads=12)
    total = 124_439_808
    tables = (50257 + 1024) * 768
    assert count_parameters(config) == Parameters(total, total, total - tables, total)


@pytest.mark.parametrize(("n_layers", "total"), [(12, 41_236_736), (64, 218_792_192)])
def test_deep_character_transformers_have_their_published_parameters(
    n_layers: int, total: int
) -> None:
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
    "BERT-base": (
        (12, 768),
        (108_490_752, 109_081_344, 109_705_010),
        (108_891_648, 109_482_240, 110_106_428),
    ),
    "BERT-large": (
        (24, 1024),
        (333_557_760, 334_607_360, 335_691_058),
        (334_092_288, 335_141_888, 336_226_108),
    ),
    "BERT-xlarge": (
        (24, 2048),
        (1_271_095_296, 1_275_291_648, 1_279_526_194),
        (1_272_164_352, 1_276_360_704, 1_280_595_772),
    ),
    "ALBERT-base": (
        (12, 768, 128),
        (11_092_992, 11_683_584, 11_813_810),
        (11_159_808, 11_750_400, 11_881_148),
    ),
    "ALBERT-large": (
        (24, 1024, 128),
        (16_634_368, 17_683_968, 17_847_474),
        (16_701_184, 17_750_784, 17_914_812),
    ),
    "ALBERT-xlarge": (
        (24, 2048, 128),
        (54_528_512, 58_724_864, 59_021_490),
        (54_595_328, 58_791_680, 59_088_828),
    ),
    "ALBERT-xxlarge": (
        (12, 4096, 128),
        (205_814_272, 222_595_584, 223_158_450),
        (205_881_088, 222_662_400, 223_225_788),
    ),
}
"""The encoder, with pooler, with pooler and heads: with 30,000 and with 30,522 tokens."""


@pytest.mark.parametrize("name", SIZES)
def test_bert_and_albert_have_their_parameters_in_every_size(name: str) -> None:
    size, *expected = SIZES[name]
    for vocab_size, (alone, with_pooler, with_heads) in zip(
        (30_000, 30_522), expected, strict=True
    ):
        counted = count_parameters(encoder(*size, vocab_size=vocab_size))
        assert (counted.encoder, counted.with_pooler, counted.with_heads) == (
            alone,
            with_pooler,
            with_heads,
        )
        assert counted.total == with_heads


PRINTED = {
    "none": {64: 87, 128: 89, 256: 93, 768: 108},
    "all": {64: 10, 128: 12, 256: 16, 768: 31},
    "attention": {128: 64, 768: 83},
    "ffn": {128: 38, 768: 57},
}
"""Millions of ALBERT base by what is shared and by d_embed, some with the pooler, some without."""


@pytest.mark.parametrize(
    ("share", "d_embed"), [(share, width) for share in PRINTED for width in PRINTED[share]]
)
def test_the_ablations_of_albert_have_their_printed_parameters(share: str, d_embed: int) -> None:
    counted = count_parameters(encoder(12, 768, d_embed).model_copy(update={"share": share}))
    assert counted.encoder is not None and counted.with_pooler is not None
    assert PRINTED[share][d_embed] in {
        round(n / 1e6) for n in (counted.encoder, counted.with_pooler)
    }
