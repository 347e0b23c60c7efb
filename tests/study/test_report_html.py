"""The report: what it says, that it needs nothing else, and how it looks in a browser."""

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from sublayer.commands.shared.comparison import render
from sublayer.objective.metric import Metric
from sublayer.study import report
from sublayer.study.judgement.difference import Verdict
from sublayer.study.judgement.judge import judge
from sublayer.study.report.caveats import explain_one_seed
from sublayer.study.report.display_units import in_display_units
from sublayer.study.report.html import lay_out_forest, render_report, write_report
from sublayer.study.report.messages import conditions, headline, statements
from sublayer.study.results import Further, Results
from sublayer.study.results_json import results_to_json

Synthetic = Callable[..., Results]
SCREENS = {"desktop": (1280, 800), "phone": (390, 844)}


def test_the_verdict_comes_in_plain_words(synthetic_results: Synthetic):
    results = synthetic_results({"gelu": 0.0, "swiglu": -0.02}, sd=1e-4)
    (statement,) = statements(results)
    sentence = (
        r"swiglu is better than gelu by (0\.0\d+) bits per byte "
        r"\(95% CI (0\.0\d+) to (0\.0\d+)\)\."
    )
    said = re.fullmatch(sentence, str(statement))
    assert said
    mean, low, high = (float(number) for number in said.groups())
    assert low < mean < high
    assert mean == pytest.approx(0.02, abs=2e-4)
    assert headline(results) == f"swiglu is better than gelu by {said[1]} bits per byte"


def test_one_seed_says_values_and_gives_no_verdict(synthetic_results: Synthetic):
    results = synthetic_results(n_seeds=1)
    assert headline(results) == "One seed: values, no verdict"
    assert ", one seed of each, scored on the test split" in conditions(results)
    swiglu, *_ = statements(results)
    assert swiglu.verdict == "no verdict"
    said = (
        r"swiglu differs from gpt by \N{MINUS SIGN}0\.\d+ bits per byte "
        r"with one seed, which gives no verdict\."
    )
    assert re.fullmatch(said, str(swiglu))


def test_the_report_of_one_seed_has_neither_interval_nor_colour_of_a_verdict(
    synthetic_results: Synthetic,
):
    results = synthetic_results(n_seeds=1)
    rates = {arm.name: {0: 0.1 * place} for place, arm in enumerate(results.arms)}
    accuracy = Metric("accuracy", "accuracy", is_lower_better=False, from_items=None)
    differences = judge("gpt", rates, accuracy, planned_seeds=1).differences
    arms = [replace(arm, further={"accuracy": rates[arm.name]}) for arm in results.arms]
    further = (Further(accuracy, tuple(differences)),)
    results = replace(results, arms=tuple(arms), further=further)
    page = render_report(results).partition("</style>")[2]
    badges = re.findall(r'class="badge ([a-z-]+)">([a-z ]+)<', page)
    assert badges == 3 * [("no-verdict", "no verdict")]
    assert 'class="interval"' not in page
    for word in ("95% CI", "decides", "sd over seeds", "cannot tell", "worse", "← better"):
        assert word not in page
    assert cells(page, "swiglu")[:2] == ["0.100", "+0.100"]
    assert f"{results.arms[1].mean:.3f}" in page
    assert "Learning curves" in page
    assert 'style="--tone:var(--muted)"' in page


def test_an_arm_of_one_seed_that_failed_has_nothing_to_set_beside_the_baseline(
    synthetic_results: Synthetic,
):
    results = synthetic_results({"a": 0.0, "b": 0.1}, n_seeds=1, failed=("b", 0))
    (statement,) = statements(results)
    said = "b cannot be compared with a, for want of a seed that finished in both."
    assert str(statement) == said
    assert "1 run failed" in render_report(results)
    assert "no verdict" in render(results, Path("report.html"))


def test_what_a_verdict_costs_is_said_of_one_seed(synthetic_results: Synthetic):
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


def test_an_open_verdict_says_how_many_more_seeds_would_decide(synthetic_results: Synthetic):
    (statement,) = statements(synthetic_results({"a": 0.0, "b": 0.002}))
    assert statement.verdict == "cannot tell"
    assert re.search(
        r"cannot be told from a: .* about \d+ more seeds? would decide four times in five "
        r"\(\d+ to .*\d\)\.$",
        str(statement),
    )


def test_equal_arms_do_not_ask_for_more_seeds(synthetic_results: Synthetic):
    (statement,) = statements(synthetic_results({"a": 0.0, "b": 0.0}, sd=0.0))
    assert str(statement).endswith("are equal, which no number of seeds would tell apart.")
    assert "more seed" not in str(statement)


def test_the_headline_names_few_arms_and_counts_many(synthetic_results: Synthetic):
    assert (
        headline(synthetic_results())
        == "swiglu is better than gpt; positions=none is worse; macaron cannot be told from gpt"
    )
    many = {"base": 0.0} | {f"arm{index}": 0.5 for index in range(6)}
    assert headline(synthetic_results(many)) == "Of 6 arms compared with base: 6 worse"


def test_the_report_needs_nothing_from_outside(synthetic_results: Synthetic):
    html = render_report(synthetic_results())
    assert "//" not in re.sub(r"<pre>.*?</pre>", "", html, flags=re.DOTALL)
    assert not re.search(
        r"<(script [^>]*src|link|img|iframe)\b(?! rel=\"icon\" href=\"data:,\")"
        r"|@import|url\((?!#)|fetch\(|import ",
        html,
    )


@pytest.mark.slow
def test_equal_results_give_the_same_bytes(synthetic_results: Synthetic):
    assert render_report(synthetic_results()) == render_report(synthetic_results())


def test_names_cannot_break_the_page(synthetic_results: Synthetic):
    html = render_report(synthetic_results({"<script>alert(1)</script>": 0.0, 'a"b$x^$': 0.1}))
    assert html.count("<script>") == 1, "the page's own, which copies"
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


def test_failed_runs_are_listed(synthetic_results: Synthetic):
    html = render_report(synthetic_results(failed=("macaron", 3)))
    assert "1 run failed" in html
    assert "the loss is not finite at step 41" in html
    assert "4 of 5 seeds finished in both arms" in html


def test_every_verdict_has_a_style():
    style = (Path(report.__file__).parent / "page" / "page.css").read_text()
    for verdict in get_args(Verdict):
        slug = verdict.replace(" ", "-")
        assert re.search(rf"\.{slug}\b[^}}]*background:", style), verdict


def test_a_study_of_which_nothing_finished_still_has_a_report(synthetic_results: Synthetic):
    results = synthetic_results({"a": 0.0, "b": 0.1}, n_seeds=3)
    arms = tuple(replace(arm, seeds=(), values=(), curves=()) for arm in results.arms)
    differences = judge("a", {"a": {}, "b": {}}, results.metric, planned_seeds=3).differences
    html = render_report(replace(results, arms=arms, differences=tuple(differences)))
    assert "b cannot be compared with a" in html


def test_the_forest_plot_holds_every_interval_seed_and_zero(synthetic_results: Synthetic):
    forest = lay_out_forest(synthetic_results())
    places = [forest.zero, *(tick.place for tick in forest.ticks)]
    for row in forest.rows:
        assert row.interval is not None
        assert row.mean is not None
        assert row.interval.place < row.mean < row.interval.place + row.interval.width
        places += [row.interval.place, row.interval.place + row.interval.width, *row.seeds]
    assert min(places) >= 0
    assert max(places) <= 100


def cells(html: str, arm: str) -> list[str]:
    """Return what the table of further measures says of an arm: values and differences in turn."""
    table = html.partition("<h3>Also measured</h3>")[2].partition("</table>")[0]
    (row,) = (row for row in table.split("<tr>") if f"</i>{arm}</th>" in row)
    found = re.findall(r"<td>(.*?)<br><small>(.*?)</small></td>", row)
    return [text for both in found for text in both]


def test_accuracies_are_read_in_percent_and_their_differences_in_points(encoder_results: Results):
    nsp, sop = statements(encoder_results)
    assert re.match(
        r"SOP is better than no loss by 33\.\d+ points of SOP accuracy "
        r"\(95% CI 3\d\.\d+ to 3",
        str(sop),
    )
    assert re.search(
        r"^NSP .* points of SOP accuracy .* 4 of 5 seeds finished in both arms\.$", str(nsp)
    )
    html = render_report(encoder_results)
    assert "Higher is better." in html
    assert "in points of SOP accuracy: bar, the mean" in html
    assert "validation, SOP accuracy, %" in html
    assert "worse" in html.partition('class="side" style="left:0"')[2][:20]


def test_what_is_shown_is_scaled_once_and_files_keep_shares(
    encoder_results: Results, tmp_path: Path
):
    once = in_display_units(encoder_results)
    assert in_display_units(once) == once
    assert once.arms[2].values == tuple(100 * value for value in encoder_results.arms[2].values)
    assert once.arms[2].further["loss"] == encoder_results.arms[2].further["loss"]
    assert [each.verdict for each in once.differences] == [
        each.verdict for each in encoder_results.differences
    ]
    content = results_to_json(encoder_results, tmp_path / "report.html")
    assert content["arms"][2]["values"][0] == pytest.approx(0.865, abs=0.02)
    assert content["differences"][1]["mean"] == pytest.approx(0.332, abs=0.02)


def test_bits_per_byte_are_shown_as_they_are(synthetic_results: Synthetic):
    assert in_display_units(synthetic_results()) == synthetic_results()


def test_the_other_measures_stand_beside_the_one_that_decides(encoder_results: Results):
    html = render_report(encoder_results)
    hidden, hidden_difference, pairs, pair_difference, loss, loss_difference = cells(html, "NSP")
    assert re.fullmatch(r"54\.\d+ ± 0\.\d+", hidden)
    assert re.fullmatch(
        r"<b>\N{MINUS SIGN}0\.\d+ \[\N{MINUS SIGN}0\.\d+ to \N{MINUS SIGN}0\.\d+\]</b>",
        hidden_difference,
    )
    assert re.fullmatch(r"90\.\d+ ± 0\.\d+", pairs)
    assert re.match(r"<b>\+3\d\.\d+ \[", pair_difference)
    assert re.fullmatch(r"2\.\d{3} ± 0\.\d{3}", loss)
    assert not loss_difference.startswith("<b>")


def test_a_measure_that_an_arm_was_never_scored_by_is_a_dash(encoder_results: Results):
    _, _, pairs, pair_difference, *_ = cells(render_report(encoder_results), "SOP")
    assert (pairs, pair_difference) == ("–", "–")
    assert "Infinity" not in render(encoder_results, Path("report.html"))


def test_the_terminal_shows_accuracies_as_the_report_does(
    encoder_results: Results, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")
    text = render(encoder_results, Path("report.html"))
    (heading,) = (line for line in text.splitlines() if "NSP accuracy" in line)
    assert "MLM accuracy, %" in heading
    assert f"SOP is better than no loss by {33}" in text
    assert re.search(r"^NSP +54\.\d+ ± 0\.\d+ +\N{MINUS SIGN}0\.", text, flags=re.MULTILINE)


@pytest.mark.slow
def test_what_the_verdicts_do_not_show_stands_below_them(synthetic_results: Synthetic):
    results = replace(synthetic_results(), notes=("One rate for <all> arms.", "3 seeds are few."))
    header = re.search(r"<header>.*</header>", render_report(results), flags=re.DOTALL)
    assert header
    assert header[0].index("statements") < header[0].index("One rate for &lt;all&gt; arms.")
    text = render(results, Path("report.html"))
    verdict, first, second, differences = map(
        text.index,
        (
            "is better than",
            "note: One rate for <all> arms.\n",
            "note: 3 seeds are few.\n",
            "against gpt ",
        ),
    )
    assert verdict < first < second < differences
    assert "note:" not in render(synthetic_results(), Path("report.html"))
    assert '<ul class="notes">' not in render_report(synthetic_results())


def test_what_was_tuned_is_a_condition_of_the_verdicts(synthetic_results: Synthetic):
    results = synthetic_results()
    assert conditions(results).startswith(
        "At equal parameters, no setting tuned, paired over 5 seeds"
    )
    arms = [replace(arm, tuned=("optimizer.lr=0.001", "model.dropout=0.1")) for arm in results.arms]
    tuned = replace(results, arms=tuple(arms))
    assert ", optimizer.lr and model.dropout tuned for each arm, paired over 5 seeds" in conditions(
        tuned
    )


def test_without_other_measures_there_is_no_table_of_them(synthetic_results: Synthetic):
    assert "Also measured" not in render_report(synthetic_results())


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, found on this machine and never downloaded."""
    binary = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip(
            f"no browser to look with: {'chromium' if binary is None else 'chromedriver'} is not "
            "installed"
        )
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (
            "headless=new",
            "no-sandbox",
            "disable-gpu",
            "disable-quic",
            "no-first-run",
            "disable-sync",
        ):
            options.add_argument(f"--{flag}")
        for flag in (
            "disable-background-networking",
            "disable-component-update",
            f"user-data-dir={profile}",
        ):
            options.add_argument(f"--{flag}")
        opened = webdriver.Chrome(options=options, service=Service(executable_path=driver))
        yield opened
        opened.quit()


@pytest.mark.slow
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize(
    "kind", ["one comparison", "four arms", "long names", "encoders", "one seed"]
)
def test_the_first_screen_shows_the_verdict_and_nothing_overflows(
    browser: Any,
    tmp_path: Path,
    synthetic_results: Synthetic,
    encoder_results: Results,
    screen: str,
    kind: str,
):
    effects = {
        "one comparison": {"block=transformer": 0.0, "block=macaron": -0.02},
        "four arms": None,
        "long names": {
            f"block=['ffn:relu*0.5','attention','ffn:{n}*0.5'] positions=rotary": n / 9
            for n in range(3)
        },
    }.get(kind)
    n_seeds = 1 if kind == "one seed" else 5
    results = synthetic_results(effects, n_seeds=n_seeds)
    if kind == "encoders":
        results = encoder_results
    results = replace(
        results, notes=("An arm has one rate, " + 30 * "tuned for none, " + "x" * 200, "Few seeds.")
    )
    write_report(results, tmp_path / "report.html")
    width, height = SCREENS[screen]
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get((tmp_path / "report.html").as_uri())
    assert browser.execute_script(
        "return document.documentElement.scrollWidth <= window.innerWidth"
    )
    assert browser.execute_script("return window.innerWidth") == width
    for selector in ("#verdict", ".statements li:first-child", ".statements li:first-child .badge"):
        box = browser.find_element("css selector", selector).rect
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= height
        assert box["x"] + box["width"] <= width
    loaded = browser.execute_script(
        "return performance.getEntriesByType('resource').map(entry => entry.name)"
    )
    assert all(address.startswith("data:") for address in loaded)
