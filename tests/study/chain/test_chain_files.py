"""A study's file with stages: its settings, plans, and refusals before anything is trained."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sublayer import cli
from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError
from sublayer.study.budget.plan import make_plan
from sublayer.study.chain import checks
from sublayer.study.chain.gathering import StageRuns
from sublayer.study.chain.keys import Keys
from sublayer.study.chain.operations import trained_operations, with_stages
from sublayer.study.chain.plan import StagePlan, plan_stages
from sublayer.study.chain.recipes import stage_key
from sublayer.study.chain.stages import PRETRAINING, Chain, Stage, describe_stages, differing_stages
from sublayer.study.definition import load_study
from sublayer.study.execution.one_run import Outcome
from tests.study.chain.chains import ARMS, EARLY, ENSEMBLE, KEPT, LATE, TOGETHER, words, write_chain
from tests.study.test_plan import PLENTY


def chain_of(path: Path, *overrides: str, scale: str | None = None) -> Chain:
    return load_study(str(path), overrides, scale=scale).chain


def test_settings_are_laid_over_each_other_from_the_scale_to_the_command_line(tmp_path):
    stages = [
        {"tasks": ["sst2", "copa"], "name": "both", "set": {"optimizer": {"lr": 0.25}}},
        {"tasks": "stsb", "after": "both"},
    ]
    arms = [{"name": "a"}, {"name": "b", "stages": {"stsb": {"model.dropout": 0.5}}}]
    path = write_chain(tmp_path, stages=stages, arms=arms, averages={})
    chain = chain_of(path, "finetune.train.epochs=7", "both.optimizer.lr=0.125", "train.steps=9")
    both, stsb = chain.stages
    settings = chain.settings_of("a", both)
    # Of lengths that exclude each other the last counts.
    assert (settings["optimizer.lr"], settings["train.epochs"]) == (0.125, 7)
    assert "train.steps" not in settings
    found = [chain.settings_of(arm, stsb).get("model.dropout") for arm in ("a", "b")]
    assert found == [None, 0.5]


def test_settings_go_to_a_stage_by_its_name(tmp_path):
    stages = [{"tasks": "sst2", "name": "at 1.5k"}, {"tasks": ["sst2", "copa"]}]
    path = write_chain(tmp_path, stages=stages, averages={})
    settings = ["at 1.5k.optimizer.lr=0.125", "sst2-copa.optimizer.lr=0.25"]
    found = [each.settings.get("optimizer.lr") for each in chain_of(path, *settings).stages]
    assert found == [0.125, 0.25]
    with pytest.raises(ConfigError, match="sst2 is no stage: .* there are finetune, at 1.5k"):
        load_study(str(path), ["sst2.optimizer.lr=0.125"])


def stages_of(*stages: dict[str, Any]) -> dict[str, Any]:
    return {"stages": list(stages), "averages": {}}


def arms_of(**changes: Any) -> dict[str, Any]:
    return {"arms": [{"name": "a"}, {"name": "b", **changes}]}


def ensemble_of(*members: str, stages: Any = (EARLY, LATE)) -> dict[str, Any]:
    return {**ENSEMBLE, "stages": [*stages, {"name": "c", "ensemble": list(members)}]}


def keeping(steps: list[int], **more: Any) -> dict[str, Any]:
    return {"set": {"train": {"keep_steps": steps, **more}}}


def copa_from(step: int) -> dict[str, Any]:
    return {"tasks": "copa", "after": "sst2", "from_step": step}


SST2 = {"tasks": "sst2"}
UNTRAINED = [
    {"name": name, "pretrain": False, "set": {"model.d_ff": n}} for n, name in ((8, "a"), (9, "b"))
]
BAD: list[tuple[dict[str, Any], str]] = [
    ({"stages": [{"each": ["sst2", "sst2"]}]}, "two stages are named sst2"),
    (stages_of({**SST2, "after": "copa"}, {"tasks": "copa", "after": "sst2"}), "from each other"),
    (stages_of({**SST2, "after": "pretrain"}), "no stage: did you mean pretraining?"),
    (stages_of({**SST2, "name": "train"}), "no stage may be named train"),
    (stages_of({**SST2, "each": ["copa"]}), "has tasks and each"),
    (stages_of({"set": {"train.steps": 3}}), "needs a name"),
    (stages_of({"name": "more", "preset": "gpt1"}), "a preset is of tasks"),
    (stages_of({"name": "more", "finetunings": 2}), "more goes on with a text"),
    (stages_of({**SST2, "set": {"train.minutes": 3}}), "stage sst2 has train.minutes"),
    (stages_of({**SST2, "set": {"init.run": "runs/a"}}), "stage sst2 has init.run"),
    (stages_of({**SST2, "set": {"model.d_model": 32}}), "do not fit model.d_model = 32"),
    (stages_of({**SST2, "set": {"objective.format": "pair"}}), "arm full, stage sst2"),
    (stages_of({**SST2, "set": {"train.keep_steps": [4]}}), "the run has 3 steps"),
    (stages_of({**SST2, "from_step": 4}), "add it there, train.keep_steps=[4]"),
    (stages_of({**SST2, **keeping([1, 2])}, copa_from(3)), "sst2.train.keep_steps=[3]"),
    (
        stages_of({**SST2, **keeping([500], epochs=1)}, copa_from(500)),
        "names step 500, and the run has",
    ),
    ({**stages_of({**SST2, "from_step": 3}), "arms": UNTRAINED}, "no arm is pre-trained"),
    (arms_of(stages={"sst": {"train.steps": 3}}), "sst, which is no stage: did you mean sst2?"),
    (arms_of(), "arm b is equal to the baseline a"),
    (arms_of(set={"train.seed": 4}), "arm b sets train.seed"),
    (arms_of(finetune={"init.layers": 2}), "init.layers = 2 is more than the 1 block"),
    ({**arms_of(pretrain=False), "stages": None, "averages": {}}, "has no effect without"),
    ({"averages": {"all": ["sst2", "cola"]}}, "cola is no column: did you mean copa?"),
    ({"averages": {"all": ["sst2:f2"]}}, "sst2 has no metric f2"),
    ({"averages": {"all": ["sst2", ["copa", "sst2"]]}}, "the average all has sst2 twice"),
    ({"metrics": {"sst2": ["accuracy", "accuracy"]}}, "metrics of sst2 has accuracy twice"),
    ({"metrics": {"sst2": "pearson"}}, "SST-2 has no metric pearson"),
    ({"tune_finetune": {"data.context": [32, 64]}}, "is not a setting of fine-tuning"),
    ({"tune": {"optimizer.lr": [0.1, 0.2]}}, "tunes its pre-training"),
    ({"tune_finetune": {"optimizer.lr": [0.1, 0.2]}, "finetunings": 1000}, "between 1 and 999"),
    ({"seeds": 2}, "--seeds 2 says too little"),
    ({"margin": "0.1 bits per byte"}, "in points, not in bits per byte"),
    (ensemble_of("early", "latter"), "latter, which is no stage: did you mean late?"),
    (ensemble_of("early"), "c has one member"),
    (ensemble_of("early", "copa", stages=[EARLY, {"tasks": "copa"}]), "learns copa, and early"),
    (ensemble_of("early", "both of them", stages=ENSEMBLE["stages"]), "an ensemble itself"),
    (ensemble_of("early", "pretraining"), "pretraining, which answers no task"),
    (ensemble_of("early", "more", stages=[EARLY, {"name": "more"}]), "more, which goes on with"),
    ({**ENSEMBLE, "stages": [EARLY, LATE, {**TOGETHER, **SST2}]}, "has tasks and ensemble"),
    (
        {**ENSEMBLE, "stages": [*ENSEMBLE["stages"], {"tasks": "copa", "after": "both of them"}]},
        "which leaves no model to start from",
    ),
    ({**ENSEMBLE, **arms_of(stages={"both of them": {"train.steps": 3}})}, "has no settings"),
    ({**ENSEMBLE, **arms_of(pretrain=False)}, "early and late are the same training"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message for _, message in BAD])
def test_a_chain_that_does_not_fit_is_refused_before_anything_is_trained(
    changes, message, tmp_path, capsys
):
    path = write_chain(tmp_path, **changes)
    out = tmp_path / "out"
    kept = [KEPT] if "early" in str(changes) else []
    assert cli.main(words(path, *kept, "--out", str(out))) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert not list(out.glob("stages/*"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--tune", "optimizer.lr=0.1,0.2"], "write --tune finetune.optimizer.lr=0.1,0.2"),
        (["train.seed=3"], "train.seed has no effect on a comparison"),
        (["--tune", "finetune.objective.language_weight=0.1,0.2"], "arm no texts has its own"),
        (["finetune.objective.language_weight=0.1"], "is what the arms of small differ in"),
        (["--finetunings", "2000"], "finetunings"),
        (["--until", "decided", "--seeds-at-most", "5"], "--until is of studies without stages"),
    ],
)
def test_options_without_effect_on_a_chain_are_refused(more, message, tmp_path, capsys):
    assert cli.main(words(write_chain(tmp_path), *more)) == 2
    assert message in capsys.readouterr().err


def test_missing_files_are_named_before_a_text_is_read(tmp_path, capsys):
    path, out = write_chain(tmp_path), tmp_path / "out"
    for gone, message in (("SST-2", "has no files of SST-2"), ("", "is no folder")):
        (tmp_path / "glue" / gone).rename(tmp_path / f"elsewhere{gone}")
        assert cli.main(words(path, "--out", str(out))) == 2
        error = capsys.readouterr().err
        assert f"stage sst2: {tmp_path}/glue {message}" in error.strip().splitlines()[-1]
        assert "turning the text" not in error and not out.exists()
    (tmp_path / "my.csv").write_text("text,label\n" + "a b,1\nc d,0\n" * 40)
    own = {"table": str(tmp_path / "my.csv"), "columns": {"text": "text", "label": "label"}}
    assert cli.main(words(write_chain(tmp_path, **stages_of(own)))) == 2
    assert "--data is of stages of published tasks" in capsys.readouterr().err


OTHER_ROWS = [{"data.path": name} for name in ("{place}/glue", "{place}/other")]
WRITTEN = [{"objective": {"format": "text", "target_length": 8}}] * 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (OTHER_ROWS, "late is scored on other rows than"),
        (WRITTEN, "objective.answer = rank has it rank the labels"),
    ],
)
def test_members_that_give_no_answers_to_average_are_refused(settings, message, tmp_path, capsys):
    early, late = json.loads(json.dumps(settings).replace("{place}", str(tmp_path)))
    stages = [TOGETHER, {**EARLY, "set": early}, {**LATE, "set": late}]
    path = write_chain(tmp_path, **{**ENSEMBLE, "stages": stages})
    other = shutil.copytree(tmp_path / "glue", tmp_path / "other") / "SST-2" / "dev.tsv"
    other.write_text("\n".join(other.read_text().splitlines()[:-4]) + "\n")
    assert cli.main(words(path, KEPT, "--out", str(tmp_path / "out"))) == 2
    assert message in capsys.readouterr().err


def test_a_disk_that_the_models_would_fill_is_refused_first(tmp_path, monkeypatch, capsys):
    class Full:
        free = 1000

    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: Full)
    out = tmp_path / "out"
    assert cli.main(words(write_chain(tmp_path), "--out", str(out))) == 2
    assert "the models of all runs take" in capsys.readouterr().err
    assert not list(out.glob("stages/*"))


def test_differences_of_two_chains_are_named_and_the_place_of_files_is_none(tmp_path):
    def described(data="glue", settings=(), **changes):
        return describe_stages(
            replace(chain_of(write_chain(tmp_path, **changes), *settings), data=data)
        )

    first = described()
    before_data_was_left_out = json.dumps({**json.loads(first), "data": "/a/glue"})
    assert differing_stages(before_data_was_left_out, described("elsewhere")) == ""
    assert differing_stages(first, None) == "stages"
    for damaged in ("{}", "[", '{"stages": 3, "arms": {}, "tune": []}'):
        with pytest.raises(ConfigError, match="what the study's folder says of its stages"):
            differing_stages(damaged, first)
    assert differing_stages(first, described(stages=[{"each": ["sst2"]}], averages={})) == "stages"
    longer = described(settings=["sst2.train.steps=4"])
    assert differing_stages(first, longer) == "settings of its stage sst2"
    arms = [*ARMS[:1], {"name": "no texts", "finetune": {"model.dropout": 0.5}}, *ARMS[2:]]
    assert differing_stages(first, described(arms=arms)) == "settings of its arm no texts"


def test_a_stage_is_found_by_the_checkpoint_that_it_starts_from():
    recipe = load_recipe("gpt").recipe
    keys = [stage_key(recipe, "before", [], from_step=step) for step in (None, 3, 4)]
    assert len(set(keys)) == 3


@pytest.mark.parametrize("stage", ["../../up", "..", "a\0b", "x" * 300])
def test_the_folder_of_a_stage_is_one_of_the_studys_stages(tmp_path, stage):
    folder = Keys({("full", stage): "0123456789abcdef"}).folder(tmp_path, "full", stage)
    assert folder.parent == tmp_path / "stages"
    assert folder.name.endswith("-0123456789")
    folder.mkdir(parents=True)
    assert folder.resolve().parent == (tmp_path / "stages").resolve()


def planned(path: Path, capsys, *more: str) -> dict[str, Any]:
    assert cli.main(["plan", *words(path, *more, "--json")[1:]]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_plan_counts_kept_checkpoints_and_an_ensemble_as_no_training(tmp_path, capsys):
    path = write_chain(tmp_path, **ENSEMBLE)
    plans = [planned(path, capsys, f"train.keep_steps={kept}") for kept in ("[2, 4]", "[4]")]
    disks = []
    for plan in plans:
        [first, *_] = [each for each in plan["stages"] if each["stage"] == PRETRAINING]
        disks.append(first["disk_bytes"])
    # Model, gradients' two moments: a checkpoint is three times the model.
    assert disks[0] / 7 == disks[1] / 4
    afters = {each["stage"]: each["after"] for each in plans[0]["stages"]}
    assert afters["early"] == "pretraining at step 4"
    [*_, one, other] = plans[0]["stages"]
    for each in (one, other):
        assert (each["stage"], each["after"]) == ("both of them", "early, late")
        assert (each["runs"], each["steps"], each["hours"], each["disk_bytes"]) == (3, 0, 0.0, 0)
    assert plans[0]["total"]["runs"] == 20


CHAIN = Chain(
    (
        Stage("mnli", PRETRAINING, ("mnli",)),
        Stage("rte", "mnli", ("rte",)),
        Stage("both", PRETRAINING, ("rte",), ensemble=("rte", "rte")),
    ),
    n_seeds=3,
)


def ended(tokens: int, flops_per_token: int | None) -> Outcome:
    record = {"tokens": tokens, "flops_per_token": flops_per_token}
    return Outcome(Path("run"), record, {"": 0.5})


def runs_of(name: str, *outcomes: Outcome) -> StageRuns:
    return StageRuns(name, "0" * 64, {0: outcomes})


def test_operations_are_those_of_a_pre_training_and_one_run_of_each_stage():
    runs = {
        PRETRAINING: runs_of(PRETRAINING, ended(1000, 7)),
        "mnli": runs_of("mnli", ended(10, 5), ended(12, 5), ended(50, 5)),
        "rte": runs_of("rte", ended(3, 5), Outcome(Path("x"), failure="diverged")),
        "both": runs_of("both", Outcome(Path("y"), test={"": 0.6})),
    }
    assert trained_operations(CHAIN, runs) == 7000 + 60 + 15
    assert trained_operations(CHAIN, {name: runs[name] for name in ("mnli", "rte")}) == 75
    # Unknown while a stage has no run, and of records that lack them.
    assert trained_operations(CHAIN, {**runs, "mnli": runs_of("mnli")}) is None
    assert trained_operations(CHAIN, {"mnli": runs_of("mnli", ended(1000, None))}) is None


def operations_beyond(path: Path) -> tuple[list[StagePlan], dict[str, float | None]]:
    """Return the stages, and how the operations of all of them exceed those of the first arm."""
    study = load_study(str(path), [f"data.path={path.parent / 'text.txt'}"])
    plan = make_plan(study.arms, "none", PLENTY)
    stages = plan_stages(study, plan, PLENTY, None, n_seeds=2)
    arms = with_stages(plan, stages, study.chain).arms
    return stages, {arm.name: arm.budget.planned.operations for arm in arms}


def test_planned_operations_are_of_all_stages_or_unknown(tmp_path):
    path = write_chain(tmp_path)
    stages, beyond = operations_beyond(path)
    spent = {"full": 0.0, "no texts": 0.0, "fresh": 0.0}
    for each in stages:
        # 6 steps of 4 windows of 48 tokens, and 3 steps of 8 examples.
        tokens = 6 * 4 * 48 if each.stage == PRETRAINING else 3 * 8 * 48
        for arm in each.arms:
            spent[arm] += tokens * each.each.flops_per_token
    assert beyond["full"] is None
    for arm in ("fresh", "no texts"):
        assert beyond[arm] == pytest.approx(spent[arm] / spent["full"] - 1)
    steps = '"steps" = 3, "evaluate_steps" = 3, '
    assert steps in path.read_text()
    path.write_text(path.read_text().replace(steps, '"epochs" = 3, '))
    _, beyond = operations_beyond(path)
    # Both of the others are pre-trained alike, and what is unknown is left out of both.
    assert beyond == {"full": None, "no texts": 0.0, "fresh": None}
