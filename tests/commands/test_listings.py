import json
from pathlib import Path
from shutil import disk_usage
from typing import Any

import pytest

from sublayer.cli import main
from sublayer.config.catalog import keys
from sublayer.config.fields import json_schema
from sublayer.config.layers import dump_recipe, load_recipe
from sublayer.config.sources import shipped_recipes
from sublayer.study.definition import load_study, shipped_studies


def text(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(text(capsys, *words, "--json"))


def test_recipes_lists_what_is_shipped_in_a_line_each(capsys: pytest.CaptureFixture[str]):
    listed = answer(capsys, "recipes")
    assert [recipe["name"] for recipe in listed["recipes"]] == list(shipped_recipes())
    assert [study["name"] for study in listed["studies"]] == list(shipped_studies())
    tables = [part.splitlines()[2:] for part in text(capsys, "recipes").split("\n\n")[:2]]
    assert [[line.split()[0] for line in lines] for lines in tables] == [[*shipped_recipes()], [*shipped_studies()]]


def test_a_study_is_not_shown_as_a_recipe(capsys: pytest.CaptureFixture[str]):
    assert main(["recipes", "demo"]) == 2
    assert capsys.readouterr().err == "error: demo is a study: `sublayer plan demo` shows its arms\n"


def test_a_plan_counts_trials_and_looks_at_the_disk_that_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ("plan", "gpt", "--vary", "model.ffn=gelu,swiglu", "--tune", "optimizer.lr=1e-3,2e-3,4e-3", "--seeds", "2")
    planned = answer(capsys, *words, "--out", str(tmp_path / "not" / "yet"), "--device", "cuda:1")
    assert planned["total"]["runs"] == 2 * (3 + 1)
    assert planned["available"]["device"] == "cuda"
    assert planned["available"]["disk_bytes"] == pytest.approx(disk_usage(tmp_path).free, rel=0.1)
    assert main(["plan", "gpt", "--device", "tpu"]) == 2
    assert capsys.readouterr().err.startswith("error: device 'tpu' is not one of cpu, cuda")
    assert main(["plan", "gpt", "--tune", "optimizer.lr=1e-3"]) == 2
    assert capsys.readouterr().err.startswith("error: --tune 'optimizer.lr=1e-3' has one value")


def test_a_plan_of_a_study_says_what_its_verdicts_will_not_show(capsys: pytest.CaptureFixture[str]):
    caveats = load_study("demo").caveats
    assert answer(capsys, "plan", "demo")["notes"] == list(caveats)
    assert text(capsys, "plan", "demo").splitlines()[-len(caveats) :] == [f"note: {caveat}" for caveat in caveats]


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
