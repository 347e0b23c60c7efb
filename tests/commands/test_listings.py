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
from tests.wrapping import unwrapped


def text(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(text(capsys, *words, "--json"))


def test_what_a_recipe_changes_leaves_out_defaults_and_what_is_derived(
    capsys: pytest.CaptureFixture[str],
):
    every = answer(capsys, "recipes", "modern", "model.n_heads=2")["fields"]
    changed = answer(capsys, "recipes", "modern", "model.n_heads=2", "--changed")["fields"]
    assert changed.items() <= every.items()
    origins = {field["origin"] for field in changed.values()}
    assert origins == {"command line", "recipe gpt", "recipe modern"}
    assert main(["recipes", "--changed"]) == 2
    assert "name one, such as modern" in capsys.readouterr().err


def test_a_plan_counts_trials_and_looks_at_the_disk_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    arms = ("--vary", "model.ffn=gelu,swiglu", "--seeds", "3")
    trials = ("--tune", "optimizer.lr=1e-3,2e-3,4e-3")
    out = tmp_path / "not" / "yet"
    where = ("--out", str(out), "--device", "cuda:1")
    planned = answer(capsys, "plan", "gpt", *arms, *trials, *where)
    assert planned["total"]["runs"] == 2 * (3 + 3)
    available = planned["available"]
    assert available["device"] == "cuda"
    free_bytes = disk_usage(tmp_path).free
    assert available["disk_bytes"] == pytest.approx(free_bytes, rel=0.1)


def test_runs_that_have_ended_take_no_training(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.toml").write_text("derived = []\n")
    assert main(["plan", "a", "b"]) == 2
    assert "or use `sublayer compare a b`" in capsys.readouterr().err


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
    assert "one seed gives values and no verdict: an interval needs three" in one["notes"]
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
        "origin": (
            "derived: tokens, epochs or minutes; of tasks epochs by their number of examples"
        ),
        "is_used": True,
    }
    assert set(fields) <= set(keys())


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


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("d_ff", ["model.d_ff"]),
        ("data.context", ["data.context"]),
        ("kind", ["model.kind", "objective.kind", "optimizer.kind"]),
        ("learning rate", ["optimizer.lr"]),
        ("SwiGLU", ["model.ffn"]),
    ],
)
def test_fields_are_found_by_name_by_choice_and_by_what_is_said_of_them(
    asked: str, found: list[str], capsys: pytest.CaptureFixture[str]
):
    listed = answer(capsys, "fields", asked)["fields"]
    assert [f"{field['table']}.{field['name']}" for field in listed][: len(found)] == found


def test_a_name_in_a_field_comes_before_one_in_a_description(capsys: pytest.CaptureFixture[str]):
    listed = answer(capsys, "fields", "vocab")["fields"]
    has_it = ["vocab" in field["name"] for field in listed]
    assert has_it == sorted(has_it, reverse=True)
    assert set(has_it) == {True, False}


def test_the_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str]):
    assert json.loads(text(capsys, "fields", "--schema")) == json_schema()
    assert answer(capsys, "fields", "--schema") == json_schema()


def test_what_an_override_makes_idle_is_noted_by_recipes_and_plan(
    capsys: pytest.CaptureFixture[str],
):
    words = ("albert-base", "model.d_embed=768")
    start = "model.embedding_projection = 'sum' of recipe albert-base has no effect"
    (note,) = answer(capsys, "recipes", *words)["notes"]
    assert note.startswith(start)
    assert f"note: {start}" in unwrapped(text(capsys, "recipes", *words))
    assert any(each.startswith(start) for each in answer(capsys, "plan", *words)["notes"])
