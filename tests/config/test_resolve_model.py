import pytest

from sublayer.config.architecture.stacks import stacks
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import DECODER_FIELDS, check_model, resolve_model
from sublayer.errors import ConfigError


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


def test_widths_follow_the_models_width():
    model = resolved(d_model=30, n_heads=5)
    assert model.d_head == 6
    assert model.d_ff == 120
    assert model.d_embed == 30


def test_widths_that_are_given_stay():
    widths = {"d_head": 4, "d_ff": 17, "d_embed": 3}
    model = resolved(d_model=30, n_heads=7, **widths)
    assert widths.items() <= model.model_dump().items()


def test_sizes_follow_the_data():
    assert resolved().vocab_size == 11
    assert resolved().max_len == 13
    assert resolved(vocab_size=17).vocab_size == 17
    assert resolved(max_len=19).max_len == 19


def test_rows_are_rounded_up_to_a_multiple():
    assert resolved(vocab_multiple=8).vocab_size == 16
    assert resolved(vocab_multiple=11).vocab_size == 11
    assert resolved(vocab_multiple=4, vocab_size=20).vocab_size == 20
    with pytest.raises(ConfigError, match="vocab_size = 21 is no multiple of .*_multiple = 4"):
        resolved(vocab_multiple=4, vocab_size=21)
    # T5's 32,000 pieces and 100 sentinels.
    given = ModelConfig(vocab_multiple=128)
    assert resolve_model(given, vocab_size=32_100, context=512).vocab_size == 32_128


@pytest.mark.parametrize(("field", "value"), [("vocab_size", 7), ("max_len", 5)])
def test_a_size_below_the_datas_is_refused(field: str, value: int):
    with pytest.raises(ConfigError, match=rf"model\.{field} = {value} is"):
        resolved(**{field: value})


@pytest.mark.parametrize(
    ("norm", "order", "final"),
    [
        ("layer", "pre", "affine"),
        ("rms", "pre", "affine"),
        ("layer", "post", "none"),
        ("none", "pre", "none"),
    ],
)
def test_a_final_norm_follows_pre_norm_blocks(norm: str, order: str, final: str):
    assert resolved(norm=norm, norm_order=order).final_norm == final


def test_the_norms_epsilon_follows_its_kind():
    assert resolved(norm="layer").norm_eps == 1e-5
    assert resolved(norm="rms").norm_eps == 1e-6


def test_dropout_of_attention_and_embedding_follow_dropout():
    model = resolved(dropout=0.3)
    assert model.dropout_attention == 0.3
    assert model.dropout_ffn == 0.0
    assert model.dropout_embedding == 0.3


def test_dropout_that_is_given_stays():
    given = {"dropout_attention": 0.0, "dropout_ffn": 0.2, "dropout_embedding": 0.0}
    model = resolved(dropout=0.3, **given)
    assert given.items() <= model.model_dump().items()


def test_heads_need_not_divide_where_no_entry_attends():
    check_model(ModelConfig(d_model=7, n_heads=4, block=("ffn",)))
    with pytest.raises(ConfigError, match=r"model\.n_heads = 4 must divide model\.d_model = 7"):
        check_model(ModelConfig(d_model=7, n_heads=4))
