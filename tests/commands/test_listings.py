import json
from pathlib import Path
from typing import Any

import pytest

from sublayer.cli import main
from sublayer.config.catalog import keys
from sublayer.config.fields import json_schema
from sublayer.config.layers import dump_recipe, load_recipe
from sublayer.config.sources import shipped_recipes


def text(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(text(capsys, *words, "--json"))


def test_recipes_lists_what_is_shipped_in_a_line_each(capsys: pytest.CaptureFixture[str]):
    listed = answer(capsys, "recipes")["recipes"]
    assert [recipe["name"] for recipe in listed] == list(shipped_recipes())
    lines = text(capsys, "recipes").splitlines()[2:]
    assert [line.split()[0] for line in lines] == list(shipped_recipes())


def test_a_recipe_is_shown_resolved_with_the_origin_of_each_value(capsys: pytest.CaptureFixture[str]):
    fields = answer(capsys, "recipes", "modern", "model.n_heads=2")["fields"]
    assert fields["model.n_heads"] == {"value": 2, "origin": "command line", "is_used": True}
    assert fields["model.d_ff"] == {"value": 512, "origin": "recipe modern", "is_used": True}
    assert fields["model.d_model"] == {"value": 192, "origin": "recipe gpt", "is_used": True}
    assert fields["model.share_groups"] == {"value": 1, "origin": "default", "is_used": False}
    assert fields["model.d_head"]["value"] == 96
    assert fields["model.d_head"]["origin"].startswith("derived: d_model / n_heads")
    assert fields["train.steps"] == {"value": None, "origin": "derived: tokens, epochs or minutes", "is_used": True}
    assert set(fields) <= set(keys())


def test_the_table_has_a_line_for_each_value(capsys: pytest.CaptureFixture[str]):
    lines = [line.split() for line in text(capsys, "recipes", "modern", "model.n_heads=2").splitlines()]
    assert ["model.n_heads", "2", "command", "line"] in lines
    assert ["model.share_groups", "1", "default", "(no", "effect)"] in lines
    assert ["model.norm", "'rms'", "recipe", "modern"] in lines


def test_a_run_is_shown_as_a_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "recipe.toml").write_text(dump_recipe(load_recipe("macaron").recipe), encoding="utf-8")
    fields = answer(capsys, "recipes", str(tmp_path))["fields"]
    assert fields["model.block"] == {"value": "macaron", "origin": f"run {tmp_path}", "is_used": True}


def test_fields_lists_a_table_or_all(capsys: pytest.CaptureFixture[str]):
    listed = answer(capsys, "fields", "train")["fields"]
    assert [f"{field['table']}.{field['name']}" for field in listed] == list(keys("train"))
    out = text(capsys, "fields")
    assert all(f"\n{key}\n" in f"\n{out}" for key in keys())


def test_fields_says_unit_default_and_when_it_counts(capsys: pytest.CaptureFixture[str]):
    block = next(
        part for part in text(capsys, "fields", "model").split("\n\n") if part.startswith("model.share_groups")
    )
    words = " ".join(block.split())
    assert "in groups; default 1" in words
    assert "Counts where model.share is all or attention or ffn." in words


def test_the_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str]):
    assert json.loads(text(capsys, "fields", "--schema")) == json_schema()
    assert answer(capsys, "fields", "--schema") == json_schema()
