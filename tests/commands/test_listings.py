"""``sublayer recipes``, ``fields`` and ``plan`` list what there is, and say what it takes."""

import json
from pathlib import Path
from shutil import disk_usage
from typing import Any

import pytest

from sublayer.cli import main
from sublayer.config.fields.catalog import keys
from sublayer.config.fields.listing import json_schema
from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.run_recipe import dump_recipe
from sublayer.config.layering.sources import shipped_recipes
from sublayer.study.definition import load_study, shipped_studies


def text(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(text(capsys, *words, "--json"))


def test_recipes_lists_what_is_shipped_in_a_line_each(capsys: pytest.CaptureFixture[str]):
    listed = answer(capsys, "recipes")
    recipes = [recipe["name"] for recipe in listed["recipes"]]
    studies = [study["name"] for study in listed["studies"]]
    assert recipes == list(shipped_recipes())
    assert studies == list(shipped_studies())
    scales = {study["name"]: study["scales"] for study in listed["studies"]}
    assert scales["char-depth"] == ["paper", "cpu"]
    first, second, _ = text(capsys, "recipes").split("\n\n")
    for table, names in ((first, recipes), (second, studies)):
        rows = table.splitlines()[2:]
        assert [row.split()[0] for row in rows] == names


def test_a_study_is_not_shown_as_a_recipe(capsys: pytest.CaptureFixture[str]):
    assert main(["recipes", "demo"]) == 2
    assert (
        capsys.readouterr().err == "error: demo is a study: `sublayer plan demo` shows its arms\n"
    )


def test_a_plan_counts_trials_and_looks_at_the_disk_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    arms = ("--vary", "model.ffn=gelu,swiglu", "--seeds", "2")
    trials = ("--tune", "optimizer.lr=1e-3,2e-3,4e-3")
    out = tmp_path / "not" / "yet"
    where = ("--out", str(out), "--device", "cuda:1")
    planned = answer(capsys, "plan", "gpt", *arms, *trials, *where)
    assert planned["total"]["runs"] == 2 * (3 + 1)
    available = planned["available"]
    assert available["device"] == "cuda"
    free_bytes = disk_usage(tmp_path).free
    assert available["disk_bytes"] == pytest.approx(free_bytes, rel=0.1)


def test_a_plan_of_a_device_or_a_value_that_is_not_there_is_refused(
    capsys: pytest.CaptureFixture[str],
):
    assert main(["plan", "gpt", "--device", "tpu"]) == 2
    assert capsys.readouterr().err.startswith("error: device 'tpu' is not one of cpu, cuda")
    assert main(["plan", "gpt", "--tune", "optimizer.lr=1e-3"]) == 2
    assert capsys.readouterr().err.startswith("error: --tune 'optimizer.lr=1e-3' has one value")


def test_a_plan_of_a_study_says_what_its_verdicts_will_not_show(capsys: pytest.CaptureFixture[str]):
    caveats = load_study("demo").caveats
    assert answer(capsys, "plan", "demo")["notes"] == list(caveats)
    last_lines = text(capsys, "plan", "demo").splitlines()[-len(caveats) :]
    assert last_lines == [f"note: {caveat}" for caveat in caveats]


def test_a_plan_of_one_seed_has_one_run_of_each_arm_and_says_that_it_gives_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    study = tmp_path / "study.toml"
    study.write_text("""
    scale.paper-524k = { recipe = "gpt", seeds = 1 }
    scale.paper-65k = { recipe = "gpt", seeds = 4 }
    arms = [{ name = "gelu" }, { name = "relu", set = { model.ffn = "relu" } }]
    """)
    one = answer(capsys, "plan", str(study))
    assert one["total"]["runs"] == 2
    assert "one seed gives values and no verdict: an interval needs two" in one["notes"]
    four = answer(capsys, "plan", str(study), "--scale", "paper-65k")
    assert four["total"]["runs"] == 8
    assert not any("one seed" in note for note in four["notes"])
    single = answer(capsys, "plan", "gpt")
    assert single["total"]["runs"] == 1
    assert not any("one seed" in note for note in single["notes"])


def test_a_recipe_is_shown_resolved_with_the_origin_of_each_value(
    capsys: pytest.CaptureFixture[str],
):
    fields = answer(capsys, "recipes", "modern", "model.n_heads=2")["fields"]
    assert fields["model.n_heads"] == {"value": 2, "origin": "command line", "is_used": True}
    assert fields["model.d_ff"] == {"value": 512, "origin": "recipe modern", "is_used": True}
    assert fields["model.d_model"] == {"value": 192, "origin": "recipe gpt", "is_used": True}
    assert fields["model.share_groups"] == {"value": 1, "origin": "default", "is_used": False}
    assert fields["model.d_head"]["value"] == 96
    assert fields["model.d_head"]["origin"].startswith("derived: d_model / n_heads")
    assert fields["train.steps"] == {
        "value": None,
        "origin": "derived: tokens, epochs or minutes",
        "is_used": True,
    }
    assert set(fields) <= set(keys())


def test_the_table_has_a_line_for_each_value(capsys: pytest.CaptureFixture[str]):
    shown = text(capsys, "recipes", "modern", "model.n_heads=2")
    lines = [line.split() for line in shown.splitlines()]
    assert ["model.n_heads", "2", "command", "line"] in lines
    assert ["model.share_groups", "1", "default", "(no", "effect)"] in lines
    assert ["model.norm", "'rms'", "recipe", "modern"] in lines


def test_a_run_is_shown_as_a_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    recipe = load_recipe("macaron").recipe
    (tmp_path / "recipe.toml").write_text(dump_recipe(recipe), encoding="utf-8")
    fields = answer(capsys, "recipes", str(tmp_path))["fields"]
    assert fields["model.block"] == {
        "value": "macaron",
        "origin": f"run {tmp_path}",
        "is_used": True,
    }


def test_fields_lists_a_table_or_all(capsys: pytest.CaptureFixture[str]):
    listed = answer(capsys, "fields", "train")["fields"]
    names = [f"{field['table']}.{field['name']}" for field in listed]
    assert names == list(keys("train"))
    lines = text(capsys, "fields").splitlines()
    assert set(keys()) <= set(lines)


def test_fields_says_unit_default_and_when_it_counts(capsys: pytest.CaptureFixture[str]):
    fields = text(capsys, "fields", "model").split("\n\n")
    (field,) = [each for each in fields if each.startswith("model.share_groups\n")]
    words = " ".join(field.split())
    assert "in groups; default 1" in words
    assert "Counts where model.share is all or attention or ffn." in words


def test_the_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str]):
    assert json.loads(text(capsys, "fields", "--schema")) == json_schema()
    assert answer(capsys, "fields", "--schema") == json_schema()
