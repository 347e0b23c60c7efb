import pytest

from sublayer.config.fields.applicability import USES, is_idle, uses
from sublayer.config.fields.catalog import is_union, keys
from sublayer.config.fields.use import value_of
from sublayer.config.layering.layers import load_recipe
from sublayer.config.recipe import Recipe
from sublayer.errors import ConfigError
from tests.breadth import rows

FFN_ONLY = 'model.block=["ffn"]'
ATTENTION_ONLY = 'model.block=["attention"]'
NAMED_FFNS = 'model.block=["ffn:relu*0.5", "attention", "ffn:swiglu*0.5"]'

IDLE = [
    ["model.rotary_base=500", "model.positions=learned"],
    ["model.norm_order=pre", "model.norm=none"],
    ["model.share_groups=2", "model.share=none"],
    ["model.init_std=0.1", "model.init=xavier"],
    ["model.gelu=exact", "model.ffn=relu"],
    ["model.gelu=exact", NAMED_FFNS],
    ["model.ffn=relu", NAMED_FFNS],
    ["model.dropout_ffn=0.1", ATTENTION_ONLY],
    ["model.d_head=8", FFN_ONLY],
    ["model.positions=rotary", FFN_ONLY],
    ["data.vocab_size=300", "data.tokenizer=bytes"],
    ["data.vocab_size=300", "data.tokenizer=tokenizer.json"],
    ["data.tokenizer=bpe", "init.run=runs/a"],
    ["data.normalization=published", "data.tokenizer=moses-bpe"],
    ["optimizer.final_lr_share=0.1", "optimizer.schedule=inverse-sqrt"],
    ["optimizer.power=2.0", "optimizer.schedule=linear"],
    ["optimizer.warmup=albert", "optimizer.schedule=cosine"],
    ["optimizer.warmup=constant", "optimizer.schedule=linear"],
    ["optimizer.cooldown_share=0.1", "optimizer.schedule=cosine"],
    ["optimizer.warmup_init_lr=1e-7", "optimizer.schedule=linear"],
    ["optimizer.decay_vectors=true", "optimizer.weight_decay=0"],
    ["data.documents=json", "data.corpus=python"],
    ["data.documents=json", "data.corpus=albert-intrinsic", "data.path=a"],
    ["data.text_field=body", "data.path=a.txt"],
    ["data.text_field=body", "data.documents=blank-line", "data.path=a.txt"],
    ["data.split=80/10/10", "data.valid_path=v", "data.test_path=t"],
    ["data.split=80/10/10", "data.corpus=enwik8"],
    ["init.layers=2"],
    ["model.embedding_projection=tokens"],
    ["train.compile=true", "model.kind=lstm"],
]
"""An override without effect, and those that make it so."""


@pytest.mark.parametrize("overrides", rows(IDLE, 20), ids=" ".join)
def test_a_field_without_effect_is_refused_by_name(overrides: list[str]):
    load_recipe("gpt", overrides[1:])
    with pytest.raises(ConfigError) as error:
        load_recipe("gpt", overrides)
    message = str(error.value)
    assert message.startswith(overrides[0].partition("=")[0] + " = ")
    assert " has no effect" in message
    if len(overrides) == 2:
        assert overrides[1].partition("=")[0] in message


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.rotary_base=500", "model.positions=rotary"],
        ["model.gelu=exact", 'model.block=["ffn:relu", "attention", "ffn:gelu"]'],
        ["model.ffn=relu", 'model.block=["ffn:gelu", "attention", "ffn"]'],
        ["model.positions=learned", FFN_ONLY],
        ["data.vocab_size=300", "data.tokenizer=characters"],
        ["data.split=80/10/10", "data.valid_path=v"],
        ["data.split=80/10/10", 'data.corpus=["enwik8", "python"]'],
        ["data.split=80/10/10", "data.corpus=enwik8", "data.path=x"],
        ["data.documents=json", "data.path=a.jsonl", "data.text_field=body"],
        ["data.text_field=body", "data.path=hub:owner/name"],
        ["optimizer.final_lr_share=0.1", "optimizer.power=2.0", "optimizer.schedule=polynomial"],
        ["optimizer.warmup=constant", "optimizer.schedule=inverse-sqrt"],
        ["optimizer.cooldown_share=0.1", "optimizer.schedule=constant"],
    ],
    ids=" ".join,
)
def test_a_field_with_effect_is_accepted(overrides: list[str]):
    load_recipe("gpt", overrides)


def test_every_rule_is_about_fields_that_exist():
    known = keys()
    assert set(USES) <= set(known)
    deciders = {decider for key in known for use in uses(key) for decider in use.deciders}
    assert deciders
    assert deciders <= set(known)
    of_any_kind = {decider for decider in deciders if not is_union(decider.partition(".")[0])}
    assert all(value_of(decider, Recipe()) is not ... for decider in of_any_kind)


def test_a_default_that_is_restored_is_not_idle():
    assert is_idle("model.rotary_base", Recipe())
    loaded = load_recipe("albert-small", ["model.d_embed=256", "model.embedding_projection=tokens"])
    assert loaded.recipe.model.embedding_projection == "tokens"
    assert loaded.notes == ()


OF_BLOCKS = {
    "block": "macaron",
    "n_heads": 2,
    "d_head": 8,
    "d_ff": 12,
    "dropout_ffn": 0.1,
    "dropout_attention": 0.1,
    "dropout_final": 0.1,
    "attention_scale": "none",
    "norm": "rms",
    "norm_order": "post",
    "norm_affine": False,
    "norm_eps": 1e-6,
    "final_norm": "plain",
    "embedding_norm": True,
    "positions": "rotary",
    "sinusoids": "marian",
    "first_position": 2,
    "rotary_base": 500.0,
    "relative_buckets": 8,
    "relative_distance": 20,
    "share": "all",
    "share_groups": 2,
    "share_inner": 2,
    "max_len": 500,
    "ffn": "relu",
    "gelu": "exact",
    "swish_beta": 2.0,
}


@pytest.mark.parametrize("name", rows(OF_BLOCKS, 4))
def test_what_is_said_of_blocks_is_refused_of_an_lstm_by_its_kind(name: str):
    with pytest.raises(ConfigError) as error:
        load_recipe("gpt", {"model.kind": "lstm", f"model.{name}": OF_BLOCKS[name]})
    assert str(error.value).startswith(f"model.{name} = ")
    assert "has no effect with model.kind = 'lstm'" in str(error.value)


def test_every_other_field_of_a_model_changes_an_lstm():
    others = {
        "n_layers": 2,
        "d_model": 64,
        "d_embed": 32,
        "project_embeddings": "always",
        "tie_embeddings": False,
        "embedding_scale": "sqrt",
        "output_scale": "sqrt",
        "bias": False,
        "head_bias": True,
        "dropout": 0.1,
        "dropout_embedding": 0.1,
        "init": "xavier",
        "vocab_multiple": 8,
    }
    for name, value in others.items():
        load_recipe("gpt", {"model.kind": "lstm", f"model.{name}": value})
    of_transform = {"model.kind": "lstm", "model.head": "transform", "model.ffn": "swish"}
    load_recipe("gpt", {**of_transform, "model.swish_beta": 2.0})


def test_a_kind_that_comes_later_drops_what_was_said_of_blocks():
    loaded = load_recipe("modern", {"model.kind": "lstm"})
    assert loaded.recipe.model.norm == "layer"
    assert any("model.norm = 'rms' of recipe modern has no effect" in note for note in loaded.notes)
