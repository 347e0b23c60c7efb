"""Values and contradictions refused by field, in a line; every number has bounds."""

import json
import types
from typing import Annotated, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sublayer.config.fields.catalog import TABLES, keys
from sublayer.config.fields.messages import LONGEST_VALUE, show
from sublayer.config.layering.layers import load_recipe
from sublayer.config.recipe import Recipe
from sublayer.config.table import Table
from sublayer.errors import ConfigError, SublayerError
from sublayer.study.arms import Arm
from sublayer.study.budget.plan import make_plan
from sublayer.study.budget.plan_json import plan_to_json
from sublayer.study.budget.resources import Resources
from sublayer.study.study_file import ArmTable, ScaleTable, StudyFile
from tests.breadth import examples


def refusal(recipe, setting):
    with pytest.raises(ConfigError) as error:
        load_recipe(recipe, setting)
    assert "\n" not in str(error.value)
    return str(error.value)


TASK = {"objective.kind": "supervised", "data.tasks": "sst2", "data.path": "glue"}
TEXT = {**TASK, "objective.format": "text"}
TRAVERSAL = {**TASK, "objective.format": "traversal"}
NO_HEAD = {"objective.language_weight": 0.5, "model.head": "none", "model.label_outputs": 2}
WEIGHTS = {"sst2": 1.0, "cola": 2.0}
WARMLESS = {"optimizer.warmup_steps": 0, "train.steps": 3}
SPAN = {"model.kind": "encoder-decoder", "objective.kind": "span"}


@pytest.mark.parametrize("recipe, setting, fields", [
    ("gpt", {"optimizer.lr": True}, ["optimizer.lr = ", "is not a number"]),
    ("gpt", {"optimizer.lr": 0}, ["optimizer.lr = ", "must be more than 0"]),
    ("gpt", {"data.path": 1984}, ["data.path = ", "put it in quotes"]),
    ("gpt", {"data.split": "90/5/4"}, ["data.split = ", "must be three shares"]),
    ("gpt", {"model.share": "all", "model.share_groups": 7},
     ["model.share_groups", "model.n_layers = 6"]),
    ("gpt", {"model.max_len": 100, "data.context": 101}, ["model.max_len = 100", "context"]),
    ("gpt", {"optimizer.schedule": "inverse-sqrt", **WARMLESS},
     ["optimizer.schedule = inverse-sqrt", "optimizer.warmup_steps"]),
    ("gpt", {"model.block": ["ffn*inf"]}, ["model.block", "must be finite and not 0"]),
    ("gpt", {"data.path": {"a": 0.0}}, ["the weight 0 of 'a'"]),
    ("gpt", {"data.corpus": "albert-intrinsic"}, ["needs data.path"]),
    ("gpt", {"data.corpus": ("albert-intrinsic", "c4"), "data.path": "a"},
     ["albert-intrinsic reads data.path"]),
    ("bert-base", TEXT, ["objective.format = text", "model.kind"]),
    ("gpt", {**TRAVERSAL, **NO_HEAD}, ["model.head = none", "objective.language_weight"]),
    ("gpt", TASK, ["objective.format = pair", "model.kind"]),
    ("bert-base", {**TASK, "data.tasks": ["sst2", "cola"]}, ["data.tasks = sst2, cola"]),
    ("t5-mini", {**TEXT, "data.size_limit": 9}, ["data.size_limit = 9", "data.tasks = sst2"]),
    ("bert-base", {"objective.kind": "supervised", "data.path": "glue"}, ["needs data.tasks"]),
    ("bert-base", {**TASK, "data.context": 4}, ["data.context = 4", "give 5"]),
    ("gpt", {**TEXT, "data.context": 64}, ["objective.target_length = 64", "data.context"]),
    ("gpt", {**TRAVERSAL, "data.tasks": "squad"}, ["data.tasks = squad", "objective.format"]),
    ("macaron-bert-base-released", {"train.tokens": 1e9}, ["objective.pairs", "train.tokens"]),
    ("macaron-bert-base-released", {"data.corpus": {"wikipedia": 3, "bookcorpus": 1}},
     ["train.batch_tokens", "objective.pairs = sentences"]),
    ("bert-base", {"train.batch_tokens": 4096, "data.batch_parts": 2},
     ["data.batch_parts = 2 has no effect"]),
    ("t5-mini", {"data.context": 4}, ["data.context = 4 has no room for a span"]),
    ("t5-mini", {"objective.noise_density": 0.001}, ["noise_density = 0.001 makes 0 noise"]),
    ("gpt", {"init.run": "b", "init.freeze": "layers:5"}, ["5 is more than the 4 blocks"]),
    ("gpt", {"init.run": "b", "init.freeze": "layers:3", "init.layers": 2},
     ["more than the 2 blocks", "init.layers = 2"]),
    ("gpt", {"init.run": "b", "init.freeze": "layers:1", "model.share": "all",
             "model.share_groups": 2}, ["give layers:2"]),
    ("gpt", {"init.run": "b", "init.freeze": "layers:1", "model.share": "ffn"},
     ["give layers:4"]),
    ("gpt", {"init.run": "b", "init.freeze": "layers:1", **SPAN},
     ["model.kind = encoder-decoder"]),
    ("gpt", {"init.freeze": "embeddings"}, ["init.freeze = 'embeddings' has no effect"]),
    ("gpt", {"init.run": "b", "init.freeze": ("layers:1", "layers:2")}, ["names layers twice"]),
    # Beyond what any number or text may be.
    ("gpt", {"train.seed": 2**63}, ["train.seed", "at most 9,223,372,036,854,775,807"]),
    ("gpt", {"data.path": {"a": 1e308}}, ["weight 1e+308 of 'a'"]),
    ("gpt", {"model.block": ["ffn"] * 101}, ["model.block has 101 entries"]),
    ("gpt", ["model.n_layers=" + "9" * 5000], ["model.n_layers"]),
], ids=str)  # fmt: skip
def test_contradictions_are_refused_by_name(recipe, setting, fields, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "recipe.toml").write_text("[model]\nn_layers = 4\n")
    message = refusal(recipe, setting)
    assert [field for field in fields if field not in message] == []


TABLE = {"objective.kind": "supervised", "data.tasks": "table", "data.path": "my.csv"}
COLUMNS = {"text": "a", "label": "b"}


@pytest.mark.parametrize("more, columns, words", [
    ({}, {"text": "a", "lable": "b"}, "lable is not one of text"),
    ({}, {**COLUMNS, "number": "b"}, "label and number"), ({}, 5, "data.columns = 5"),
    ({}, {**COLUMNS, "choices": "c"}, "choices is a list"),
    ({}, {**COLUMNS, "text": ["a", "b"]}, "text is one column"),
    ({"data.tasks": "sst2"}, COLUMNS, "data.tasks is table"),
    ({"data.tasks": ["table", "sst2"]}, COLUMNS, "stands in no mixture"),
])  # fmt: skip
def test_columns_of_a_table_that_contradict_are_refused(more, columns, words):
    assert words in refusal("bert-base", {**TABLE, **more, "data.columns": columns})
    assert "needs data.columns" in refusal("bert-base", TABLE)


def test_values_keep_their_types_and_defaults_follow_the_kind():
    recipe = load_recipe("gpt", {"model.d_ff": 512, "optimizer.lr": 1}).recipe
    assert (recipe.model.d_ff, recipe.optimizer.lr) == (512, 1.0)
    assert isinstance(recipe.optimizer.lr, float)
    assert "model.d_ff = '512' is not a whole number" in refusal("gpt", {"model.d_ff": "512"})
    # Adafactor clips no gradient where a recipe clips Adam's, and has a rate of its own.
    optimizer = load_recipe("gpt", ["optimizer.kind=adafactor"]).recipe.optimizer
    assert (optimizer.clip_norm, optimizer.lr) == (0.0, 0.01)


def test_the_last_settings_before_a_contradiction_load(tmp_path):
    load_recipe("albert-small", {"data.context": 5, "objective.p_mask": 0.9})
    load_recipe("albert-small", {"objective.pairs": "sentences", "objective.sentence": "nsp"})
    load_recipe("gpt", {"optimizer.warmup_steps": 8, "train.steps": 8, "model.max_len": 256})
    (tmp_path / "recipe.toml").write_text("[model]\nn_layers = 4\n")
    start = {"init.run": str(tmp_path), "init.freeze": ("layers:4", "embeddings")}
    frozen = load_recipe("gpt", start).recipe.init.frozen
    assert (frozen.embeddings, frozen.n_layers) == (True, 4)


HUGE = int("7" * 1000) ** 5
LONG = {
    "<5,000 digits>": HUGE, "<minus 5,000 digits>": -HUGE, "<100,000 letters>": "x" * 100_000,
    "<5,000 figures>": "9" * 5000, "<5,000 brackets>": "[" * 5000,
    "<100,000 entries>": ["attention"] * 100_000,
}  # fmt: skip
"""Values that are drawn by name, so that what is drawn can be printed."""
HUGE_INTEGERS = [0, 1, 2**31, 2**53, 10**12, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, 10**400]
NUMBERS = st.integers() | st.floats() | st.sampled_from(
    [*HUGE_INTEGERS, *(-each for each in HUGE_INTEGERS), 1e308, -1e308, 5e-324, 1e-12,
     float("nan"), float("inf"), -float("inf")]
)  # fmt: skip
ODD = ["", "\0", "\udcff", "a/\ud800", "~nobody-here/x", "1e999999999/1/1", "ffn*1e308"]
TEXTS = st.text(max_size=6) | st.sampled_from([*ODD, *LONG])
SCALARS = NUMBERS | TEXTS | st.booleans() | st.none()
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.just([[[[[[["x"]]]]]]])
VALUES |= st.dictionaries(TEXTS, SCALARS, max_size=3)
RECIPES = st.sampled_from(("gpt", "modern", "albert-base", "iwslt14-small-transformer"))
SMALL = Resources("cpu", memory_bytes=1 << 30, disk_bytes=1 << 30, has_fast_bfloat16=False, cores=2)


def expand(value):
    if isinstance(value, dict):
        return {key * 10_000 if key in LONG else key: expand(each) for key, each in value.items()}
    if isinstance(value, list):
        return [expand(each) for each in value]
    return LONG.get(value, value) if isinstance(value, str) else value


def check_planned_or_refused(name, overrides):
    try:
        loaded = load_recipe(name, expand(overrides))
        plan = plan_to_json(make_plan([Arm(name, loaded, {})], "none", SMALL), SMALL, 1)
    except SublayerError as refused:
        said = str(refused)
    else:
        said = json.dumps(plan, allow_nan=False)
        assert plan["arms"][0]["parameters"]["total"] > 0
    assert 0 < len(said) < 2000


FIELDS = st.sampled_from([*keys(), "title", "", "\0", "\udcff", "model.", "a" * 10_000])


@examples(3000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RECIPES, st.dictionaries(FIELDS, NUMBERS | VALUES, min_size=1, max_size=4))
def test_a_recipe_with_any_values_is_planned_or_refused_in_a_line(name, overrides):
    check_planned_or_refused(name, overrides)


@settings(max_examples=100, deadline=None)
@given(name=RECIPES, key=st.sampled_from(keys()), data=st.data())
def test_every_bound_itself_is_planned_or_refused_in_a_line(name, key, data):
    table, _, field = key.partition(".")
    kinds = [cls.model_fields for cls in TABLES[table].values() if field in cls.model_fields]
    rules = [rule for each in kinds for rule in each[field].metadata]
    found = {getattr(rule, side, None) for rule in rules for side in ("ge", "gt", "le", "lt")}
    if bounds := sorted(found - {None}):
        check_planned_or_refused(name, {key: data.draw(st.sampled_from(bounds))})


@settings(max_examples=200)
@given(value=VALUES | st.dictionaries(st.text(max_size=3), VALUES, max_size=3))
def test_any_value_is_shown_in_a_short_line(value):
    shown = show(expand(value))
    assert len(shown) <= LONGEST_VALUE and "\n" not in shown
    assert show([HUGE]) == "[a whole number of 5,000 digits]"


def numbers(annotation, metadata=()):
    if get_origin(annotation) is Annotated:
        yield from numbers(get_args(annotation)[0], (*metadata, *get_args(annotation)[1:]))
    elif get_origin(annotation) in (Union, types.UnionType, tuple):
        for each in get_args(annotation):
            yield from numbers(each, metadata)
    elif annotation in (int, float):
        yield metadata


def unbounded(*tables):
    """Give the fields that take a number without a least or without a greatest value."""
    found = []
    for table, name, info in ((t, *field) for t in tables for field in t.model_fields.items()):
        for metadata in numbers(info.annotation, tuple(info.metadata)):
            rules = [rule for each in metadata for rule in (each, *getattr(each, "metadata", ()))]
            sides = {side for rule in rules for side in ("ge", "gt", "le", "lt")
                     if getattr(rule, side, None) is not None}  # fmt: skip
            if not (sides & {"ge", "gt"} and sides & {"le", "lt"}):
                found.append(f"{table.__name__}.{name}")
    return found


def test_every_number_of_a_recipe_or_a_study_has_a_least_and_a_greatest_value():
    class Loose(Table):
        size: int = 1
        pair: tuple[Annotated[float, "no rule"], int] | None = None

    assert unbounded(Loose) == ["Loose.size", "Loose.pair", "Loose.pair"]
    kinds = [cls for kinds in TABLES.values() for cls in kinds.values()]
    assert unbounded(Recipe, ArmTable, ScaleTable, StudyFile, *kinds) == []
