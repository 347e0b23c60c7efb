"""Columns of a chain's scores, from the runs that have ended, over nested seeds."""

from dataclasses import replace
from pathlib import Path

import pytest

from sublayer.study.chain.collect import arm_scores
from sublayer.study.chain.columns import (
    Column,
    list_columns,
    points_metric,
    published_metric,
    run_scores,
    value_of,
)
from sublayer.study.chain.gathering import Gathering, StageRuns
from sublayer.study.chain.kept import ArmFacts, Kept
from sublayer.study.chain.keys import Part
from sublayer.study.chain.stages import PRETRAINING, Chain, Stage
from sublayer.study.execution.one_run import Outcome
from sublayer.study.tuning import NO_TRIAL, Trial
from sublayer.tasks.registry import TASKS

CHAIN = Chain((Stage("mrpc", PRETRAINING, ("mrpc",)), Stage("mnli", PRETRAINING, ("mnli",))))
PARTS = {
    "mrpc": [Part("mrpc", TASKS["mrpc"])],
    "mnli": [Part(f"mnli_{each}", TASKS["mnli"]) for each in ("matched", "mismatched")],
}


def listed(chain: Chain, parts=PARTS) -> dict[str, str]:
    columns = list_columns("s", chain, parts, ())
    return {column.name: column.metric.label for column in columns}


def test_a_metric_stands_for_the_score_with_its_own_error_and_several_beside_it():
    assert listed(replace(CHAIN, metrics={"mrpc": "f1"})) == {
        "mrpc": "MRPC, F1",
        "mnli": "mnli, mean",
        "mnli/mnli_matched": "MNLI matched",
        "mnli/mnli_mismatched": "MNLI mismatched",
    }
    test = {"": 0.7, "mrpc": 0.7, "mrpc:error": 0.1, "mrpc:f1": 0.8, "mrpc:accuracy": 0.6}
    columns = list_columns("s", replace(CHAIN, metrics={"mrpc": "f1"}), PARTS, ())
    scores = run_scores(columns, "mrpc", {**test, "mrpc:f1:error": 0.2})
    assert (scores["mrpc"], scores["mrpc:error"]) == (0.8, 0.2)
    assert "mrpc:error" not in run_scores(columns, "mrpc", test)
    both = ("mrpc", "mrpc:f1")
    chain = replace(CHAIN, metrics={"mrpc": ("f1", "accuracy")}, averages={"both": both})
    assert list(listed(chain))[:4] == ["both", "mrpc", "mrpc:f1", "mrpc:accuracy"]
    columns = {each.name: each for each in list_columns("s", chain, PARTS, ())}
    scores = run_scores(list(columns.values()), "mrpc", test)
    expected = {"mrpc": 0.7, "mrpc:error": 0.1, "mrpc:f1": 0.8, "mrpc:accuracy": 0.6}
    assert expected.items() <= scores.items() and "mrpc:f1:error" not in scores
    assert value_of(columns["both"], scores) == pytest.approx(0.75)


def test_a_published_column_is_labelled_as_if_it_were_measured():
    labels = {
        "mrpc:f1": "MRPC, F1",
        "mnli/mnli_matched": "MNLI matched",
        "race_middle": "RACE middle",
        "mixture/best/cola": "CoLA, its best checkpoint",
        "GLUE": "GLUE",
    }
    assert {name: published_metric(name).label for name in labels} == labels


STUDY = Path("study")
TWO_TASKS = Chain(
    (Stage("mnli", PRETRAINING, ("mnli",)), Stage("rte", "mnli", ("rte",))), n_seeds=2
)
KEYS = {PRETRAINING: "f" * 64, "mnli": "0" * 64, "rte": "1" * 64}
TRIALS = (Trial("lr=1", {"optimizer.lr": 1}), Trial("lr=2", {"optimizer.lr": 2}))


def gathered(outcomes: dict[str, Outcome], trials=None) -> Gathering:
    folders = {f"{name}-{key[:10]}": name for name, key in KEYS.items()}

    def find(path: Path) -> Outcome | None:
        _, _, folder, *rest = path.parts
        return outcomes.get("/".join([folders[folder], *rest]))

    arm = ArmFacts(
        name="a", parameters={}, flops_per_token=0, steps=1, mismatch=0.0, matched=("steps",)
    )
    kept = Kept(
        chain=TWO_TASKS,
        n_seeds=1,
        n_runs={},
        arms=(arm,),
        kinds=("causal",),
        keys={"a": KEYS},
        parts={},
        trials={"mnli": (NO_TRIAL,), "rte": (NO_TRIAL,)} | (trials or {}),
    )
    gathering = Gathering(kept, STUDY, find)
    for stage in TWO_TASKS.stages:
        gathering.choose(stage)
    return gathering


def ended(score: float) -> Outcome:
    return Outcome(Path(f"{score}"), {"valid": {"score": score}}, {"": score})


def test_what_follows_on_a_failure_has_ended_and_what_is_not_there_has_not():
    failed = gathered({f"{PRETRAINING}/seed-0": Outcome(Path("p"), failure="diverged")})
    runs = failed.gathered()
    [first, _] = runs["a", "rte"].outcomes[0]
    assert first.failure == (
        "mnli, which it starts from, failed: pretraining, which it starts from, failed: diverged"
    )
    assert failed.n_ended() == {PRETRAINING: 1, "mnli": 2, "rte": 2}
    nothing = gathered({f"{PRETRAINING}/seed-0": ended(0.5)})
    [first, _] = nothing.gathered()["a", "mnli"].outcomes[0]
    assert (first.test, first.failure) == (None, "")
    assert nothing.n_ended() == {PRETRAINING: 1}


def test_nothing_is_chosen_before_all_trials_have_ended():
    trials = {"mnli": TRIALS}
    outcomes = {f"{PRETRAINING}/seed-0": ended(0.5), "mnli/lr=1/seed-0": ended(0.6)}
    part = gathered(outcomes, trials)
    runs = part.gathered()["a", "mnli"]
    assert not runs.outcomes and not runs.tried
    assert part.n_ended() == {PRETRAINING: 1, "mnli": 1}
    outcomes["mnli/lr=2/seed-0"] = ended(0.7)
    runs = gathered(outcomes, trials).gathered()["a", "mnli"]
    assert (runs.trial, runs.tried) == (TRIALS[1], {"lr=1": 0.6, "lr=2": 0.7})
    outcomes["mnli/lr=2/seed-0"] = Outcome(Path("t"), failure="diverged")
    assert gathered(outcomes, trials).gathered()["a", "mnli"].trial == TRIALS[0]


ACCURACY = points_metric("sst2", "SST-2")
COLUMN = Column(ACCURACY, "sst2", key="sst2", part="sst2")
STAGE = Stage("sst2", "pretraining", ("sst2",))


def runs_of(scores: dict[int, list[float]]) -> dict[str, StageRuns]:
    outcomes = {
        seed: [Outcome(Path(f"{seed}-{n}"), test={"sst2": each}) for n, each in enumerate(own)]
        for seed, own in scores.items()
    }
    return {"sst2": StageRuns("sst2", "key", outcomes)}


def nested(n_seeds: int, summary="mean") -> Chain:
    return Chain((STAGE,), n_seeds=n_seeds, nested=summary)


def test_the_mean_or_the_median_of_fine_tunings_stands_for_their_pre_training():
    scores = {0: [0.5, 0.7, 0.9], 1: [0.2, 0.2, 0.8]}
    mean = arm_scores(nested(3), runs_of(scores), [COLUMN], within=False)
    assert mean.by_seed["sst2"] == pytest.approx({0: 0.7, 1: 0.4})
    assert mean.cells["sst2"].mean == pytest.approx(0.55)
    # Over the two means, and within: sqrt((0.08 + 0.24) / 4).
    assert mean.cells["sst2"].sd == pytest.approx(0.3 / 2**0.5)
    assert mean.cells["sst2"].inner_sd == pytest.approx(0.08**0.5)
    median = arm_scores(nested(3, "median"), runs_of(scores), [COLUMN], within=False)
    assert median.by_seed["sst2"] == pytest.approx({0: 0.7, 1: 0.2})
    # A failed fine-tuning is left out; those of one pre-training alone are compared themselves.
    runs = runs_of({0: [0.5, 0.7], 1: [0.6, 0.8]})
    runs["sst2"].outcomes[0][1] = Outcome(Path("failed"), failure="diverged")
    found = arm_scores(nested(2), runs, [COLUMN], within=False)
    assert found.by_seed["sst2"] == pytest.approx({0: 0.5, 1: 0.7})
    within = arm_scores(nested(3), runs_of({0: [0.5, 0.7, 0.9]}), [COLUMN], within=True)
    assert within.by_seed["sst2"] == {0: 0.5, 1: 0.7, 2: 0.9}


def test_an_average_is_taken_under_each_pre_training_and_missing_where_a_member_is():
    both = Column(points_metric("both", "both"), "", members=("sst2", ("sst2", "sst2:f1")))
    runs = runs_of({0: [0.5], 1: [0.7]})
    runs["sst2"].outcomes[0][0].test["sst2:f1"] = 0.1
    found = arm_scores(nested(1), runs, [both, COLUMN], within=False)
    assert found.by_seed["both"] == pytest.approx({0: (0.5 + (0.5 + 0.1) / 2) / 2})
