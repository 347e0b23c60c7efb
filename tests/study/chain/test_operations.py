"""What all stages of an arm take together: as they were trained, and as they are planned."""

from pathlib import Path

import pytest

from sublayer.study.budget.plan import make_plan
from sublayer.study.chain.gathering import StageRuns
from sublayer.study.chain.operations import trained_operations, with_stages
from sublayer.study.chain.plan import StagePlan, plan_stages
from sublayer.study.chain.stages import PRETRAINING, Chain, Stage
from sublayer.study.definition import load_study
from sublayer.study.execution.one_run import Outcome
from tests.study.chain.chains import write_chain
from tests.study.test_plan import PLENTY

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


def stage(name: str, *outcomes: Outcome) -> StageRuns:
    return StageRuns(name, "0" * 64, {0: outcomes})


def test_a_pre_training_and_one_run_of_each_stage_are_added_up():
    runs = {
        PRETRAINING: stage(PRETRAINING, ended(1000, 7)),
        "mnli": stage("mnli", ended(10, 5), ended(12, 5), ended(50, 5)),
        "rte": stage("rte", ended(3, 5), Outcome(Path("x"), failure="diverged")),
        "both": stage("both", Outcome(Path("y"), test={"": 0.6})),
    }
    assert trained_operations(CHAIN, runs) == 7000 + 60 + 15
    assert trained_operations(CHAIN, {name: runs[name] for name in ("mnli", "rte")}) == 75


def test_while_a_stage_has_no_run_the_whole_is_not_known():
    runs = {PRETRAINING: stage(PRETRAINING, ended(1000, 7)), "mnli": stage("mnli")}
    assert trained_operations(CHAIN, runs) is None
    # Records of before it stood in them.
    assert trained_operations(CHAIN, {"mnli": stage("mnli", ended(1000, None))}) is None


def planned(path: Path) -> tuple[list[StagePlan], dict[str, float | None]]:
    """Return the stages, and how the operations of all of them exceed those of the first arm."""
    study = load_study(str(path), [f"data.path={path.parent / 'text.txt'}"])
    assert study.chain is not None
    plan = make_plan(study.arms, "none", PLENTY)
    stages = plan_stages(study, plan, PLENTY, None, n_seeds=2)
    arms = with_stages(plan, stages, study.chain).arms
    return stages, {arm.name: arm.budget.planned.operations for arm in arms}


def test_a_plan_counts_all_stages_and_of_a_fresh_arm_those_of_tasks(tmp_path):
    stages, beyond = planned(write_chain(tmp_path))
    spent = {"full": 0.0, "no texts": 0.0, "fresh": 0.0}
    for each in stages:
        # 6 steps of 4 windows of 48 tokens, and 3 steps of 8 examples.
        tokens = 6 * 4 * 48 if each.stage == PRETRAINING else 3 * 8 * 48
        for arm in each.arms:
            spent[arm] += tokens * each.each.flops_per_token
    assert beyond["full"] is None
    assert beyond["fresh"] == pytest.approx(spent["fresh"] / spent["full"] - 1)
    assert beyond["no texts"] == pytest.approx(spent["no texts"] / spent["full"] - 1)
    assert -1.0 < beyond["fresh"] < 0.0


def test_where_examples_are_not_counted_an_arm_without_pre_training_is_open(tmp_path):
    path = write_chain(tmp_path)
    steps = '"steps" = 3, "evaluate_steps" = 3, '
    assert steps in path.read_text()
    path.write_text(path.read_text().replace(steps, '"epochs" = 3, '))
    _, beyond = planned(path)
    # Both of the others are pre-trained alike: what is not known is left out of both.
    assert beyond == {"full": None, "no texts": 0.0, "fresh": None}
