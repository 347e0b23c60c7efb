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
