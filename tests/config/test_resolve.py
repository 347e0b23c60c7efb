import pytest

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import DECODER_FIELDS, check_model, resolve_model, stacks
from sublayer.errors import ConfigError


def resolved(**fields: object) -> ModelConfig:
    return resolve_model(ModelConfig.model_validate(fields), vocab_size=11, context=13)


def test_nothing_is_left_unset():
    assert {name for name, value in resolved() if value is None} == set(DECODER_FIELDS)
    assert not [name for name, value in resolved(kind="encoder-decoder", block="macaron") if value is None]


def test_a_decoders_block_is_written_out():
    model = resolved(kind="encoder-decoder", block=["ffn*0.5", "attention", "ffn"], ffn="relu")
    assert model.decoder_block == ("ffn:relu*0.5", "attention", "cross", "ffn:relu")
    assert stacks(model) == stacks(model.model_copy(update={"decoder_block": None}))


def test_widths_follow_the_models_width():
    model = resolved(d_model=30, n_heads=5)
    assert (model.d_head, model.d_ff, model.d_embed) == (6, 120, 30)
    model = resolved(d_model=30, n_heads=7, d_head=4, d_ff=17, d_embed=3)
    assert (model.d_head, model.d_ff, model.d_embed) == (4, 17, 3)


def test_sizes_follow_the_data():
    assert (resolved().vocab_size, resolved().max_len) == (11, 13)
    assert (resolved(vocab_size=17).vocab_size, resolved(max_len=19).max_len) == (17, 19)


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
    assert (resolved(norm="layer").norm_eps, resolved(norm="rms").norm_eps) == (1e-5, 1e-6)


def test_dropout_of_attention_and_embedding_follow_dropout():
    model = resolved(dropout=0.3)
    assert (model.dropout_attention, model.dropout_ffn, model.dropout_embedding) == (0.3, 0.0, 0.3)
    model = resolved(dropout=0.3, dropout_attention=0.0, dropout_ffn=0.2, dropout_embedding=0.0)
    assert (model.dropout_attention, model.dropout_ffn, model.dropout_embedding) == (0.0, 0.2, 0.0)


def test_heads_need_not_divide_where_no_entry_attends():
    check_model(ModelConfig(d_model=7, n_heads=4, block=("ffn",)))
    with pytest.raises(ConfigError, match=r"model\.n_heads = 4 must divide model\.d_model = 7"):
        check_model(ModelConfig(d_model=7, n_heads=4))
