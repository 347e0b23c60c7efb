import pytest

from sublayer.config.fields.applicability import USES, is_idle, uses
from sublayer.config.fields.catalog import is_union, keys
from sublayer.config.fields.use import value_of
from sublayer.config.layering.layers import load_recipe
from sublayer.config.recipe import Recipe
from sublayer.config.text.corpora import RECORD_CORPORA
from sublayer.errors import ConfigError
from tests.breadth import rows

FFN_ONLY = 'model.block=["ffn"]'
ATTENTION_ONLY = 'model.block=["attention"]'
NAMED_FFNS = 'model.block=["ffn:relu*0.5", "attention", "ffn:swiglu*0.5"]'

IDLE = [
    ("model.rotary_base=500", "model.positions=learned", "model.positions is rotary"),
    ("model.norm_order=pre", "model.norm=none", "model.norm is layer or rms"),
    ("model.norm_affine=true", "model.norm=none", "model.norm is layer or rms"),
    ("model.norm_eps=1e-5", "model.norm=none", "model.norm is layer or rms"),
    ("model.share_groups=2", "model.share=none", "model.share is all or attention or ffn"),
    ("model.share_inner=2", "model.share=none", "model.share is all or attention or ffn"),
    ("model.init_std=0.1", "model.init=xavier", "model.init is normal or scaled"),
    ("model.gelu=exact", "model.ffn=relu", "gelu or geglu"),
    ("model.gelu=exact", NAMED_FFNS, "gelu or geglu"),
    ("model.ffn=relu", NAMED_FFNS, "names no variant"),
    ("model.ffn=relu", ATTENTION_ONLY, "names no variant"),
    ("model.d_ff=64", ATTENTION_ONLY, "the block has an ffn entry"),
    ("model.dropout_ffn=0.1", ATTENTION_ONLY, "the block has an ffn entry"),
    ("model.n_heads=4", FFN_ONLY, "the block has an attention entry"),
    ("model.d_head=8", FFN_ONLY, "the block has an attention entry"),
    ("model.attention_scale=none", FFN_ONLY, "the block has an attention entry"),
    ("model.dropout_attention=0.1", FFN_ONLY, "the block has an attention entry"),
    ("model.positions=rotary", FFN_ONLY, "the block has an attention entry"),
    (
        "data.vocab_size=300",
        "data.tokenizer=bytes",
        "data.tokenizer is characters, bpe, unigram, wordpiece, moses-bpe, word-bpe or gpt1-bpe",
    ),
    (
        "data.vocab_size=300",
        "data.tokenizer=tokenizer.json",
        "data.tokenizer is characters, bpe, unigram, wordpiece, moses-bpe, word-bpe or gpt1-bpe",
    ),
    ("data.tokenizer=bpe", "init.run=runs/a", "no init.run"),
    (
        "data.normalization=published",
        "data.tokenizer=moses-bpe",
        "data.tokenizer is gpt1-bpe or a file of GPT-1's (.json, .bpe)",
    ),
    (
        "data.normalization=transformers",
        "data.tokenizer=spiece.model",
        "data.tokenizer is gpt1-bpe or a file of GPT-1's (.json, .bpe)",
    ),
    (
        "optimizer.final_lr_share=0.1",
        "optimizer.schedule=constant",
        "optimizer.schedule is linear or polynomial or cosine",
    ),
    (
        "optimizer.final_lr_share=0.1",
        "optimizer.schedule=inverse-sqrt",
        "optimizer.schedule is linear or polynomial or cosine",
    ),
    ("optimizer.power=2.0", "optimizer.schedule=linear", "optimizer.schedule is polynomial"),
    (
        "optimizer.warmup=albert",
        "optimizer.schedule=cosine",
        "optimizer.schedule is linear or polynomial",
    ),
    (
        "optimizer.warmup=albert",
        "optimizer.schedule=constant",
        "optimizer.schedule is linear or polynomial",
    ),
    (
        "optimizer.warmup=constant",
        "optimizer.schedule=linear",
        "optimizer.schedule is linear or polynomial for albert, constant, linear or cosine for "
        "gpt1, inverse-sqrt for constant",
    ),
    (
        "optimizer.warmup=albert",
        "optimizer.schedule=inverse-sqrt",
        "optimizer.schedule is linear or polynomial for albert, constant, linear or cosine for "
        "gpt1, inverse-sqrt for constant",
    ),
    (
        "optimizer.cooldown_share=0.1",
        "optimizer.schedule=cosine",
        "optimizer.schedule is constant or inverse-sqrt",
    ),
    (
        "optimizer.warmup_init_lr=1e-7",
        "optimizer.schedule=linear",
        "optimizer.schedule is inverse-sqrt",
    ),
    (
        "optimizer.decay_vectors=true",
        "optimizer.weight_decay=0",
        "optimizer.weight_decay is more than 0",
    ),
    (
        "data.documents=json",
        "data.corpus=python",
        f"a path names text, or a corpus is {', '.join(RECORD_CORPORA)}",
    ),
    (
        "data.text_field=body",
        "data.path=a.txt",
        "documents is json, or unset with a path to .parquet or hub:",
    ),
    ("init.layers=2", None, "init.run is given"),
]


@pytest.mark.parametrize(("idle", "decider", "reason"), rows(IDLE, 20))
def test_a_field_without_effect_is_an_error_with_field_value_and_reason(
    idle: str, decider: str | None, reason: str
):
    with pytest.raises(ConfigError) as error:
        load_recipe("gpt", [idle, decider] if decider else [idle])
    assert str(error.value).startswith(idle.partition("=")[0] + " = ")
    assert " has no effect with " in str(error.value)
    assert reason in str(error.value)
    if decider:
        assert decider.partition("=")[0] in str(error.value)


@pytest.mark.parametrize("decider", rows([decider for _, decider, _ in IDLE if decider], 6))
def test_what_makes_another_field_idle_is_fine_alone(decider: str):
    load_recipe("gpt", [decider])


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.rotary_base=500", "model.positions=rotary"],
        ["model.norm_order=post", "model.norm=rms"],
        ["model.share_groups=2", "model.share=ffn"],
        ["model.gelu=exact", "model.ffn=geglu"],
        ["model.gelu=exact", 'model.block=["ffn:relu", "attention", "ffn:gelu"]'],
        ["model.ffn=relu", 'model.block=["ffn:gelu", "attention", "ffn"]'],
        ["model.positions=learned", FFN_ONLY],
        ["data.vocab_size=300", "data.tokenizer=bpe"],
        ["data.vocab_size=300", "data.tokenizer=characters"],
        ["data.split=80/10/10", "data.valid_path=v"],
        ["data.documents=json", "data.path=a.jsonl", "data.text_field=body"],
        ["data.documents=json", "data.valid_path=a.jsonl"],
        ["data.documents=blank-line", "data.corpus=wikipedia"],
        ["data.text_field=body", "data.path=a.parquet"],
        ["data.text_field=body", "data.path=hub:owner/name"],
        ["data.text_field=body", "data.corpus=c4"],
        ["data.split=80/10/10", "data.corpus=wikipedia"],
        ["optimizer.final_lr_share=0.1", "optimizer.schedule=linear"],
        ["optimizer.final_lr_share=0.1", "optimizer.power=2.0", "optimizer.schedule=polynomial"],
        ["optimizer.warmup=albert", "optimizer.schedule=linear"],
        ["optimizer.warmup=constant", "optimizer.schedule=inverse-sqrt"],
        ["optimizer.cooldown_share=0.1", "optimizer.schedule=inverse-sqrt"],
        ["optimizer.cooldown_share=0.1", "optimizer.schedule=constant"],
        ["optimizer.warmup_steps=5", "optimizer.schedule=constant"],
        ["init.layers=2", "init.run=runs/a"],
    ],
)
def test_a_field_with_effect_is_accepted(overrides: list[str]):
    load_recipe("gpt", overrides)


def test_a_first_rate_does_not_count_where_there_is_no_rise():
    with pytest.raises(
        ConfigError,
        match=r"warmup_init_lr = 1e-07 has no effect with optimizer\.warmup = 'constant'",
    ):
        load_recipe(
            "gpt",
            [
                "optimizer.schedule=inverse-sqrt",
                "optimizer.warmup=constant",
                "optimizer.warmup_init_lr=1e-7",
            ],
        )


def test_a_field_of_records_does_not_count_for_files():
    with pytest.raises(
        ConfigError,
        match=r"data\.text_field = 'body' has no effect .*data\.documents = 'blank-line'",
    ):
        load_recipe("gpt", ["data.text_field=body", "data.documents=blank-line", "data.path=a.txt"])


def test_a_rule_for_documents_does_not_count_for_passages():
    with pytest.raises(
        ConfigError, match=r"data\.documents = 'json' has no effect .*albert-intrinsic"
    ):
        load_recipe("gpt", ["data.documents=json", "data.path=a", "data.corpus=albert-intrinsic"])


def test_a_split_counts_unless_both_other_splits_have_paths():
    with pytest.raises(ConfigError, match=r"data\.split = '80/10/10' has no effect"):
        load_recipe("gpt", ["data.split=80/10/10", "data.valid_path=v", "data.test_path=t"])


def test_a_split_counts_unless_every_corpus_has_a_published_one():
    with pytest.raises(
        ConfigError, match=r"data\.split = '80/10/10' has no effect .*data\.corpus = 'enwik8'"
    ):
        load_recipe("gpt", ["data.split=80/10/10", "data.corpus=enwik8"])
    load_recipe("gpt", ["data.split=80/10/10", 'data.corpus=["enwik8", "python"]'])
    load_recipe("gpt", ["data.split=80/10/10", "data.corpus=enwik8", "data.path=x"])


def test_a_default_is_never_idle_enough_to_be_an_error():
    assert is_idle("model.rotary_base", Recipe())
    load_recipe("gpt")


def test_every_rule_is_about_fields_that_exist():
    known = keys()
    assert set(USES) <= set(known)
    deciders = {decider for key in known for use in uses(key) for decider in use.deciders}
    assert deciders
    assert deciders <= set(known)
    of_any_kind = {decider for decider in deciders if not is_union(decider.partition(".")[0])}
    assert all(value_of(decider, Recipe()) is not ... for decider in of_any_kind)


def test_a_default_that_is_restored_is_not_idle():
    whole = ["model.d_embed=256", "model.embedding_projection=tokens"]
    assert load_recipe("albert-small", whole).recipe.model.embedding_projection == "tokens"
    assert load_recipe("albert-small", whole).notes == ()
    with pytest.raises(ConfigError, match=r"embedding_projection = 'tokens' has no effect"):
        load_recipe("gpt", ["model.embedding_projection=tokens"])


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


@pytest.mark.parametrize("name", rows(OF_BLOCKS, 8))
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


def test_an_lstm_is_not_compiled():
    with pytest.raises(ConfigError, match="train.compile = true has no effect with model.kind"):
        load_recipe("gpt", {"model.kind": "lstm", "train.compile": True})
