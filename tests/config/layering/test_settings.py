import pytest

from sublayer.config.layering.settings import Layer, merge
from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.errors import ConfigError


def merged(*layers: dict[str, object]) -> dict[str, object]:
    return {
        key: setting.value
        for key, setting in merge([Layer("layer", values) for values in layers]).items()
    }


def test_a_later_layer_replaces_a_value_and_is_its_origin():
    settings = merge(
        [
            Layer("recipe gpt", {"model.d_ff": 3, "model.bias": True}),
            Layer("command line", {"model.d_ff": 5}),
        ]
    )
    assert settings["model.d_ff"].value == 5
    assert settings["model.d_ff"].origin == "command line"
    assert settings["model.bias"].origin == "recipe gpt"


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("train.minutes", "train.steps"),
        ("train.tokens", "train.epochs"),
        ("train.batch_sequences", "train.batch_tokens"),
        ("optimizer.warmup_share", "optimizer.warmup_steps"),
    ],
)
def test_a_later_exclusive_field_drops_the_earlier_one(earlier: str, later: str):
    assert merged({earlier: 1, "train.seed": 2}, {later: 1}) == {"train.seed": 2, later: 1}


@pytest.mark.parametrize(
    ("one", "other"),
    [("train.steps", "train.minutes"), ("optimizer.warmup_steps", "optimizer.warmup_share")],
)
def test_two_exclusive_fields_in_one_layer_are_an_error_that_names_both(one: str, other: str):
    with pytest.raises(ConfigError, match="exclude each other") as error:
        merged({one: 1, other: 2})
    assert one in str(error.value)
    assert other in str(error.value)


def test_a_later_text_replaces_path_and_corpus():
    both = {"data.path": "a", "data.corpus": "b"}
    assert merged(both, {"data.path": "c"}) == {"data.path": "c"}
    assert merged(both, {"data.corpus": "c"}) == {"data.corpus": "c"}
    assert merged({"data.path": "c"}, both) == both


def test_a_run_to_start_from_brings_its_tokenizer():
    earlier = {"data.tokenizer": "bpe", "data.vocab_size": 512, "data.context": 64}
    assert merged(earlier, {"init.run": "runs/a"}) == {"data.context": 64, "init.run": "runs/a"}


def test_a_new_optimizer_drops_settings_of_the_old_one_and_keeps_shared_ones():
    adamw = {"optimizer.lr": 1e-3, "optimizer.betas": [0.9, 0.99], "optimizer.clip_norm": 2}
    sgd = {"optimizer.kind": "sgd"}
    assert merged(adamw, sgd) == {"optimizer.clip_norm": 2, **sgd}
    given = {**sgd, "optimizer.lr": 0.5, "optimizer.momentum": 0.8}
    assert merged({"optimizer.lr": 1e-3}, given) == given
    # Adam's default learning rate is AdamW's.
    assert merged({"optimizer.lr": 1e-3, "optimizer.betas": [0.9, 0.99]},
                  {"optimizer.kind": "adam"}) == {"optimizer.lr": 1e-3,
                                                  "optimizer.kind": "adam"}  # fmt: skip
    same = {"optimizer.kind": "adamw"}
    assert merged(adamw, same) == merged({**same, **adamw}, same) == {**adamw, **same}


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("model.n_layer", "model.n_layers"),
        ("modle.n_layers", "model.n_layers"),
        ("n_layer", "model.n_layers"),
        ("model.lr", "optimizer.lr"),
        ("titel", "title"),
        ("model.zzzzz", "`sublayer fields model`"),
        ("zzzzz.yyyyy", "the tables are model"),
    ],
)
def test_an_unknown_key_names_the_nearest_and_its_layer(key: str, meant: str):
    with pytest.raises(ConfigError, match=rf"^{key} .*{meant}.*\(recipe x\)$"):
        merge([Layer("recipe x", {key: 1})])


def test_an_unknown_kind_names_the_choices_and_the_nearest():
    with pytest.raises(ConfigError, match=f"^optimizer.kind = .*{', '.join(OPTIMIZERS)}.*adamw"):
        merged({"optimizer.kind": "admw"})


def test_a_layer_restores_a_default_that_an_earlier_one_changed():
    changed, restored = (
        Layer("recipe a", {"model.share_groups": 2}),
        Layer("vary", {"model.share_groups": 1}),
    )
    assert merge([changed, restored])["model.share_groups"].restores
    assert merge([changed, restored, restored])["model.share_groups"].restores
    assert not merge([restored])["model.share_groups"].restores
    assert not merge([changed])["model.share_groups"].restores


@pytest.mark.parametrize("tokenizer", ["bytes", "mine/tokenizer.json"])
def test_a_tokenizer_that_is_not_trained_drops_the_size_of_the_one_that_was(tokenizer: str):
    sized = Layer("recipe a", {"data.tokenizer": "bpe", "data.vocab_size": 500})
    assert "data.vocab_size" not in merge([sized, Layer("vary", {"data.tokenizer": tokenizer})])
    assert (
        merge([sized, Layer("vary", {"data.tokenizer": "unigram"})])["data.vocab_size"].value == 500
    )
