"""Studies are read from their files, recipes become studies of what varies."""

from pathlib import Path

import pytest

from sublayer.errors import ConfigError
from sublayer.study.arms import arm_notes
from sublayer.study.definition import find_study, load_study, shipped_studies

STUDY = """
title = "Networks"
source = "Nobody 2020"
match = "flops"
seeds = 5

[scale.paper]
recipe = "gpt"
set = { "model.n_layers" = 12 }

[scale.cpu]
recipe = "small.toml"

[[arms]]
name = "relu"
set = { "model.ffn" = "relu" }

[[arms]]
name = "gated"
set.model = { ffn = "swiglu", d_ff = 96 }
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text('extends = "gpt"\n[model]\nn_layers = 1\n')
    path = tmp_path / "networks.toml"
    path.write_text(STUDY)
    return path


def test_a_study_has_the_arms_and_rules_of_its_file(path: Path) -> None:
    study = load_study(str(path))
    assert (study.name, study.title, study.source) == ("networks", "Networks", "Nobody 2020")
    assert (study.match, study.n_seeds) == ("flops", 5)
    assert [
        (arm.name, arm.loaded.recipe.model.ffn, arm.loaded.recipe.model.d_ff) for arm in study.arms
    ] == [
        ("relu", "relu", None),
        ("gated", "swiglu", 96),
    ]


@pytest.mark.parametrize(("scale", "n_layers"), [(None, 12), ("paper", 12), ("cpu", 1)])
def test_the_scale_chooses_the_recipe(path: Path, scale: str, n_layers: int) -> None:
    study = load_study(str(path), scale=scale)
    assert {arm.loaded.recipe.model.n_layers for arm in study.arms} == {n_layers}


LONG_SCALE = """
[scale.paper-524k]
recipe = "gpt"
seeds = 1
set = { "model.n_layers" = 24 }
"""


def test_a_scale_has_a_name_and_seeds_of_its_own(path: Path) -> None:
    path.write_text(STUDY + LONG_SCALE)
    long = load_study(str(path), scale="paper-524k")
    assert {arm.loaded.recipe.model.n_layers for arm in long.arms} == {24}
    assert long.n_seeds == 1
    assert load_study(str(path), scale="paper").n_seeds == 5


@pytest.mark.parametrize(
    ("renamed", "n_layers"),
    [({"paper": "long"}, 1), ({"paper": "long", "cpu": "short"}, 12), ({}, 12)],
)
def test_the_scale_of_no_name_is_paper_then_cpu_then_the_first(
    path: Path, renamed: dict[str, str], n_layers: int
) -> None:
    text = STUDY
    for old, new in renamed.items():
        text = text.replace(f"[scale.{old}]", f"[scale.{new}]")
    path.write_text(text)
    assert {arm.loaded.recipe.model.n_layers for arm in load_study(str(path)).arms} == {n_layers}


@pytest.mark.parametrize("name", ["Paper", "paper_524k", "-paper", "paper--long", "a b", "ä", ""])
def test_a_scale_is_named_in_lower_case_letters_digits_and_hyphens(path: Path, name: str) -> None:
    path.write_text(STUDY.replace("[scale.paper]", f'[scale."{name}"]'))
    with pytest.raises(ConfigError, match="is no name of a scale: it takes lower-case letters"):
        load_study(str(path))


def test_overrides_go_to_every_arm(path: Path) -> None:
    study = load_study(str(path), ["model.n_layers=3", "train.steps=7"])
    assert {
        (arm.loaded.recipe.model.n_layers, arm.loaded.recipe.train.steps) for arm in study.arms
    } == {(3, 7)}
    assert study.arms[1].loaded.origins["model.n_layers"] == "command line"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"overrides": ["model.ffn=glu"]}, r"model\.ffn is what the arms of networks differ in"),
        ({"vary_texts": ["model.norm=layer,rms"]}, "a study with arms of its own"),
    ],
)
def test_arguments_that_a_study_makes_idle_are_refused(
    path: Path, arguments: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_study(str(path), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = 5", "seeds = 0", "seeds = 0 must be at least 1"),
        ("[scale.cpu]", "[scale.cpu]\nseeds = 0", r"scale\.cpu\.seeds = 0 must be at least 1"),
        ('match = "flops"', 'math = "flops"', "math is no setting of it: did you mean match"),
        ('name = "gated"', 'name = "relu"', "two arms are named relu"),
        ('"model.ffn" = "relu"', '"model.fnn" = "relu"', r"arm relu: model\.fnn is not a field"),
        ("seeds = 5", "seeds = = 5", "is not TOML"),
        ("seeds = 5", 'caveats = "one rate"', "caveats = 'one rate' is not a list"),
        ("seeds = 5", 'caveats = [""]', "caveats 1 is empty"),
    ],
)
def test_a_study_that_is_wrong_is_refused_with_the_place(
    path: Path, old: str, new: str, message: str
) -> None:
    path.write_text(STUDY.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        load_study(str(path))


TUNED = STUDY.replace("seeds = 5", "seeds = 5\ntune = { optimizer.lr = [1e-3, 2e-3] }")


def test_a_study_or_its_scale_says_what_chooses_among_trials(path: Path) -> None:
    path.write_text(TUNED)
    assert load_study(str(path)).tune_by == "metric"
    path.write_text(TUNED.replace("[scale.cpu]", '[scale.cpu]\ntune_by = "loss"'))
    assert load_study(str(path), scale="cpu").tune_by == "loss"
    assert load_study(str(path), scale="paper").tune_by == "metric"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (STUDY.replace("seeds = 5", 'tune_by = "loss"'), "tune_by = loss chooses nothing"),
        (TUNED.replace("tune =", 'tune_by = "bleu"\ntune ='), "tune_by = 'bleu'"),
    ],
)
def test_what_chooses_among_no_trials_or_is_unknown_is_refused(
    path: Path, content: str, message: str
) -> None:
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        load_study(str(path))


def test_the_caveats_of_a_study_come_before_those_of_its_scale(path: Path) -> None:
    assert load_study(str(path)).caveats == ()
    own = STUDY.replace("seeds = 5", 'caveats = ["One text."]')
    path.write_text(
        own.replace("[scale.cpu]", '[scale.cpu]\ncaveats = ["Few steps.", "One rate."]')
    )
    assert load_study(str(path), scale="cpu").caveats == ("One text.", "Few steps.", "One rate.")
    assert load_study(str(path), scale="paper").caveats == ("One text.",)


def test_a_scale_that_the_study_lacks_is_refused(path: Path) -> None:
    path.write_text(STUDY.replace('[scale.cpu]\nrecipe = "small.toml"', ""))
    with pytest.raises(ConfigError, match="networks has no scale cpu: it has paper"):
        load_study(str(path), scale="cpu")


def test_a_recipe_with_variation_is_a_study_matched_by_parameters() -> None:
    study = load_study("gpt", ["model.n_layers=2"], vary_texts=["model.ffn=relu,geglu"])
    assert (study.name, study.match, study.n_seeds) == ("gpt", "parameters", None)
    assert [arm.name for arm in study.arms] == ["ffn=relu", "ffn=geglu"]


def test_a_scale_without_a_study_is_refused() -> None:
    with pytest.raises(ConfigError, match="gpt is a recipe"):
        load_study("gpt", scale="cpu")


def test_a_recipe_file_is_no_study(path: Path) -> None:
    assert find_study(str(path)) == path
    assert find_study(str(path.with_name("small.toml"))) is None
    assert find_study("no-such-thing") is None


@pytest.mark.parametrize("name", shipped_studies())
def test_every_shipped_study_loads(name: str) -> None:
    study = load_study(name)
    assert study.title
    assert len(study.arms) >= 2


@pytest.mark.parametrize(
    ("against", "message"),
    [
        ("three", "two is against three, which is not an arm of it"),
        ("two", "two is against itself, a control, but no other arm is against it"),
    ],
)
def test_an_arm_is_against_another_arm_of_its_study(
    tmp_path: Path, against: str, message: str
) -> None:
    path = tmp_path / "study.toml"
    text = """[scale.cpu]
recipe = "gpt"
[[arms]]
name = "one"
[[arms]]
name = "two"
against = "one"
set = { model.ffn = "relu" }
"""
    path.write_text(text)
    assert load_study(str(path)).against == {"two": "one"}
    path.write_text(text.replace('against = "one"', f'against = "{against}"'))
    with pytest.raises(ConfigError, match=message):
        load_study(str(path))


OWN_ARMS = """[scale.paper]
recipe = "gpt"
[[scale.paper.arms]]
name = "six"
[[scale.paper.arms]]
name = "twelve"
set = { model.n_layers = 12 }
[scale.cpu]
recipe = "gpt"
[[scale.cpu.arms]]
name = "one"
set = { model.n_layers = 1 }
[[scale.cpu.arms]]
name = "two"
against = "one"
set = { model.n_layers = 2 }
[[scale.cpu.arms]]
name = "three"
against = "two"
set = { model.n_layers = 3 }
"""


def test_a_scale_may_have_arms_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(OWN_ARMS.replace('against = "one"\n', ""))
    assert find_study(str(path)) == path
    assert [arm.name for arm in load_study(str(path)).arms] == ["six", "twelve"]
    cpu = load_study(str(path), scale="cpu")
    assert [arm.loaded.recipe.model.n_layers for arm in cpu.arms] == [1, 2, 3]
    assert cpu.against == {"three": "two"}


def test_an_arm_against_itself_is_a_control_of_others(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(OWN_ARMS.replace('against = "one"', 'against = "two"'))
    assert load_study(str(path), scale="cpu").against == {"two": "two", "three": "two"}


def test_arms_are_those_of_all_scales_or_of_each(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    both = '[[arms]]\nname = "a"\n[[arms]]\nname = "b"\n'
    path.write_text(OWN_ARMS + both)
    with pytest.raises(
        ConfigError,
        match=r"scale paper has arms twice: give \[\[arms\]\] or \[\[scale\.paper\.arms\]\]",
    ):
        load_study(str(path))
    path.write_text('[scale.cpu]\nrecipe = "gpt"\n')
    with pytest.raises(ConfigError, match="scale cpu has no arms"):
        load_study(str(path))


def test_what_an_arm_makes_idle_is_named_with_the_arm():
    study = load_study("gpt", ["model.gelu=exact"], vary_texts=["model.ffn=gelu,swiglu"])
    assert arm_notes(study.arms) == [
        "arm ffn=swiglu: model.gelu = 'exact' of the command line has no effect with "
        "model.ffn = 'swiglu': dropped"
    ]


def test_what_is_idle_in_every_arm_is_said_once():
    study = load_study("albert-base", ["model.d_embed=768"], vary_texts=["model.n_layers=1,2"])
    (note,) = arm_notes(study.arms)
    assert note.startswith("model.embedding_projection = 'sum' of recipe albert-base has no")
