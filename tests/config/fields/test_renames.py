"""Renamed fields: users are told the new name, what the program wrote is read by it."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from sublayer.config.fields.catalog import declarations
from sublayer.config.fields.renames import RENAMED, with_current_names
from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.run_recipe import read_recipe, read_run_recipe
from sublayer.errors import ConfigError
from sublayer.model.model_folder import load_weights
from sublayer.study.definition import load_study
from tests.breadth import rows

PROJECT = Path(__file__).resolve().parents[3]
OLD_RUNS = PROJECT / "tests" / "golden" / "old" / "ba7f49d"
RECORDED = sorted(PROJECT.glob("records/**/*.toml"))


@pytest.mark.parametrize("old", rows(RENAMED, 2))
def test_an_old_name_leads_to_a_field_of_its_table(old: str) -> None:
    assert declarations(old) == {}
    assert declarations(RENAMED[old]) != {}
    assert RENAMED[old].startswith(f"{old.partition('.')[0]}.")


@pytest.mark.parametrize("old", rows(RENAMED, 1))
def test_a_user_is_told_the_new_name_in_one_line(old: str, tmp_path: Path) -> None:
    table, _, name = old.partition(".")
    told = f"{old} is now called {RENAMED[old]}: write that"
    with pytest.raises(ConfigError) as given:
        load_recipe("gpt", [f"{old}=2"])
    assert str(given.value) == told
    file = tmp_path / "mine.toml"
    file.write_text(f'extends = "gpt"\n[{table}]\n{name} = 2\n')
    with pytest.raises(ConfigError) as written:
        load_recipe(file)
    assert str(written.value) == f"{told} (recipe {file})"


def test_so_is_who_varies_it() -> None:
    with pytest.raises(ConfigError, match=r"objective\.mask_most is now called objective\.max_pr"):
        load_study("bert-base", vary_texts=["objective.mask_most=10,20"])


def test_the_recipe_of_an_old_run_is_read_by_the_current_names() -> None:
    masked = OLD_RUNS / "masked" / "finished"
    file = masked / "recipe.toml"
    written = tomllib.loads(file.read_text())["objective"]
    old = {"mask_most": 4, "ngram_longest": 2, "alone": "negative"}
    new = {"max_predictions": 4, "max_ngram": 2, "single_sentence": "negative"}
    assert old.items() <= written.items()
    for recipe in (read_run_recipe(file), load_recipe(masked).recipe):
        assert new.items() <= recipe.objective.model_dump().items()
    pairs = read_run_recipe(OLD_RUNS / "translation" / "finished" / "recipe.toml").data
    assert pairs.max_words == 12
    assert pairs.max_words_ratio == 3.0


def test_what_was_derived_under_an_old_name_is_derived_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RENAMED, "model.width", "model.d_ff")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('derived = ["model.width"]\n[model]\nwidth = 24\nd_model = 8\n')
    assert load_recipe(tmp_path).recipe.model.d_ff is None
    assert read_recipe(recipe).model.d_ff == 24


def test_an_old_model_folder_is_read_by_the_current_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RENAMED, "model.width", "model.d_ff")
    folder = tmp_path / "model"
    shutil.copytree(OLD_RUNS / "causal" / "finished" / "model", folder)
    file = folder / "config.json"
    described = json.loads(file.read_text())
    model = described["model"]
    model["width"] = model.pop("d_ff")
    file.write_text(json.dumps(described))
    config, _ = load_weights(folder)
    assert config.d_ff == 16


def test_an_old_name_beside_the_new_one_is_not_taken_for_it(tmp_path: Path) -> None:
    both = {"objective.mask_most": 3, "objective.max_predictions": 4}
    assert with_current_names(both) == both
    (tmp_path / "recipe.toml").write_text(
        'derived = []\n[objective]\nkind = "masked"\nmask_most = 3\nmax_predictions = 4\n'
    )
    with pytest.raises(ConfigError, match="mask_most is now called"):
        load_recipe(tmp_path)


@pytest.mark.parametrize(
    "path", rows(RECORDED, 4), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_every_recipe_of_a_record_is_read(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    table = tomllib.loads(text)
    recipes = table["asked"]["recipes"].values() if "asked" in table else [text]
    assert recipes
    gpt = load_recipe("gpt").recipe
    file = tmp_path / "recipe.toml"
    for recipe in recipes:
        file.write_text(recipe)
        assert read_recipe(file) != gpt
        load_recipe(tmp_path)
