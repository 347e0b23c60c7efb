"""Studies as they are defined, and those shipped, with the parameters and averages of papers."""

import itertools
import json
import math
import re
from pathlib import Path

import pytest

import sublayer
from sublayer.cli import main as cli
from sublayer.config.load import load_recipe
from sublayer.errors import ConfigError
from sublayer.numbers import format_interval, format_signed, interval_ends
from sublayer.objective.base import family
from sublayer.objective.causal import BITS_PER_BYTE
from sublayer.study import arms as of_arms
from sublayer.study import columns as of_columns
from sublayer.study.arms import Trial, choose_trial, expand
from sublayer.study.collect import edges
from sublayer.study.cost_plan import make_plan, plan_stages
from sublayer.study.definition import Study, load_asked, load_study, shipped_studies, study_scales
from sublayer.study.question import Question, Scoring
from sublayer.study.runner import check_study
from sublayer.study.stage_recipes import StagePart, StageRecipes
from sublayer.tasks.registry import TASKS
from sublayer.tasks.scoring import points, signed_points
from tests.breadth import rows
from tests.published_files import write_published
from tests.study.studies import part_of
from tests.study.test_budget import PLENTY
from tests.task_files import write_copa, write_rte, write_squad, write_sst2, write_stsb

STUDY = """
title = "Networks"
source = "Nobody 2020"
match = "flops"
seeds = 5
scale.paper = { recipe = "gpt", set.model.n_layers = 12 }

[scale.cpu]
recipe = "small.toml"

[[arms]]
name = "relu"
set = { "model.ffn" = "relu" }

[[arms]]
name = "gated"
set.model = { ffn = "swiglu", d_ff = 96 }
"""
OWN_ARMS = """scale.paper.recipe = "gpt"
scale.cpu.recipe = "gpt"
scale.paper.arms = [{ name = "six" }, { name = "twelve", set.model.n_layers = 12 }]
scale.cpu.arms = [
    { name = "one", set.model.n_layers = 1 }, { name = "two", set.model.n_layers = 2 },
    { name = "three", against = "two", set.model.n_layers = 3 }
]
"""
CPU, SEEDS, GATED = "[scale.cpu]", "seeds = 5\n", 'name = "gated"'
SCALES = [(name, scale) for name in shipped_studies() for scale in study_scales(name)]
LARGE, XXLARGE, BASE = 335_691_058, 223_158_450, 11_813_810
ARMS: dict[str, dict[str, int]] = {
    "albert-same-time": {"BERT-large": LARGE, "ALBERT-xxlarge": XXLARGE},
    "albert-layers": {"BERT-large": LARGE, "ALBERT-large": 17_847_474},
    "bert-width": {"BERT-large": LARGE, "BERT-xlarge": 1_279_526_194},
    "albert-dropout": {"with dropout": XXLARGE, "without dropout": XXLARGE},
    "albert-sentence": {"no sentence loss, untrained head": BASE, "NSP": BASE, "SOP": BASE},
    "albert-data": {"without additional data": BASE, "with additional data": BASE},
    "albert-depth": {f"{n} layer{'s' if n > 1 else ''}": 17_847_474 for n in (1, 3, 6, 12, 24, 48)},
}
SHARED = ("not shared", "shared attention", "shared FFN", "all shared")
# Millions, without heads: Lan et al. 2020, tables 4 and 5 of the draft, without the pooler there,
# and of the widths, with it.
SHARING = {
    f"E = {width}, {shared}": millions
    for width, row in ((768, (108.49, 82.49, 56.53, 30.52)), (128, (89.06, 63.06, 37.10, 11.09)))
    for shared, millions in zip(SHARED, row, strict=True)
}
WIDTHS = {"H = 1024": 17.7, "H = 2048": 58.7, "H = 4096": 222.6, "H = 6144": 495.5}
# By how much averages of the papers miss what their row gives.
ALBERT = ("main", "embedding", "sentence", "depth", "same-time", "data", "dropout", "width")
AVERAGES = {**{f"albert-{name}": 0.1 for name in ALBERT}, "albert-sharing": 0.15}
AVERAGES["gpt1-ablation"] = 0.07
CHAINS = [name for name, scale in SCALES if scale == "cpu" and load_study(name, scale=scale).chain]
SHORT = ["train.steps=4", "train.evaluate_steps=4", "train.batch_sequences=4"]
SHORT += ["train.evaluate_tokens=512", "data.documents=file"]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "small.toml").write_text('extends = "gpt"\n[model]\nn_layers = 1\n')
    path = tmp_path / "networks.toml"
    path.write_text(STUDY)
    return path


def test_a_study_has_the_arms_of_its_file_and_the_scale_paper_then_cpu_then_the_first(path):
    study = load_study(str(path))
    assert (study.name, study.title, study.source) == ("networks", "Networks", "Nobody 2020")
    assert (study.match, study.n_seeds) == ("flops", 5)
    models = {arm.name: arm.loaded.recipe.model for arm in study.arms}
    found = {name: (model.ffn, model.d_ff) for name, model in models.items()}
    assert found == {"relu": ("relu", None), "gated": ("swiglu", 96)}
    text = STUDY
    for old, new, n_layers in (("paper", "paper", 12), ("paper", "long", 1), ("cpu", "short", 12)):
        text = text.replace(f"scale.{old}", f"scale.{new}")
        path.write_text(text)
        assert load_study(str(path)).arms[0].loaded.recipe.model.n_layers == n_layers


def test_a_scale_may_have_seeds_caveats_tuning_and_arms_of_its_own(path):
    head = 'seeds = 5\ncaveats = ["One text."]\ntune = { optimizer.lr = [1e-3, 2e-3] }\n'
    own = 'tune_by = "loss"\ncaveats = ["Few steps."]\ntune = { optimizer.lr = [1e-3, 4e-3] }'
    text = STUDY.replace("seeds = 5\n", head)
    path.write_text(text.replace("[scale.cpu]", f"[scale.cpu]\n{own}\nseeds = 1"))
    found = [load_study(str(path), scale=scale) for scale in ("paper", "cpu")]
    assert [(each.n_seeds, each.tune_by, each.tune, each.caveats) for each in found] == [
        (5, "metric", ("optimizer.lr=0.001,0.002",), ("One text.",)),
        (1, "loss", ("optimizer.lr=0.001,0.004",), ("One text.", "Few steps.")),
    ]
    assert load_study(str(path), ["optimizer.lr=3e-3"]).tune == ()
    path.write_text(OWN_ARMS)
    assert [arm.name for arm in load_study(str(path)).arms] == ["six", "twelve"]
    cpu = load_study(str(path), scale="cpu")
    assert [arm.loaded.recipe.model.n_layers for arm in cpu.arms] == [1, 2, 3]
    assert cpu.against == {"three": "two"}
    path.write_text(OWN_ARMS.replace('name = "two"', 'name = "two", against = "two"'))
    assert load_study(str(path), scale="cpu").against == {"two": "two", "three": "two"}


def test_several_fields_make_every_combination_and_commas_in_brackets_split_nothing():
    loaded = load_recipe("gpt")
    (arm,) = expand(loaded, [])
    assert arm.name == "gpt" and arm.loaded is loaded
    arms = expand(loaded, ["model.ffn=relu,swiglu", "model.norm=layer,rms", "model.n_layers=1,2,3"])
    assert (len(arms), arms[0].name) == (12, "ffn=relu norm=layer n_layers=1")
    assert arms[-1].name == "ffn=swiglu norm=rms n_layers=3"
    model = arms[-1].loaded.recipe.model
    assert (model.ffn, model.norm, model.n_layers) == ("swiglu", "rms", 3)
    with pytest.raises(ConfigError, match=r"optimizer\.kind=adamw objective\.kind=causal"):
        expand(loaded, ["optimizer.kind=adamw,sgd", "objective.kind=causal,causal"])
    with pytest.raises(ConfigError, match="arm d_ff=768 is equal to the baseline"):
        of_arms.check_distinct([arm, of_arms.make_arm("d_ff=768", loaded, {"model.d_ff": 4 * 192})])
    values = ['["ffn","attention"]', '"a,b"', "c", "{a = [2, 3]}", "'x]'", "transformer"]
    assert of_arms.split_values(",".join(values)) == values


def test_names_are_kept_short_and_of_trials_the_lowest_loss_is_chosen():
    assert of_arms.name_folder("gpt", ["model.ffn", "optimizer.lr"]) == "gpt-ffn-lr"
    names = ["iwslt14-small-macaron", "iwslt14-small-transformer", "multi30k-tiny"]
    assert of_arms.name_arms(names) == "iwslt14-small-macaron-and-more"
    fields = "lr=3e-4, batch_sequences=16, warmup_share=0.1, weight_decay=0.0"
    folders = [Trial(f"{fields}{last}", {}).folder for last in "159"]
    assert len(set(folders)) == 3 and max(map(len, folders)) <= 60
    assert Trial("lr=3e-4 dropout=0.1", {}).folder == "lr=3e-4-dropout=0.1"
    trials = [Trial(name, {"optimizer.lr": 1.0}) for name in "abc"]
    assert choose_trial(trials, {"a": 2.0, "b": 1.5, "c": None}).name == "b"
    assert choose_trial(trials, {"a": None, "b": None, "c": None}).name == "a"
    # Of equal scores the lower loss decides, unless there are runs already; none is at an edge.
    trials = [Trial(name, {"optimizer.lr": value}) for value, name in enumerate("abcd", 1)]
    scores, ties = {"a": -0.5, "b": -0.5, "c": -0.2, "d": None}, {"a": 1.0, "b": 0.9, "c": 0.1}
    assert choose_trial(trials, scores, ties=ties).name == "b"
    assert choose_trial(trials, scores, ties=ties, compared=["a"]).name == "a"
    [said] = edges(trials[0], trials, scores)
    assert "a and b" in said and "lowest" not in said.partition(":")[0]
    assert "lowest value" in next(edges(trials[0], trials, {"a": -0.5, "b": -0.4}))
    formatted = (points(-1e-5), signed_points(-0.0), format_signed(-0.001, 2))
    assert formatted == ("0.0", "+0.0", "+0.00")
    assert format_interval(-2.1, -0.02, 1) == "−2.1 to −0.0"  # it leaves 0 out
    assert interval_ends((-2.1, -0.02), 1) == ("-2.1", "-0.0")


@pytest.mark.parametrize("old, new, message", [
    (CPU, "[scale.Cpu]", "not a valid name"),
    (CPU, f"{CPU}\nseeds = 0", r"scale\.cpu\.seeds = 0"),
    (CPU, '[scale.10m]\narms = [{ nmae = "a" }]\n' + CPU, r"scale\.10m\.arms 1, name is missing"),
    (CPU, f'[scale.10m]\nrecipe = "gtp"\n{CPU}', "scale 10m: .*gtp"),
    ('set.model = { ffn = "swiglu", d_ff = 96 }', 'set.model.ffn = "relu"', "equal"),
    ('"model.ffn" = "relu"', '"train.seed" = 3', r"train\.seed"),
    (SEEDS, 'tune_by = "loss"\n', "tune_by"),
    (SEEDS, 'tune_by = "bleu"\ntune.optimizer.lr = [1, 2]\n', "tune_by = 'bleu'"),
    (GATED, f'{GATED}\nagainst = "x"', "against: x is no arm"),
    (GATED, f'{GATED}\nagainst = "gated"', "itself"),
    ('name = "relu"', 'name = "relu"\nagainst = "gated"', "it has against = gated"),
    (SEEDS, "score.stride = 129\n", r"score\.stride = 129"),
    (SEEDS, 'hypothesis = { says = "x", contrast = { x = 1, relu = -1 } }\n', ": x is no"),
    (SEEDS, 'hypothesis = { says = "x", contrast = { gated = 1, relu = -0.5 } }\n', r"to 0\.5"),
    (SEEDS, 'hypothesis = { says = "x", contrast = { gated = 0, relu = 0 } }\n', "add up to 0"),
    (CPU, f'{CPU}\narms = [{{ name = "a" }}, {{ name = "b", set.model.d_ff = 9 }}]', "arms twice"),
])  # fmt: skip
def test_a_file_that_is_wrong_is_refused(path, old, new, message):
    assert old in STUDY
    path.write_text(STUDY.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        load_study(str(path), scale=None if old == CPU else "cpu")


def vary(*texts: str) -> object:
    return expand(load_recipe("gpt", ["model.gelu=exact"]), texts)


@pytest.mark.parametrize("load, message", [
    (lambda: load_study("gpt", scale="cpu"), "gpt is a recipe"),
    (lambda: load_study("dmeo"), "study demo"),
    (lambda: load_study("demo", ["model.ffn=glu"]), r"arms of demo differ in model\.ffn:"),
    (lambda: vary("model.ffn=relu,"), "two values or more"),
    (lambda: vary("model.ffn=relu,gelu", "model.ffn=glu,geglu"), "given twice"),
    (lambda: vary("title=a,b"), "title"),
    (lambda: vary("model.init_std=0.01,0.02,2e-2"), r"init_std=2e-2 is equal to arm init_std=0"),
    (lambda: vary('model.block=["ffn",transformer'), "is not closed"),
    (lambda: load_asked(["gpt", "demo"]), "demo is a study"),
    (lambda: load_asked(["gpt"] * 1001), "too many arms"),
])  # fmt: skip
def test_arms_that_cannot_be_compared_are_refused(load, message):
    with pytest.raises(ConfigError, match=message):
        load()


def test_a_margin_is_a_number_or_has_the_unit_of_differences_and_a_stride_one_or_the_context():
    recipe = load_recipe("gpt", ["data.context=49"]).recipe
    strides = [Scoring(stride=stride).stride_of(recipe) for stride in (None, "context", 7)]
    assert strides == [24, 49, 7]
    accuracy, masked = of_columns.points_metric("sst2", "SST-2"), family("masked").metrics[0]
    for written, metric, size in (
        (0.01, BITS_PER_BYTE, 0.01), ("0.01 bits per byte", BITS_PER_BYTE, 0.01),
        ("", BITS_PER_BYTE, None), ("0.5 points of SST-2", accuracy, 0.005),
        ("1 point of SST-2", accuracy, 0.01), ("0.5 points of MLM accuracy", masked, 0.005),
    ):  # fmt: skip
        assert Question(margin=written).amount("margin", "a study", metric) == size
        assert Question(spread=written).amount("spread", "a study", metric) == size
    for written, metric in (
        ("0", BITS_PER_BYTE), ("inf", BITS_PER_BYTE), ("100 points of SST-2", accuracy),
        ("1 point", accuracy), ("1", masked), ("1 point of RACE", masked),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="margin = "):
            Question(margin=written).amount("margin", "a study", metric)


def test_published_values_stand_with_the_arm_or_with_the_scale(path):
    def checked(scale: str, published: str) -> Study:
        text = STUDY.replace(CPU, f"{CPU}\npublished.{published}")
        path.write_text(text.replace(GATED, f"{GATED}\npublished.bits_per_byte = 1.636"))
        study = load_study(str(path), scale=scale)
        check_study(study)
        return study

    for name, value in (("paper", 1.636), ("cpu", 1.944)):
        published = checked(name, "gated.bits_per_byte = 1.944").published
        assert published == {"gated": {"bits_per_byte": value}}
    for wrong, message in (
        ("x.bits_per_byte = 1.0", "published: x is no"), ("gated.accuracy = 1.0", "of g"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            checked("cpu", wrong)


def heads(d_model: int, d_embed: int) -> int:
    # Map, norm and bias; the matrix is the table of tokens.
    return d_model * d_embed + d_embed + 2 * d_embed + 30_000 + 2 * d_model + 2


def totals(study: Study) -> dict[str, int]:
    return {arm.name: arm.parameters.total for arm in make_plan(study.arms, "none", PLENTY).arms}


@pytest.mark.parametrize(("name", "scale"), rows(SCALES, 4))
def test_a_shipped_study_is_planned(name, scale):
    study = load_study(name, scale=scale)
    names = [arm.name for arm in study.arms]
    assert study.title and study.source and len(names) >= 2
    if scale == "cpu":
        assert study.caveats and all(len(caveat) < 400 for caveat in study.caveats)
    plan = make_plan(study.arms, study.match, PLENTY)
    assert [arm.name for arm in plan.arms] == names
    if study.chain is None:
        assert of_columns.study_metrics(study)
        check_study(study)
        return
    stages = plan_stages(study, plan, PLENTY, None, n_seeds=1)
    for stage in study.chain.stages:
        planned = [arm for each in stages if each.stage == stage.name for arm in each.arms]
        assert sorted(planned) == sorted(names)
    columns = columns_of(study)
    assert of_columns.primary_column(study.name, list(columns.values()), study.metric)
    assert len({column.metric.label for column in columns.values()}) == len(columns)


@pytest.mark.parametrize(("name", "scale"), rows(SCALES, 8))
def test_a_shipped_study_shrinks_to_a_few_steps(name, scale, tmp_path):
    words = {"train.steps": 4}
    study = load_study(name, words, scale=scale)
    assert {arm.loaded.recipe.train.steps for arm in study.arms} <= {4, 8}
    if study.chain is None:
        return
    stages = [stage for stage in study.chain.stages if not stage.ensemble]
    for stage in stages:
        words["finetune.train.steps" if stage.finetunes else f"{stage.name}.train.steps"] = 3
    chain = load_study(name, words, scale=scale).chain
    arms = {arm.name: arm.loaded for arm in study.arms}
    recipes = StageRecipes(name, chain, arms, tmp_path)
    for arm, stage in itertools.product(arms, stages):
        assert recipes.planned(arm, stage.name).recipe.train.steps == 3


def test_arms_have_the_papers_parameters():
    found = totals(load_study("albert-sharing", scale="paper"))
    pooler = 768 * 768 + 768
    widths = {arm: pooler + heads(768, 128 if "128" in arm else 768) for arm in found}
    assert {arm: round((found[arm] - widths[arm]) / 1e6, 2) for arm in found} == SHARING
    totals_by_width = totals(load_study("albert-width", scale="paper")).items()
    found = {arm: round((n - heads(int(arm[4:]), 128)) / 1e6, 1) for arm, n in totals_by_width}
    assert found == WIDTHS


@pytest.mark.parametrize("name", rows(ARMS, 2))
def test_arms_have_the_parameters_of_their_models(name):
    assert totals(load_study(name, scale="paper")) == ARMS[name]


@pytest.mark.parametrize("name", rows(["albert-data", "albert-dropout"], 1))
def test_arms_that_go_on_with_one_training_go_on_at_its_rate_to_the_papers_end(name):
    for scale in study_scales(name):
        study = load_study(name, scale=scale)
        (stage,) = [each for each in study.chain.stages if not each.finetunes]
        assert len({arm.loaded.recipe.model_dump_json() for arm in study.arms}) == 1
        before = study.arms[0].loaded.recipe
        settings = study.chain.settings_of(study.arms[0].name, stage)
        total = settings["train.steps"] + (before.train.steps or 0)
        left = settings["train.steps"] / total
        assert before.optimizer.final_lr_share == pytest.approx(left)
        assert settings["optimizer.lr"] == pytest.approx(left * before.optimizer.lr)
        if scale == "paper":
            assert total == {"albert-data": 125_000, "albert-dropout": 1_000_000}[name]


def columns_of(study: Study):
    parts: dict[str, list[StagePart]] = {}
    for stage in study.chain.stages:
        for name in stage.tasks:
            splits = TASKS[name].dev_splits or ("test",)
            for split in splits:
                part = f"{name}_{split.removeprefix('dev_')}" if len(splits) > 1 else name
                parts.setdefault(stage.name, []).append(part_of(name, part))
    kinds = [arm.loaded.recipe.objective.kind for arm in study.arms]
    columns = of_columns.list_columns(study.name, study.chain, parts, kinds)
    return {each.name: each for each in columns}


def published_average(study: Study, arm: str, average: str) -> float:
    """Compute an average of what was published, a score as the mean of its metrics."""
    published = dict(study.chain.published[arm])
    metrics: dict[str, list[float]] = {}
    for column, value in published.items():
        if ":" in column:
            metrics.setdefault(column.partition(":")[0], []).append(value)
    published |= {column: math.fsum(each) / len(each) for column, each in metrics.items()}
    return columns_of(study)[average].value_of(published)


@pytest.mark.parametrize("name", rows(AVERAGES, 3))
def test_averages_are_taken_as_the_paper_takes_them(name):
    study = load_study(name, scale="paper")
    for arm, published in study.chain.published.items():
        average = published_average(study, arm, "Avg")
        assert average == pytest.approx(published["Avg"], abs=AVERAGES[name]), arm


def test_averages_of_glus_and_macarons_are_the_printed_ones():
    study = load_study("glu-finetuning", scale="paper")
    for collection in ("GLUE", "SuperGLUE"):
        for arm, published in study.chain.published.items():
            found = published_average(study, arm, f"{collection}, best of each task")
            if arm.startswith("T5"):
                assert found == pytest.approx(published[collection], abs=0.01)
            elif not arm.startswith("standard"):
                assert published[collection] < found - 0.1, arm
    study = load_study("macaron-glue", scale="paper")
    for arm, printed in (("BERT base, Devlin et al.", 78.3), ("Macaron base", 79.7)):
        of_eight = published_average(study, arm, "GLUE without WNLI")
        # With WNLI's majority.
        assert (8 * of_eight + 65.1) / 9 == pytest.approx(printed, abs=0.05)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "texts").mkdir()
    line = "The {} films of year {} and part {} were {}. Who saw {}?".format
    for part in range(12):
        said = (line(n, n % 7, part, "fine" if (n + part) % 3 else "dull", n) for n in range(120))
        (folder / "texts" / f"{part}.txt").write_text("\n".join(said))
    write_copa(write_rte(write_stsb(write_sst2(folder / "tasks"))))
    write_squad(folder / "tasks" / "squad")
    for name in ("cola", "boolq", "cb", "multirc", "wic", "wsc", "race"):
        write_published(folder / "tasks", name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        yield folder


@pytest.mark.all
@pytest.mark.parametrize("name", rows(CHAINS, 1))
def test_a_chain_runs_from_beginning_to_end_at_the_size_of_a_toy(name, place, tmp_path):
    study, path = load_study(name, scale="cpu"), tmp_path / f"{name}.toml"
    text = (Path(sublayer.__file__).parent / "studies" / path.name).read_text()
    path.write_text(re.sub(r"train_examples = (\d+)00", r"train_examples = \1", text))
    words = ["compare", str(path), "--scale", "cpu", "--seeds", "1", *SHORT]
    words += ["--out", str(tmp_path / "out"), f"data.path={place / 'texts'}"]
    has_merges = study.arms[0].loaded.recipe.data.merges is not None
    words.append("data.merges=60" if has_merges else "data.vocab_size=200")
    if study.chain.finetunes:
        words += ["--finetunings", "1", "--data", str(place / "tasks")]
        short = ("steps=3", "evaluate_steps=3", "batch_sequences=8")
        words += [f"finetune.train.{each}" for each in short]
    else:
        words += [f"{stage.name}.train.steps=3" for stage in study.chain.stages]
    assert cli.main(words) == 0
    card = json.loads((tmp_path / "out" / "results.json").read_text())["scorecard"]
    arms = {row["name"]: row["cells"] for row in card["rows"] if row["kind"] == "arm"}
    assert list(arms) == [arm.name for arm in study.arms]
    for arm, cells in arms.items():
        assert cells.keys() >= study.chain.averages.keys(), arm
    published = {row["name"] for row in card["rows"] if row["kind"] == "published"}
    assert published == study.chain.published.keys()
