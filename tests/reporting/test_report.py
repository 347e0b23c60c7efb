"""Questions of a study, findings of runs, and the report; how it reads is held by tests/golden."""

import csv
import json
import math
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

from sublayer import reporting
from sublayer.api.run import load
from sublayer.config.layers import read_toml
from sublayer.errors import CheckpointError, ConfigError
from sublayer.evaluation.items import Metric
from sublayer.files.storage import write_json
from sublayer.inspection.layer_change import Spread
from sublayer.inspection.states import measure_layers, spread_windows
from sublayer.numbers import NO_BREAK, format_quantity
from sublayer.objective.causal import BITS_PER_BYTE
from sublayer.reporting import tables
from sublayer.reporting.figures import ProbedRun, draw_metrics, put_probes
from sublayer.reporting.files import report_again, report_study, results_to_json
from sublayer.reporting.html import render_report, write_report
from sublayer.reporting.tables import quality_sheet, secondary_sheet
from sublayer.reporting.words import conditions, hypothesis_words, in_display_units, turn_lines
from sublayer.runs.folder import RunFolder
from sublayer.runs.session import prepare_data
from sublayer.statistics.contrasts import Verdict
from sublayer.statistics.looks import ERROR, Looks, fixed, until_decided
from sublayer.study import comparisons as comparing
from sublayer.study import inspection as inspecting
from sublayer.study.arms import Trial, beyond_edges
from sublayer.study.collect import results_of_folder
from sublayer.study.comparisons import same_quality, secondary_analyses
from sublayer.study.definition import Options, Study, load_study
from sublayer.study.evidence import foresee
from sublayer.study.inspection import LAYERS, Inspecting, LayerSummary, read_layers, summarize
from sublayer.study.jobs.run import Outcome
from sublayer.study.question import Hypothesis, Question
from sublayer.study.results import Cell, Curve, Results, Scorecard, ScoreRow
from sublayer.study.runs import choose
from tests.breadth import rows
from tests.golden.test_reports import complete, one_seed
from tests.golden.test_reports import layer as change
from tests.study.studies import ASKED, FFN, LR, SAYS, copied, files, read_results, timeless
from tests.study.synthetic import encoder_results, judge_values, synthetic_results, taking

INSPECTING = Inspecting(what="layers")
ENCODER = '[scale.cpu]\nrecipe = "albert-small"\n[[arms]]\nname = "a"\n[[arms]]\nname = "b"\n'
NOTHING, ALIKE = "lr=1e-7", "lr=4.99999e-2"
RATES = (1e-3, 2e-3, 6e-3)


def test_a_study_answers_its_hypothesis_and_keeps_layers_of_its_models(studies, settings):
    results = results_of_folder(studies.asked())
    means = {arm.name: arm.mean for arm in results.arms}
    expected = means["wide and shared"] - means["wide"] - means["shared"] + means["plain"]
    *others, found = results.differences
    assert found.mean == pytest.approx(expected)
    assert found.verdict == "no difference that matters"
    assert (found.arm, found.baseline) == results.hypothesis_of
    assert (results.hypothesis, results.n_comparisons, results.margin) == (SAYS, 4, 9.0)
    assert found.parts.items is not None
    assert len(read_results(studies.asked())["same_quality"]) == len(others) == 3
    for arm, n_beyond in (("0-plain", 0), ("1-shared", 3)):
        run = studies.asked() / "arms" / arm / "seed-1"
        found = read_layers(run, Inspecting(what="layers", tokens=100))
        test = prepare_data(RunFolder(run).recipe()).test
        sample = spread_windows(test, context=16, max_tokens=100)
        assert (found.split, found.n_tokens, found.n_windows) == ("test", 96, 6)
        expected = measure_layers(load(run).model, sample, batch_sequences=256, beyond=n_beyond)
        assert found.changes == expected
        assert [each.is_beyond for each in expected] == [False] * 3 + [True] * n_beyond


@pytest.mark.parametrize("head, message", [
    ('also = ["bleu"]', "also"), ('spread = "-1"', "spread"), ('margin = "0.1 points"', "points"),
    ('inspect = { what = "layers", beyond = 2 }', r"inspect\.beyond"),
    ('inspect = { what = "layers", tokens = 0 }', r"inspect\.tokens"),
])  # fmt: skip
def test_questions_that_do_not_fit_the_study_are_refused(studies, settings, head, message):
    name = head.partition(" ")[0]
    lines = [line for line in ASKED.splitlines() if not line.startswith(name)]
    text = "\n".join([head, *lines]).replace('share = "all"', 'share = "ffn"')
    Path("asked.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        report_study(["asked.toml"], studies.as_asked(Path("out"))[1], Options(out=Path("out")))
    assert not Path("out").exists()


def test_blocks_are_summarized_by_hand_and_read_as_they_were_kept(tmp_path):
    blocks = [change(1, 4.0, 30.0), change(2, 1.0, 40.0), change(3, 3.0, 20.0)]
    assert summarize(blocks, "distance") == LayerSummary(8 / 3, 2.5, 3.0)
    further = [*blocks, change(4, 2.0, 9.0, is_beyond=True), change(5, 2.5, 5.0, is_beyond=True)]
    assert summarize(further, "distance") == LayerSummary(8 / 3, 2.5, 3.0, 2.0, 2.5)
    assert summarize(further, "angle_degrees") == LayerSummary(30.0, 15.0, 20.0, 5.0, 9.0)
    assert summarize(blocks[:1], "distance") == LayerSummary(4.0, None, 4.0)
    nowhere = Spread(math.nan, (math.nan, 1.0, 2.0))
    found = inspecting.InspectedLayers("valid", 7, 1, [replace(blocks[0], angle_degrees=nowhere)])
    write_json(tmp_path / LAYERS, inspecting.kept_layers(INSPECTING, found))
    assert repr(read_layers(tmp_path, INSPECTING)) == repr(found)
    assert read_layers(tmp_path, Inspecting(what="layers", beyond=3)) is None
    assert read_layers(tmp_path / "nowhere", INSPECTING) is None


def layers_shown(folder: Path) -> str:
    page = (folder / "report.html").read_text()
    return page.partition("<h2>Layers</h2>")[2].partition("</section>")[0]


def test_missing_layers_are_measured_and_no_others_and_damaged_ones_are_an_error(studies, settings):
    folder = copied(studies.asked(), "out")
    before, runs = read_results(folder), files(folder / "arms")
    report_again(folder)
    assert layers_shown(folder) == layers_shown(studies.asked()) != ""
    kept = folder / "arms" / "1-shared" / "seed-0" / LAYERS
    content = kept.read_text()
    for damage in (kept.unlink, lambda: kept.write_text(content.replace("100", "99"))):
        damage()
        report_study(*studies.as_asked(folder))
        assert kept.read_text() == content
    assert {**before, "report": None} == {**read_results(folder), "report": None}
    changed = {name for name, known in files(folder / "arms").items() if runs[name] != known}
    assert changed == {f"1-shared/seed-0/{LAYERS}"}
    whole = json.loads(content)
    first, *others = whole["changes"]
    wrong = {**first, "distance": {**first["distance"], "mean": "far"}}
    damages = [[wrong, *others], others, [], [{**first, "is_beyond": True}, *others], [first]]
    for damaged in ("{", *(json.dumps({**whole, "changes": changes}) for changes in damages)):
        kept.write_text(damaged)
        with pytest.raises(CheckpointError, match=r"layers\.json.*remove"):
            report_again(folder)
    with pytest.raises(CheckpointError, match=r"layers\.json"):
        report_study(*studies.as_asked(folder))


def test_blocks_that_are_not_shared_are_not_run_beyond(tmp_path):
    def study_of(text: str) -> Study:
        (tmp_path / "asked.toml").write_text(text)
        return load_study(str(tmp_path / "asked.toml"))

    study = study_of(ASKED.replace("tokens = 100", "beyond = 2"))
    models = [arm.loaded.recipe.model for arm in study.arms][:2]
    assert [study.inspecting.n_beyond(model) for model in models] == [0, 2]
    assert [INSPECTING.n_beyond(model) for model in models] == [0, 3]
    scale = '[scale.cpu]\ninspect = { what = "layers", tokens = 7 }'
    assert study_of(ASKED.replace("[scale.cpu]", scale, 1)).inspecting.tokens == 7
    lstm = ENCODER.replace("albert-small", "gpt1-lstm") + "set.model.n_layers = 2"
    arms = study_of(f'inspect = {{ what = "layers" }}\n{lstm}').arms
    assert {INSPECTING.n_beyond(arm.loaded.recipe.model) for arm in arms} == {0}
    translators = ENCODER.replace("albert-small", "multi30k-tiny")
    with pytest.raises(ConfigError, match="encoder-decoder"):
        study_of(f"inspect.what = 'layers'\n{translators}set.model.d_ff = 9")
    with pytest.raises(ConfigError, match=r"objective\.kind = masked"):
        study_of(f"score.stride = 1\n{ENCODER}set.model.d_embed = 32")


def told(results):
    content = json.loads(json.dumps(results_to_json(results, Path("report.html"))))
    for arm in content["arms"]:
        for name in ("curves", "training_curves", "further_curves"):
            del arm[name]
    del content["notes"]
    return timeless(content)


@pytest.mark.parametrize("grid, chosen, beyond", [
    (RATES, (1, 1), []), (RATES, (2, 1), [0.018]), (RATES, (0, 2), [0.0005, 0.018]),
    # Whole numbers go on as such; half a step is none; of what was tried none is tried again.
    ((10, 20), (1,), [40]), ((1, 3), (0,), []), ((1.0, 1.0001), (1,), []),
])  # fmt: skip
def test_a_grid_goes_on_by_the_ratio_at_its_edge(grid, chosen, beyond):
    trials = [Trial(f"lr={value:g}", {LR: value}) for value in grid]
    found = list(beyond_edges([trials[n] for n in chosen], trials))
    expected = [(f"lr={value:g}", {LR: value}) for value in beyond]
    assert [(each.name, each.settings) for each in found] == expected
    assert [type(each.settings[LR]) for each in found] == [type(value) for value in beyond]


@pytest.mark.parametrize("scores, losses", [
    ([(1.0, 3.0), (1.8, 1.9)], [2.0, 1.85]), ([(1.0, None), (5.0, 6.0)], [None, 5.5]),
])  # fmt: skip
def test_the_mean_over_seeds_chooses_and_a_seed_that_failed_fails_its_trial(scores, losses):
    def run(value: float | None) -> Outcome:
        if value is None:
            return Outcome(Path(), failure="diverged")
        return Outcome(Path(), {"valid": {"loss": 9 - value, "bits_per_byte": value}})

    trials = [Trial(f"lr={n}", {LR: n}) for n in range(len(scores))]
    tried = {f"lr={n}": [run(value) for value in own] for n, own in enumerate(scores)}
    found = choose(trials, tried, BITS_PER_BYTE)
    assert list(found.losses.values()) == [loss and pytest.approx(loss) for loss in losses]
    assert found.trial == trials[1]
    # The loss chooses where validation lacks the metric.
    accuracy = Metric("accuracy", "accuracy", is_lower_better=False, from_items=None)
    by_loss = Outcome(Path(), {"valid": {"loss": 2.0, "accuracy": 0.25}})
    found = choose(trials, {"lr=0": [by_loss], "lr=1": [run(None)]}, accuracy)
    assert (found.chosen_by, found.losses) == (accuracy, {"lr=0": -0.25, "lr=1": None})
    found = choose(trials, {"lr=0": [by_loss]}, BITS_PER_BYTE)
    assert (found.chosen_by, found.losses) == (None, {"lr=0": 2.0})


def made(folder: Path) -> set[str]:
    return {str(path.parent.relative_to(folder)) for path in folder.rglob("record.json")}


def test_a_study_that_broke_off_beyond_the_edge_goes_on_there(studies, settings):
    folder = copied(studies.tuned(), "out")
    whole, results = made(folder), results_of_folder(folder)
    for gone in ("0-gelu/lr=0.1/seed-2", "1-swiglu/lr=0.1"):
        shutil.rmtree(folder / "arms" / gone)
    resumed, _ = report_study(*studies.as_tuned(folder))
    assert (made(folder), told(resumed)) == (whole, told(results))
    for arm, changed in (("0-gelu", "bits_per_byte"), ("1-swiglu", "loss")):
        # The second seed of the choice was far worse than the first.
        record = folder / "arms" / arm / "lr=0.1/seed-1001/record.json"
        content = json.loads(record.read_text())
        content["valid"][changed] += 5.0
        record.write_text(json.dumps(content))
    results, _ = report_study(*studies.as_tuned(folder))
    assert [arm.tuned for arm in results.arms] == [(f"{LR}=0.1",), (f"{LR}=0.01",)]
    for arm, again in zip(results.arms, results_of_folder(folder).arms, strict=True):
        assert (arm.tuned, arm.values) == (again.tuned, again.values)
    with pytest.raises(ConfigError, match=r"with tuning_seeds = \[1000, 1001\], not \[1000\]"):
        report_study(*studies.as_tuned(folder, tuning_seeds=None))
    (source,), _, options = studies.as_tuned(folder)
    Path("tuned.toml").write_text(Path(source).read_text().replace('tune_by = "loss"\n', ""))
    with pytest.raises(ConfigError, match="with tune_by = loss, not metric"):
        report_study(["tuned.toml"], settings, options)


def test_values_that_fit_no_recipe_are_not_tried_beyond_the_edge(settings, capsys):
    grid = ("optimizer.final_lr_share=0.1,0.9",)
    asked = Options(vary=(FFN,), tune=grid, seeds=1, extend=3, out=Path("out"))
    results, _ = report_study(["gpt"], [*settings, f"{LR}=1e-3"], asked)
    # The more is learned in few steps, the better; 0.9 * 9 is no share.
    assert {arm.tuned for arm in results.arms} == {("optimizer.final_lr_share=0.9",)}
    assert "final_lr_share=8.1 is not tried: " in capsys.readouterr().err
    assert "extended" not in read_toml(Path("out/study.toml"))


def test_a_study_that_broke_off_between_looks_has_verdicts_of_the_first(studies, settings):
    folder = copied(studies.decided(), "study")
    for run in (f"2-{ALIKE}/seed-4", "0-lr=5e-2/seed-4"):
        shutil.rmtree(folder / "arms" / run)
    for name in ("results.json", "report.html"):
        (folder / name).unlink()
    whole = results_of_folder(studies.decided())
    broken = results_of_folder(folder)
    assert broken.notes[0].startswith("Unfinished: 11 of 13 runs")
    decided, open_still = broken.differences
    assert decided == whole.differences[0]
    assert (open_still.n_seeds, open_still.seeds) == (3, (0, 1, 2))
    resumed, _ = report_study(*studies.as_decided(folder))
    assert told(resumed) == told(whole)
    assert len(made(folder)) == 13
    shutil.rmtree(folder / f"arms/1-{NOTHING}/seed-2")
    early = results_of_folder(folder).differences
    assert {(each.verdict, each.low, each.p) for each in early} == {("no verdict", None, None)}
    assert "3 seeds" in str(early[0].note)


STEPS = (100, 200, 300, 400)
BASELINE = (5.0, 4.0, 3.5, 3.0)
SPREAD = 0.02
BY_NAME = {"parameters", "environment", "checksums", "sizes", "counts", "differing", "settings"}
BY_NAME |= {"further_curves", "probes", "published", "scores"}


def curve(seed: int, values: Sequence[float], *, step_s: float = 0.1) -> Curve:
    steps = STEPS[: len(values)]
    tokens, seconds = (tuple(each * step for step in steps) for each in (10.0, step_s))
    return Curve(seed, steps, tokens=tokens, seconds=seconds, values=tuple(values))


def two(*, a: Sequence[Curve] | None = None, b: Sequence[Curve], n_seeds: int = 2) -> Results:
    """Two arms with these curves, the first with the baseline's."""
    results = synthetic_results({"a": 0.0, "b": 0.1}, n_seeds=n_seeds)
    curves = ([curve(seed, BASELINE) for seed in range(n_seeds)] if a is None else a, b)
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
        assert comparing.cost_at(curve(0, values), value, STEPS, is_lower=is_lower) == place
    (whole,) = same_quality(two(a=[curve(0, BASELINE)], b=[curve(0, (5.0, 3.0, 2.0, 1.0))]))
    for shares, expected in (((0.9, 0.5, None), (0.9, 0.5)), ((0.9, None, None), (None, 0.9))):
        seeds = [replace(whole.seeds[0], seed=n, steps=each) for n, each in enumerate(shares)]
        found = replace(whole, seeds=tuple(seeds)).summary("steps")
        assert (found.median, found.low, found.high) == (*expected, None)
    short = [curve(seed, (5.0, 4.0, 3.0)) for seed in (0, 1)]
    results = two(a=short, b=short)
    (found,) = same_quality(results)
    sheet = quality_sheet(results)
    assert (list(found.seeds), sheet.rows) == ([], [])
    (problem,) = sheet.legend
    assert re.findall(r"\d+", problem) == ["3", "4"]


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
    (row,) = quality_sheet(results).rows
    assert row[:2] == ["a", "b"]
    mixed = [curve(0, (5.0, 3.0, 2.0, 0.0)), curve(1, (5.0, 4.5, 4.0, 3.5))]
    (row,) = quality_sheet(two(b=mixed)).rows
    assert row[2] == "1 of 2 runs"
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
    names = ["loss", "bits_per_byte", "mlm_accuracy"]
    validation, training = comparing.read_curves(3, tmp_path, names)
    # Two steps of 4.0 and three of 3.0.
    assert training is not None
    assert training.values == pytest.approx((3.4, 2.0))
    assert validation.keys() == {"loss", "bits_per_byte"}
    assert validation["loss"].values == (3.5, 2.5)
    assert validation["bits_per_byte"].steps == (5,)


def foreseen(looks: Looks, margin: float) -> tuple[float, int | None]:
    """The difference that would be found, and how many seeds would do where these do not."""
    question = Question(margin=f"{margin} bits per byte", spread=f"{SPREAD} bits per byte")
    study = load_study("gpt", vary_texts=["model.ffn=gelu,swiglu"])
    lines = "\n".join(foresee(replace(study, question=question), BITS_PER_BYTE, looks))
    few = re.search(r"warning: .*about (\d+) seeds", lines)
    size = re.search(r"difference: ([\d.]+).*four times in five", lines)
    return float(size[1]), few and int(few[1])


@pytest.mark.parametrize("field, value, line", [
    ("correlation", None, "0.0185 bits per byte with 3 .* at the spread of the earlier runs"),
    ("correlation", 0.9, "0.00584 bits"), ("sd", None, "unknown without"),
    ("sd", "0.01", "spread of the earlier runs is not used: .*damaged: arms.0.sd"),
])  # fmt: skip
def test_an_odd_value_of_earlier_results_is_announced(tmp_path, field, value, line):
    arm, pairing = {"sd": 0.004}, {"correlation": 0.0}
    (pairing if field == "correlation" else arm)[field] = value
    results = {"metric": "bits_per_byte", "arms": [arm], "differences": [], "pairing": pairing}
    (tmp_path / "results.json").write_text(json.dumps(results))
    study = load_study("gpt", vary_texts=["model.ffn=gelu,swiglu"])
    lines = "\n".join(foresee(study, BITS_PER_BYTE, fixed(3), tmp_path))
    assert re.search(line, lines), lines


def test_drawn_studies_of_a_fixed_number_of_seeds_find_it_four_times_in_five():
    size, _ = foreseen(fixed(3), margin=1.0)
    draws = np.random.default_rng(0).normal(0.0, SPREAD, (20_000, 2, 3))
    p = stats.ttest_rel(draws[:, 0] + size, draws[:, 1], axis=1).pvalue
    assert (p <= ERROR).mean() == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(("plan", "margin"), [(fixed, 0.02), (until_decided, 0.05)])
def test_as_many_seeds_as_would_do_are_enough_under_the_same_plan(plan, margin):
    _, few = foreseen(plan(4), margin)
    assert few > 4
    assert [foreseen(plan(n), margin)[1] for n in (few, few - 1)] == [None, few]


def test_a_hypothesis_about_two_arms_that_are_compared_is_no_further_comparison():
    values = {"a": {0: 1.0, 1: 1.1, 2: 1.2}, "b": {0: 5.0, 1: 5.1, 2: 5.25}}
    judged = judge_values("a", values, BITS_PER_BYTE, planned_seeds=3)
    assert Hypothesis(says="a is better.", contrast={"a": 2.0, "b": -2.0}).names == ("a", "b")
    # The difference that is judged is b less a, and b is worse: a is better.
    results = replace(synthetic_results({"a": 0.0, "b": 1.0}), differences=judged.differences)
    for names, verdict in ((("a", "b"), "better"), (("b", "a"), "worse")):
        found = hypothesis_words(replace(results, hypothesis_of=names))
        assert found is not None and found[0] == verdict
        assert results.of_arms == judged.differences


def test_names_cannot_break_the_page_and_verdicts_have_styles():
    html = render_report(synthetic_results({"<script>alert(1)</script>": 0.0, 'a"b$x^$': 0.1}))
    assert html.count("<script>") == 1, "the page's own, which copies"
    assert "<script>alert" not in html and "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    style = (Path(reporting.__file__).parent / "page" / "page.css").read_text()
    for verdict in get_args(Verdict):
        slug = verdict.replace(" ", "-")
        assert re.search(rf"\.{slug}\b[^}}]*background:", style), verdict


def test_what_was_published_is_held_against_the_interval_in_the_unit_of_either():
    results = encoder_results()
    arms = [replace(arm, published={"sop_accuracy": 53.3}) for arm in results.arms]
    for effect, sop in ((33.2, "inside the interval, 0 outside"),
                        (-1.5, "outside the interval, as 0 is")):  # fmt: skip
        published = {"sop_accuracy": 53.3 + effect}
        shown = replace(results, arms=(*arms[:2], replace(arms[2], published=published)))
        nsp, found = secondary_analyses(shown)
        assert (found.published.effect, nsp.published.effect) == (pytest.approx(effect / 100), 0.0)
        row = secondary_sheet(in_display_units(shown)).rows[1]
        assert row[-1] == f"{'+' if effect > 0 else '−'}{abs(effect)}: {sop}"
        cells = {arm.name: Cell(arm.published["sop_accuracy"] / 100) for arm in shown.arms}
        rows = [ScoreRow(name, "published", {"sop_accuracy": cells[name]}) for name in cells]
        card = Scorecard([results.metric], rows)
        bare = tuple(replace(arm, published={}) for arm in shown.arms)
        kept = secondary_analyses(replace(shown, arms=bare, scorecard=card))[1].published
        assert kept.effect == pytest.approx(effect / 100)


def test_the_budget_of_the_paper_is_that_of_its_scale_and_common_to_arms_that_it_has_not():
    steps = 2**16
    paper = load_study("glu-pretraining", scale="cpu").paper
    assert paper["ReLU"] == {"steps": steps, "tokens": steps * 2**16}, "Shazeer 2020, sec. 3.1"
    others = load_study("albert-data", scale="cpu")
    assert {arm.name for arm in others.arms} < others.paper.keys()
    assert load_study("glu-pretraining", scale="paper").paper == {}


def test_a_verdict_that_turns_round_with_the_budget_is_said():
    late = [(4.0 + n / 99, 3.9, 3.5 - n / 99, 3.2 + n / 50) for n in range(3)]
    (line,) = turn_lines(two(b=[curve(n, each) for n, each in enumerate(late)], n_seeds=3))
    assert line.endswith("depends on the budget: better at 200 steps, worse at 400 steps.")
    results = synthetic_results({"a": 0.0, "b": 0.1}, n_seeds=3)
    assert "depends on the budget" not in render_report(results)


def test_tables_for_a_paper_have_every_run_and_difference_to_the_last_digit(tmp_path):
    names = {"100 % \\ a_b|c": 0.0, "x": 0.1, "y": 0.2}
    results = synthetic_results(names, failed=("x", 1))
    for path in (tmp_path / f"runs{suffix}" for suffix in (".csv", ".md", ".tex")):
        tables.check_table_files([path])
        tables.write_tables(results, path)
        with pytest.raises(ConfigError, match="exists already"):
            tables.check_table_files([path])
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    runs = [(row["arm"], int(row["seed"]), float(row["bits_per_byte"]))
            for row in rows if row["kind"] == "run"]  # fmt: skip
    x = results.arms[1]
    expected = [(x.name, *pair) for pair in zip(x.seeds, x.values, strict=True)]
    assert [run for run in runs if run[0] == "x" and run[1] != 1] == expected
    assert math.isnan(runs[6][2]) and len(runs) == 15
    differences = [float(row["low"]) for row in rows if row["kind"] == "difference"]
    assert differences == [each.low for each in results.differences]
    latex = (tmp_path / "runs.tex").read_text()
    assert r"100 \% \textbackslash{} a\_b|c" in latex
    assert r" 100 % \ a_b\|c " in (tmp_path / "runs.md").read_text()


def test_steps_at_equal_quality_have_an_interval_where_all_runs_reached_it():
    # The other arm ends at 3.0, after 400 steps.
    for thirds, cell in (
        ((2.0, 2.02, 2.04), "b: 63% (62 to 63%)"), ((2.0, 2.0, 2.0), "b: 62%"),
        ((2.0, 2.0, 3.6), "b: reached in 2 of 3 runs"),
        ((-2.0, 3.6, 3.6), "b: reached in 1 of 3 runs"),
    ):  # fmt: skip
        own = [curve(n, (5.0, 4.0, third, third - 0.5)) for n, third in enumerate(thirds)]
        (row,) = secondary_sheet(two(b=own, n_seeds=3)).rows
        assert row[3].replace(NO_BREAK, " ") == cell


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
    assert comparing.arm_budgets(longer)[1].realised.time is None
    found = comparing.arm_budgets(replace(longer, match="time"))[1].realised.time
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


def test_a_metric_that_was_evaluated_once_is_a_point():
    lines = [{"kind": "train", "step": step, "loss": 3.0 - step} for step in (1, 2)]
    valid = [{"kind": "valid", "step": step, "loss": 3.0 - step} for step in (1, 2)]
    (point,), (line,) = draw_metrics([*lines, valid[0]]), draw_metrics([*lines, *valid])
    assert point.count("<use") == line.count("<use") + 2  # in the legend too


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
    page = (Path(__file__).parents[2] / "docs" / "files.md").read_text()
    section = page.partition("## results.json")[2].partition("\n## ")[0]
    documented = set(re.findall(r"`(\w+)`", section))
    for results in (complete(), one_seed(), encoder_results()):
        content = results_to_json(results, tmp_path / "report.html")
        written = json.loads(json.dumps(content, allow_nan=False))
        assert not {key.removesuffix("_quartiles") for key in keys(written)} - documented


@pytest.mark.parametrize("value, text", [
    (None, "–"), (0, "0 B"), (999, "999 B"), (1024, "1.00 KiB"), (1234, "1.21 KiB"),
    (1 << 20, "1.00 MiB"), (0.5, "0.500 B"), (12.34, "12.3 B"),
])  # fmt: skip
def test_quantities_have_three_figures_and_a_prefix(value, text):
    assert format_quantity(value, "B").replace("\xa0", " ") == text
    assert format_quantity(1e6, "B/s").replace("\xa0", " ") == "1.00 MB/s"
