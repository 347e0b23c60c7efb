"""Recipes of files and runs, and their paths."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublayer.config.data import DataConfig
from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.paths import absolute_paths
from sublayer.config.layering.run_recipe import dump_recipe, read_recipe, read_run_recipe
from sublayer.config.layering.sources import find_source, read_layers
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


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("zzzzzzzz", "the recipes are "),
        ("model.d_ff=512", "gpt model.d_ff=512"),
        ("/", r"recipe\.toml"),
    ],
)
def test_an_unknown_recipe_is_refused(source: str, says: str):
    with pytest.raises(ConfigError, match=says):
        find_source(source)


def test_extended_recipes_come_base_first(tmp_path: Path):
    base = 'extends = "gpt"\ntitle = "Base"\nsource = "A book"\n[model]\nn_layers = 2\nd_ff = 8'
    write(tmp_path / "base.toml", base)
    top = 'extends = "base.toml"\ntitle = "Top"\n[model]\nd_ff = 16'
    path = write(tmp_path / "top.toml", top)
    origins = [layer.origin for layer in read_layers(find_source(path))]
    assert origins == ["recipe gpt", "recipe base.toml", f"recipe {path}"]
    loaded = load_recipe(path)
    assert (loaded.recipe.model.n_layers, loaded.recipe.model.d_ff) == (2, 16)
    assert loaded.origins["model.d_ff"] == f"recipe {path}"
    assert loaded.origins["model.n_layers"] == "recipe base.toml"
    # Headings are not those of what it extends.
    assert (loaded.recipe.title, loaded.recipe.source) == ("Top", "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[model\n", "is not TOML"),
        ("[modle]\n", "did you mean [model]?"),
        ("model = 3\n", "model = 3"),
        ("d_ff = 3\n", "did you mean model.d_ff?"),
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


def test_paths_are_made_absolute_and_names_of_data_sets_and_urls_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hub, url = "hub:owner/name:config@train", "https://owner.org/a.txt"
    data = DataConfig(
        path=("a/../b.txt", hub, url), valid_path="squad-dev", test_path="albert-intrinsic"
    )
    found = absolute_paths(Recipe(data=data)).data
    assert found.path == (str(tmp_path / "b.txt"), hub, url)
    # Corpora that are scored, and no paths of texts.
    assert (found.valid_path, found.test_path) == ("squad-dev", "albert-intrinsic")
    trained = absolute_paths(Recipe(data=DataConfig(path="squad-dev"))).data
    assert trained.path == str(tmp_path / "squad-dev")
    tokenizers = {
        name: absolute_paths(Recipe(data=DataConfig(tokenizer=name))).data.tokenizer
        for name in ("tokenizer.json", "deep/code", "moses-bpe")
    }
    assert tokenizers == {
        "tokenizer.json": str(tmp_path / "tokenizer.json"),
        "deep/code": str(tmp_path / "deep" / "code"),
        "moses-bpe": "moses-bpe",
    }


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
PATHS = TEXT.filter(bool) | st.lists(TEXT, min_size=1, max_size=3).map(tuple)
NUMBER = st.floats(1e-9, 1e3)
DRAWN: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "model": {
        "swish_beta": st.just("learned") | st.floats(-1e6, 1e6),
        "norm_eps": st.floats(1e-300, 1, exclude_max=True),
        "block": st.sampled_from(["macaron", ("ffn*0.25", "attention")]),
    },
    "data": {
        "corpus": st.sampled_from([None, "python", ("python", "enwik8")]),
        "path": PATHS | st.dictionaries(TEXT.filter(bool), NUMBER, min_size=1),
        "valid_path": st.none() | TEXT.filter(bool),
        "watch": st.sampled_from([(), ("race-dev",), {"squad": "dev.json", "own": "a/b.txt"}]),
        "tasks": st.sampled_from([None, ("sst2", "cola"), {"sst2": 0.5, "cola": 2.0}]),
        "columns": st.sampled_from([None, {"text": "a", "choices": ("b", "c"), "label": "d"}]),
    },
    "optimizer": {"lr": NUMBER, "betas": st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2)},
    "train": {
        "keep_steps": st.lists(st.integers(1, 10**6), unique=True, max_size=3).map(tuple),
        "probes": st.sampled_from([(), ("sst2",), {"sst2": "glue", "race": "a b"}]),
        "seed": st.integers(0, 2**63 - 1),
    },
    "init": {"freeze": st.sampled_from([(), "embeddings", ("embeddings", "layers:2")])},
}
"""Of every type of value what a file might alter."""


@settings(max_examples=60)
@given(
    name=st.sampled_from(("gpt", "bert-base", "multi30k-tiny")),
    title=TEXT,
    drawn=st.fixed_dictionaries(
        {table: st.fixed_dictionaries({}, optional=fields) for table, fields in DRAWN.items()}
    ),
    derived=st.lists(st.sampled_from(["train.steps", "model.d_ff"]), unique=True),
)
def test_a_written_recipe_is_read_back_exactly(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    title: str,
    drawn: dict[str, dict[str, Any]],
    derived: list[str],
):
    content = load_recipe(name).recipe.model_dump()
    content |= {table: {**content[table], **fields} for table, fields in drawn.items()}
    if not isinstance(content["data"]["path"], str | tuple | None):
        content["data"]["corpus"] = None
    recipe = Recipe.model_validate({**content, "title": title})
    path = tmp_path_factory.mktemp("run") / "recipe.toml"
    path.write_text(dump_recipe(recipe, derived), encoding="utf-8")
    assert read_recipe(path) == recipe


def write_run(folder: Path, recipe: Recipe, *derived: str) -> Path:
    folder.mkdir()
    (folder / "recipe.toml").write_text(dump_recipe(recipe, derived), encoding="utf-8")
    return folder


def test_a_run_as_a_base_gives_its_recipe_again_and_what_it_set_counts(tmp_path: Path):
    given = ["model.share=all", "model.share_groups=2", "model.block=macaron"]
    given += ["train.batch_tokens=4096", "train.tokens=1e6", "optimizer.warmup_steps=3"]
    recipe = load_recipe("gpt", given).recipe
    folder = write_run(tmp_path / "a", recipe)
    assert load_recipe(folder).recipe == recipe
    (note,) = load_recipe(folder, ["model.share=none"]).notes
    assert note.startswith(f"model.share_groups = 2 of run {folder} has no effect")
    # Its defaults do not count as set.
    loaded = load_recipe(folder, ["model.norm=none", "init.run=x"])
    assert loaded.origins["model.rotary_base"] == "default"
    assert loaded.origins["train.tokens"] == f"run {folder}"


def test_values_that_a_run_derived_are_derived_anew_where_the_run_is_a_base(tmp_path: Path):
    given = load_recipe("gpt").recipe
    train = given.train.model_copy(update={"steps": 4213})
    folder = write_run(tmp_path / "a", given.model_copy(update={"train": train}), "train.steps")
    assert read_recipe(folder / "recipe.toml").train.steps == 4213
    based = load_recipe(folder).recipe.train
    assert (based.steps, based.minutes) == (None, given.train.minutes)
    other = load_recipe(folder, ["train.steps=5"]).recipe.train
    assert (other.steps, other.minutes) == (5, None)


def test_a_recipe_that_leaves_something_open_is_not_that_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_recipe(path)
    path.write_text(dump_recipe(load_recipe("gpt").recipe))
    with pytest.raises(ConfigError, match=r"toml is not the recipe of a run: d_head, d_ff,"):
        read_run_recipe(path)
