"""What is compared: one recipe that varies, a study, or several recipes under their names."""

from pathlib import Path

import pytest

from sublayer.errors import ConfigError
from sublayer.study.asked import load_asked, split_words
from sublayer.study.names import name_arms, name_folder


@pytest.mark.parametrize(
    ("words", "sources", "settings"),
    [
        ([], ["gpt"], []),
        (["train.steps=3"], ["gpt"], ["train.steps=3"]),
        (["macaron", "modern", "train.steps=3"], ["gpt", "macaron", "modern"], ["train.steps=3"]),
        (["train.steps=3", "macaron"], ["gpt"], ["train.steps=3", "macaron"]),
        (["arms/1-ffn=relu", "a=b"], ["gpt", "arms/1-ffn=relu"], ["a=b"]),
    ],
)
def test_recipes_come_before_settings(
    words: list[str],
    sources: list[str],
    settings: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    Path("arms/1-ffn=relu").mkdir(parents=True)
    assert split_words("gpt", words) == (sources, settings)


def test_several_recipes_are_arms_under_their_names():
    study = load_asked(["gpt", "macaron", "modern"], ["train.steps=20"])
    assert [arm.name for arm in study.arms] == ["gpt", "macaron", "modern"]
    assert {arm.loaded.recipe.train.steps for arm in study.arms} == {20}
    assert study.name == "gpt-macaron-modern"
    assert study.title == "gpt, macaron and modern"
    assert study.caveats == ()


def test_what_differs_beside_the_model_is_said(tmp_path: Path):
    other = tmp_path / "other.toml"
    other.write_text(
        'extends = "modern"\n[optimizer]\nkind = "sgd"\nlr = 0.1\n[data]\ncontext = 64\n'
    )
    (caveat,) = load_asked(["gpt", str(other)]).caveats
    assert caveat.startswith("other differs from gpt in more than the model")
    for change in ("data.context = 64 (there 128)", "optimizer.kind = 'sgd' (there 'adamw')"):
        assert change in caveat
    assert "model." not in caveat
    assert "momentum" not in caveat


@pytest.mark.parametrize(
    ("sources", "options", "message"),
    [
        (["gpt", "modern"], {"vary_texts": ["model.ffn=relu,gelu"]}, "--vary varies one recipe"),
        (["gpt", "demo"], {}, "demo is a study with arms of its own: compare it alone"),
        (["gpt", "modern"], {"scale": "cpu"}, "these are recipes: leave it out"),
        (["gpt", "gpt"], {}, "two arms are named gpt"),
        (["gpt", "modren"], {}, "did you mean modern"),
        (["gpt"] * 1001, {}, "too many arms"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    sources: list[str], options: dict[str, object], message: str
):
    with pytest.raises(ConfigError, match=message):
        load_asked(sources, **options)  # type: ignore[arg-type]


def test_equal_recipes_are_refused(tmp_path: Path):
    same = tmp_path / "same.toml"
    same.write_text('extends = "gpt"\n')
    with pytest.raises(ConfigError, match="arm same is equal to the baseline gpt"):
        load_asked(["gpt", str(same)])


def test_names_are_kept_short():
    assert name_folder("gpt", ["model.ffn", "optimizer.lr"]) == "gpt-ffn-lr"
    assert name_folder("gpt", []) == "gpt"
    long = name_arms(["iwslt14-small-macaron", "iwslt14-small-transformer", "multi30k-tiny"])
    assert long == "iwslt14-small-macaron-and-more"
