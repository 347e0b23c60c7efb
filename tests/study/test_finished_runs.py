"""Runs that exist, compared as they are: grouped by recipe, scored where they were not."""

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from sublayer.api.training import compare, train
from sublayer.errors import ConfigError
from tests.study.test_runner import FFN, files, settings_of, write_text


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Two arms of three seeds, whose runs are compared again, and what their study found."""
    place = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(place / "cache"))
        text = write_text(place / "river.txt")
        result = compare("gpt", settings_of(text), vary=[FFN], seeds=3, out=place / "study")
    return place, result


@pytest.fixture
def runs(
    trained: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Copies of those runs, which were never scored on the test split."""
    monkeypatch.setenv("SUBLAYER_CACHE", str(trained[0] / "cache"))
    monkeypatch.chdir(tmp_path)
    names = []
    for arm in ("0-ffn=gelu", "1-ffn=swiglu"):
        for seed in range(3):
            name = f"{arm[2:].replace('=', '-')}-{seed}"
            source = trained[0] / "study/arms" / arm / f"seed-{seed}"
            shutil.copytree(source, name, ignore=shutil.ignore_patterns("test.json", "items.*"))
            names.append(name)
    return names


@pytest.mark.slow
def test_one_run_each_gives_the_values_of_their_study_and_no_verdict(
    runs: list[str], trained: tuple[Path, dict[str, Any]]
):
    before = files(Path())
    result = compare([runs[0], runs[3]])
    assert [arm["name"] for arm in result["arms"]] == ["ffn-gelu-0", "ffn-swiglu-0"]
    for arm, known in zip(result["arms"], trained[1]["arms"], strict=True):
        assert arm["values"] == pytest.approx(known["values"][:1], rel=1e-9)
        assert arm["curves"]
        assert arm["parameters"] == known["parameters"]
    (difference,) = result["differences"]
    assert difference["verdict"] == "no verdict"
    assert "Fewer than three runs of each give values and no verdict" in result["notes"][0]
    after = files(Path())
    assert before.items() <= after.items()
    assert all(path.startswith("runs/") for path in after.keys() - before.keys())


@pytest.mark.slow
def test_runs_of_one_recipe_are_the_seeds_of_an_arm(
    runs: list[str], trained: tuple[Path, dict[str, Any]]
):
    result = compare(runs, out="together")
    assert [arm["seeds"] for arm in result["arms"]] == [[0, 1, 2], [0, 1, 2]]
    (difference,) = result["differences"]
    (known,) = trained[1]["differences"]
    assert difference["verdict"] == known["verdict"]
    assert difference["mean"] == pytest.approx(known["mean"], rel=1e-9)
    assert (difference["low"], difference["high"]) == pytest.approx((known["low"], known["high"]))
    # What is scored is kept: the same command again scores nothing.
    kept = files(Path("together/scores"))
    assert compare(runs, out="together") == result
    assert files(Path("together/scores")) == kept


@pytest.mark.slow
def test_a_run_that_was_made_longer_is_scored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    settings = settings_of(write_text(tmp_path / "river.txt"))
    train("gpt", settings, out="longer")
    train("gpt", [*settings, "model.ffn=relu"], out="plain")
    before = compare(["longer", "plain"], out="both")["arms"]
    train("longer", {"train.steps": 2 * before[0]["steps"]}, resume=True)
    after = compare(["longer", "plain"], out="both")["arms"]
    assert after[0]["values"] != before[0]["values"]
    assert after[0]["values"] == compare(["longer", "plain"], out="anew")["arms"][0]["values"]
    assert after[1]["values"] == before[1]["values"]
    # By what was trained: another network's products are as many, of half the tokens.
    budgets = [each[1]["excess"]["realised"] for each in (before, after)]
    assert [each["operations"] for each in budgets] == [0.0, -0.5]


@pytest.mark.slow
def test_scores_that_a_study_kept_are_taken(trained: tuple[Path, dict[str, Any]], runs: list[str]):
    arms = trained[0] / "study/arms"
    result = compare([arms / "0-ffn=gelu/seed-1", arms / "1-ffn=swiglu/seed-1"], out="again")
    assert [arm["name"] for arm in result["arms"]] == ["ffn=gelu", "ffn=swiglu"]
    assert [arm["values"] for arm in result["arms"]] == [
        arm["values"][1:2] for arm in trained[1]["arms"]
    ]
    assert not Path("again/scores").exists()


def test_runs_on_a_text_that_changed_between_them_are_refused(runs: list[str]):
    record = Path(runs[3], "record.json")
    content = json.loads(record.read_text())
    content["data"]["checksums"]["test"] = "0123456789abcdef"
    record.write_text(json.dumps(content))
    message = "their test texts differ, though their settings are equal: a file has changed"
    with pytest.raises(ConfigError, match=message):
        compare([runs[0], runs[3]])
    assert not Path("runs").exists()


@pytest.mark.slow
def test_a_run_that_was_lengthened_is_said_and_what_follows_from_it_is_not(runs: list[str]):
    path = Path(runs[0], "recipe.toml")
    recipe = tomllib.loads(path.read_text())
    recipe["lengthened"] = [{"at_step": 2, "from_steps": 2, "to_steps": recipe["train"]["steps"]}]
    recipe["optimizer"]["warmup_steps"] += 1
    assert "optimizer.warmup_steps" in recipe["derived"]
    path.write_text(tomli_w.dumps(recipe))
    notes = " ".join(compare([runs[0], runs[3]], out="together")["notes"])
    assert (
        f"{runs[0]} was lengthened from 2 to {recipe['train']['steps']} steps at step 2: " in notes
    )
    assert "warmup_steps" not in notes


def test_what_has_no_effect_on_runs_that_exist_is_refused(runs: list[str]):
    with pytest.raises(ConfigError, match="compared as they are: leave out --seeds 3"):
        compare([runs[0], runs[3]], seeds=3)
    with pytest.raises(ConfigError, match=r"leave out train\.steps=3 --vary model\.ffn=relu,gelu"):
        compare([runs[0], runs[3]], ["train.steps=3"], vary=["model.ffn=relu,gelu"])
    with pytest.raises(ConfigError, match="is a run and modern is not"):
        compare([runs[0], "modern"])
    with pytest.raises(ConfigError, match="^runs/gone does not exist: name a run that has ended$"):
        compare([runs[0], "runs/gone"])
    Path("both").mkdir()
    Path("both/runs.json").write_text("{}")
    with pytest.raises(ConfigError, match="^both is a comparison: sublayer report both shows it"):
        compare([runs[0], "both"])
    with pytest.raises(ConfigError, match="of one recipe with one seed, 0: name one of them"):
        compare([runs[0], shutil.copytree(runs[0], "copy")])
    Path(runs[1], "record.json").unlink()
    with pytest.raises(
        ConfigError, match=f"{runs[1]} has not ended: resume it with sublayer train"
    ):
        compare([runs[0], runs[1]])


def test_a_folder_with_other_files_is_refused(runs: list[str]):
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("do not lose")
    with pytest.raises(ConfigError, match="mine holds other files"):
        compare([runs[0], runs[3]], out="mine")
    assert files(Path("mine")).keys() == {"thesis.txt"}
