"""Reports of results that were never run: pages, figures and the terminal's text.

A figure is held by the checksum of its page, on this kind of processor; elsewhere by the checksum
of the page without numbers.
"""

import html
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sublayer.inspection.layer_change import LayerChange, Spread
from sublayer.reporting.html import render_report
from sublayer.reporting.terminal import render, summarize
from sublayer.statistics.contrasts import Contrast, Parts
from sublayer.study.inspection import InspectedLayers, WrittenSample
from sublayer.study.question import Hypothesis
from sublayer.study.results import ArmResult, Results, StudyText, Tuning
from tests.golden.core import compare, compare_text, digest, expect_names
from tests.study.synthetic import encoder_results, judge_values, synthetic_results, taking

TOLERANCE = 1e-3
FOUR = {"a": 0.0, "b": 0.1, "c": 0.2, "d": 0.3}
SHARED = "title = 'x'\n[model]\nn_layers = 2\n"
PROBE = {"title": "SST-2", "chance": 0.5, "chance_error": 0.02, "reference": 0.9}


def layer(number: int, distance: float, angle: float, *, is_beyond: bool = False) -> LayerChange:
    def spread(value: float) -> Spread:
        return Spread(value, (value / 2, value, 2 * value))

    numbers = (distance, 0.5, angle, 1.0, 1.0)
    return LayerChange(number, *map(spread, numbers), is_beyond=is_beyond)


def complete() -> Results:
    """Two arms with all that a report may show of them."""
    results = synthetic_results({"a": 0.0, "b": -0.1}, n_seeds=3)
    first, second = results.arms
    valid = tuple(replace(curve, values=(2.0,) * len(curve.values)) for curve in first.curves)
    rising = tuple(
        replace(curve, values=tuple(np.linspace(0.5, 0.8, len(curve.values))))
        for curve in first.curves
    )
    blocks = [layer(number, 4.0, 10.0 * number) for number in range(1, 5)]
    beyond = [layer(number, 2.0, 5.0, is_beyond=True) for number in range(5, 8)]
    inspected = InspectedLayers("test", 8192, 16, blocks)
    first = replace(
        first,
        recipe=f"{SHARED}ffn = 'gelu'\n[train]\nseed = 0\n",
        sample=WrittenSample("Once", ' <b>&"\n\ufffd\x07'),
        further_curves={"loss": valid, "probes/sst2": rising, "book/bits_per_byte": rising},
        training_curves=tuple(replace(curve, values=(1.75,) * 10) for curve in first.curves),
        probes={"sst2": PROBE},
        layers={0: inspected, 1: inspected},
        published={"bits_per_byte": 1.679, "accuracy": 52.25},
        tunings=(Tuning("loss", True, 1.0, 2, {"lr=1e-3": 1.8, "lr=2e-3": 1.6, "lr=4e-3": None}),),
        paper={"steps": 125_000, "tokens": 2.62e11},
    )
    second = replace(
        second,
        recipe=f"{SHARED}ffn = 'swiglu'\nd_ff = 171\n[train]\nseed = 3\n[optimizer]\nlr = 2e-3\n",
        matched=("model.d_ff=171",),
        tuned=("optimizer.lr=0.002",),
        layers={1: InspectedLayers("test", 8192, 16, [*blocks, *beyond])},
        published={"bits_per_byte": 1.6, "accuracy": 53.5},
        tunings=(Tuning("loss", True, 1.0, 2, {"lr=1e-3": 1.7, "lr=2e-3": 1.5}),),
        curves=tuple(cut(curve) for curve in second.curves),
    )
    sizes = {"bytes": 112_251, "tokens": 30_000, "documents": 1}
    text = StudyText(("a.txt", "<b>.txt"), {"train": {**sizes, "documents": 634}, "test": sizes})
    reproduction = replace(results.reproduction, text=text, date="2026-11-23T10:00:00+00:00")
    notes = ("One rate for <all> arms.", "a chose lr=8e-3 of 3-4 rates.")
    (difference,) = results.differences
    parts = Parts(seeds=0.004, items=0.003, tuning=0.001)
    difference = replace(difference, standard_error=0.0051, parts=parts, on_this_text=True)
    return replace(
        results,
        arms=(first, second),
        reproduction=reproduction,
        notes=notes,
        differences=(difference,),
        margin=0.01,
        margin_reason="of the paper",
    )


def visible_text(page: str) -> str:
    """Return the text of a page of HTML, a block a line, without the numbers of its axes."""
    page = re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.DOTALL)
    page = " ".join(page.split()).replace("</td>", " |")
    page = re.sub(r"<(svg|/?(text|tr|li|p|h\d|summary|details))\b", r"\n<\1", page)
    lines = (" ".join(re.sub(r"<[^>]*>", " ", line).split()) for line in page.split("\n"))
    return "\n".join(html.unescape(line) for line in lines if re.search(r"[^\W\d]", line))


def cut(curve):
    """End a curve at its first point."""
    fields = ("steps", "tokens", "seconds", "values")
    return replace(curve, **{name: getattr(curve, name)[:1] for name in fields})


def by_budgets() -> Results:
    """Arms of other budgets, with contrasts of two and of four of them, and a hypothesis."""
    results = synthetic_results(FOUR)
    values = {arm.name: dict(zip(arm.seeds, arm.values, strict=True)) for arm in results.arms}
    hypothesis = Hypothesis(
        says="Both help.", contrast={"a": 1.0, "b": -1.0, "c": -1.0, "d": 1.0}
    ).as_contrast
    pair = Contrast("c", "b", {"c": 1.0, "b": -1.0})
    judged = judge_values("a", values, results.metric, planned_seeds=5, further=[pair, hypothesis])
    results = replace(
        results,
        differences=judged.differences,
        hypothesis="Both help.",
        hypothesis_of=(hypothesis.arm, hypothesis.baseline),
    )
    results = taking(results, "b", parameters=1.0072, operations=1.1, planned=1.05)
    return taking(results, "c", operations=0.1, planned=2.0, parameters=0.4)


def sequential() -> Results:
    """Arms of ``--vary`` that were tuned and timed, of which one is decided at the first look."""
    results = synthetic_results({"ffn=gelu": 0.0, "ffn=swiglu": -0.1, "ffn=relu": 0.0})
    arms = [replace(arm, tuned=("optimizer.lr=0.001",)) for arm in results.arms]
    first, second = results.differences
    differences = (replace(first, n_seeds=3), replace(second, n_seeds=5))
    results = replace(results, arms=tuple(arms), differences=differences, match="time")
    results = replace(results, looks=(3, 5, 8), is_sequential=True)
    return taking(results, "ffn=relu", seconds=1.062)


def one_seed() -> Results:
    results = synthetic_results({"a": 0.0, "b": 0.1, "c": 0.1}, n_seeds=1, failed=("c", 0))
    return taking(replace(results, match="none"), "b", operations=3.8, planned=3.8)


def unfinished() -> Results:
    results = synthetic_results({"a": 0.0, "b": 0.1}, n_seeds=3)
    arms = tuple(bare(arm) for arm in results.arms)
    differences = judge_values("a", {"a": {}, "b": {}}, results.metric, planned_seeds=3).differences
    return replace(results, arms=arms, differences=differences)


def bare(arm: ArmResult) -> ArmResult:
    costs = replace(arm.costs, seconds=None, tokens=None, tokens_per_s=None, operations=None)
    return replace(arm, seeds=(), values=(), curves=(), costs=costs)


CASES: dict[str, Callable[[], Results]] = {
    "four": synthetic_results,
    "failed": lambda: replace(synthetic_results(failed=("macaron", 3)), looks=(3, 5)),
    "many": lambda: synthetic_results({"base": 0.0} | {f"arm{n}": 0.5 for n in range(6)}),
    "equal": lambda: synthetic_results({"a": 0.0, "b": 0.0}, sd=0.0),
    "complete": complete,
    "budgets": by_budgets,
    "sequential": sequential,
    "one-seed": one_seed,
    "encoders": encoder_results,
    "unfinished": unfinished,
}


@pytest.mark.parametrize("name", CASES)
def test_a_report_is_that_on_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    results = CASES[name]()
    page = render_report(results)
    # The last line of each has the folder of the report.
    texts = [form(results, Path("report.html")) for form in (summarize, render)]
    shown = "\n\n".join(re.sub("report: .*", "report", text) for text in texts)
    compare_text(f"report-{name}", f"{shown}\n\n{visible_text(page)}\n", tolerance=TOLERANCE)
    # Ids of a plot's parts are checksums of coordinates, which processors round differently.
    plain = re.sub(r"\b[a-zA-Z][0-9a-f]{10}\b", "id", page)
    structure = digest(re.sub(r"\d[\d.]*(e-?\d+)?", "0", plain).encode())
    compare("reports", name, structure, bits=digest(page.encode()))


def test_no_other_report_is_on_file() -> None:
    expect_names("reports", CASES)
