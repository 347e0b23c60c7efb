"""Stages that are ensembles of others: what they score, and what is refused of them."""

import json
import shutil
from pathlib import Path

import pytest

import sublayer
from sublayer import cli
from sublayer.config.layering.run_recipe import read_run_recipe
from sublayer.data.tasks.task_split import of_tasks
from sublayer.objective.supervised.ensemble.together import answer_together
from sublayer.runs.session import prepare_data
from sublayer.study.chain.stages import describe_stages
from sublayer.study.definition import load_study
from sublayer.tasks.metrics.score import score
from tests.study.chain.chains import words, write_chain

EARLY = {"tasks": "sst2", "name": "early", "from_step": 4}
LATE = {"tasks": "sst2", "name": "late"}
TOGETHER = {"name": "both of them", "ensemble": ["early", "late"]}
STAGES = [TOGETHER, EARLY, LATE]
ARMS = [{"name": "a"}, {"name": "b", "set": {"model": {"ffn": "swiglu"}}}]
KEPT = "train.keep_steps=[4]"


def write(folder: Path, **changes) -> Path:
    told = {"stages": STAGES, "arms": ARMS, "averages": {}, "seeds": 1, "finetunings": 3}
    return write_chain(folder, **{**told, **changes})


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        yield write(folder)


@pytest.fixture(scope="module")
def done(study):
    out = study.parent / "out"
    assert cli.main(words(study, KEPT, "--out", str(out))) == 0
    return out


def ensembles(out: Path) -> list[Path]:
    return sorted(out.glob("stages/both-of-them-*/seed-*"))


def members_of(run: Path) -> list[Path]:
    return [run / each for each in json.loads((run / "ensemble.json").read_text())["members"]]


def test_an_ensemble_has_its_members_tasks_and_comes_after_them(tmp_path):
    chain = load_study(str(write(tmp_path)), [KEPT]).chain
    assert chain is not None
    assert [stage.name for stage in chain.stages] == ["early", "late", "both of them"]
    together = chain.stage("both of them")
    assert together.tasks == ("sst2",) and together.finetunes
    assert chain.depth(together) == 2
    # What was begun before there were ensembles is the same study.
    described = json.loads(describe_stages(chain))["stages"]
    assert ["ensemble" in each for each in described] == [False, False, True]


@pytest.mark.slow
def test_it_scores_the_average_of_what_runs_of_the_same_seeds_answer(done):
    runs = ensembles(done)
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


@pytest.mark.slow
def test_it_is_a_column_with_its_runs_and_baselines(done, study, capsys):
    results = json.loads((done / "results.json").read_text())
    rows = {row["name"]: row["cells"] for row in results["scorecard"]["rows"]}
    assert rows["a"]["both of them"]["n_runs"] == 3
    assert rows["words"]["both of them"]["mean"] == rows["words"]["early"]["mean"]
    capsys.readouterr()
    assert cli.main(["runs", str(done.parent), "--json"]) == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    listed = listed[0].get("runs", listed)
    [row] = [each for each in listed if each["folder"] == str(done)]
    assert (row["state"], row["finished"], row["planned"]) == ("finished", 20, 20)


@pytest.mark.slow
def test_it_resumes_and_runs_side_by_side_to_the_same(done, study):
    before = {path: path.stat().st_mtime_ns for path in done.glob("stages/*/*/scores.json")}
    report = json.loads((done / "results.json").read_text())
    missing = ensembles(done)[0]
    scores = (missing / "scores.json").read_bytes()
    shutil.rmtree(missing)
    assert cli.main(words(study, KEPT, "--out", str(done), "--jobs", "2")) == 0
    assert (missing / "scores.json").read_bytes() == scores
    for path, written in before.items():
        assert path.parent == missing or path.stat().st_mtime_ns == written
    again = json.loads((done / "results.json").read_text())
    assert [arm["values"] for arm in again["arms"]] == [arm["values"] for arm in report["arms"]]
    assert again["scorecard"] == report["scorecard"]


@pytest.mark.slow
def test_a_member_that_failed_fails_it_with_the_reason(done, study, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(done, out)
    arm = ensembles(out)[0].parent
    member = members_of(arm / "seed-0")[1].resolve()
    (member / "failure.json").write_text('{"message": "the loss is not finite"}')
    shutil.rmtree(arm)
    assert cli.main(words(study, KEPT, "--out", str(out))) == 0
    failures = json.loads((out / "results.json").read_text())["failures"]
    assert [each["message"] for each in failures if "both of them" in each["arm"]] == [
        "late, of which it is an ensemble, failed: the loss is not finite"
    ]
    assert sorted(run.name for run in arm.iterdir()) == ["seed-1", "seed-2"]


def test_a_plan_counts_it_as_no_training(study, capsys):
    assert cli.main(["plan", *words(study, KEPT, "--json")[1:]]) == 0
    plan = json.loads(capsys.readouterr().out)
    [*_, one, other] = plan["stages"]
    for each in (one, other):
        assert (each["stage"], each["after"]) == ("both of them", "early, late")
        assert (each["runs"], each["steps"], each["hours"], each["disk_bytes"]) == (3, 0, 0.0, 0)
    assert plan["total"]["runs"] == 20
    assert cli.main(["plan", *words(study, KEPT)[1:]]) == 0
    assert "both of them" in capsys.readouterr().out


BAD = {
    "other tasks": (
        {"stages": [EARLY, {"tasks": "copa"}, {"name": "c", "ensemble": ["early", "copa"]}]},
        "ensemble c has copa, which learns copa, and early, which learns sst2: name stages of the "
        "same tasks",
    ),
    "an unknown name": (
        {"stages": [EARLY, LATE, {"name": "c", "ensemble": ["early", "latter"]}]},
        "ensemble c has latter, which is no stage: did you mean late?",
    ),
    "one member": (
        {"stages": [EARLY, LATE, {"name": "c", "ensemble": ["early"]}]},
        "ensemble c has one member, early: name at least two stages",
    ),
    "no member": ({"stages": [EARLY, {"name": "c", "ensemble": []}]}, "ensemble"),
    "a member twice": (
        {"stages": [EARLY, LATE, {"name": "c", "ensemble": ["early", "early"]}]},
        "ensemble c has early twice: name each stage once",
    ),
    "an ensemble of an ensemble": (
        {"stages": [*STAGES, {"name": "c", "ensemble": ["early", "both of them"]}]},
        "ensemble c has both of them, which is an ensemble itself: name its members, early, late",
    ),
    "itself": (
        {"stages": [EARLY, {"name": "c", "ensemble": ["early", "c"]}]},
        "ensemble c has c, which is an ensemble itself",
    ),
    "the pre-training": (
        {"stages": [EARLY, {"name": "c", "ensemble": ["early", "pretraining"]}]},
        "ensemble c has pretraining, which answers no task",
    ),
    "a text": (
        {"stages": [EARLY, {"name": "more"}, {"name": "c", "ensemble": ["early", "more"]}]},
        "ensemble c has more, which goes on with a text and answers no task",
    ),
    "without a name": ({"stages": [EARLY, LATE, {"ensemble": ["early", "late"]}]}, "needs a name"),
    "with tasks": (
        {"stages": [EARLY, LATE, {**TOGETHER, "tasks": "sst2"}]},
        "has tasks and ensemble: give one of them",
    ),
    "with what is of trainings": (
        {"stages": [EARLY, LATE, {**TOGETHER, "after": "late", "set": {"train.steps": 3}}]},
        "both of them is an ensemble, which trains nothing: leave out after, set",
    ),
    "a start from it": (
        {"stages": [*STAGES, {"tasks": "copa", "after": "both of them"}]},
        "stage copa comes after both of them, an ensemble, which leaves no model to start from",
    ),
    "settings of an arm": (
        {"arms": [ARMS[0], {"name": "b", "stages": {"both of them": {"train.steps": 3}}}]},
        "both of them is an ensemble, which trains nothing, and has no settings",
    ),
    "one training twice": (
        {"stages": [LATE, {**LATE, "name": "again"}, {"name": "c", "ensemble": ["late", "again"]}]},
        "arm a, ensemble c: late and again are the same training from the same start",
    ),
    "the same for an arm without pre-training": (
        {"arms": [{"name": "a"}, {"name": "b", "pretrain": False}]},
        "arm b, ensemble both of them: early and late are the same training from the same start",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_ensemble_is_refused_before_anything_is_trained(case, tmp_path, capsys):
    changes, said = BAD[case]
    out = tmp_path / "out"
    assert cli.main(words(write(tmp_path, **changes), KEPT, "--out", str(out))) == 2
    assert said in capsys.readouterr().err.strip().splitlines()[-1]
    assert not list(out.glob("stages/*"))


def test_settings_of_an_ensemble_are_refused_on_the_command_line(tmp_path, capsys):
    path = write(tmp_path)
    assert cli.main(words(path, KEPT, "both of them.train.steps=3")) == 2
    assert "which trains nothing, and has no settings" in capsys.readouterr().err


def test_members_that_are_scored_on_other_rows_are_refused(tmp_path, capsys):
    path = write(tmp_path)
    shutil.copytree(tmp_path / "glue", tmp_path / "other")
    dev = tmp_path / "other" / "SST-2" / "dev.tsv"
    dev.write_text("\n".join(dev.read_text().splitlines()[:-4]) + "\n")
    other = {**LATE, "set": {"data.path": str(tmp_path / "other")}}
    path = write(tmp_path, stages=[TOGETHER, EARLY, other])
    assert cli.main(words(path, KEPT, "--out", str(tmp_path / "out"))) == 2
    assert "late is scored on other rows than early" in capsys.readouterr().err


def test_members_that_write_their_answers_are_refused_unless_they_rank(tmp_path, capsys):
    written = {"objective": {"format": "text", "target_length": 8}}
    path = write(tmp_path, stages=[TOGETHER, {**EARLY, "set": written}, {**LATE, "set": written}])
    assert cli.main(words(path, KEPT, "--out", str(tmp_path / "out"))) == 2
    assert "objective.answer = rank has it rank the labels" in capsys.readouterr().err
