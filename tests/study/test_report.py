"""Findings of runs and the report; how it reads is held by tests/golden."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.architecture.positions import POSITIONS
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.study import report
from sublayer.study.definition import load_study
from sublayer.study.findings.budgets import arm_budgets
from sublayer.study.findings.run_curves import read_curves
from sublayer.study.findings.same_quality import place_of, same_quality
from sublayer.study.foresight import foresee
from sublayer.study.judgement.difference import Verdict
from sublayer.study.judgement.judge import judge
from sublayer.study.judgement.looks import ERROR, Looks, fixed, until_decided
from sublayer.study.question import Hypothesis, Question
from sublayer.study.report import arm_names
from sublayer.study.report.budget_words import time_caveats
from sublayer.study.report.html import render_report, write_report
from sublayer.study.report.messages import conditions
from sublayer.study.report.number_format import format_quantity
from sublayer.study.report.probe_figures import ProbedRun, put_probes
from sublayer.study.report.same_quality_words import problems
from sublayer.study.report.same_quality_words import rows as rows_of
from sublayer.study.report.spread_words import hypothesis_words
from sublayer.study.results import Curve, Results
from sublayer.study.results_json import results_to_json
from tests.breadth import rows
from tests.golden.test_reports import complete, one_seed
from tests.study.synthetic import encoder_results, synthetic_results, taking

STEPS = (100, 200, 300, 400)
BASELINE = (5.0, 4.0, 3.5, 3.0)
SPREAD = 0.02
BY_NAME = {"parameters", "environment", "checksums", "sizes", "counts", "differing", "settings"}
BY_NAME |= {"further_curves", "probes", "published"}


def curve(seed: int, values: Sequence[float], *, step_s: float = 0.1) -> Curve:
    steps = STEPS[: len(values)]
    tokens, seconds = (tuple(each * step for step in steps) for each in (10.0, step_s))
    return Curve(seed, steps, tokens=tokens, seconds=seconds, values=tuple(values))


def two(*, a: Sequence[Curve] | None = None, b: Sequence[Curve]) -> Results:
    """Two arms with these curves, the first with the baseline's."""
    results = synthetic_results({"a": 0.0, "b": 0.1}, n_seeds=2)
    curves = ([curve(seed, BASELINE) for seed in (0, 1)] if a is None else a, b)
    pairs = zip(results.arms, curves, strict=True)
    return replace(results, arms=tuple(replace(arm, curves=tuple(own)) for arm, own in pairs))


def test_the_same_quality_lies_on_a_line_between_evaluations_or_is_never_reached():
    # 3.0 is half of the way from 4.0 at step 200 to 2.0 at step 300.
    falling, rising = (5.0, 4.0, 2.0, 1.0), (1.0, 2.0, 4.0, 3.0)
    for values, value, is_lower, place in (
        *((falling, value, True, at) for value, at in ((3.0, 250.0), (4.0, 200.0), (6.0, 100))),
        (falling, 0.5, True, None), (rising, 3.5, False, 275.0),
        ((5.0, 2.0, 4.0, 1.0), 3.0, True, pytest.approx(100 + 100 * 2 / 3)),
    ):  # fmt: skip
        assert place_of(curve(0, values), value, STEPS, is_lower=is_lower) == place
    (whole,) = same_quality(two(a=[curve(0, BASELINE)], b=[curve(0, (5.0, 3.0, 2.0, 1.0))]))
    for shares, expected in (((0.9, 0.5, None), (0.9, 0.5)), ((0.9, None, None), (None, 0.9))):
        seeds = [replace(whole.seeds[0], seed=n, steps=each) for n, each in enumerate(shares)]
        found = replace(whole, seeds=tuple(seeds)).summary("steps")
        assert (found.median, found.low, found.high) == (*expected, None)
    short = [curve(seed, (5.0, 4.0, 3.0)) for seed in (0, 1)]
    results = two(a=short, b=short)
    (found,) = same_quality(results)
    assert (list(found.seeds), rows_of(results)) == ([], [])
    (problem,) = problems(results)
    assert problem.startswith("a run was evaluated 3 times, and it takes 4")


def test_shares_are_of_the_whole_run_of_the_other_by_any_metric_with_curves():
    # b reaches 3.0 at step 250 of 400, each of twice the seconds and half the operations.
    better = [curve(seed, (5.0, 4.0, 2.0, 1.0), step_s=0.2) for seed in (0, 1)]
    results = two(b=better)
    a, b = results.arms
    b = replace(b, costs=replace(b.costs, flops_per_token=a.costs.flops_per_token // 2))
    b = replace(b, parameters={**b.parameters, "total": a.parameters["total"] * 3})
    (found,) = same_quality(replace(results, arms=(a, b)))
    assert (found.arm, found.whose, found.parameters) == ("b", "a", 3.0)
    shares = [(share.steps, share.flops, share.seconds) for share in found.seeds]
    assert shares == [(0.625, 0.3125, 1.25)] * 2
    results = two(b=[curve(seed, (6.0, 5.0, 4.5, 4.0)) for seed in (0, 1)])
    (found,) = same_quality(results)
    assert (found.arm, found.whose, found.summary("steps").median) == ("a", "b", 0.5)
    (row,) = rows_of(results)
    assert row.is_baseline
    mixed = [curve(0, (5.0, 3.0, 2.0, 0.0)), curve(1, (5.0, 4.5, 4.0, 3.5))]
    (row,) = rows_of(two(b=mixed))
    assert "b reaches the quality that a ends with in only 1 of 2 runs, with" in row.sentence
    results = encoder_results()
    nsp, sop = same_quality(results)
    assert (sop.arm, sop.whose, len(nsp.seeds)) == ("SOP", "no loss", 4)
    assert 0.0 < sop.summary("steps").median < 0.6
    equal = [{"loss": [curve(seed, BASELINE) for seed in arm.seeds]} for arm in results.arms]
    pairs = zip(results.arms, equal, strict=True)
    by_loss = tuple(replace(arm, curves=(), further_curves=own) for arm, own in pairs)
    for found in same_quality(replace(results, arms=by_loss)):
        assert (found.metric.name, found.summary("steps").median) == ("loss", 1.0)


def test_the_training_curve_is_the_mean_of_the_steps_between_evaluations(tmp_path):
    drawn = [("train", 2, 4.0), ("train", 5, 3.0), ("valid", 5, 3.5), ("train", 10, 2.0)]
    fields = ("kind", "step", "loss")
    lines = [dict(zip(fields, each, strict=True)) for each in (*drawn, ("valid", 10, 2.5))]
    lines[2]["bits_per_byte"] = 2.0
    text = "".join(json.dumps({**line, "tokens": 7, "seconds": 1.5}) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text)
    curves = read_curves(3, tmp_path, ["loss", "bits_per_byte", "mlm_accuracy"])
    # Two steps of 4.0 and three of 3.0.
    assert curves.training.values == pytest.approx((3.4, 2.0))
    assert curves.validation.keys() == {"loss", "bits_per_byte"}
    assert curves.validation["loss"].values == (3.5, 2.5)
    assert curves.validation["bits_per_byte"].steps == (5,)


def foreseen(looks: Looks, margin: float) -> tuple[float, int | None]:
    """The difference that would be found, and how many seeds would do where these do not."""
    question = Question(margin=f"{margin} bits per byte", spread=f"{SPREAD} bits per byte")
    study = load_study("gpt", vary_texts=["model.ffn=gelu,swiglu"])
    lines = "\n".join(foresee(replace(study, question=question), BITS_PER_BYTE, looks))
    few = re.search(r"warning: .*about (\d+) seeds would do", lines)
    size = re.search(r"a difference of ([\d.]+).*four times in five", lines)
    return float(size[1]), few and int(few[1])


def test_drawn_studies_of_a_fixed_number_of_seeds_find_it_four_times_in_five():
    size, _ = foreseen(fixed(3), margin=1.0)
    draws = np.random.default_rng(0).normal(0.0, SPREAD, (20_000, 2, 3))
    # One look spends four fifths of the error, as said where looks are planned.
    p = stats.ttest_ind(draws[:, 0] + size, draws[:, 1], axis=1).pvalue
    assert (p <= 0.8 * ERROR).mean() == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(("plan", "margin"), [(fixed, 0.02), (until_decided, 0.05)])
def test_as_many_seeds_as_would_do_are_enough_under_the_same_plan(plan, margin):
    _, few = foreseen(plan(4), margin)
    assert few > 4
    assert [foreseen(plan(n), margin)[1] for n in (few, few - 1)] == [None, few]


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


def test_names_cannot_break_the_page_and_verdicts_and_networks_have_styles_and_words():
    html = render_report(synthetic_results({"<script>alert(1)</script>": 0.0, 'a"b$x^$': 0.1}))
    assert html.count("<script>") == 1, "the page's own, which copies"
    assert "<script>alert" not in html and "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    style = (Path(report.__file__).parent / "page" / "page.css").read_text()
    for verdict in get_args(Verdict):
        slug = verdict.replace(" ", "-")
        assert re.search(rf"\.{slug}\b[^}}]*background:", style), verdict
    assert arm_names._PHRASES["model.ffn"].keys() == FFNS.keys()
    assert arm_names._PHRASES["model.positions"].keys() == POSITIONS.keys()


@pytest.mark.all
@pytest.mark.parametrize(("width", "height"), rows([(1280, 800), (390, 844)], 1))
def test_the_first_screen_shows_the_verdict_and_nothing_overflows(tmp_path, width, height):
    binary, driver = map(shutil.which, ("chromium", "chromedriver"))
    if binary is None or driver is None:
        pytest.skip("no browser: chromium and chromedriver are needed")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in ("headless=new", "no-sandbox", "disable-gpu", f"user-data-dir={tmp_path / 'user'}"):
        options.add_argument(f"--{flag}")
    block = "block=['ffn:relu*0.5','attention','ffn:{}*0.5'] positions=rotary"
    results = synthetic_results({block.format(n): n / 9 for n in range(3)})
    notes = ("An arm has one rate, " + 30 * "tuned for none, " + "x" * 200, "Few seeds.")
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as browser:
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
    longer = taking(results, "ALBERT", seconds=1.062)
    assert time_caveats(longer) == [] and arm_budgets(longer)[1].realised.time is None
    found = arm_budgets(replace(longer, match="time"))[1].realised.time
    assert found == pytest.approx(0.062)


def test_a_run_is_drawn_for_the_probes_that_it_asked_alone():
    described = {"title": "t", "chance": 0.5, "reference": 0.9, "chance_error": 0.02}
    asked = {"sst2": [(1, 0.5), (2, 0.7)], "dpr": [(1, 0.6)]}
    both = ProbedRun("both", dict.fromkeys(asked, described), asked)
    figure = Figure()
    put_probes(figure, [both, ProbedRun("one", {"sst2": described}, {"sst2": [(1, 0.9)]})])
    (axes,) = figure.axes
    found = [list(line.get_ydata()) for line in axes.lines[:-1]]
    assert found == [[0.0, pytest.approx(0.5)], [pytest.approx(1.0)], [pytest.approx(0.25)]]


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
    page = (Path(__file__).parents[2] / "docs" / "comparing.md").read_text()
    section = page.partition("## results.json")[2].partition("\n## ")[0]
    documented = set(re.findall(r"`(\w+)`", section))
    for results in (complete(), one_seed(), encoder_results()):
        content = results_to_json(results, tmp_path / "report.html")
        written = json.loads(json.dumps(content, allow_nan=False))
        assert {key.removesuffix("_quartiles") for key in keys(written)} <= documented


@pytest.mark.parametrize("value, text", [(None, "–"), (0, "0 B"), (999, "999 B"), (1000, "1.00 kB"),
    (1234, "1.23 kB"), (1e6, "1.00 MB"), (0.5, "0.500 B"), (12.34, "12.3 B")])  # fmt: skip
def test_quantities_have_three_figures_and_a_prefix(value, text):
    assert format_quantity(value, "B").replace("\xa0", " ") == text
