"""What the same quality costs: where curves cross, over seeds, and when that is not said."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sublayer.commands.shared.comparison import render
from sublayer.study.findings.run_curves import read_curves
from sublayer.study.findings.same_quality import SameQuality, place_of, same_quality
from sublayer.study.report.same_quality_words import problems, rows
from sublayer.study.results import ArmResult, Curve, Results
from sublayer.study.results_json import results_to_json
from tests.wrapping import unwrapped

Synthetic = Callable[..., Results]
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
def two(synthetic_results: Synthetic) -> Results:
    return synthetic_results({"a": 0.0, "b": 0.1}, n_seeds=2)


def test_the_place_between_two_evaluations_lies_on_a_line():
    falling = curve(0, (5.0, 4.0, 2.0, 1.0))
    # 3.0 is half of the way from 4.0 at step 200 to 2.0 at step 300.
    assert place_of(falling, 3.0, falling.steps, is_lower=True) == 250.0
    assert place_of(falling, 4.0, falling.steps, is_lower=True) == 200.0
    assert place_of(falling, 0.5, falling.steps, is_lower=True) is None
    assert place_of(falling, 6.0, falling.steps, is_lower=True) == 100
    rising = curve(0, (1.0, 2.0, 4.0, 3.0))
    assert place_of(rising, 3.5, rising.steps, is_lower=False) == 275.0


def test_the_first_of_several_crossings_counts():
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
    (row,) = rows(replace(results, arms=(a, b)))
    assert row.sentence == (
        "b reaches the quality that a ends with at 62\N{NO-BREAK SPACE}% of its steps, "
        "31\N{NO-BREAK SPACE}% of its FLOPs and 125\N{NO-BREAK SPACE}% of its time, "
        "with 300\N{NO-BREAK SPACE}% of its parameters."
    )


def test_where_an_arm_is_worse_the_baseline_reaches_what_it_ended_with(two: Results):
    worse = [curve(seed, (6.0, 5.0, 4.5, 4.0)) for seed in (0, 1)]
    results = with_curves(two, {"a": [curve(0, BASELINE), curve(1, BASELINE)], "b": worse})
    (found,) = same_quality(results)
    assert (found.arm, found.whose) == ("a", "b")
    assert found.summary("steps").median == 0.5
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


def test_how_many_runs_reach_it_is_said_in_words(synthetic_results: Synthetic):
    three = synthetic_results({"a": 0.0, "b": 0.1}, n_seeds=3)
    reaching = (5.0, 3.0, 2.0, 1.0)

    def said(*values: Sequence[float]) -> tuple[str, str, str]:
        curves = {
            "a": [curve(seed, BASELINE) for seed in range(3)],
            "b": [curve(seed, each) for seed, each in enumerate(values)],
        }
        results = with_curves(three, curves)
        (row,) = rows(results)
        text = unwrapped(render(results, Path("report.html")))
        return row.cells[0].median, row.cells[0].spread, text

    most, spread, text = said(reaching, reaching, (5.0, 4.9, 4.0, 3.1))
    assert (unwrapped(most), unwrapped(spread)) == ("50 %", "50 % to never")
    assert "never: not within a run" in text
    few, spread, text = said((5.0, 4.0, 3.0, -5.0), (5.0, 4.9, 4.0, 3.1), (5.0, 4.9, 4.0, 3.1))
    assert (few, spread) == ("in only 1 of 3 runs", "")
    assert "never" not in text


def test_too_few_evaluations_are_said_and_nothing_is_computed(two: Results):
    short = [curve(seed, (5.0, 4.0, 3.0)) for seed in (0, 1)]
    results = with_curves(two, {"a": short, "b": short})
    (found,) = same_quality(results)
    assert not found.seeds
    assert rows(results) == []
    (problem,) = problems(results)
    assert problem.startswith("a run was evaluated 3 times, and it takes 4")
    assert problem in unwrapped(render(results, Path("report.html")))


def test_arms_without_a_curve_of_what_decides_are_read_off_another_metric(
    encoder_results: Results,
):
    by_loss = []
    for arm in encoder_results.arms:
        curves = tuple(curve(seed, BASELINE) for seed in arm.seeds)
        by_loss.append(replace(arm, curves=(), further_curves={"loss": curves}))
    results = replace(encoder_results, arms=tuple(by_loss))
    for found in same_quality(results):
        assert found.metric.name == "loss"
        # Equal curves: where the other ends.
        assert found.summary("steps").median == 1.0


def test_higher_is_reached_from_below(encoder_results: Results):
    nsp, sop = same_quality(encoder_results)
    assert (sop.arm, sop.whose) == ("SOP", "no loss")
    median = sop.summary("steps").median
    assert median is not None
    assert 0.0 < median < 0.6
    assert len(nsp.seeds) == 4


def test_what_is_said_is_in_the_json(two: Results, tmp_path: Path):
    content = results_to_json(two, tmp_path / "report.html")
    (found,) = content["same_quality"]
    (computed,) = same_quality(two)
    assert found["steps"]["median"] == computed.summary("steps").median
    assert [each["seed"] for each in found["seeds"]] == [0, 1]
    json.dumps(content, allow_nan=False)


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


def test_a_run_without_measurements_has_no_curves(tmp_path: Path):
    curves = read_curves(0, tmp_path, ["loss"])
    assert (curves.training, curves.validation) == (None, {})


def test_an_arm_of_which_nothing_finished_is_said(two: Results):
    first, second = two.arms
    empty: ArmResult = replace(second, seeds=(), values=(), curves=())
    (problem,) = problems(replace(two, arms=(first, empty)))
    assert problem == "the runs of both arms have no validation curve of one metric"
