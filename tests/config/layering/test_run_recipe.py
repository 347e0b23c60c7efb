from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from sublayer.config.fields.catalog import HEADINGS, TABLES
from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.run_recipe import dump_recipe, read_recipe, read_run_recipe
from sublayer.config.recipe import Recipe
from sublayer.errors import ConfigError

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
LIMITED: dict[str, st.SearchStrategy[Any]] = {
    "data.corpus": st.sampled_from([None, "python", ("python", "enwik8")]),
    "data.path": st.none() | TEXT.filter(bool) | st.lists(TEXT, min_size=1, max_size=3).map(tuple),
    "model.swish_beta": st.just("learned") | st.floats(-1e6, 1e6),
    "objective.p_mask": st.floats(0.0, 0.5),
    "objective.p_random": st.floats(0.0, 0.5),
    "data.split": st.sampled_from([None, "90/5/5", "98/1/1"]),
    "data.watch": st.sampled_from([(), ("race-dev",), {"squad": "dev.json", "own": "a/b.txt"}]),
    "data.tasks": st.sampled_from([None, "sst2", ("sst2", "cola"), {"sst2": 0.5, "cola": 2.0}]),
    "data.columns": st.sampled_from(
        [None, {"text": "a", "label": "b"}, {"text": "a", "choices": ("b", "c"), "label": "d"}]
    ),
    "init.freeze": st.sampled_from([(), "embeddings", ("embeddings", "layers:2")]),
    "data.tokenizer": st.sampled_from(["bytes", "bpe", "my/tokenizer.json"]),
    "train.keep_steps": st.lists(st.integers(1, 10**6), unique=True, max_size=3).map(tuple),
    "train.probes": st.sampled_from(
        [(), ("sst2",), ("cola", "dpr"), {"sst2": "glue", "race": "a b"}]
    ),
}


def values(key: str, info: FieldInfo) -> st.SearchStrategy[Any]:
    if key in LIMITED:
        return LIMITED[key]
    limits = {
        name: getattr(rule, name)
        for rule in info.metadata
        for name in ("ge", "gt", "le", "lt")
        if hasattr(rule, name)
    }
    options = (
        get_args(info.annotation)
        if get_origin(info.annotation) not in (Literal, tuple, None)
        else [info.annotation]
    )
    return st.one_of([one_type(option, limits) for option in options])


def one_type(annotation: Any, limits: dict[str, Any]) -> st.SearchStrategy[Any]:
    if annotation is type(None):
        return st.none()
    if get_origin(annotation) is Literal:
        return st.sampled_from(get_args(annotation))
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        return st.integers(limits.get("ge", 0), limits["le"])
    if annotation is float:
        low, high = limits.get("ge", limits.get("gt", 0.0)), limits.get("le", limits.get("lt"))
        return st.floats(
            low,
            high,
            exclude_min="gt" in limits,
            exclude_max="lt" in limits,
            allow_nan=False,
            allow_infinity=False,
        )
    if annotation is str:
        return TEXT
    if "ge=0" in str(annotation):
        return st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2)
    return st.lists(TEXT, min_size=1, max_size=3).map(tuple)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    content: dict[str, Any] = {name: draw(TEXT) for name in HEADINGS}
    for table, kinds in TABLES.items():
        kind = draw(st.sampled_from(sorted(kinds)))
        fields = kinds[kind].model_fields
        content[table] = {
            name: draw(values(f"{table}.{name}", info)) for name, info in fields.items()
        }
    if not (content["data"]["path"] or content["data"]["corpus"]):
        content["data"]["corpus"] = "python"
    return Recipe.model_validate(content)


@settings(max_examples=60)
@given(
    recipe=recipes(), derived=st.lists(st.sampled_from(["train.steps", "model.d_ff"]), unique=True)
)
def test_a_written_recipe_is_read_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, recipe: Recipe, derived: list[str]
):
    path = tmp_path_factory.mktemp("run") / "recipe.toml"
    path.write_text(dump_recipe(recipe, derived), encoding="utf-8")
    assert read_recipe(path) == recipe


def write_run(folder: Path, recipe: Recipe, derived: list[str]) -> Path:
    folder.mkdir()
    (folder / "recipe.toml").write_text(dump_recipe(recipe, derived), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "overrides",
    [
        ["optimizer.kind=sgd", "optimizer.momentum=0.5"],
        ["model.share=all", "model.share_groups=2", "model.block=macaron"],
        ["train.batch_tokens=4096", "train.tokens=1e6", "optimizer.warmup_steps=3"],
    ],
)
def test_a_run_as_a_base_gives_the_same_recipe_again(tmp_path: Path, overrides: list[str]):
    recipe = load_recipe("gpt", overrides).recipe
    assert load_recipe(write_run(tmp_path / "a", recipe, [])).recipe == recipe


def test_what_a_run_derived_is_derived_anew_where_the_run_is_a_base(tmp_path: Path):
    given = load_recipe("gpt").recipe
    train = given.train.model_copy(update={"steps": 4213})
    folder = write_run(tmp_path / "a", given.model_copy(update={"train": train}), ["train.steps"])
    assert read_recipe(folder / "recipe.toml").train.steps == 4213
    based = load_recipe(folder).recipe
    assert based.train.steps is None
    assert based.train.minutes == given.train.minutes
    other = load_recipe(folder, ["train.steps=5"]).recipe.train
    assert (other.steps, other.minutes) == (5, None)


def test_defaults_in_a_run_do_not_count_as_set(tmp_path: Path):
    folder = write_run(tmp_path / "a", load_recipe("gpt").recipe, [])
    loaded = load_recipe(folder, ["model.norm=none", "optimizer.schedule=constant", "init.run=x"])
    assert loaded.origins["model.rotary_base"] == "default"
    assert loaded.origins["train.minutes"] == f"run {folder}"


def test_values_that_a_run_set_do_count(tmp_path: Path):
    given = load_recipe("gpt", ["model.share=all", "model.share_groups=2"]).recipe
    folder = write_run(tmp_path / "a", given, [])
    (note,) = load_recipe(folder, ["model.share=none"]).notes
    assert note.startswith(f"model.share_groups = 2 of run {folder} has no effect")


def test_a_recipe_that_leaves_something_open_is_not_that_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_recipe(path)
    path.write_text(dump_recipe(load_recipe("gpt").recipe))
    with pytest.raises(
        ConfigError, match=r"recipe\.toml is not the recipe of a run: d_head, d_ff,"
    ):
        read_run_recipe(path)
