from pathlib import Path

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.overrides import override_layer
from sublayer.config.layering.sources import find_source, read_layers, shipped_recipes
from sublayer.errors import ConfigError


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_shipped_recipe_is_found_by_name():
    source = find_source("gpt")
    assert (source.name, source.origin) == ("gpt", "recipe gpt")
    assert "gpt" in shipped_recipes()


def test_a_file_is_found_by_path_and_named_after_it(tmp_path: Path):
    path = write(tmp_path / "mine.toml", "")
    assert (find_source(path).name, find_source(path).origin) == ("mine", f"recipe {path}")


def test_a_run_is_found_by_its_folder(tmp_path: Path):
    write(tmp_path / "a" / "recipe.toml", "derived = []")
    assert (find_source("a", tmp_path).name, find_source("a", tmp_path).origin) == ("a", "run a")


def test_a_runs_recipe_given_as_a_file_is_named_after_the_run(tmp_path: Path):
    assert find_source(write(tmp_path / "a" / "recipe.toml", "")).name == "a"


def test_a_shipped_name_wins_over_a_folder_of_that_name(tmp_path: Path):
    write(tmp_path / "gpt" / "recipe.toml", "")
    assert find_source("gpt", tmp_path).origin == "recipe gpt"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("gtp", "did you mean gpt?"),
        ("zzzzzzzz", "the recipes are "),
        ("none.toml", "there is no recipe file none.toml"),
        ("model.d_ff=512", "name a recipe before it, such as gpt model.d_ff=512"),
    ],
)
def test_an_unknown_recipe_says_what_there_is(source: str, says: str):
    with pytest.raises(ConfigError) as error:
        find_source(source)
    assert says in str(error.value)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"is a folder without a recipe\.toml"):
        find_source(str(tmp_path))


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


def test_recipes_that_extend_each_other_are_an_error(tmp_path: Path):
    path = write(tmp_path / "a.toml", 'extends = "b.toml"')
    write(tmp_path / "b.toml", 'extends = "a.toml"')
    with pytest.raises(ConfigError, match="extends = 'a' goes in a circle"):
        load_recipe(path)


def test_a_recipe_that_extends_itself_is_an_error(tmp_path: Path):
    path = write(tmp_path / "a.toml", 'extends = "a.toml"')
    with pytest.raises(ConfigError, match="goes in a circle"):
        load_recipe(path)


def test_an_unknown_base_is_an_error_that_names_the_recipe(tmp_path: Path):
    path = write(tmp_path / "a.toml", 'extends = "gptt"')
    with pytest.raises(
        ConfigError, match=r"^extends: 'gptt' is not .*did you mean gpt\? \(recipe .*a\.toml\)$"
    ):
        load_recipe(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[model\n", "is not TOML"),
        ("[model]\nd_ff = 1\nd_ff = 2\n", "is not TOML"),
        ("[modle]\n", "[modle] is not a table of a recipe: did you mean [model]?"),
        ("model = 3\n", "model = 3 is not a table: write [model]"),
        ("d_ff = 3\n", "d_ff is not a field: did you mean model.d_ff?"),
        ("extends = 3\n", "extends = 3 is not the name of a recipe"),
        ("title = 3\n", "title = 3 is not text"),
        ("[model]\nlr.rate = 3\n", "model.lr is not a field"),
    ],
)
def test_a_malformed_recipe_is_a_one_line_error_that_names_the_file(
    tmp_path: Path, text: str, says: str
):
    path = write(tmp_path / "x.toml", text)
    with pytest.raises(ConfigError) as error:
        load_recipe(path)
    assert says in str(error.value)
    assert path in str(error.value)
    assert "\n" not in str(error.value)


def test_a_recipe_that_is_not_text_is_a_config_error(tmp_path: Path):
    (tmp_path / "x.toml").write_bytes(b"title = '\xff'")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load_recipe(tmp_path / "x.toml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("512", 512),
        ("1_000", 1000),
        ("3e-4", 3e-4),
        ("true", True),
        ("True", "True"),
        ("relu", "relu"),
        ("'relu'", "relu"),
        ('"1984"', "1984"),
        ("../a b", "../a b"),
        ("a=b", "a=b"),
        ('["ffn*0.5", "attention"]', ["ffn*0.5", "attention"]),
        ("{enwik8 = 1.0}", {"enwik8": 1.0}),
        ("a,b", "a,b"),
        ("2020-01-31", "2020-01-31"),
        ("07:30:00", "07:30:00"),
        ("", ""),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_an_override_is_a_toml_value_or_else_a_bare_text(text: str, value: object):
    assert override_layer([f"key={text}"], "command line").values == {"key": value}


@pytest.mark.parametrize("text", ["model.d_ff", "=3", ""])
def test_an_override_without_key_or_value_is_an_error(text: str):
    with pytest.raises(ConfigError, match="write key=value, such as"):
        override_layer([text], "command line")


def test_an_override_given_twice_is_an_error():
    with pytest.raises(ConfigError, match=r"model\.d_ff is given twice: 3 and 5"):
        override_layer(["model.d_ff=3", "model.d_ff=5"], "command line")


def test_the_headings_of_a_recipe_are_not_those_of_what_extends_it(tmp_path):
    path = tmp_path / "short.toml"
    path.write_text('extends = "gpt"\ntitle = "Short"\n[train]\nsteps = 20\n')
    recipe = load_recipe(path).recipe
    assert (recipe.title, recipe.source, recipe.cost) == ("Short", "", "")
