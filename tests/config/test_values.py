"""Values and contradictions refused by field; every number has bounds."""

import json
import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sublayer.config.fields.catalog import TABLES, keys
from sublayer.config.fields.messages import LONGEST_VALUE, show
from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.overrides import override_layer
from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.config.recipe import Recipe
from sublayer.config.table import Table
from sublayer.errors import ConfigError, SublayerError
from sublayer.study.arms import Arm
from sublayer.study.budget.plan import make_plan
from sublayer.study.budget.plan_json import plan_to_json
from sublayer.study.budget.resources import Resources
from sublayer.study.study_file import ArmTable, ScaleTable, StudyFile
from tests.breadth import examples, rows


def optimizers_with(field: str) -> str:
    return " or ".join(kind for kind, table in OPTIMIZERS.items() if field in table.model_fields)


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        load_recipe("gpt", overrides)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("override", "rule"),
    [
        ("optimizer.lr=true", "is not a number"),
        ("optimizer.lr=0", "must be more than 0"),
        ("model.n_layers=2.0", "is not a whole number"),
        ("model.n_layers=0", "must be at least 1"),
        ("optimizer.warmup_share=1.5", "must be at most 1"),
        ("model.norm=3", "is not one of layer, rms, none"),
        ("model.kind=encodr", "did you mean encoder?"),
        ("model.block=[1]", "is not text or a list of texts"),
        ("data.path=1984", "put it in quotes"),
        ("data.path={a = 'b'}", "is not text, a list of texts or {name = weight}"),
        ("optimizer.betas=[0.9, 'a']", "is not a list of 2 numbers"),
        ("optimizer.betas=[0.9, 1.0]", "must be less than 1"),
        ("model.sentence_classes=3", "is not one of 0, 1, 2"),
    ],
)
def test_a_wrong_value_is_refused_by_field_and_rule(override: str, rule: str):
    message = refusal(override)
    assert message.startswith(override.partition("=")[0] + " = ")
    assert rule in message


@pytest.mark.parametrize(
    ("kind", "override"),
    [
        ("adamw", "momentum=0.5"),
        ("adamw", "min_factored=8"),
        ("adafactor", "bias_correction=false"),
        ("sgd", "parameter_scale=true"),
    ],
)
def test_a_field_of_other_optimizers_is_refused_by_their_names(kind: str, override: str):
    field = override.partition("=")[0]
    assert refusal(f"optimizer.kind={kind}", f"optimizer.{override}") == (
        f"optimizer.{field} is a field of optimizer.kind = {optimizers_with(field)}, not of {kind}"
    )


def test_adafactor_clips_no_gradient_where_a_recipe_clips_adams():
    clipped = load_recipe("gpt", ["optimizer.clip_norm=0.5"]).recipe
    assert clipped.optimizer.clip_norm == 0.5
    recipe = load_recipe("gpt", ["optimizer.kind=adafactor"]).recipe
    assert recipe.optimizer.clip_norm == 0.0
    assert recipe.optimizer.lr == 0.01


def test_numbers_and_values_of_a_mapping_keep_their_types():
    recipe = load_recipe("gpt", {"model.d_ff": 512, "optimizer.lr": 1}).recipe
    assert recipe.model.d_ff == 512
    assert isinstance(recipe.optimizer.lr, float)
    with pytest.raises(ConfigError, match=r"model\.d_ff = '512' is not a whole number"):
        load_recipe("gpt", {"model.d_ff": "512"})


def test_a_long_value_is_cut_short_and_stays_on_one_line():
    assert len(refusal(f"model.norm={'x' * 1000}")) < 200
    refusal("model.norm=a\nb")


@pytest.mark.parametrize(
    ("overrides", "fields"),
    [
        (["model.positions=sinusoidal", "model.d_model=7", "model.n_heads=1"], ["model.d_model"]),
        (["model.norm=none", "model.final_norm=affine"], ["model.final_norm", "model.norm"]),
        (["model.share=all", "model.share_groups=7"], ["model.share_groups", "model.n_layers = 6"]),
        (["model.max_len=100", "data.context=101"], ["model.max_len = 100", "data.context=100"]),
        (["optimizer.warmup_steps=9", "train.steps=8"], ["optimizer.warmup_steps = 9", "8 steps"]),
        (
            ["optimizer.schedule=inverse-sqrt", "optimizer.warmup_steps=0", "train.steps=3"],
            ["optimizer.schedule = inverse-sqrt", "optimizer.warmup_steps"],
        ),
        (
            [
                "optimizer.schedule=linear",
                "optimizer.warmup=albert",
                "optimizer.warmup_steps=0",
                "train.steps=3",
            ],
            ["optimizer.warmup = albert", "optimizer.warmup_steps"],
        ),
    ],
)
def test_a_contradiction_is_refused_and_names_both_fields(overrides: list[str], fields: list[str]):
    message = refusal(*overrides)
    assert all(field in message for field in fields)


def test_a_warm_up_that_a_schedule_needs_is_derived_for_a_short_run_too():
    load_recipe("gpt", ["optimizer.schedule=inverse-sqrt", "train.steps=3"])


HUGE = int("7" * 1000) ** 5
LONG: dict[str, Any] = {
    "<5,000 digits>": HUGE,
    "<minus 5,000 digits>": -HUGE,
    "<100,000 letters>": "x" * 100_000,
    "<5,000 figures>": "9" * 5000,
    "<5,000 brackets>": "[" * 5000,
    "<100,000 entries>": ["attention"] * 100_000,
}
"""Values that are drawn by name, so that what is drawn can be printed."""
HUGE_INTEGERS = [0, 1, 2**31, 2**53, 10**12, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, 10**400]
NUMBERS: st.SearchStrategy[Any] = (
    st.sampled_from([*HUGE_INTEGERS, *(-each for each in HUGE_INTEGERS)])
    | st.integers()
    | st.floats()
    | st.sampled_from([1e308, -1e308, 5e-324, 1e-12, float("nan"), float("inf"), -float("inf")])
)
TEXTS = st.text(max_size=6) | st.sampled_from(
    ["", "\0", "\udcff", "a/\ud800", "~nobody-here/x", "1e999999999/1/1", "ffn*1e308", *LONG]
)
SCALARS = NUMBERS | TEXTS | st.booleans() | st.none()
VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=3),
    st.dictionaries(TEXTS, SCALARS, max_size=3),
    st.just([[[[[[["x"]]]]]]]),
)
SMALL = Resources("cpu", memory_bytes=1 << 30, disk_bytes=1 << 30, has_fast_bfloat16=False, cores=2)
RECIPES = ("gpt", "modern", "bert-base", "albert-base", "iwslt14-small-transformer")


def numbers(annotation: Any, metadata: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the constraints on each number that an annotation takes."""
    if get_origin(annotation) is Annotated:
        yield from numbers(get_args(annotation)[0], (*metadata, *get_args(annotation)[1:]))
    elif get_origin(annotation) in (Union, types.UnionType, tuple):
        for each in get_args(annotation):
            yield from numbers(each, metadata)
    elif annotation in (int, float):
        yield metadata


def is_bounded(metadata: tuple[Any, ...]) -> bool:
    rules = [rule for each in metadata for rule in (each, *getattr(each, "metadata", ()))]

    def has(*names: str) -> bool:
        return any(getattr(rule, name, None) is not None for rule in rules for name in names)

    return has("ge", "gt") and has("le", "lt")


TABLE_CLASSES = [
    Recipe,
    ArmTable,
    ScaleTable,
    StudyFile,
    *(cls for kinds in TABLES.values() for cls in kinds.values()),
]


@pytest.mark.parametrize("table", rows(TABLE_CLASSES, 10), ids=lambda table: table.__name__)
def test_every_number_of_a_recipe_or_a_study_has_a_least_and_a_greatest_value(
    table: type[Table],
) -> None:
    unbounded = [
        name
        for name, info in table.model_fields.items()
        for metadata in numbers(info.annotation, tuple(info.metadata))
        if not is_bounded(metadata)
    ]
    assert unbounded == []


def test_the_walk_over_numbers_finds_what_has_no_bounds() -> None:
    class Loose(Table):
        size: int = 1
        pair: tuple[Annotated[float, "no rule"], int] | None = None

    found = [
        metadata for info in Loose.model_fields.values() for metadata in numbers(info.annotation)
    ]
    assert [is_bounded(metadata) for metadata in found] == [False, False, False]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(RECIPES),
    overrides=st.dictionaries(
        st.sampled_from([*keys(), "title"]) | TEXTS, VALUES, min_size=1, max_size=3
    ),
)
def test_a_recipe_with_any_values_is_planned_or_refused_in_a_line(
    name: str, overrides: dict[str, Any]
) -> None:
    check_planned_or_refused(name, overrides)


@examples(3000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(RECIPES),
    overrides=st.dictionaries(st.sampled_from(keys()), NUMBERS | VALUES, min_size=1, max_size=4),
)
def test_many_more_recipes_are_planned_or_refused_in_a_line(
    name: str, overrides: dict[str, Any]
) -> None:
    check_planned_or_refused(name, overrides)


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(RECIPES), key=st.sampled_from(keys()), data=st.data())
def test_every_bound_itself_is_planned_or_refused_in_a_line(
    name: str, key: str, data: st.DataObject
) -> None:
    table, _, field = key.partition(".")
    bounds = {
        getattr(rule, side)
        for cls in TABLES[table].values()
        if field in cls.model_fields
        for rule in cls.model_fields[field].metadata
        for side in ("ge", "gt", "le", "lt")
        if getattr(rule, side, None) is not None
    }
    if bounds:
        check_planned_or_refused(name, {key: data.draw(st.sampled_from(sorted(bounds)))})


def expand(value: Any) -> Any:
    if isinstance(value, dict):
        return {key * 10_000 if key in LONG else key: expand(each) for key, each in value.items()}
    if isinstance(value, list):
        return [expand(each) for each in value]
    return LONG.get(value, value) if isinstance(value, str) else value


def check_planned_or_refused(name: str, overrides: dict[str, Any]) -> None:
    try:
        loaded = load_recipe(name, expand(overrides))
        plan = plan_to_json(make_plan([Arm(name, loaded, {})], "none", SMALL), SMALL, 1)
    except SublayerError as refused:
        said = str(refused)
    else:
        said = json.dumps(plan, allow_nan=False)
        assert plan["arms"][0]["parameters"]["total"] > 0
    assert 0 < len(said) < 2000


@settings(max_examples=200)
@given(value=VALUES | st.dictionaries(st.text(max_size=3), VALUES, max_size=3))
def test_any_value_is_shown_in_a_short_line(value: Any) -> None:
    shown = show(expand(value))
    assert len(shown) <= LONGEST_VALUE
    assert "\n" not in shown


def test_numbers_of_thousands_of_digits_are_shown_by_their_length() -> None:
    assert show(HUGE) == "a whole number of 5,000 digits"
    assert show(-HUGE) == "a whole number of 5,000 digits"
    assert show([HUGE]) == "[a whole number of 5,000 digits]"


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ({"model.n_layers": 10**12}, r"model\.n_layers = 1000000000000"),
        ({"train.seed": 2**63}, r"train\.seed .* at most 9,223,372,036,854,775,807"),
        ({"optimizer.lr": 1e308}, r"optimizer\.lr"),
        ({"data.path": "a\0b"}, r"data\.path"),
        ({"data.path": {"a\udcff": 1.0}}, r"data\.path"),
        ({"data.path": {"a": 1e308}}, r"weight 1e\+308 of 'a'"),
        ({"model.block": ["ffn*1e308"]}, r"model\.block"),
        ({"model.block": ["ffn"] * 101}, r"model\.block has 101 entries"),
        (["model.n_layers=" + "9" * 5000], r"model\.n_layers"),
    ],
    ids=range(9),
)
def test_a_value_out_of_bounds_is_refused_by_name(setting: Any, field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        load_recipe("gpt", setting)


def test_a_text_of_brackets_is_a_text() -> None:
    assert load_recipe("gpt", ["data.path=" + "[" * 5000]).recipe.data.path == "[" * 5000


def test_a_key_of_thousands_of_parts_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "{" + "a." * 30_000 + "b = 1.0}"
    monkeypatch.delattr("sublayer.files.parsing.tomllib.loads")
    assert override_layer([f"data.path={text}"], "command line").values == {"data.path": text}
