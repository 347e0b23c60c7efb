"""The report: what decides its words and figures; how it reads is held by tests/golden."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from matplotlib.figure import Figure

from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.layering.layers import load_recipe
from sublayer.study import report
from sublayer.study.arms import Arm
from sublayer.study.budget.budget import MatchedArm
from sublayer.study.execution.arm_runs import ArmRuns
from sublayer.study.execution.one_run import Outcome
from sublayer.study.findings.budgets import arm_budgets
from sublayer.study.findings.differing_fields import differing_fields
from sublayer.study.findings.machines import list_differing_machines
from sublayer.study.judgement.difference import Verdict
from sublayer.study.judgement.judge import judge
from sublayer.study.report import arm_names
from sublayer.study.report.arm_names import name_setting
from sublayer.study.report.budget_words import (
    describe_excess,
    time_caveats,
)
from sublayer.study.report.caveats import explain_one_seed
from sublayer.study.report.choices import explain_choices
from sublayer.study.report.display_units import in_display_units
from sublayer.study.report.html import render_report, write_report
from sublayer.study.report.messages import conditions, headline
from sublayer.study.report.probe_figures import ProbedRun, put_probes
from sublayer.study.results_json import results_to_json
from sublayer.study.tuning import make_trials
from tests.breadth import rows
from tests.golden.test_reports import complete, one_seed
from tests.study.synthetic import encoder_results, synthetic_results, taking

SCREENS = {"desktop": (1280, 800), "phone": (390, 844)}


def test_what_a_verdict_costs_is_said_of_one_seed():
    results = synthetic_results({"a": 0.0, "b": 0.1, "c": 0.2}, n_seeds=1)
    note = explain_one_seed(results)
    # Three runs of 27 s.
    cost = (
        "--seeds 3 continues from these runs with twice 3 runs of 81\N{NO-BREAK SPACE}s together."
    )
    assert note.endswith(cost)
    assert explain_one_seed(results, [1]) == note
    trained = "known. 5 seeds were trained: --seeds 5 gives an interval."
    assert explain_one_seed(results, [1, 5, 3]).endswith(trained)
    first, *others = results.arms
    unknown = replace(first, costs=replace(first.costs, seconds=None))
    failed = replace(results, arms=(unknown, *others))
    assert explain_one_seed(failed).endswith("continues from these runs with twice 3 runs.")
    # A comparison that an earlier version made with two seeds lacks one.
    assert "2 seeds give values" in explain_one_seed(replace(results, n_seeds=2))
    assert "these runs with 3 runs of " in explain_one_seed(replace(results, n_seeds=2), [2])


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


def test_what_is_shown_is_scaled_once_and_files_keep_shares(tmp_path: Path):
    results = encoder_results()
    once = in_display_units(results)
    assert in_display_units(once) == once
    assert once.arms[2].values == tuple(100 * value for value in results.arms[2].values)
    assert once.arms[2].further["loss"] == results.arms[2].further["loss"]
    assert [each.verdict for each in once.differences] == [
        each.verdict for each in results.differences
    ]
    content = results_to_json(results, tmp_path / "report.html")
    assert content["arms"][2]["values"][0] == pytest.approx(0.865, abs=0.02)
    assert content["differences"][1]["mean"] == pytest.approx(0.332, abs=0.02)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
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
    profile = tmp_path_factory.mktemp("profile")
    flags = ("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run")
    flags += ("disable-sync", "disable-background-networking", "disable-component-update")
    for flag in (*flags, f"user-data-dir={profile}"):
        options.add_argument(f"--{flag}")
    opened = webdriver.Chrome(options=options, service=Service(executable_path=driver))
    yield opened
    opened.quit()


@pytest.mark.all
@pytest.mark.parametrize("screen", rows(SCREENS, 1))
@pytest.mark.parametrize("kind", ["long names", "encoders", "one seed"])
def test_the_first_screen_shows_the_verdict_and_nothing_overflows(
    browser: Any, tmp_path: Path, screen: str, kind: str
):
    block = "block=['ffn:relu*0.5','attention','ffn:{}*0.5'] positions=rotary"
    results = synthetic_results(n_seeds=1)
    if kind == "encoders":
        results = encoder_results()
    if kind == "long names":
        results = synthetic_results({block.format(n): n / 9 for n in range(3)})
    notes = ("An arm has one rate, " + 30 * "tuned for none, " + "x" * 200, "Few seeds.")
    write_report(replace(results, notes=notes), tmp_path / "report.html")
    width, height = SCREENS[screen]
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get((tmp_path / "report.html").as_uri())
    assert browser.execute_script("return window.innerWidth") == width
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    for selector in ("#verdict", ".statements li:first-child", ".statements li:first-child .badge"):
        box = browser.find_element("css selector", selector).rect
        assert box["y"] >= 0 and box["y"] + box["height"] <= height
        assert box["x"] + box["width"] <= width
    entries = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    assert all(address.startswith("data:") for address in browser.execute_script(entries))


def test_what_follows_from_other_fields_is_no_difference_of_its_own():
    def recipe(ffn: str, steps: int, derived: str, lengthened: str = "") -> str:
        return (
            f"derived = [{derived}]\n{lengthened}\n[model]\nffn = '{ffn}'\n"
            f"norm_eps = 1e-{steps}\n[train]\nsteps = {steps}\n"
        )

    first, second = synthetic_results({"a": 0.0, "b": 0.1}).arms
    both = "'model.norm_eps', 'train.steps'"
    first = replace(first, recipe=recipe("gelu", 5, both, "lengthened = [{at_step = 2}]"))
    derived = replace(second, recipe=recipe("relu", 6, both))
    # Minutes are other steps on another machine, which counts.
    assert list(differing_fields((first, derived))) == ["model.ffn", "train.steps"]
    told = replace(second, recipe=recipe("relu", 6, "'train.steps'"))
    assert "model.norm_eps" in differing_fields((first, told))


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"operations": 0.00512}, "0.5 % more operations"),
        ({"operations": 1.0}, "2.0 times the operations"),
        ({"operations": 4321.0}, "4,322 times the operations"),
        ({"operations": -0.9997}, "99.9 % fewer operations"),
        ({"parameters": -0.03, "time": 0.2}, "3.0 % fewer parameters and 20 % more time"),
    ],
)
def test_an_excess_is_a_few_words(shares: dict[Any, float], words: str) -> None:
    assert plain(describe_excess(shares)) == words


def test_what_was_meant_to_be_equal_and_is_not_is_not_called_so():
    results = synthetic_results()
    assert conditions(results).startswith("At equal parameters")
    wider = taking(results, "macaron", parameters=1.0072)
    assert conditions(wider).startswith("Matched by parameters, no setting tuned")
    slower = taking(replace(results, match="time"), "macaron", seconds=1.02)
    assert conditions(slower).startswith("At equal time")
    slower = taking(replace(results, match="time"), "macaron", seconds=1.04)
    assert conditions(slower).startswith("Matched by time")
    unknown = taking(replace(results, match="flops"), "macaron", operations=None)
    assert conditions(unknown).startswith("Matched by operations")


def test_each_arm_is_held_against_its_own_control():
    results = synthetic_results({"a": 0.0, "a wide": 0.1, "b": 0.0, "b wide": 0.1})
    values = {arm.name: dict(zip(arm.seeds, arm.values, strict=True)) for arm in results.arms}
    against = {"b": "b", "b wide": "b"}
    judged = judge("a", values, results.metric, planned_seeds=5, against=against)
    results = replace(results, differences=judged.differences)
    results = taking(results, "b", parameters=2.0)
    results = taking(results, "b wide", parameters=2.5)
    budgets = {each.arm: each for each in arm_budgets(results)}
    held = [budgets[name].against for name in ("a", "a wide", "b", "b wide")]
    assert held == [None, "a", None, "b"]
    assert budgets["b wide"].realised.parameters == pytest.approx(0.25)


def test_time_is_a_currency_where_it_was_matched_and_noise_is_none():
    results = synthetic_results({"BERT": 0.0, "ALBERT": 0.1, "wide": 0.2})
    longer = taking(results, "ALBERT", seconds=1.062)
    assert time_caveats(longer) == []
    assert arm_budgets(longer)[1].realised.time is None
    timed = replace(longer, match="time")
    timed = taking(timed, "wide", seconds=0.98)
    assert arm_budgets(timed)[1].realised.time == pytest.approx(0.062)
    assert plain(headline(timed)).endswith("; budgets differ by up to 6.2 % in training time")
    [caveat] = time_caveats(timed)
    assert "ALBERT 6.2 % longer than BERT (" in plain(caveat)
    assert time_caveats(taking(timed, "ALBERT", seconds=1.0 / 1.062)) == []


def test_a_setting_has_a_name_in_english():
    for field, value, name in (
        ("model.tie_embeddings", False, "untied embeddings"),
        ("model.n_layers", 1, "1 layer"),
        ("model.n_layers", 12, "12 layers"),
        ("model.bias", 1, "bias = 1"),
        ("model.rotary_base", 500000.0, "rotary_base = 500000.0"),
    ):
        assert name_setting(field, value) == name


def test_every_network_and_every_position_scheme_has_words_of_its_own():
    assert arm_names._PHRASES["model.ffn"].keys() == FFNS.keys()
    assert arm_names._PHRASES["model.positions"].keys() == POSITIONS.keys()


@pytest.mark.parametrize(
    ("losses", "chosen", "edge"),
    [
        ((2.5, 2.25, 2.75), "lr=2e-3", ""),
        ((2.0, 2.25, 2.75), "lr=1e-3", "optimizer.lr = 0.001 is the lowest that was tried"),
        ((2.5, None, 2.25), "lr=4e-3", "optimizer.lr = 0.004 is the highest that was tried"),
    ],
)
def test_a_choice_is_said_with_what_others_scored(
    losses: tuple[float | None, ...], chosen: str, edge: str
):
    arm = Arm("gpt", load_recipe("gpt"), {})
    trials = make_trials([arm], ["optimizer.lr=1e-3,2e-3,4e-3"])
    by_name = {trial.name: loss for trial, loss in zip(trials, losses, strict=True)}
    (trial,) = [each for each in trials if each.name == chosen]
    runs = ArmRuns(MatchedArm(arm, {}, (), 0.0), trial, {}, by_name)
    (note,) = explain_choices([runs], trials)
    assert note.startswith(f"gpt chose {chosen} by its validation loss: lr=1e-3 ")
    assert ("lr=2e-3 failed" in note) == (None in losses)
    assert ("edge of the grid" in note) == bool(edge)
    assert edge in note


XEON = {"processor": "Xeon", "instructions": "AVX512", "cores": 64, "device": "cpu"}


def runs(*machines: dict[str, Any]) -> list[Outcome]:
    return [Outcome(Path(), {"machine": machine}) for machine in machines]


def test_runs_on_other_processors_or_instructions_are_counted_by_arm():
    epyc = {**XEON, "processor": "EPYC"}
    older = {**XEON, "instructions": "AVX2"}
    (note,) = list_differing_machines({"a": runs(XEON, XEON, epyc), "b": runs(XEON, older)})
    assert note.endswith(
        "cpu, Xeon, AVX512: 2 of a, 1 of b; cpu, EPYC, AVX512: 1 of a; cpu, Xeon, AVX2: 1 of b."
    )


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


def test_every_key_is_documented(tmp_path: Path):
    section = DOCUMENT.read_text().partition("## results.json")[2].partition("\n## ")[0]
    documented = set(re.findall(r"`(\w+)`", section))
    for results in (complete(), one_seed(), encoder_results()):
        content = results_to_json(results, tmp_path / "report.html")
        written = json.loads(json.dumps(content, allow_nan=False))
        # The quartiles of a number are documented with it.
        assert {key.removesuffix("_quartiles") for key in keys(written)} <= documented
