"""``sublayer recipes``, ``fields`` and ``plan`` list what there is, and say what it takes."""

import json
import re
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
from tests.wrapping import unwrapped


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
    assert scales["char-depth"] == ["paper", "cpu", "cpu-all"]
    *groups, listed_studies, _ = text(capsys, "recipes").split("\n\n")
    assert sorted(each for group in groups for each in names_in(group)) == recipes
    assert names_in(listed_studies) == studies


def names_in(group: str) -> list[str]:
    """The names of a group of recipes: the words that begin two columns from the left."""
    lines = group.splitlines()[1:]
    return [line.split()[0] for line in lines if not line.startswith("   ")]


def test_recipes_are_grouped_and_begin_with_those_to_start_with(
    capsys: pytest.CaptureFixture[str],
):
    shown = text(capsys, "recipes")
    first, *others = shown.split("\n\n")
    assert first.splitlines()[0] == "start here"
    assert names_in(first)[:3] == ["gpt", "modern", "macaron"]
    assert "A plain pre-norm decoder (10 minutes on two CPU cores, 2.7 M parameters)" in " ".join(
        first.split()
    )
    assert all(group.startswith("as published: ") for group in others[:-2])
    assert max(map(len, shown.splitlines())) <= 80
    by_name = {each["name"]: each["group"] for each in answer(capsys, "recipes")["recipes"]}
    assert by_name["albert-xlarge-v2"] == by_name["bert-base"]
    assert "others" not in by_name.values()


def test_the_title_of_a_recipe_says_no_time_which_its_settings_may_change(
    capsys: pytest.CaptureFixture[str],
):
    for recipe in answer(capsys, "recipes")["recipes"]:
        assert not re.search("minute|hour|core", recipe["title"])


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


def test_a_study_is_not_shown_as_a_recipe(capsys: pytest.CaptureFixture[str]):
    assert main(["recipes", "demo"]) == 2
    assert (
        capsys.readouterr().err == "error: demo is a study: `sublayer plan demo` shows its arms\n"
    )


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


def test_a_plan_of_a_device_or_a_value_that_is_not_there_is_refused(
    capsys: pytest.CaptureFixture[str],
):
    assert main(["plan", "gpt", "--device", "tpu"]) == 2
    assert capsys.readouterr().err.startswith("error: device 'tpu' is not one of cpu, cuda")
    assert main(["plan", "gpt", "--tune", "optimizer.lr=1e-3"]) == 2
    assert capsys.readouterr().err.startswith("error: --tune 'optimizer.lr=1e-3' has one value")


def test_a_plan_of_a_study_says_what_its_verdicts_will_not_show(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # A demo that was run before would say how far its runs spread.
    monkeypatch.chdir(tmp_path)
    said = answer(capsys, "plan", "demo")["notes"]
    caveats = load_study("demo").caveats
    tuned, found, *_ = said[len(caveats) :]
    assert tuple(said[: len(caveats)]) == caveats
    assert tuned.startswith("every arm tries optimizer.lr=")
    assert found.startswith("5 seeds find a difference of ")
    assert "at the spread that the study states" in found
    notes = " ".join(f"note: {note}" for note in said)
    assert unwrapped(text(capsys, "plan", "demo")).endswith(f" {notes}")


def test_a_plan_says_which_split_is_scored_where_it_is_not_all_of_the_test(
    capsys: pytest.CaptureFixture[str],
):
    notes = answer(capsys, "plan", "char-context", "--scale", "paper")["notes"]
    assert notes[-1] == (
        "runs are scored on the validation split, each token behind the full context"
    )


def test_a_plan_says_what_is_measured_inside_the_runs(capsys: pytest.CaptureFixture[str]):
    for name, is_inspected in (("albert-layers", True), ("albert-width", False)):
        notes = answer(capsys, "plan", name, "--scale", "cpu")["notes"]
        said = [note for note in notes if note.startswith("runs are inspected")]
        assert len(said) == is_inspected
    assert answer(capsys, "plan", "albert-layers", "--scale", "cpu")["notes"][-1] == (
        "runs are inspected: what each layer does to a token is measured and drawn, over 8,192 "
        "tokens of the test split at most"
    )


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


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("d_fff", "did you mean model.d_ff?"),
        ("optimiser.lr", "did you mean optimizer.lr?"),
        ("zzz", "give a table (model, "),
        (" ", "give a table (model, "),
    ],
)
def test_what_no_field_has_is_answered_with_what_is_near(
    asked: str, hint: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["fields", asked]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: no field is called ")
    assert hint in error


def test_the_schema_is_of_all_fields(capsys: pytest.CaptureFixture[str]):
    assert main(["fields", "model", "--schema"]) == 2
    assert capsys.readouterr().err == "error: --schema is of all fields: leave out 'model'\n"


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
