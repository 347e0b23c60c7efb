"""Stages that start from a checkpoint of the stage before: kept, planned, equal to by hand."""

import json

import pytest

from sublayer import cli
from sublayer.config.layering.run_recipe import read_run_recipe
from sublayer.files.checkpoints import checkpoint_path, saved_steps
from tests.study.chain.chains import words, write_chain

KEPT = "train.keep_steps=[2, 4]"
STAGES = [
    {"tasks": "sst2", "name": "early", "from_step": 2},
    {"tasks": "sst2", "name": "late"},
]
ARMS = [{"name": "full"}, {"name": "dropped", "set": {"model": {"dropout": 0.1}}}]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        yield write_chain(
            folder, stages=STAGES, arms=ARMS, averages={}, seeds=1, finetunings=1, metric="early"
        )


@pytest.mark.slow
def test_a_stage_starts_from_a_checkpoint_that_the_one_before_keeps(study, capsys):
    out = study.parent / "out"
    # A second time nothing is made anew, and nothing more is taken away.
    for _ in range(2):
        assert cli.main(words(study, KEPT, "--out", str(out))) == 0
    said = capsys.readouterr()
    assert "after pretraining at step 2" in said.err + said.out
    pretrained = sorted(out.glob("stages/pretraining-*/seed-0"))
    assert len(pretrained) == 2
    for run in pretrained:
        assert saved_steps(run / "checkpoints") == [2, 4]
        assert {path.name for path in (run / "checkpoints").iterdir()} == {
            "step-00000002",
            "step-00000004",
        }
    early = sorted(out.glob("stages/early-*/seed-0"))
    starts = {read_run_recipe(run / "recipe.toml").init.run for run in early}
    checkpoints = [checkpoint_path(run / "checkpoints", 2) for run in pretrained]
    assert starts == {str(path.absolute()) for path in checkpoints}
    assert not any((run / "checkpoints").exists() for run in early)
    late = {read_run_recipe(run / "recipe.toml").init.run for run in out.glob("stages/late-*/*")}
    assert late == {str(run.absolute()) for run in pretrained}
    by_hand = study.parent / "by-hand"
    told = [
        "train.steps=3",
        "train.evaluate_steps=3",
        "train.batch_sequences=8",
        "train.threads=1",
        "train.precision=float32",
        "data.held_out=0.2",
    ]
    start = next(iter(starts))
    glue = str(study.parent / "glue")
    assert cli.main(["finetune", start, "sst2", "--data", glue, *told, "--out", str(by_hand)]) == 0
    weights = (by_hand / "model" / "model.safetensors").read_bytes()
    assert weights in [(run / "model" / "model.safetensors").read_bytes() for run in early]


def test_a_plan_counts_the_checkpoints_that_stay(study, capsys):
    disks = []
    for more in ([KEPT], ["train.keep_steps=[2]"]):
        assert cli.main(["plan", str(study), *words(study)[2:], *more, "--json"]) == 0
        plan = json.loads(capsys.readouterr().out)
        stages = plan["stages"] if "stages" in plan else plan["chain"]["stages"]
        [first, *_] = [each for each in stages if each["stage"] == "pretraining"]
        disks.append(first["disk_bytes"])
        assert {each["after"] for each in stages if each["stage"] == "early"} == {
            "pretraining at step 2"
        }
    # Model, gradients' two moments: a checkpoint is three times the model.
    assert disks[0] / 7 == disks[1] / 4
