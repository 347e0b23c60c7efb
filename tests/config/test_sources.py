"""Recipes of files and runs, and their paths."""

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from sublayer.config.data import DataConfig
from sublayer.config.fields.catalog import HEADINGS, TABLES
from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.overrides import override_layer
from sublayer.config.layering.paths import absolute_paths
from sublayer.config.layering.run_recipe import dump_recipe, read_recipe, read_run_recipe
from sublayer.config.layering.sources import find_source, read_layers, shipped_recipes
from sublayer.config.recipe import Recipe
from sublayer.errors import ConfigError


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_recipes_are_found_by_name_file_and_run(tmp_path: Path):
    def named(*given: object) -> tuple[str, str]:
        source = find_source(*given)  # type: ignore[arg-type]
        return source.name, source.origin

    path = write(tmp_path / "mine.toml", "")
    assert named(path) == ("mine", f"recipe {path}")
    file = write(tmp_path / "a" / "recipe.toml", "derived = []")
    assert named("a", tmp_path) == ("a", "run a")
    assert find_source(file).name == "a"
    write(tmp_path / "gpt" / "recipe.toml", "")  # a shipped recipe comes first
    assert named("gpt", tmp_path) == named("gpt") == ("gpt", "recipe gpt")
    assert "gpt" in shipped_recipes()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("gtp", "did you mean gpt?"),
        ("zzzzzzzz", "the recipes are "),
        ("none.toml", "none.toml"),
        ("model.d_ff=512", "gpt model.d_ff=512"),
        ("/", r"recipe\.toml"),
    ],
)
def test_an_unknown_recipe_is_refused(source: str, says: str):
    with pytest.raises(ConfigError, match=says):
        find_source(source)


def test_extended_recipes_come_base_first(tmp_path: Path):
    write(tmp_path / "base.toml", 'extends = "gpt"\n[model]\nn_layers = 2\nd_ff = 8')
    path = write(tmp_path / "top.toml", 'extends = "base.toml"\n[model]\nd_ff = 16')
    layers = read_layers(find_source(path))
    assert [layer.origin for layer in layers] == [
        "recipe gpt",
        "recipe base.toml",
        f"recipe {path}",
    ]
    loaded = load_recipe(path)
    assert (loaded.recipe.model.n_layers, loaded.recipe.model.d_ff) == (2, 16)
    assert loaded.origins["model.d_ff"] == f"recipe {path}"
    assert loaded.origins["model.n_layers"] == "recipe base.toml"


@pytest.mark.parametrize("other", ["a.toml", "b.toml"])
def test_recipes_that_extend_each_other_are_refused(tmp_path: Path, other: str):
    path = write(tmp_path / "a.toml", f'extends = "{other}"')
    write(tmp_path / "b.toml", 'extends = "a.toml"')
    with pytest.raises(ConfigError, match="extends = 'a' goes in a circle"):
        load_recipe(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[model\n", "is not TOML"),
        ("[modle]\n", "did you mean [model]?"),
        ("model = 3\n", "model = 3"),
        ("d_ff = 3\n", "did you mean model.d_ff?"),
        ("extends = 3\n", "extends = 3"),
        ('extends = "gptt"', "did you mean gpt?"),
        ("title = 3\n", "title = 3"),
        ("[model]\nlr.rate = 3\n", "model.lr"),
        ("title = '\udcff'", "is not UTF-8 text"),
    ],
)
def test_a_malformed_recipe_is_refused_by_file(tmp_path: Path, text: str, says: str):
    path = tmp_path / "x.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError) as error:
        load_recipe(path)
    assert says in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1_000", 1000),
        ("3e-4", 3e-4),
        ("true", True),
        ("True", "True"),
        ("'relu'", "relu"),
        ('"1984"', "1984"),
        ("a=b", "a=b"),
        ('["ffn*0.5", "attention"]', ["ffn*0.5", "attention"]),
        ("{enwik8 = 1.0}", {"enwik8": 1.0}),
        ("2020-01-31", "2020-01-31"),
        ("", ""),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_an_override_is_a_toml_value_or_else_a_bare_text(text: str, value: object):
    assert override_layer([f"key={text}"], "command line").values == {"key": value}


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["model.d_ff"], "write key=value"),
        (["=3"], "write key=value"),
        (["model.d_ff=3", "model.d_ff=5"], r"model\.d_ff is given twice"),
    ],
)
def test_an_override_without_key_or_value_or_given_twice_is_refused(texts: list[str], says: str):
    with pytest.raises(ConfigError, match=says):
        override_layer(texts, "command line")


def test_the_headings_of_a_recipe_are_not_those_of_what_extends_it(tmp_path):
    path = tmp_path / "short.toml"
    path.write_text('extends = "gpt"\ntitle = "Short"\n[train]\nsteps = 20\n')
    recipe = load_recipe(path).recipe
    assert (recipe.title, recipe.source, recipe.cost) == ("Short", "", "")


@pytest.mark.parametrize(
    ("tokenizer", "is_path"), [("tokenizer.json", True), ("deep/code", True), ("moses-bpe", False)]
)
def test_the_path_of_a_tokenizer_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: str, is_path: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = absolute_paths(load_recipe("gpt", [f"data.tokenizer={tokenizer}"]).recipe)
    assert recipe.data.tokenizer == (str(tmp_path / tokenizer) if is_path else tokenizer)


def test_paths_are_made_absolute_and_data_sets_of_the_hub_and_urls_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = DataConfig(
        path=("a/../b.txt", "hub:owner/name:config@train", "https://owner.org/a.txt"),
        valid_path="hub:owner/other",
    )
    found = absolute_paths(Recipe(data=data)).data
    assert found.path == (
        str(Path.cwd() / "b.txt"),
        "hub:owner/name:config@train",
        "https://owner.org/a.txt",
    )
    assert found.valid_path == "hub:owner/other"


def test_a_corpus_that_is_scored_is_no_path():
    given = ["data.test_path=albert-intrinsic", "data.valid_path=squad-dev", "data.path=squad-dev"]
    found = absolute_paths(load_recipe("albert-small", given).recipe).data
    assert (found.test_path, found.valid_path) == ("albert-intrinsic", "squad-dev")
    assert found.path == str(Path("squad-dev").absolute())


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
