"""Studies as they are defined: their files, recipes that vary, their questions and grids."""

from collections.abc import Callable

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.study.arms import check_distinct, expand, make_arm, split_values
from sublayer.study.asked import load_asked
from sublayer.study.chain.columns import points_metric
from sublayer.study.checks import check_study
from sublayer.study.definition import load_study
from sublayer.study.judgement.looks import fixed
from sublayer.study.names import name_arms, name_folder
from sublayer.study.question import Question
from sublayer.study.tuning import Trial, choose_trial

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
def path(tmp_path):
    (tmp_path / "small.toml").write_text('extends = "gpt"\n[model]\nn_layers = 1\n')
    path = tmp_path / "networks.toml"
    path.write_text(STUDY)
    return path


def test_a_study_has_the_arms_and_rules_of_its_file(path):
    study = load_study(str(path))
    assert (study.name, study.title, study.source) == ("networks", "Networks", "Nobody 2020")
    assert (study.match, study.n_seeds) == ("flops", 5)
    models = {arm.name: arm.loaded.recipe.model for arm in study.arms}
    found = {name: (model.ffn, model.d_ff) for name, model in models.items()}
    assert found == {"relu": ("relu", None), "gated": ("swiglu", 96)}


def test_a_scale_has_seeds_and_caveats_and_tunes_otherwise_than_its_study(path):
    head = 'seeds = 5\ncaveats = ["One text."]\ntune = { optimizer.lr = [1e-3, 2e-3] }'
    own = 'tune_by = "loss"\ncaveats = ["Few steps."]\ntune = { optimizer.lr = [1e-3, 4e-3] }'
    text = STUDY.replace("seeds = 5", head).replace("[scale.cpu]", f"[scale.cpu]\n{own}\nseeds = 1")
    path.write_text(text)
    found = {scale: load_study(str(path), scale=scale) for scale in ("paper", "cpu")}
    assert [each.n_seeds for each in found.values()] == [5, 1]
    assert [each.tune_by for each in found.values()] == ["metric", "loss"]
    assert [each.caveats for each in found.values()] == [
        ("One text.",),
        ("One text.", "Few steps."),
    ]
    grids = [("optimizer.lr=0.001,0.002",), ("optimizer.lr=0.001,0.004",)]
    assert [each.tune for each in found.values()] == grids
    # It is not tuned where it is set.
    assert load_study(str(path), ["optimizer.lr=3e-3"]).tune == ()


def test_the_scale_of_no_name_is_paper_then_cpu_then_the_first(path):
    text = STUDY
    for old, new, n_layers in (("paper", "paper", 12), ("paper", "long", 1), ("cpu", "short", 12)):
        text = text.replace(f"[scale.{old}]", f"[scale.{new}]")
        path.write_text(text)
        assert load_study(str(path)).arms[0].loaded.recipe.model.n_layers == n_layers


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
set = { model.n_layers = 2 }
[[scale.cpu.arms]]
name = "three"
against = "two"
set = { model.n_layers = 3 }
"""


def test_a_scale_may_have_arms_of_its_own(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(OWN_ARMS)
    assert [arm.name for arm in load_study(str(path)).arms] == ["six", "twelve"]
    cpu = load_study(str(path), scale="cpu")
    assert [arm.loaded.recipe.model.n_layers for arm in cpu.arms] == [1, 2, 3]
    assert cpu.against == {"three": "two"}
    # An arm against itself is a control of others.
    path.write_text(OWN_ARMS.replace('name = "two"', 'name = "two"\nagainst = "two"'))
    assert load_study(str(path), scale="cpu").against == {"two": "two", "three": "two"}


def test_several_fields_make_every_combination():
    loaded = load_recipe("gpt")
    (arm,) = expand(loaded, [])
    assert arm.name == "gpt" and arm.loaded is loaded
    arms = expand(loaded, ["model.ffn=relu,swiglu", "model.norm=layer,rms", "model.n_layers=1,2,3"])
    names = [arm.name for arm in arms]
    assert (len(names), names[0]) == (12, "ffn=relu norm=layer n_layers=1")
    assert names[-1] == "ffn=swiglu norm=rms n_layers=3"
    model = arms[-1].loaded.recipe.model
    assert (model.ffn, model.norm, model.n_layers) == ("swiglu", "rms", 3)
    # Fields of one name keep their table in the label.
    with pytest.raises(ConfigError, match=r"optimizer\.kind=adamw objective\.kind=causal"):
        expand(loaded, ["optimizer.kind=adamw,sgd", "objective.kind=causal,causal"])
    # A value that is derived is the same arm.
    with pytest.raises(ConfigError, match="arm d_ff=768 is equal to the baseline"):
        check_distinct([arm, make_arm("d_ff=768", loaded, {"model.d_ff": 4 * 192})])


def test_values_are_split_at_commas_outside_brackets_and_quotes():
    for values in (
        ['["ffn","attention"]', "transformer"],
        ['"a,b"', "c"],
        ["{a = [2, 3]}", "'x]'"],
    ):
        assert split_values(",".join(values)) == values


def test_what_differs_beside_the_model_is_said(tmp_path):
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
    "scale.cpu.seeds": ("[scale.cpu]", "[scale.cpu]\nseeds = 0", r"scale\.cpu\.seeds = 0"),
    "a typo": ('match = "flops"', 'math = "flops"', "math .* match"),
    "equal arms": ('set.model = { ffn = "swiglu", d_ff = 96 }', 'set.model.ffn = "relu"', "equal"),
    "a seed of an arm": ('"model.ffn" = "relu"', '"train.seed" = 3', r"train\.seed"),
    "tune_by without tune": ("seeds = 5", 'tune_by = "loss"', "tune_by"),
    "tune_by": ("seeds = 5", 'tune_by = "bleu"\ntune.optimizer.lr = [1, 2]', "tune_by = 'bleu'"),
    "against no arm": ('name = "gated"', 'name = "gated"\nagainst = "x"', "against x"),
    "a control of none": ('name = "gated"', 'name = "gated"\nagainst = "gated"', "itself"),
    "the first against": ('name = "relu"', 'name = "relu"\nagainst = "gated"', "is the first"),
    "score.stride": ("seeds = 5", "score.stride = 129", r"score\.stride = 129"),
    "no arm in a contrast": ("seeds = 5", CONTRAST.format("x = 1, relu = -1"), "about x"),
    "no contrast": ("seeds = 5", CONTRAST.format("gated = 1, relu = -0.5"), "add up to 0.5"),
    "an empty contrast": ("seeds = 5", CONTRAST.format("gated = 0, relu = 0"), "add up to 0"),
    "arms twice": ("[scale.cpu]", f"[scale.cpu]\narms = [{{{ONE}}}, {{{OTHER}}}]", "arms twice"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_is_wrong_is_refused(path, case):
    old, new, message = REFUSED[case]
    assert old in STUDY
    path.write_text(STUDY.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        load_study(str(path), scale=None if old == "[scale.cpu]" else "cpu")


def vary(*texts: str) -> object:
    return expand(load_recipe("gpt", ["model.gelu=exact"]), texts)


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: load_study("gpt", scale="cpu"), "gpt is a recipe"),
    (lambda: load_study("dmeo"), "study demo"),
    (lambda: load_study("demo", ["model.ffn=glu"]), r"model\.ffn is what the arms"),
    (lambda: load_study("demo", scale="large"), "no scale large: it has cpu"),
    (lambda: vary("model.ffn=relu,"), "empty value"),
    (lambda: vary("model.ffn=relu,gelu", "model.ffn=glu,geglu"), "given twice"),
    (lambda: vary("title=a,b"), "title"),
    (lambda: vary("model.init_std=0.01,0.02,2e-2"), r"init_std=2e-2 is equal to arm init_std=0"),
    (lambda: vary('model.block=["ffn",transformer'), "is missing"),
    (lambda: vary("model.gelu=exact,tanh"), r"model\.gelu is both set and"),
    (lambda: load_asked(["gpt", "demo"]), "demo is a study"),
    (lambda: load_asked(["gpt", "modern"], scale="cpu"), "leave it out"),
    (lambda: load_asked(["gpt", "modren"]), "did you mean modern"),
    (lambda: load_asked(["gpt"] * 1001), "too many arms"),
]


@pytest.mark.parametrize(("load", "message"), MISTAKES)
def test_arms_that_cannot_be_compared_are_refused(load, message):
    with pytest.raises(ConfigError, match=message):
        load()


def test_a_margin_is_a_number_or_has_the_unit_of_differences():
    accuracy = points_metric("sst2", "SST-2")
    for written, metric, size in (
        (0.01, BITS_PER_BYTE, 0.01),
        ("0.01 bits per byte", BITS_PER_BYTE, 0.01),
        ("", BITS_PER_BYTE, None),
        ("0.5 points", accuracy, 0.005),
        ("1", accuracy, 0.01),
    ):
        assert Question(margin=written).margin_of("a study", metric) == size
        assert Question(spread=written).spread_of("a study", metric) == size
    for written, metric in (
        *((text, BITS_PER_BYTE) for text in ("0", "0.1 BLEU", "a little", "inf")),
        ("100 points", accuracy),
    ):
        with pytest.raises(ConfigError, match="margin = "):
            Question(margin=written).margin_of("a study", metric)


def test_published_values_stand_with_the_arm_or_with_the_scale(path):
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
