"""Nested seeds: what stands for a pre-training, and how often equal arms are called different."""

from pathlib import Path

import numpy as np
import pytest

from sublayer.study.chain.collect import arm_scores
from sublayer.study.chain.columns import Column, points_metric
from sublayer.study.chain.gathering import StageRuns
from sublayer.study.chain.stages import Chain, Stage, explain_nesting
from sublayer.study.execution.one_run import Outcome
from sublayer.study.judgement.judge import judge

ACCURACY = points_metric("sst2", "SST-2")
COLUMN = Column(ACCURACY, "sst2", key="sst2", part="sst2")
STAGE = Stage("sst2", "pretraining", ("sst2",))


def runs_of(scores: dict[int, list[float]]) -> dict[str, StageRuns]:
    outcomes = {
        seed: [Outcome(Path(f"{seed}-{n}"), test={"sst2": each}) for n, each in enumerate(own)]
        for seed, own in scores.items()
    }
    return {"sst2": StageRuns("sst2", "key", outcomes)}


def chain_of(n_seeds: int, nested="mean") -> Chain:
    return Chain((STAGE,), n_seeds=n_seeds, nested=nested)


def test_the_mean_or_the_median_of_fine_tunings_stands_for_their_pre_training():
    scores = {0: [0.5, 0.7, 0.9], 1: [0.2, 0.2, 0.8]}
    mean = arm_scores(chain_of(3), runs_of(scores), [COLUMN], within=False)
    assert mean.by_seed["sst2"] == pytest.approx({0: 0.7, 1: 0.4})
    assert mean.cells["sst2"].mean == pytest.approx(0.55)
    # Over the two means, and within: sqrt((0.08 + 0.24) / 4).
    assert mean.cells["sst2"].sd == pytest.approx(0.3 / 2**0.5)
    assert mean.cells["sst2"].inner_sd == pytest.approx(0.08**0.5)
    median = arm_scores(chain_of(3, "median"), runs_of(scores), [COLUMN], within=False)
    assert median.by_seed["sst2"] == pytest.approx({0: 0.7, 1: 0.2})


def test_fine_tunings_of_one_pre_training_are_compared_and_said_to_be():
    scores = arm_scores(chain_of(3), runs_of({0: [0.5, 0.7, 0.9]}), [COLUMN], within=True)
    assert scores.by_seed["sst2"] == {0: 0.5, 1: 0.7, 2: 0.9}
    assert "hold for those weights alone" in explain_nesting(chain_of(3), 1)
    assert "drawn over pre-trainings" in explain_nesting(chain_of(3), 3)


def test_an_average_is_taken_under_each_pre_training_and_missing_where_a_member_is():
    both = Column(points_metric("both", "both"), "", members=("sst2", ("sst2", "sst2:f1")))
    scores = {0: [0.5], 1: [0.7]}
    runs = runs_of(scores)
    f1 = [0.1, None]
    for seed, value in enumerate(f1):
        outcome = runs["sst2"].outcomes[seed][0]
        if value is not None:
            outcome.test["sst2:f1"] = value  # type: ignore[index]
    found = arm_scores(chain_of(1), runs, [both, COLUMN], within=False)
    assert found.by_seed["both"] == pytest.approx({0: (0.5 + (0.5 + 0.1) / 2) / 2})


def test_a_failed_fine_tuning_is_left_out_of_the_mean():
    runs = runs_of({0: [0.5, 0.7], 1: [0.6, 0.8]})
    runs["sst2"].outcomes[0][1] = Outcome(Path("failed"), failure="diverged")  # type: ignore[index]
    found = arm_scores(chain_of(2), runs, [COLUMN], within=False)
    assert found.by_seed["sst2"] == pytest.approx({0: 0.5, 1: 0.7})


def simulated(rng: np.random.Generator, n_seeds: int, n_inner: int) -> dict[int, list[float]]:
    """Draw scores that vary as much between pre-trainings as between fine-tunings of one."""
    scores = {}
    for seed in range(n_seeds):
        start = rng.normal(0.8, 0.02)
        scores[seed] = list(rng.normal(start, 0.02, n_inner))
    return scores


@pytest.mark.slow
@pytest.mark.parametrize("n_seeds", [3, 4])
def test_equal_arms_are_called_different_in_one_of_twenty_studies_at_most(n_seeds):
    rng = np.random.default_rng(20)
    n_studies, n_inner = 1000, 3
    n_false = n_false_flat = 0
    for _ in range(n_studies):
        nested, flat = {}, {}
        for arm in ("a", "b"):
            scores = simulated(rng, n_seeds, n_inner)
            own = arm_scores(chain_of(n_inner), runs_of(scores), [COLUMN], within=False)
            nested[arm] = own.by_seed["sst2"]
            every = [each for values in scores.values() for each in values]
            flat[arm] = dict(enumerate(every))
        [difference] = judge("a", nested, ACCURACY, planned_seeds=n_seeds).differences
        n_false += difference.verdict != "cannot tell"
        [pooled] = judge("a", flat, ACCURACY, planned_seeds=n_seeds * n_inner).differences
        n_false_flat += pooled.verdict != "cannot tell"
    # 2.6 standard errors of a share of 5 % of 1,000.
    assert n_false / n_studies <= 0.05 + 2.6 * (0.05 * 0.95 / n_studies) ** 0.5
    # Were all fine-tunings counted as seeds, it would be far more.
    assert n_false_flat / n_studies > 0.1
