"""Blocks of a model, and its sizes resolved."""

import pytest

from sublayer.config.architecture.block import Entry, parse_block
from sublayer.config.architecture.stacks import stacks
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import DECODER_FIELDS, check_model, resolve_model
from sublayer.errors import ConfigError


def test_a_name_stands_for_its_list():
    assert parse_block("macaron", default_ffn="relu") == (
        Entry("ffn", "relu", 0.5),
        Entry("attention", None, 1.0),
        Entry("ffn", "relu", 0.5),
    )
    assert parse_block("transformer", default_ffn="relu") == parse_block(
        ("attention", "ffn"), default_ffn="relu"
    )


def test_an_entry_may_name_its_variant_and_its_step():
    entries = parse_block(("ffn:geglu*0.25", "attention*-2", "cross", "ffn"), default_ffn="relu")
    assert [(entry.name, entry.variant, entry.step) for entry in entries] == [
        ("ffn", "geglu", 0.25),
        ("attention", None, -2.0),
        ("cross", None, 1.0),
        ("ffn", "relu", 1.0),
    ]


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("macron", "is not one of transformer, macaron"),
        ((), "is an empty list"),
        (("fnn",), "'fnn' is not one of attention, cross, ffn"),
        (("ffn:gelo",), "only ffn takes a variant, one of relu"),
        (("attention:gelu",), "only ffn takes a variant"),
        (("ffn*half",), "the step 'half' is not a number"),
        (("ffn*0",), "must be finite and not 0"),
        (("ffn*inf",), "must be finite and not 0"),
    ],
)
def test_a_block_without_meaning_is_refused(block: str | tuple[str, ...], says: str):
    with pytest.raises(ConfigError) as error:
        parse_block(block, default_ffn="relu")
    assert str(error.value).startswith("model.block")
    assert says in str(error.value)


def resolved(**fields: object) -> ModelConfig:
    return resolve_model(ModelConfig.model_validate(fields), vocab_size=11, context=13)


def unset(model: ModelConfig) -> set[str]:
    return {name for name, value in model if value is None}


def test_nothing_is_left_unset():
    assert unset(resolved()) == set(DECODER_FIELDS)
    assert unset(resolved(kind="encoder-decoder", block="macaron")) == set()


def test_a_decoders_block_is_written_out():
    model = resolved(kind="encoder-decoder", block=["ffn*0.5", "attention", "ffn"], ffn="relu")
    assert model.decoder_block == ("ffn:relu*0.5", "attention", "cross", "ffn:relu")
    assert stacks(model) == stacks(model.model_copy(update={"decoder_block": None}))


def test_widths_follow_the_models_width_unless_given():
    model = resolved(d_model=30, n_heads=5)
    assert (model.d_head, model.d_ff, model.d_embed) == (6, 120, 30)
    widths = {"d_head": 4, "d_ff": 17, "d_embed": 3}
    assert widths.items() <= resolved(d_model=30, n_heads=7, **widths).model_dump().items()


def test_sizes_follow_the_data():
    assert resolved().vocab_size == 11
    assert resolved().max_len == 13
    assert resolved(vocab_size=17).vocab_size == 17
    assert resolved(max_len=19).max_len == 19
    for field, value in (("vocab_size", 10), ("max_len", 12)):
        with pytest.raises(ConfigError, match=rf"model\.{field} = {value} is"):
            resolved(**{field: value})


def test_rows_are_rounded_up_to_a_multiple():
    assert resolved(vocab_multiple=8).vocab_size == 16
    assert resolved(vocab_multiple=11).vocab_size == 11
    assert resolved(vocab_multiple=4, vocab_size=20).vocab_size == 20
    with pytest.raises(ConfigError, match="vocab_size = 21 is no multiple of .*_multiple = 4"):
        resolved(vocab_multiple=4, vocab_size=21)
    # T5's 32,000 pieces and 100 sentinels.
    given = ModelConfig(vocab_multiple=128)
    assert resolve_model(given, vocab_size=32_100, context=512).vocab_size == 32_128


@pytest.mark.parametrize(
    ("norm", "order", "final", "eps"),
    [
        ("layer", "pre", "affine", 1e-5),
        ("rms", "pre", "affine", 1e-6),
        ("layer", "post", "none", 1e-5),
        ("none", "pre", "none", 1e-5),
    ],
)
def test_the_final_norm_and_epsilon_follow_norm_and_order(
    norm: str, order: str, final: str, eps: float
):
    model = resolved(norm=norm, norm_order=order)
    assert (model.final_norm, model.norm_eps) == (final, eps)


def test_dropout_of_attention_and_embedding_follow_dropout_unless_given():
    model = resolved(dropout=0.3)
    assert model.dropout_attention == model.dropout_embedding == 0.3
    assert model.dropout_ffn == 0.0
    given = {"dropout_attention": 0.0, "dropout_ffn": 0.2, "dropout_embedding": 0.0}
    assert given.items() <= resolved(dropout=0.3, **given).model_dump().items()


def test_heads_need_not_divide_where_no_entry_attends():
    check_model(ModelConfig(d_model=7, n_heads=4, block=("ffn",)))
    with pytest.raises(ConfigError, match=r"model\.n_heads = 4 must divide model\.d_model = 7"):
        check_model(ModelConfig(d_model=7, n_heads=4))
