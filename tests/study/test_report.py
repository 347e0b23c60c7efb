"""Findings of runs and the report; how it reads is held by tests/golden."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.layering.layers import load_recipe
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.study import report
from sublayer.study.arms import Arm
from sublayer.study.budget.budget import MatchedArm
from sublayer.study.definition import Study, load_study
from sublayer.study.execution.arm_runs import ArmRuns
from sublayer.study.findings.budgets import arm_budgets
from sublayer.study.findings.run_curves import read_curves
from sublayer.study.findings.same_quality import SameQuality, place_of, same_quality
from sublayer.study.foresight import foresee
from sublayer.study.judgement.difference import Verdict
from sublayer.study.judgement.judge import judge
from sublayer.study.judgement.looks import ERROR, Looks, fixed, until_decided
from sublayer.study.question import Hypothesis, Question
from sublayer.study.report import arm_names
from sublayer.study.report.budget_words import describe_excess, time_caveats
from sublayer.study.report.caveats import explain_one_seed
from sublayer.study.report.choices import explain_choices
from sublayer.study.report.html import render_report, write_report
from sublayer.study.report.messages import conditions, headline
from sublayer.study.report.probe_figures import ProbedRun, put_probes
from sublayer.study.report.same_quality_words import problems
from sublayer.study.report.same_quality_words import rows as rows_of
from sublayer.study.report.spread_words import hypothesis_words
from sublayer.study.report.text_words import text_line
from sublayer.study.results import Curve, Results, StudyText
from sublayer.study.results_json import results_to_json
from sublayer.study.tuning import make_trials
from tests.breadth import rows
from tests.golden.test_reports import complete, one_seed
from tests.study.synthetic import encoder_results, synthetic_results, taking

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
def two():
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


def test_shares_are_of_the_whole_run_of_the_other(two):
    # b reaches 3.0 at step 250 of 400, each of twice the seconds and half the operations.
    better = [curve(seed, (5.0, 4.0, 2.0, 1.0), step_s=0.2) for seed in (0, 1)]
    results = with_curves(two, {"a": [curve(0, BASELINE), curve(1, BASELINE)], "b": better})
    a, b = results.arms
    b = replace(b, costs=replace(b.costs, flops_per_token=a.costs.flops_per_token // 2))
    b = replace(b, parameters={**b.parameters, "total": a.parameters["total"] * 3})
    (found,) = same_quality(replace(results, arms=(a, b)))
    assert (found.arm, found.whose, found.parameters) == ("b", "a", 3.0)
    for share in found.seeds:
        assert (share.steps, share.flops, share.seconds) == (0.625, 0.3125, 1.25)
    # Where an arm is worse the baseline reaches what it ended with.
    worse = [curve(seed, (6.0, 5.0, 4.5, 4.0)) for seed in (0, 1)]
    results = with_curves(two, {"a": [curve(0, BASELINE), curve(1, BASELINE)], "b": worse})
    (found,) = same_quality(results)
    assert (found.arm, found.whose, found.summary("steps").median) == ("a", "b", 0.5)
    (row,) = rows_of(results)
    assert row.is_baseline


def test_runs_that_do_not_reach_it_stand_above_all_that_do(two):
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


def test_too_few_evaluations_are_said_and_nothing_is_computed(two):
    short = [curve(seed, (5.0, 4.0, 3.0)) for seed in (0, 1)]
    results = with_curves(two, {"a": short, "b": short})
    (found,) = same_quality(results)
    assert not found.seeds
    assert rows_of(results) == []
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


def test_the_training_curve_is_the_mean_of_the_steps_between_evaluations(tmp_path):
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
    # Two steps of 4.0 and three of 3.0.
    assert curves.training.values == pytest.approx((3.4, 2.0))
    assert curves.validation["loss"].values == (3.5, 2.5)
    assert curves.validation["bits_per_byte"].steps == (5,)
    assert "mlm_accuracy" not in curves.validation


SPREAD = 0.02


@pytest.fixture
def two_arms():
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
def test_drawn_studies_of_a_fixed_number_of_seeds_find_it_four_times_in_five(two_arms, n_seeds):
    size = found(said(two_arms, fixed(n_seeds), margin=1.0))
    draws = np.random.default_rng(0).normal(0.0, SPREAD, (20_000, 2, n_seeds))
    # One look spends four fifths of the error, as said where looks are planned.
    p = stats.ttest_ind(draws[:, 0] + size, draws[:, 1], axis=1).pvalue
    assert (p <= 0.8 * ERROR).mean() == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(("plan", "margin"), [(fixed, 0.02), (until_decided, 0.05)])
def test_as_many_seeds_as_would_do_are_enough_under_the_same_plan(two_arms, plan, margin):
    few = enough(said(two_arms, plan(4), margin=margin))
    assert few is not None and few > 4
    assert enough(said(two_arms, plan(few), margin=margin)) is None
    assert enough(said(two_arms, plan(few - 1), margin=margin)) == few


def test_a_hypothesis_about_two_arms_that_are_compared_is_no_further_comparison():
    values = {"a": {0: 1.0, 1: 1.1, 2: 1.2}, "b": {0: 5.0, 1: 5.1, 2: 5.25}}
    judged = judge("a", values, BITS_PER_BYTE, planned_seeds=3)
    assert Hypothesis("", {"a": 2.0, "b": -2.0}).names == ("a", "b")
    # The difference that is judged is b less a, and b is worse: a is better.
    results = replace(synthetic_results({"a": 0.0, "b": 1.0}), differences=judged.differences)
    for names, verdict in ((("a", "b"), "better"), (("b", "a"), "worse")):
        found = hypothesis_words(replace(results, hypothesis_of=names))
        assert found is not None and found[0] == verdict
        assert results.of_arms == judged.differences


SCREENS = {"desktop": (1280, 800), "phone": (390, 844)}


def test_the_cost_of_a_verdict_is_of_the_runs_that_it_lacks():
    results = synthetic_results({"a": 0.0, "b": 0.1, "c": 0.2}, n_seeds=1)
    first, *others = results.arms
    unknown = replace(first, costs=replace(first.costs, seconds=None))
    two = replace(results, n_seeds=2)
    for found, trained, words in (
        # Three runs of 27 s.
        (results, [], "--seeds 3 continues from these runs with twice 3 runs of 81 s together."),
        (results, [1, 5, 3], "known. 5 seeds were trained: --seeds 5 gives an interval."),
        (replace(results, arms=(unknown, *others)), [1], "with twice 3 runs."),
        # A comparison that an earlier version made with two seeds lacks one.
        (two, [2], "these runs with 3 runs of 81 s together."),
    ):
        assert plain(explain_one_seed(found, trained)).endswith(words)


def test_names_cannot_break_the_page():
    html = render_report(synthetic_results({"<script>alert(1)</script>": 0.0, 'a"b$x^$': 0.1}))
    assert html.count("<script>") == 1, "the page's own, which copies"
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


def test_every_verdict_has_a_style():
    style = (Path(report.__file__).parent / "page" / "page.css").read_text()
    for verdict in get_args(Verdict):
        slug = verdict.replace(" ", "-")
        assert re.search(rf"\.{slug}\b[^}}]*background:", style), verdict


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium of this machine, never downloaded."""
    names = ("chromium", "chromium-browser", "google-chrome")
    binary = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no browser: chromium and chromedriver are needed")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    flags = ("headless=new", "no-sandbox", "disable-gpu", "no-first-run")
    for flag in (*flags, f"user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(f"--{flag}")
    opened = webdriver.Chrome(options=options, service=Service(executable_path=driver))
    yield opened
    opened.quit()


@pytest.mark.all
@pytest.mark.parametrize("screen", rows(SCREENS, 1))
def test_the_first_screen_shows_the_verdict_and_nothing_overflows(browser, tmp_path, screen):
    block = "block=['ffn:relu*0.5','attention','ffn:{}*0.5'] positions=rotary"
    results = synthetic_results({block.format(n): n / 9 for n in range(3)})
    notes = ("An arm has one rate, " + 30 * "tuned for none, " + "x" * 200, "Few seeds.")
    width, height = SCREENS[screen]
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    for shown in (results, encoder_results(), synthetic_results(n_seeds=1)):
        write_report(replace(shown, notes=notes), tmp_path / "report.html")
        browser.get((tmp_path / "report.html").as_uri())
        assert browser.execute_script("return window.innerWidth") == width
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        for selector in ("#verdict", ".statements li:first-child .badge"):
            box = browser.find_element("css selector", selector).rect
            assert box["y"] >= 0 and box["y"] + box["height"] <= height
            assert box["x"] + box["width"] <= width


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_an_excess_is_a_few_words():
    for shares, words in (
        ({"operations": 0.00512}, "0.5 % more operations"),
        ({"operations": 1.0}, "2.0 times the operations"),
        ({"operations": -0.9997}, "99.9 % fewer operations"),
        ({"parameters": -0.03, "time": 0.2}, "3.0 % fewer parameters and 20 % more time"),
    ):
        assert plain(describe_excess(shares)) == words


def test_arms_are_at_equal_budgets_up_to_the_clocks_noise_and_that_of_widths():
    results = synthetic_results({"BERT": 0.0, "ALBERT": 0.1, "wide": 0.2})
    timed = replace(results, match="time")
    for found, start in (
        (results, "At equal parameters"),
        (taking(results, "wide", parameters=1.0072), "Matched by parameters"),
        (taking(timed, "wide", seconds=1.02), "At equal time"),
        (taking(timed, "wide", seconds=1.04), "Matched by time"),
        (taking(replace(results, match="flops"), "wide", operations=None), "Matched by operations"),
    ):
        assert conditions(found).startswith(start)
    # Time is a currency where it was matched.
    longer = taking(results, "ALBERT", seconds=1.062)
    assert time_caveats(longer) == [] and arm_budgets(longer)[1].realised.time is None
    longer = taking(replace(longer, match="time"), "wide", seconds=0.98)
    assert arm_budgets(longer)[1].realised.time == pytest.approx(0.062)
    assert plain(headline(longer)).endswith("; budgets differ by up to 6.2 % in training time")
    [caveat] = time_caveats(longer)
    assert "ALBERT 6.2 % longer than BERT (" in plain(caveat)


def test_networks_and_position_schemes_have_words_of_theirs():
    assert arm_names._PHRASES["model.ffn"].keys() == FFNS.keys()
    assert arm_names._PHRASES["model.positions"].keys() == POSITIONS.keys()


def test_a_choice_at_the_edge_of_the_grid_is_noted():
    arm = Arm("gpt", load_recipe("gpt"), {})
    trials = make_trials([arm], ["optimizer.lr=1e-3,2e-3,4e-3"])
    for losses, chosen, words in (
        ((2.5, 2.25, 2.75), 1, ""),
        ((2.0, 2.25, 2.75), 0, "optimizer.lr = 0.001 is the lowest that was tried"),
        ((2.5, None, 2.25), 2, "optimizer.lr = 0.004 is the highest that was tried"),
    ):
        by_name = {trial.name: loss for trial, loss in zip(trials, losses, strict=True)}
        runs = ArmRuns(MatchedArm(arm, {}, (), 0.0), trials[chosen], {}, by_name)
        (note,) = explain_choices([runs], trials)
        assert note.startswith(f"gpt chose {trials[chosen].name} by its validation loss: lr=1e-3 ")
        assert ("lr=2e-3 failed" in note) == (None in losses)
        assert ("edge of the grid" in note) == bool(words) and words in note


def test_a_run_is_drawn_for_the_probes_that_it_asked_alone():
    described = {
        name: {"title": name, "chance": 0.5, "reference": 0.9, "chance_error": 0.02}
        for name in ("sst2", "dpr")
    }
    both = ProbedRun("both", described, {"sst2": [(1, 0.5), (2, 0.7)], "dpr": [(1, 0.6)]})
    one = ProbedRun("one", {"sst2": described["sst2"]}, {"sst2": [(1, 0.9)]})
    figure = Figure()
    put_probes(figure, [both, one])
    (axes,) = figure.axes
    curves = {line.get_label(): list(line.get_ydata()) for line in axes.lines[:-1]}
    assert curves == {
        "sst2, both": [0.0, pytest.approx(0.5)],
        "sst2, one": [pytest.approx(1.0)],
        "dpr, both": [pytest.approx(0.25)],
    }


DOCUMENT = Path(__file__).parents[2] / "docs" / "comparing.md"
BY_NAME = {"parameters", "environment", "checksums", "sizes", "counts", "differing", "settings"}
BY_NAME |= {"further_curves", "probes", "published"}
"""Objects whose keys are names of the study's own."""


def keys(content: Any, name: str = "") -> Iterator[str]:
    """Yield the keys of all objects, but for those that are names."""
    if isinstance(content, list):
        for item in content:
            yield from keys(item, name)
    if isinstance(content, Mapping):
        is_named = name in BY_NAME or (name == "further" and "metric" not in content)
        for key, value in content.items():
            if not is_named:
                yield key
            # The settings of a field are by arm, and the sizes of a split by what is counted.
            inner = {"differing": "settings", "sizes": "counts"}.get(name, key)
            yield from keys(value, inner)


def test_every_key_is_documented(tmp_path):
    section = DOCUMENT.read_text().partition("## results.json")[2].partition("\n## ")[0]
    documented = set(re.findall(r"`(\w+)`", section))
    for results in (complete(), one_seed(), encoder_results()):
        content = results_to_json(results, tmp_path / "report.html")
        written = json.loads(json.dumps(content, allow_nan=False))
        # The quartiles of a number are documented with it.
        assert {key.removesuffix("_quartiles") for key in keys(written)} <= documented


def test_the_text_is_named_with_its_size_and_what_is_not_known_is_left_out():
    sizes = {"train": {"bytes": 2_020_000, "documents": 634}, "test": {"bytes": 112_250}}
    text = StudyText(("a.txt", "b.txt", "c.txt", "d.txt", "e.txt"), sizes)
    made = SimpleNamespace(text=text, date="2026-11-28T12:00:00")
    line = text_line(SimpleNamespace(reproduction=made, split="test"))
    assert line == (
        "Text: a.txt, b.txt, c.txt and 2 more; trained on 634 documents, 2.02\xa0MB; "
        "finished on 2026-11-28."
    )
    made.text = StudyText(("a.txt", "b.txt"), {})
    assert text_line(SimpleNamespace(reproduction=made, split="test")).startswith(
        "Text: a.txt and b.txt; finished"
    )
