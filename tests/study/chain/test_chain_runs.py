"""Chains as they run: equal to their commands by hand, shared stages once, stopped and resumed."""

import json
import shutil
import signal
import subprocess
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
from tests.study.chain import chains
from tests.study.chain.chains import ENSEMBLE, KEPT, QUESTION, finished, words, write_chain
from tests.study.studies import copied, read_results, timeless, values

ONCE = {"seeds": 1, "finetunings": 1}


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
    def settings_of(**tables: dict[str, Any]) -> list[str]:
        return [f"{table}.{name}={each[name]}" for table, each in tables.items() for name in each]

    start, run = str(tmp_path / "start"), tmp_path / "sst2"
    train = {**chains.STEPS, **chains.FIXED, "seed": 1}
    sets = settings_of(model=chains.MODEL, data=chains.DATA, train=train)
    assert cli.main(["train", "gpt", *sets, f"data.path={place / 'text.txt'}", "--out", start]) == 0
    train = {**chains.FINETUNE, **chains.FIXED, "seed": 1001}
    tuned = settings_of(train=train, data={"held_out": 0.2})
    command = ["finetune", start, "sst2", "--data", str(place / "glue"), *tuned]
    assert cli.main([*command, "--out", str(run)]) == 0
    [pretrained] = stage(done, "pretraining")
    assert weights(Path(start)) == weights(pretrained / "seed-1")
    # The arm with the loss of texts, which is the preset's.
    [same] = [each for each in stage(done, "sst2") if weights(each / "seed-1001") == weights(run)]
    own, of_chain = (
        [task["score"] for task in json.loads((each / "scores.json").read_text())["tasks"]]
        for each in (run, same / "seed-1001")
    )
    assert own == of_chain


def test_a_report_reads_no_texts_and_says_which_runs_are_missing(
    done, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(preparing, "find_texts", None)
    monkeypatch.setattr(family, "prepare", None)
    copy = copied(done, tmp_path / "copy")
    again = json.loads(json.dumps(results_to_json(results_of_folder(copy), Path("r.html"))))
    assert again == {**read_results(done), "report": again["report"]}
    shutil.rmtree(stage(copy, "sst2")[0] / "seed-1001")
    early = results_of_folder(copy)
    assert early.notes[0].startswith("Unfinished: 38 of 39 runs of all stages have ended; missing")
    assert {each.verdict for each in early.differences} == {"no verdict"}
    assert any(each.mean is not None for each in early.differences)
    # Pre-trainings alone compare no tasks yet.
    for folder in (*stage(copy, "sst2"), *stage(copy, "copa")):
        shutil.rmtree(folder)
    (copy / "results.json").unlink()
    assert cli.main(["report", str(copy)]) == 0
    page = (copy / "report.html").read_text()
    assert "3 of 39 runs of all stages have ended" in page and "18 of copa" in page
    (copy / "baselines").rename(tmp_path / "baselines")
    with pytest.raises(ConfigError, match="has the baselines' scores"):
        results_of_folder(copy)
    (tmp_path / "baselines").rename(copy / "baselines")
    shutil.rmtree(copy / "stages")
    capsys.readouterr()
    assert cli.main(["report", str(copy)]) == 2
    assert "no run of the baseline, full, has ended" in capsys.readouterr().err


@pytest.mark.parametrize("damage, message", [
    (lambda kept: kept.update(n_seeds="2"), "n_seeds"),
    (lambda kept: kept["chain"]["stages"].pop(), "its stages are not those of the study"),
    (lambda kept: kept["keys"]["fresh"].pop("sst2"), "the arm fresh has no key of sst2"),
    (lambda kept: kept["baselines"].update(sst2="../a.json"), "baselines.sst2"),
    (None, "has no chain.json"),
])  # fmt: skip
def test_a_damaged_chain_file_is_refused(done, tmp_path, damage, message):
    shutil.copy(done / "study.toml", tmp_path)
    content = json.loads((done / "chain.json").read_text())
    if damage is not None:
        damage(content)
        (tmp_path / "chain.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=message):
        results_of_folder(tmp_path)


@pytest.mark.parametrize("name", rows(["sst2-", "pretraining-"], 1))
def test_a_chain_that_is_killed_in_any_stage_resumes_to_the_same_report(name, place, tmp_path):
    study = write_chain(tmp_path, **ONCE)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert cli.main(words(study, "--out", str(whole))) == 0
    # The second record of a run is what it is killed before.
    target = sorted(path for path in whole.glob(f"stages/{name}*/seed-*") if path.is_dir())[0]
    at = ("os.rename", f"{target.relative_to(whole)}/record.json")
    command = stopped_at([at], signal.SIGKILL, *words(study, "--out", str(broken)))
    killed = subprocess.run(command, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert cli.main(words(study, "--out", str(broken))) == 0
    assert timeless(read_results(whole)) == timeless(read_results(broken))


def test_a_task_after_a_task_starts_from_its_first_fine_tuning_and_is_tuned(place, tmp_path):
    out = tmp_path / "out"
    stages = [{"tasks": "sst2"}, {"tasks": "copa", "after": "sst2"}]
    arms = [{"name": "a"}, {"name": "b", "finetune": {"model.dropout": 0.3}}]
    asked = {"seeds": 1, "finetunings": 3, "tune_finetune": {"optimizer.lr": [0.0001, 0.01]}}
    study = write_chain(tmp_path, stages=stages, arms=arms, **asked)
    assert cli.main(words(study, "--out", str(out))) == 0
    # Trials are another fine-tuning than those that are compared.
    tried = {path.name: path for path in stage(out, "sst2")[0].iterdir()}
    assert sorted(tried) == ["lr=0.0001", "lr=0.01"]
    made = sorted(sorted(run.name for run in path.iterdir()) for path in tried.values())
    assert made == [["seed-0", "seed-1", "seed-2", "seed-999"], ["seed-999"]]
    runs = [*out.glob("stages/copa-*/*/seed-1"), *out.glob("stages/copa-*/*/seed-999")]
    assert len(runs) == 2 + 4
    for run in runs:
        start = Path(read_run_recipe(run / "recipe.toml").init.run)
        assert start.name == "seed-0" and start.parent.parent.name.startswith("sst2-")
    results = read_results(out)
    assert "hold for those weights alone" in " ".join(results["notes"])
    tuned = {each.partition("=")[0] for arm in results["arms"] for each in arm["tuned"]}
    assert tuned == {"finetune.optimizer.lr"}


def test_a_mixture_is_scored_by_its_best_checkpoint_and_each_task_by_its_own(place, tmp_path):
    train = {"steps": 3, "evaluate_steps": 3, "threads": 1, "batch_sequences": 4}
    data = {"context": 32, "split": "80/10/10", "vocab_size": 300}
    sets = {"model": {**chains.MODEL, "d_ff": 16}, "data": data, "train": train}
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
        **ONCE,
    )
    assert cli.main(words(study, "--out", str(tmp_path / "out"))) == 0
    names = {each["name"] for each in read_results(tmp_path / "out")["scorecard"]["columns"]}
    assert {"one checkpoint", "mixture", "mixture/sst2", "mixture/best/stsb"} <= names


def test_a_stage_goes_on_with_another_text(place, tmp_path):
    more, out = tmp_path / "more.txt", tmp_path / "out"
    more.write_text("\n".join(f"{n} reviews of {n} plays, all of them new" for n in range(300)))
    stages = [{"name": "longer", "set": {"train.steps": 5}}, {"tasks": "sst2", "after": "longer"}]
    other = {"name": "more text", "stages": {"longer": {"data.path": str(more)}}}
    changes = {"stages": stages, "arms": [{"name": "the same text"}, other], "averages": {}}
    study = write_chain(tmp_path, **changes, **ONCE)
    assert cli.main(words(study, "--out", str(out))) == 0
    assert len(stage(out, "pretraining")) == 1 and len(stage(out, "longer")) == 2
    # It keeps no steps of the text before.
    assert cli.main(["plan", *words(study, "train.keep_steps=[5]")[1:]]) == 0


def members_of(run: Path) -> list[Path]:
    return [run / each for each in json.loads((run / "ensemble.json").read_text())["members"]]


def test_an_ensemble_scores_the_average_of_the_answers_of_equal_seeds(together, capsys):
    out = together / "out"
    runs = sorted(out.glob("stages/both-of-them-*/seed-*"))
    assert [run.name for run in runs] == ["seed-0", "seed-1", "seed-2"] * 2
    for run in runs:
        members = members_of(run)
        names = [member.resolve().parent.name.partition("-")[0] for member in members]
        assert (names, {member.name for member in members}) == (["early", "late"], {run.name})
        [part] = of_tasks(prepare_data(read_run_recipe(members[0] / "recipe.toml")).test).parts
        predictions = answer_together([sublayer.load(each) for each in members], [part])
        [scored] = json.loads((run / "scores.json").read_text())["tasks"]
        found = score(part.examples, predictions, part.task.metrics)
        assert (scored["score"], scored["examples"]) == (found.value, len(part.examples))
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
    missing, *_ = sorted(out.glob("stages/both-of-them-*/seed-*"))
    before = {path: path.stat().st_mtime_ns for path in out.glob("stages/*/*/scores.json")}
    scores = (missing / "scores.json").read_bytes()
    shutil.rmtree(missing)
    assert cli.main(words(study, KEPT, "--out", str(out), "--jobs", "2")) == 0
    assert (missing / "scores.json").read_bytes() == scores
    changed = [path for path, at in before.items() if path.stat().st_mtime_ns != at]
    assert changed == [missing / "scores.json"]
    again = read_results(out)
    assert values(again) == values(report) and again["scorecard"] == report["scorecard"]
    member = members_of(missing)[1].resolve()
    (member / "failure.json").write_text('{"message": "the loss is not finite"}')
    shutil.rmtree(missing.parent)
    assert cli.main(words(study, KEPT, "--out", str(out))) == 0
    failed = [each for each in read_results(out)["failures"] if "both of them" in each["arm"]]
    message = "late, of which it is an ensemble, failed: the loss is not finite"
    assert [each["message"] for each in failed] == [message]
    assert sorted(run.name for run in missing.parent.iterdir()) == ["seed-1", "seed-2"]
