"""Studies as they are defined: their files, recipes that vary, their questions and grids."""

from pathlib import Path
from typing import Any

import pytest

from sublayer.config.layering.layers import LoadedRecipe, load_recipe
from sublayer.errors import ConfigError
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.study.arms import arm_notes, check_distinct, expand, make_arm, split_values
from sublayer.study.asked import load_asked, split_words
from sublayer.study.chain.columns import points_metric
from sublayer.study.checks import check_study
from sublayer.study.definition import find_study, load_study
from sublayer.study.judgement.looks import fixed
from sublayer.study.names import name_arms, name_folder
from sublayer.study.question import Question
from sublayer.study.tuning import Trial, choose_trial, make_trials

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
    models = {arm.name: arm.loaded.recipe.model for arm in study.arms}
    found = {name: (model.ffn, model.d_ff) for name, model in models.items()}
    assert found == {"relu": ("relu", None), "gated": ("swiglu", 96)}


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


def test_overrides_go_to_every_arm(path: Path) -> None:
    study = load_study(str(path), ["model.n_layers=3", "train.steps=7"])
    recipes = [arm.loaded.recipe for arm in study.arms]
    assert [(each.model.n_layers, each.train.steps) for each in recipes] == [(3, 7)] * 2
    assert study.arms[1].loaded.origins["model.n_layers"] == "command line"


TUNED = STUDY.replace("seeds = 5", "seeds = 5\ntune = { optimizer.lr = [1e-3, 2e-3] }")


def test_a_study_or_its_scale_says_what_chooses_among_trials(path: Path) -> None:
    path.write_text(TUNED)
    assert load_study(str(path)).tune_by == "metric"
    path.write_text(TUNED.replace("[scale.cpu]", '[scale.cpu]\ntune_by = "loss"'))
    assert load_study(str(path), scale="cpu").tune_by == "loss"
    assert load_study(str(path), scale="paper").tune_by == "metric"


def test_the_caveats_of_a_study_come_before_those_of_its_scale(path: Path) -> None:
    assert load_study(str(path)).caveats == ()
    own = STUDY.replace("seeds = 5", 'caveats = ["One text."]')
    path.write_text(
        own.replace("[scale.cpu]", '[scale.cpu]\ncaveats = ["Few steps.", "One rate."]')
    )
    assert load_study(str(path), scale="cpu").caveats == ("One text.", "Few steps.", "One rate.")
    assert load_study(str(path), scale="paper").caveats == ("One text.",)


def test_a_recipe_file_is_no_study(path: Path) -> None:
    assert find_study(str(path)) == path
    assert find_study(str(path.with_name("small.toml"))) is None
    assert find_study("no-such-thing") is None


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


def test_what_an_arm_makes_idle_is_named_with_the_arm():
    study = load_study("gpt", ["model.gelu=exact"], vary_texts=["model.ffn=gelu,swiglu"])
    assert arm_notes(study.arms) == [
        "arm ffn=swiglu: model.gelu = 'exact' of the command line has no effect with "
        "model.ffn = 'swiglu': dropped"
    ]


@pytest.fixture
def loaded() -> LoadedRecipe:
    return load_recipe("gpt")


def test_each_value_is_an_arm_and_the_first_is_the_baseline(loaded: LoadedRecipe) -> None:
    (arm,) = expand(loaded, [])
    assert arm.name == "gpt" and arm.loaded is loaded is make_arm("base", loaded, {}).loaded
    arms = expand(loaded, ["model.ffn=relu,swiglu"])
    assert [arm.name for arm in arms] == ["ffn=relu", "ffn=swiglu"]
    assert [arm.loaded.recipe.model.ffn for arm in arms] == ["relu", "swiglu"]
    assert [dict(arm.settings) for arm in arms] == [{"model.ffn": "relu"}, {"model.ffn": "swiglu"}]


def test_several_fields_make_every_combination(loaded: LoadedRecipe) -> None:
    arms = expand(loaded, ["model.ffn=relu,swiglu", "model.norm=layer,rms", "model.n_layers=1,2,3"])
    assert len(arms) == 12
    assert arms[0].name == "ffn=relu norm=layer n_layers=1"
    assert arms[-1].name == "ffn=swiglu norm=rms n_layers=3"


def test_fields_of_one_name_keep_their_table_in_the_label(loaded: LoadedRecipe) -> None:
    assert expand(loaded, ["optimizer.kind=adamw,sgd"])[1].name == "kind=sgd"
    with pytest.raises(ConfigError, match=r"optimizer\.kind=adamw objective\.kind=causal"):
        expand(loaded, ["optimizer.kind=adamw,sgd", "objective.kind=causal,causal"])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a,b", ["a", "b"]),
        ('["ffn","attention"],transformer', ['["ffn","attention"]', "transformer"]),
        ('"a,b",c', ['"a,b"', "c"]),
        ("{a = 1, b = [2, 3]},'x]'", ["{a = 1, b = [2, 3]}", "'x]'"]),
    ],
)
def test_values_are_split_at_commas_outside_brackets_and_quotes(
    text: str, values: list[str]
) -> None:
    assert split_values(text) == values


def test_an_arm_equal_to_the_baseline_is_refused_also_where_the_value_is_derived(
    loaded: LoadedRecipe,
) -> None:
    with pytest.raises(ConfigError, match="arm d_ff=768 is equal to the baseline"):
        check_distinct(
            [make_arm("base", loaded, {}), make_arm("d_ff=768", loaded, {"model.d_ff": 4 * 192})]
        )


@pytest.mark.parametrize(
    ("words", "sources", "settings"),
    [
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


def test_names_are_kept_short():
    assert name_folder("gpt", ["model.ffn", "optimizer.lr"]) == "gpt-ffn-lr"
    assert name_folder("gpt", []) == "gpt"
    long = name_arms(["iwslt14-small-macaron", "iwslt14-small-transformer", "multi30k-tiny"])
    assert long == "iwslt14-small-macaron-and-more"


ARMS = expand(load_recipe("gpt"), ["model.ffn=gelu,swiglu"])


def test_trials_are_every_combination_of_the_values():
    trials = make_trials(ARMS, ["optimizer.lr=1e-3,2e-3", "model.dropout=0,0.1"])
    assert len(trials) == 4
    tried = trials[-1].of(ARMS[1].loaded).recipe
    assert (tried.optimizer.lr, tried.model.dropout, tried.model.ffn) == (2e-3, 0.1, "swiglu")


def test_no_two_trials_have_one_folder():
    fields = ("lr=3e-4", "batch_sequences=16", "warmup_share=0.1", "weight_decay=0.0")
    names = [f"{', '.join(fields)}{last}" for last in "159"]
    folders = [Trial(name, {}).folder for name in names]
    assert len(set(folders)) == 3 and max(map(len, folders)) <= 60
    assert Trial("lr=3e-4 dropout=0.1", {}).folder == "lr=3e-4-dropout=0.1"


def test_the_lowest_validation_loss_is_chosen_and_failures_never_are():
    trials = [Trial(name, {"optimizer.lr": 1.0}) for name in "abc"]
    assert choose_trial(trials, {"a": 2.0, "b": 1.5, "c": None}).name == "b"
    assert choose_trial(trials, {"a": None, "b": None, "c": None}).name == "a"


CONTRAST = 'hypothesis = {{ says = "x", contrast = {{ {} }} }}'
ONE, OTHER = 'name = "a"', 'name = "b", set = { model.d_ff = 9 }'
REFUSED = {
    "scale.Paper": ("[scale.cpu]", "[scale.Cpu]", "no name of a scale"),
    "scale.paper--long": ("[scale.cpu]", "[scale.cpu--long]", "no name of a scale"),
    "seeds": ("seeds = 5", "seeds = 0", "seeds = 0"),
    "scale.cpu.seeds": ("[scale.cpu]", "[scale.cpu]\nseeds = 0", r"scale\.cpu\.seeds = 0"),
    "a typo": ('match = "flops"', 'math = "flops"', "math .* match"),
    "two arms of one name": ('name = "gated"', 'name = "relu"', "two arms are named relu"),
    "equal arms": ('set.model = { ffn = "swiglu", d_ff = 96 }', 'set.model.ffn = "relu"', "equal"),
    "no field": ('"model.ffn" = "relu"', '"model.fnn" = "relu"', r"arm relu: model\.fnn"),
    "no TOML": ("seeds = 5", "seeds = = 5", "TOML"),
    "caveats": ("seeds = 5", 'caveats = [""]', "caveats 1"),
    "a seed of an arm": ('"model.ffn" = "relu"', '"train.seed" = 3', r"train\.seed"),
    "tune_by without tune": ("seeds = 5", 'tune_by = "loss"', "tune_by"),
    "tune_by": ("seeds = 5", 'tune_by = "bleu"\ntune.optimizer.lr = [1, 2]', "tune_by = 'bleu'"),
    "tune": ("seeds = 5", "tune.optimizer.lr = 1e-3", r"tune\.optimizer\.lr"),
    "against no arm": ('name = "gated"', 'name = "gated"\nagainst = "x"', "against x"),
    "a control of none": ('name = "gated"', 'name = "gated"\nagainst = "gated"', "itself"),
    "the first against": ('name = "relu"', 'name = "relu"\nagainst = "gated"', "is the first"),
    "score.split": ("seeds = 5", 'score.split = "train"', r"score\.split = 'train'"),
    "score.stride": ("seeds = 5", "score.stride = 129", r"score\.stride = 129"),
    "inspect": ("seeds = 5", "inspect = {}", r"inspect\.what"),
    "no arm in a contrast": ("seeds = 5", CONTRAST.format("x = 1, relu = -1"), "about x"),
    "no contrast": ("seeds = 5", CONTRAST.format("gated = 1, relu = -0.5"), "add up to 0.5"),
    "an empty contrast": ("seeds = 5", CONTRAST.format("gated = 0, relu = 0"), "add up to 0"),
    "arms twice": ("[scale.cpu]", f"[scale.cpu]\narms = [{{{ONE}}}, {{{OTHER}}}]", "arms twice"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_is_wrong_is_refused(path: Path, case: str) -> None:
    old, new, message = REFUSED[case]
    assert old in STUDY
    path.write_text(STUDY.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        load_study(str(path), scale=None if old == "[scale.cpu]" else "cpu")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("STUDY", {"overrides": ["model.ffn=glu"]}, r"model\.ffn is what the arms"),
        ("STUDY", {"vary_texts": ["model.norm=layer,rms"]}, "leave out --vary"),
        ("STUDY", {"scale": "large"}, "no scale large: it has paper, cpu"),
        ("gpt", {"scale": "cpu"}, "gpt is a recipe"),
        ("dmeo", {}, "study demo"),
    ],
)
def test_options_without_effect_on_a_study_are_refused(
    path: Path, source: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_study(str(path) if source == "STUDY" else source, **options)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["model.ffn"], "is not field=a,b"),
        (["model.ffn=relu"], "one value"),
        (["model.ffn=relu,"], "empty value"),
        (["model.ffn=relu,gelu", "model.ffn=glu,geglu"], "given twice"),
        (["model.ffn=relu,gelu,gelu"], "two arms are named ffn=gelu"),
        (["title=a,b"], "title"),
        (["train.seed=0,1"], "--seeds"),
        (["model.n_heads=4,7"], r"arm n_heads=7: model\.n_heads = 7"),
        (["model.init_std=0.01,0.02,2e-2"], r"init_std=2e-2 is equal to arm init_std=0\.02"),
        (['model.block=["ffn",transformer'], "is missing"),
        (['model.block="a,b'], "is missing"),
        (["model.gelu=exact,tanh"], r"model\.gelu is both set and"),
    ],
)
def test_a_variation_without_meaning_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expand(load_recipe("gpt", ["model.gelu=exact"]), texts)


@pytest.mark.parametrize(
    ("sources", "options", "message"),
    [
        (["gpt", "modern"], {"vary_texts": ["model.ffn=relu,gelu"]}, "--vary"),
        (["gpt", "demo"], {}, "demo is a study"),
        (["gpt", "modern"], {"scale": "cpu"}, "leave it out"),
        (["gpt", "gpt"], {}, "two arms are named gpt"),
        (["gpt", "modren"], {}, "did you mean modern"),
        (["gpt"] * 1001, {}, "too many arms"),
    ],
)
def test_recipes_that_cannot_be_compared_are_refused(
    sources: list[str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_asked(sources, **options)


@pytest.mark.parametrize("field", ["model.d_model=64,128", "train.steps=5,6"])
def test_settings_that_change_a_budget_are_not_tuned(field: str) -> None:
    with pytest.raises(ConfigError, match="is not a setting of training"):
        make_trials(ARMS, [field])


@pytest.mark.parametrize(
    ("written", "expected"),
    [(0.01, 0.01), ("0.01 bits per byte", 0.01), ("", None)],
)
def test_a_margin_is_a_number_or_has_the_unit_of_differences(
    written: str | float, expected: float | None
) -> None:
    assert Question(margin=written).margin_of("a study", BITS_PER_BYTE) == expected
    assert Question(spread=written).spread_of("a study", BITS_PER_BYTE) == expected


def test_a_margin_in_points_is_a_hundredth_of_the_share() -> None:
    accuracy = points_metric("sst2", "SST-2")
    for written in ("0.5 points", "0.5", "1 point"):
        margin = Question(margin=written).margin_of("a study", accuracy)
        assert margin == pytest.approx(float(written.split()[0]) / 100)
    with pytest.raises(ConfigError, match="100"):
        Question(margin="100 points").margin_of("a study", accuracy)


@pytest.mark.parametrize("margin", ["0", "0.1 BLEU", "a little", "inf"])
def test_a_margin_is_a_size_in_the_unit_of_the_metric(margin: str) -> None:
    with pytest.raises(ConfigError, match=f"margin = {margin}"):
        Question(margin=margin).margin_of("a study", BITS_PER_BYTE)


def test_published_values_stand_with_the_arm_or_with_the_scale(path: Path) -> None:
    stands = 'name = "gated"\npublished = { bits_per_byte = 1.636 }'
    text = STUDY.replace('name = "gated"', stands)
    scale = "[scale.cpu]\npublished.gated.bits_per_byte = 1.944"
    path.write_text(text.replace("[scale.cpu]", scale))
    for name, value in (("paper", 1.636), ("cpu", 1.944)):
        study = load_study(str(path), scale=name)
        check_study(study, fixed(3))
        assert study.published == {"gated": {"bits_per_byte": value}}
    for wrong, message in (("x.bits_per_byte", "published"), ("gated.accuracy", "of gated")):
        path.write_text(STUDY.replace("[scale.cpu]", f"[scale.cpu]\npublished.{wrong} = 1.0"))
        with pytest.raises(ConfigError, match=message):
            check_study(load_study(str(path), scale="cpu"), fixed(3))
