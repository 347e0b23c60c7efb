"""Findings of runs: the same quality at what cost, and the differences that a study can find."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.study.definition import Study, load_study
from sublayer.study.findings.run_curves import read_curves
from sublayer.study.findings.same_quality import SameQuality, place_of, same_quality
from sublayer.study.foresight import foresee
from sublayer.study.judgement.judge import judge
from sublayer.study.judgement.looks import ERROR, Looks, fixed, until_decided
from sublayer.study.question import Hypothesis, Question
from sublayer.study.report.same_quality_words import problems, rows
from sublayer.study.report.spread_words import hypothesis_words
from sublayer.study.results import Curve, Results
from tests.study.synthetic import encoder_results, synthetic_results

STEPS = (100, 200, 300, 400)
BASELINE = (5.0, 4.0, 3.5, 3.0)


def curve(seed: int, values: Sequence[float], *, step_s: float = 0.1) -> Curve:
    steps = STEPS[: len(values)]
    return Curve(
        seed,
        steps,
        tokens=tuple(10.0 * step for step in steps),
        seconds=tuple(step_s * step for step in steps),
        values=tuple(values),
    )


def with_curves(results: Results, curves: dict[str, Sequence[Curve]]) -> Results:
    arms = [replace(arm, curves=tuple(curves[arm.name])) for arm in results.arms]
    return replace(results, arms=tuple(arms))


@pytest.fixture
def two() -> Results:
    return synthetic_results({"a": 0.0, "b": 0.1}, n_seeds=2)


def test_the_place_between_two_evaluations_lies_on_a_line():
    falling = curve(0, (5.0, 4.0, 2.0, 1.0))
    # 3.0 is half of the way from 4.0 at step 200 to 2.0 at step 300.
    for value, place in ((3.0, 250.0), (4.0, 200.0), (0.5, None), (6.0, 100)):
        assert place_of(falling, value, falling.steps, is_lower=True) == place
    rising = curve(0, (1.0, 2.0, 4.0, 3.0))
    assert place_of(rising, 3.5, rising.steps, is_lower=False) == 275.0
    # The first of several crossings counts.
    noisy = curve(0, (5.0, 2.0, 4.0, 1.0))
    assert place_of(noisy, 3.0, noisy.steps, is_lower=True) == pytest.approx(100 + 100 * 2 / 3)


def test_shares_are_of_the_whole_run_of_the_other(two: Results):
    # b reaches 3.0 at step 250 of 400, each of twice the seconds and half the operations.
    better = [curve(seed, (5.0, 4.0, 2.0, 1.0), step_s=0.2) for seed in (0, 1)]
    results = with_curves(two, {"a": [curve(0, BASELINE), curve(1, BASELINE)], "b": better})
    a, b = results.arms
    b = replace(b, costs=replace(b.costs, flops_per_token=a.costs.flops_per_token // 2))
    b = replace(b, parameters={**b.parameters, "total": a.parameters["total"] * 3})  # type: ignore[operator]
    (found,) = same_quality(replace(results, arms=(a, b)))
    assert (found.arm, found.whose, found.parameters) == ("b", "a", 3.0)
    for share in found.seeds:
        assert (share.steps, share.flops, share.seconds) == (0.625, 0.3125, 1.25)
    # Where an arm is worse the baseline reaches what it ended with.
    worse = [curve(seed, (6.0, 5.0, 4.5, 4.0)) for seed in (0, 1)]
    results = with_curves(two, {"a": [curve(0, BASELINE), curve(1, BASELINE)], "b": worse})
    (found,) = same_quality(results)
    assert (found.arm, found.whose, found.summary("steps").median) == ("a", "b", 0.5)
    (row,) = rows(results)
    assert row.is_baseline


def test_runs_that_do_not_reach_it_stand_above_all_that_do(two: Results):
    def found(*shares: float | None) -> SameQuality:
        seeds = [replace(first, seed=seed, steps=share) for seed, share in enumerate(shares)]
        return replace(whole, seeds=tuple(seeds))

    (whole,) = same_quality(
        with_curves(two, {"a": [curve(0, BASELINE)], "b": [curve(0, (5.0, 3.0, 2.0, 1.0))]})
    )
    first = whole.seeds[0]
    most = found(0.9, 0.5, None).summary("steps")
    assert (most.median, most.low, most.high) == (0.9, 0.5, None)
    few = found(0.9, None, None).summary("steps")
    assert (few.median, few.low, few.high) == (None, 0.9, None)


def test_too_few_evaluations_are_said_and_nothing_is_computed(two: Results):
    short = [curve(seed, (5.0, 4.0, 3.0)) for seed in (0, 1)]
    results = with_curves(two, {"a": short, "b": short})
    (found,) = same_quality(results)
    assert not found.seeds
    assert rows(results) == []
    (problem,) = problems(results)
    assert problem.startswith("a run was evaluated 3 times, and it takes 4")


def test_arms_without_a_curve_of_the_decisive_metric_are_read_off_another():
    nsp, sop = same_quality(encoder_results())
    assert (sop.arm, sop.whose, len(nsp.seeds)) == ("SOP", "no loss", 4)
    median = sop.summary("steps").median
    assert median is not None and 0.0 < median < 0.6
    by_loss = []
    for arm in encoder_results().arms:
        curves = tuple(curve(seed, BASELINE) for seed in arm.seeds)
        by_loss.append(replace(arm, curves=(), further_curves={"loss": curves}))
    for found in same_quality(replace(encoder_results(), arms=tuple(by_loss))):
        # Equal curves: where the other ends.
        assert (found.metric.name, found.summary("steps").median) == ("loss", 1.0)


def test_the_training_curve_is_the_mean_of_the_steps_between_evaluations(tmp_path: Path):
    lines = [
        {"kind": "train", "step": 2, "loss": 4.0},
        {"kind": "train", "step": 5, "loss": 3.0},
        {"kind": "valid", "step": 5, "loss": 3.5, "bits_per_byte": 2.0},
        {"kind": "train", "step": 10, "loss": 2.0},
        {"kind": "valid", "step": 10, "loss": 2.5},
    ]
    text = "".join(json.dumps({**line, "tokens": 7, "seconds": 1.5}) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text)
    curves = read_curves(3, tmp_path, ["loss", "bits_per_byte", "mlm_accuracy"])
    assert curves.training is not None
    # Two steps of 4.0 and three of 3.0.
    assert curves.training.values == pytest.approx((3.4, 2.0))
    assert curves.validation["loss"].values == (3.5, 2.5)
    assert curves.validation["bits_per_byte"].steps == (5,)
    assert "mlm_accuracy" not in curves.validation


SPREAD = 0.02


@pytest.fixture
def two_arms() -> Study:
    return load_study("gpt", vary_texts=["model.ffn=gelu,swiglu"])


def said(study: Study, looks: Looks, *, margin: float) -> list[str]:
    question = Question(margin=f"{margin} bits per byte", spread=f"{SPREAD} bits per byte")
    return list(foresee(replace(study, question=question), BITS_PER_BYTE, looks))


def found(lines: list[str]) -> float:
    (line,) = (each for each in lines if "four times in five" in each)
    return float(re.search(r"a difference of ([\d.]+)", line)[1])


def enough(lines: list[str]) -> int | None:
    texts = [each for each in lines if each.startswith("warning: ")]
    return int(re.search(r"about (\d+) seeds would do", texts[0])[1]) if texts else None


@pytest.mark.parametrize("n_seeds", [3])
def test_drawn_studies_of_a_fixed_number_of_seeds_find_it_four_times_in_five(
    two_arms: Study, n_seeds: int
) -> None:
    size = found(said(two_arms, fixed(n_seeds), margin=1.0))
    draws = np.random.default_rng(0).normal(0.0, SPREAD, (20_000, 2, n_seeds))
    # One look spends four fifths of the error, as said where looks are planned.
    p = stats.ttest_ind(draws[:, 0] + size, draws[:, 1], axis=1).pvalue
    assert (p <= 0.8 * ERROR).mean() == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(("plan", "margin"), [(fixed, 0.02), (until_decided, 0.05)])
def test_as_many_seeds_as_would_do_are_enough_under_the_same_plan(
    two_arms: Study, plan, margin: float
) -> None:
    few = enough(said(two_arms, plan(4), margin=margin))
    assert few is not None and few > 4
    assert enough(said(two_arms, plan(few), margin=margin)) is None
    assert enough(said(two_arms, plan(few - 1), margin=margin)) == few


def test_a_hypothesis_about_two_arms_that_are_compared_is_no_further_comparison() -> None:
    values = {"a": {0: 1.0, 1: 1.1, 2: 1.2}, "b": {0: 5.0, 1: 5.1, 2: 5.25}}
    judged = judge("a", values, BITS_PER_BYTE, planned_seeds=3)
    assert Hypothesis("", {"a": 2.0, "b": -2.0}).names == ("a", "b")
    # The difference that is judged is b less a, and b is worse: a is better.
    results = replace(synthetic_results({"a": 0.0, "b": 1.0}), differences=judged.differences)
    for names, verdict in ((("a", "b"), "better"), (("b", "a"), "worse")):
        found = hypothesis_words(replace(results, hypothesis_of=names))
        assert found is not None and found[0] == verdict
        assert results.of_arms == judged.differences
