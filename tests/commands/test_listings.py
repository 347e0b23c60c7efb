"""``sublayer recipes``, ``fields`` and ``plan`` list what there is, and say what it takes."""

import json
from pathlib import Path
from shutil import disk_usage
from typing import Any

import pytest

from sublayer.cli import main
from sublayer.config.fields.catalog import keys
from sublayer.config.fields.listing import json_schema


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
