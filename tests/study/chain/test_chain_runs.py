"""Chains as they run: equal to their commands by hand, shared stages once, stopped and resumed."""

import json
import shutil
import signal
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import sublayer
from sublayer import cli
from sublayer.config.layering.run_recipe import read_run_recipe
from sublayer.data import prepare as preparing
from sublayer.data.tasks.task_split import of_tasks
from sublayer.errors import ConfigError
from sublayer.files.checkpoints import checkpoint_path, saved_steps
from sublayer.objective import family
from sublayer.objective.supervised.ensemble.together import answer_together
from sublayer.runs.session import prepare_data
from sublayer.study.from_folder import results_of_folder
from sublayer.study.results_json import results_to_json
from sublayer.tasks.metrics.score import score
from tests.breadth import rows
from tests.stopping import stopped_at
from tests.study.chain.chains import (
    DATA,
    ENSEMBLE,
    FINETUNE,
    KEPT,
    MODEL,
    QUESTION,
    STEPS,
    finished,
    words,
    write_chain,
)
from tests.study.studies import read_results, values

FIXED = ["train.threads=1", "train.precision=float32"]


@pytest.fixture
def place(workshop, monkeypatch):
    """A chain of three arms on two tasks, its text and tasks; its study is ``out``."""
    folder = finished(workshop, "plain", **QUESTION)
    monkeypatch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
    return folder


@pytest.fixture
def done(place):
    return place / "out"


@pytest.fixture
def together(workshop, monkeypatch):
    """A chain with an ensemble of a stage that starts from a checkpoint and one from the end."""
    folder = finished(workshop, "ensemble", KEPT, **ENSEMBLE)
    monkeypatch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
    return folder


def stage(out: Path, name: str) -> list[Path]:
    return sorted(out.glob(f"stages/{name}-*"))


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def settings_of(table: str, **fields: Any) -> list[str]:
    return [f"{table}.{name}={value}" for name, value in fields.items()]


def listed(out: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, int, int]:
    capsys.readouterr()
    assert cli.main(["runs", str(out.parent), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [row] = [each for each in found[0].get("runs", found) if each["folder"] == str(out)]
    return row["state"], row["finished"], row["planned"]


def test_a_stage_that_arms_share_is_trained_once(done, capsys):
    # The arms with and without the loss of texts share a pre-training; the third has none.
    [pretrained] = stage(done, "pretraining")
    assert [run.name for run in sorted(pretrained.iterdir())] == ["seed-0", "seed-1", "seed-2"]
    assert len(stage(done, "sst2")) == len(stage(done, "copa")) == 3
    for folder in stage(done, "sst2"):
        seeds = sorted(run.name for run in folder.iterdir())
        assert seeds == [f"seed-{seed}" for seed in (0, 1, 1000, 1001, 2000, 2001)]
    # Three pre-trainings for two arms; three arms on two tasks, twice under each of three.
    assert listed(done, capsys) == ("finished", 39, 39)


def test_a_chain_equals_its_commands_done_by_hand(done, place, tmp_path):
    start, run = tmp_path / "start", tmp_path / "sst2"
    sets = [*settings_of("model", **MODEL), *settings_of("data", **DATA)]
    sets += [*settings_of("train", **STEPS), *FIXED, "train.seed=1"]
    text = f"data.path={place / 'text.txt'}"
    assert cli.main(["train", "gpt", *sets, text, "--out", str(start)]) == 0
    tuned = [*settings_of("train", **FINETUNE, seed=1001), *FIXED, "data.held_out=0.2"]
    command = ["finetune", str(start), "sst2", "--data", str(place / "glue"), *tuned]
    assert cli.main([*command, "--out", str(run)]) == 0
    [pretrained] = stage(done, "pretraining")
    assert weights(start) == weights(pretrained / "seed-1")
    # The arm with the loss of texts, which is the preset's.
    [same] = [each for each in stage(done, "sst2") if weights(each / "seed-1001") == weights(run)]
    own, of_chain = (
        [task["score"] for task in json.loads((each / "scores.json").read_text())["tasks"]]
        for each in (run, same / "seed-1001")
    )
    assert own == of_chain


def test_a_report_reads_no_texts_and_says_which_runs_are_missing(done, tmp_path, monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a text is read")

    monkeypatch.setattr(preparing, "find_texts", refuse)
    monkeypatch.setattr(family, "prepare", refuse)
    copy = Path(shutil.copytree(done, tmp_path / "copy"))
    written = read_results(done)
    again = json.loads(json.dumps(results_to_json(results_of_folder(copy), Path("r.html"))))
    assert again == {**written, "report": again["report"]}
    shutil.rmtree(stage(copy, "sst2")[0] / "seed-1001")
    early = results_of_folder(copy)
    assert early.notes[0].startswith("Unfinished: 38 of 39 runs of all stages have ended; missing")
    assert {each.verdict for each in early.differences} == {"no verdict"}
    assert any(each.mean is not None for each in early.differences)
    assert cli.main(["report", str(copy)]) == 0
    shutil.rmtree(copy / "baselines")
    with pytest.raises(ConfigError, match="has the baselines' scores"):
        results_of_folder(copy)


def test_a_report_of_pretrainings_alone_compares_no_tasks_yet(done, tmp_path, capsys):
    copy = Path(shutil.copytree(done, tmp_path / "copy"))
    for folder in (*stage(copy, "sst2"), *stage(copy, "copa")):
        shutil.rmtree(folder)
    (copy / "results.json").unlink()
    assert cli.main(["report", str(copy)]) == 0
    page = (copy / "report.html").read_text()
    assert "3 of 39 runs of all stages have ended" in page and "18 of copa" in page
    shutil.rmtree(copy / "stages")
    capsys.readouterr()
    assert cli.main(["report", str(copy)]) == 2
    assert "no run of the baseline, full, has ended" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda kept: kept.update(n_seeds="2"), "n_seeds"),
        (lambda kept: kept["chain"]["stages"].pop(), "its stages are not those of the study"),
        (lambda kept: kept["keys"]["fresh"].pop("sst2"), "the arm fresh has no key of sst2"),
        (lambda kept: kept["baselines"].update(sst2="../a.json"), "baselines.sst2"),
        (None, "has no chain.json"),
    ],
)
def test_a_damaged_chain_file_is_refused(done, tmp_path, damage, message):
    shutil.copy(done / "study.toml", tmp_path)
    content = json.loads((done / "chain.json").read_text())
    if damage is not None:
        damage(content)
        (tmp_path / "chain.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=message):
        results_of_folder(tmp_path)


def timeless(results: dict[str, Any]) -> dict[str, Any]:
    """Leave out places, dates and the speed of the machine."""
    for name in ("report", "reproduction", "same_quality"):
        results.pop(name)
    for arm in results["arms"]:
        for name in ("tokens_per_s", "peak_memory_bytes", "seconds", "training_seconds"):
            arm.pop(name)
    return results


@pytest.mark.parametrize("name", rows(["sst2-", "pretraining-"], 1))
def test_a_chain_that_is_killed_in_any_stage_resumes_to_the_same_report(name, place, tmp_path):
    study = write_chain(tmp_path, seeds=1, finetunings=1)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert cli.main(words(study, "--out", str(whole))) == 0
    # The second record of a run is what it is killed before.
    target = sorted(path for path in whole.glob(f"stages/{name}*/seed-*") if path.is_dir())[0]
    place_ = ("os.rename", f"{target.relative_to(whole)}/record.json")
    command = stopped_at([place_], signal.SIGKILL, *words(study, "--out", str(broken)))
    killed = subprocess.run(command, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert cli.main(words(study, "--out", str(broken))) == 0
    assert timeless(read_results(whole)) == timeless(read_results(broken))


def test_a_task_after_a_task_starts_from_its_first_fine_tuning_and_is_tuned(place, tmp_path):
    out, changes = tmp_path / "out", {"seeds": 1, "finetunings": 3}
    changes["stages"] = [{"tasks": "sst2"}, {"tasks": "copa", "after": "sst2"}]
    changes["arms"] = [{"name": "a"}, {"name": "b", "finetune": {"model.dropout": 0.3}}]
    changes["tune_finetune"] = {"optimizer.lr": [0.0001, 0.01]}
    study = write_chain(tmp_path, **changes)
    assert cli.main(words(study, "--out", str(out))) == 0
    # Trials are another fine-tuning than those that are compared.
    tried = {path.name: path for path in stage(out, "sst2")[0].iterdir()}
    assert sorted(tried) == ["lr=0.0001", "lr=0.01"]
    made = sorted(sorted(run.name for run in path.iterdir()) for path in tried.values())
    assert made == [["seed-0", "seed-1", "seed-2", "seed-999"], ["seed-999"]]
    runs = [*out.glob("stages/copa-*/*/seed-1"), *out.glob("stages/copa-*/*/seed-999")]
    assert len(runs) == 2 + 4
    for run in runs:
        start = Path(tomllib.loads((run / "recipe.toml").read_text())["init"]["run"])
        assert start.name == "seed-0" and start.parent.parent.name.startswith("sst2-")
    results = read_results(out)
    assert "hold for those weights alone" in " ".join(results["notes"])
    for arm in results["arms"]:
        assert {each.partition("=")[0] for each in arm["tuned"]} == {"finetune.optimizer.lr"}


def test_a_mixture_is_scored_by_its_best_checkpoint_and_each_task_by_its_own(place, tmp_path):
    sets = {
        "model": {**MODEL, "d_ff": 16},
        "data": {"context": 32, "split": "80/10/10", "vocab_size": 300},
        "train": {"steps": 3, "evaluate_steps": 3, "threads": 1, "batch_sequences": 4},
    }
    finetune = {
        "train": {"steps": 4, "evaluate_steps": 2, "batch_sequences": 8},
        "data": {"held_out": 0.2, "context": 64},
        "objective": {"target_length": 8},
    }
    study = write_chain(
        tmp_path,
        stages=[{"name": "mixture", "tasks": ["sst2", "stsb"]}],
        averages={"one checkpoint": ["mixture/sst2", "mixture/stsb:pearson"]},
        arms=ENSEMBLE["arms"],
        scale={"cpu": {"recipe": "t5-mini", "set": sets, "finetune": finetune}},
        seeds=1,
        finetunings=1,
    )
    assert cli.main(words(study, "--out", str(tmp_path / "out"))) == 0
    card = read_results(tmp_path / "out")["scorecard"]
    names = [column["name"] for column in card["columns"]]
    assert {"one checkpoint", "mixture", "mixture/sst2", "mixture/best/stsb"} <= set(names)


def test_a_stage_goes_on_with_another_text(place, tmp_path):
    more = tmp_path / "more.txt"
    more.write_text("\n".join(f"{n} reviews of {n} plays, all of them new" for n in range(300)))
    stages = [{"name": "longer", "set": {"train.steps": 5}}, {"tasks": "sst2", "after": "longer"}]
    other = {"name": "more text", "stages": {"longer": {"data.path": str(more)}}}
    arms = [{"name": "the same text"}, other]
    changes: dict[str, Any] = {"averages": {}, "seeds": 1, "finetunings": 1}
    study = write_chain(tmp_path, stages=stages, arms=arms, **changes)
    out = tmp_path / "out"
    assert cli.main(words(study, "--out", str(out))) == 0
    assert len(stage(out, "pretraining")) == 1 and len(stage(out, "longer")) == 2
    # It keeps no steps of the text before.
    assert cli.main(["plan", *words(study, "train.keep_steps=[5]")[1:]]) == 0


def ensembles(out: Path) -> list[Path]:
    return sorted(out.glob("stages/both-of-them-*/seed-*"))


def members_of(run: Path) -> list[Path]:
    return [run / each for each in json.loads((run / "ensemble.json").read_text())["members"]]


def test_an_ensemble_scores_the_average_of_the_answers_of_equal_seeds(together, capsys):
    out = together / "out"
    runs = ensembles(out)
    assert [run.name for run in runs] == ["seed-0", "seed-1", "seed-2"] * 2
    for run in runs:
        members = members_of(run)
        names = [member.resolve().parent.name.partition("-")[0] for member in members]
        assert names == ["early", "late"]
        assert {member.name for member in members} == {run.name}
        test = of_tasks(prepare_data(read_run_recipe(members[0] / "recipe.toml")).test)
        predictions = answer_together([sublayer.load(each) for each in members], test.parts)
        [scored] = json.loads((run / "scores.json").read_text())["tasks"]
        found = score(test.parts[0].examples, predictions, test.parts[0].task.metrics)
        assert scored["score"] == found.value
        assert scored["examples"] == len(test.parts[0].examples)
    cells = {row["name"]: row["cells"] for row in read_results(out)["scorecard"]["rows"]}
    assert cells["a"]["both of them"]["n_runs"] == 3
    assert cells["words"]["both of them"]["mean"] == cells["words"]["early"]["mean"]
    assert listed(out, capsys) == ("finished", 20, 20)


def test_a_stage_starts_from_a_checkpoint_that_the_one_before_keeps(together):
    out = together / "out"
    pretrained = sorted(out.glob("stages/pretraining-*/seed-0"))
    assert [saved_steps(run / "checkpoints") for run in pretrained] == [[4], [4]]
    early, late = (
        {read_run_recipe(run / "recipe.toml").init.run for run in out.glob(f"stages/{name}-*/*")}
        for name in ("early", "late")
    )
    assert early == {str(checkpoint_path(run / "checkpoints", 4).absolute()) for run in pretrained}
    assert late == {str(run.absolute()) for run in pretrained}
    assert not list(out.glob("stages/early-*/*/checkpoints"))


def test_an_ensemble_resumes_side_by_side_and_fails_with_a_member(together, tmp_path):
    study, out = together / "small.toml", tmp_path / "out"
    shutil.copytree(together / "out", out, symlinks=True)
    report = read_results(out)
    before = {path: path.stat().st_mtime_ns for path in out.glob("stages/*/*/scores.json")}
    missing = ensembles(out)[0]
    scores = (missing / "scores.json").read_bytes()
    shutil.rmtree(missing)
    assert cli.main(words(study, KEPT, "--out", str(out), "--jobs", "2")) == 0
    assert (missing / "scores.json").read_bytes() == scores
    for path, written in before.items():
        assert path.parent == missing or path.stat().st_mtime_ns == written
    again = read_results(out)
    assert values(again) == values(report) and again["scorecard"] == report["scorecard"]
    arm = missing.parent
    member = members_of(missing)[1].resolve()
    (member / "failure.json").write_text('{"message": "the loss is not finite"}')
    shutil.rmtree(arm)
    assert cli.main(words(study, KEPT, "--out", str(out))) == 0
    failures = read_results(out)["failures"]
    assert [each["message"] for each in failures if "both of them" in each["arm"]] == [
        "late, of which it is an ensemble, failed: the loss is not finite"
    ]
    assert sorted(run.name for run in arm.iterdir()) == ["seed-1", "seed-2"]
