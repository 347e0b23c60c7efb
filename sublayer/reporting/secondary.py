"""Secondary analyses and the cost of the same quality: tables, legends, plots."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sublayer.counts import count, enumerate_names
from sublayer.numbers import (
    DASH,
    NO_BREAK,
    format_interval,
    format_p,
    format_quantity,
    format_signed,
)
from sublayer.plot import INK, MUTED, RULE, page_svg
from sublayer.reporting.figures import SIZE, looks, shortened
from sublayer.reporting.units import n_decimals
from sublayer.reporting.words import comparison
from sublayer.statistics.difference import ERROR, POWER
from sublayer.statistics.secondary import Course, Superiority, TTest
from sublayer.study.findings.comparisons import (
    Power,
    PublishedEffect,
    Secondary,
    secondary_analyses,
    tuned_best,
)
from sublayer.study.findings.curves import SameQuality, Summary, same_quality
from sublayer.study.results import ArmResult, Results, Tuning

_HEADINGS = (
    "P(a run is better)",
    "pairs of runs won",
    "steps at equal quality",
    "published effect",
)
CAUTION = "None of these decides: each is for one comparison alone, not adjusted for the others."
_LEGEND = {
    "P(a run is better)": (
        "the probability that one run of the arm beats one run of the arm that it is compared "
        "with, for normally distributed runs with other seeds, with its 95% CI"
    ),
    "steps at equal quality": (
        "geometric mean over seeds with its 95% CI, as a share of the steps of the other arm, "
        "whose final validation value is reached"
    ),
}

_UNIT = f"{NO_BREAK}%"


@dataclass(frozen=True)
class SecondaryRow:
    """The secondary analyses of one comparison."""

    arm: str
    name: str
    """The arm, and what it is compared with where that is not the baseline."""
    cells: tuple[str, ...]
    """In the order of the headings."""
    tests: str
    """What a paired t test and Welch's test give; empty where neither can be computed."""


@dataclass(frozen=True)
class SecondaryTable:
    """A row for each comparison of two arms, without the columns in which none has anything."""

    headings: tuple[str, ...]
    rows: tuple[SecondaryRow, ...]

    @property
    def legend(self) -> list[str]:
        """What the columns are, a line each."""
        return [f"{each}: {_LEGEND[each]}" for each in self.headings if each in _LEGEND]


def secondary_table(results: Results) -> SecondaryTable:
    """Lay out the secondary analyses; ``results`` are in display units."""
    rows = _rows(results)
    known = [n for n in range(len(_HEADINGS)) if any(row.cells[n] != DASH for row in rows)]
    shown = [replace(row, cells=tuple(row.cells[n] for n in known)) for row in rows]
    return SecondaryTable(tuple(_HEADINGS[n] for n in known), tuple(shown))


def _rows(results: Results) -> list[SecondaryRow]:
    decimals = n_decimals(results)
    reached = {(each.arm, each.whose): each for each in same_quality(results) if not each.problem}
    rows = []
    for difference, found in zip(results.differences, secondary_analyses(results), strict=True):
        if found.superiority is None:
            continue
        pair = found.arm, found.baseline
        cells = (
            _probability(found.superiority),
            _pairs(found.superiority),
            _steps(reached.get(pair) or reached.get(pair[::-1])),
            _published(found.published, decimals),
        )
        name = comparison(results, difference)
        rows.append(SecondaryRow(found.arm, name, cells, _tests(found, decimals)))
    return rows


def basis_lines(results: Results) -> Iterator[str]:
    """Yield what the verdicts rest on: level, test, trials of tuning, share of the paper's budget.

    A line begins with its subject and a colon.
    """
    if results.has_verdicts:
        yield from _level(results)
        yield from _test_set(results)
    yield from _tuning(results)
    yield from _paper(results)


def _probability(found: Superiority) -> str:
    if found.estimate is None:
        return DASH
    text = _share(found.estimate)
    if found.low is None or found.high is None:
        return text
    ends = _share(found.low), _share(found.high)
    return text if ends == (text, text) else f"{text} ({ends[0]} to {ends[1]})"


def _share(value: float) -> str:
    """Write a probability with two decimals, never as 0 or 1."""
    if value > 0.99:
        return f">{NO_BREAK}0.99"
    return f"<{NO_BREAK}0.01" if value < 0.01 else f"{value:.2f}"


def _pairs(found: Superiority) -> str:
    return f"{found.share * found.n_pairs:g} of {found.n_pairs}"


def _steps(found: SameQuality | None) -> str:
    if found is None:
        return DASH
    if found.n_reached == 0:
        return f"{found.arm}: not reached"
    n_runs = len(found.seeds)
    if found.n_reached < n_runs:
        return f"{found.arm}: reached in {found.n_reached} of {n_runs} runs"
    summary = found.summary("steps")
    assert summary.median is not None, "all runs reached it"
    if any(each.is_at_first for each in found.seeds):
        return f"{found.arm}: at most {_percent(summary.median)}"
    if summary.ratio is None:
        return f"{found.arm}: {_percent(summary.median)}"
    ends = f"{_percent(summary.ratio.low).removesuffix(_UNIT)} to {_percent(summary.ratio.high)}"
    return f"{found.arm}: {_percent(summary.ratio.mean)} ({ends.replace(' ', NO_BREAK)})"


def _published(found: PublishedEffect | None, decimals: int) -> str:
    if found is None:
        return DASH
    text = format_signed(found.effect, decimals)
    if found.is_inside is None:
        return text
    effect, zero = (
        "inside" if is_inside else "outside"
        for is_inside in (found.is_inside, found.is_zero_inside)
    )
    return f"{text}: {effect} the interval, {'as 0 is' if effect == zero else f'0 {zero}'}"


def _tests(found: Secondary, decimals: int) -> str:
    """Write both t tests, uncorrected, in one line."""
    tests = (("Paired t test", found.paired_t), ("Welch's test", found.welch_t))
    parts = [f"{name} {_test(test, decimals)}" for name, test in tests if test is not None]
    return "; ".join(parts)


def _test(test: TTest, decimals: int) -> str:
    p = format_p(test.p)
    sign = "" if p.startswith("<") else "= "
    equation = f"p {sign}{p}".replace(" ", NO_BREAK)
    return f"{equation} (95% CI {format_interval(test.low, test.high, decimals)})"


def _level(results: Results) -> Iterator[str]:
    levels = [each.level for each in results.differences if each.low is not None]
    if not levels:
        return
    level = ERROR if results.is_sequential else min(levels)
    n = results.n_comparisons
    over = f"all {n} comparisons together (simultaneous intervals)" if n > 1 else "one comparison"
    looks = ", over all looks" if results.is_sequential else ""
    yield f"Level: {100 * level:.3g}% for {over}{looks}."


def _test_set(results: Results) -> Iterator[str]:
    sizes = {(each.n_items, each.n_documents) for each in results.differences if each.n_items}
    texts = []
    for n_items, n_documents in sorted(sizes, key=str):
        text = count(n_items or 0, "item")
        texts.append(f"{text} of {count(n_documents, 'document')}" if n_documents else text)
    if texts:
        yield f"Test: {enumerate_names(texts)}."


def _tuning(results: Results) -> Iterator[str]:
    trials: dict[str, list[str]] = {}
    for arm in results.arms:
        for each in arm.tunings:
            runs = "" if each.n_runs == 1 else f" of {each.n_runs} runs each"
            stage = f" in {each.stage}" if each.stage else ""
            trials.setdefault(f"{count(len(each.scores), 'trial')}{runs}{stage}", []).append(
                arm.name
            )
    if not trials:
        return
    parts = []
    for text, names in trials.items():
        whose = "each arm" if len(names) == len(results.arms) else enumerate_names(names)
        parts.append(f"{text} for {whose}")
    yield f"Tuning: {'; '.join(parts)}."


def _paper(results: Results) -> Iterator[str]:
    shares: dict[str, list[float]] = {"steps": [], "tokens": []}
    paper: dict[str, list[float]] = {"steps": [], "tokens": []}
    for arm in results.arms:
        for name, own in (("steps", arm.costs.steps), ("tokens", arm.costs.tokens)):
            if own and arm.paper.get(name):
                shares[name].append(own / arm.paper[name])
                paper[name].append(arm.paper[name])
    parts = [
        f"{_range([_percent(share) for share in sorted(own)])} of its {name} "
        f"({_range([format_quantity(value) for value in sorted(paper[name])])})"
        for name, own in shares.items()
        if own
    ]
    if parts:
        yield f"Share of the paper's training: {' and '.join(parts)}."


def _range(texts: list[str]) -> str:
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def _percent(share: float) -> str:
    """Write a share in percent with two digits or more, whole from ten on."""
    percent = 100 * share
    if percent >= 9.95:
        return f"{percent:.0f}{_UNIT}"
    return f"{percent:.2g}{_UNIT}" if percent >= 0.0001 else f"{percent:.0e}{_UNIT}"


_CERTAIN = 0.995
"""A power that is drawn nowhere below it says no more than that seeds are enough."""


@dataclass(frozen=True)
class PowerPlot:
    """The plot of power over seeds, and which differences it is for."""

    svg: str
    words: str


def draw_courses(results: Results) -> list[str]:
    """Plot each difference over training with its pointwise interval, as SVG for a page."""
    return [
        _draw_course(results, each, each.course, number)
        for number, each in enumerate(secondary_analyses(results))
        if each.course is not None
    ]


def turn_lines(results: Results) -> Iterator[str]:
    """Yield a sentence for each difference that is better at one evaluation and worse at another.

    By pointwise intervals.
    """
    for each in secondary_analyses(results):
        turns = None if each.course is None else each.course.turns
        if each.course is None or turns is None:
            continue
        at = dict(zip(each.course.steps, each.course.means, strict=True))
        words = ["better" if (at[step] < 0) == _is_lower(results) else "worse" for step in turns]
        yield (
            f"The verdict on {each.arm} against {each.baseline} depends on the budget: {words[0]} "
            f"at {turns[0]:,} steps, {words[1]} at {turns[1]:,} steps."
        )


def draw_power(results: Results) -> PowerPlot | None:
    """Plot the power of each comparison over seeds; None where it is unknown, or certain."""
    found = [(each, each.power) for each in secondary_analyses(results)]
    known = [(each, power) for each, power in found if power is not None]
    if not known or min(min(power.power) for _, power in known) > _CERTAIN:
        return None
    styles = looks(results)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.axhline(POWER, color=RULE, linewidth=1.0, linestyle="--")
        for each, power in known:
            style = styles.get(each.arm)
            colour = INK if style is None else style.placeholder
            line = ":" if style is None else style.line
            axes.plot(power.seeds, power.power, line, color=colour, linewidth=1.4, zorder=3)
            now = power.power[power.seeds.index(power.now)]
            axes.plot([power.now], [now], "o", color=colour, markersize=5, zorder=4)
        axes.set_ylim(0.0, 1.03)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("seeds of each arm")
        axes.set_ylabel("power")
        axes.grid(axis="y")
        axes.set_axisbelow(True)

    svg = page_svg(draw, SIZE, "power over seeds", "power")
    return PowerPlot(svg, _power_words(results, [power for _, power in known]))


def draw_expected_best(results: Results) -> list[str]:
    """Plot the expected best of n trials of the arms, a plot for each stage that was tuned."""
    stages: dict[tuple[str, str], list[tuple[ArmResult, Tuning]]] = {}
    for arm in results.arms:
        for each in arm.tunings:
            if tuned_best(each):
                stages.setdefault((each.stage, each.label), []).append((arm, each))
    return [_draw_best(results, own, number) for number, own in enumerate(stages.values())]


def _is_lower(results: Results) -> bool:
    return results.metric.is_lower_better


def _draw_course(results: Results, found: Secondary, along: Course, number: int) -> str:
    colour = looks(results)[found.arm].placeholder
    steps = np.array(along.steps)
    has_interval = bool(along.lows)
    ends: list[Sequence[float]] = [along.lows, along.highs] if has_interval else [along.means]
    # The first third would flatten what the last differs by.
    late = [value for each in ends for value in each[len(steps) // 3 :]]
    reach = 1.15 * max(map(abs, [*late, results.margin or 0.0])) or 1.0

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.axhline(0.0, color=INK, linewidth=1.0)
        for margin in () if results.margin is None else (-results.margin, results.margin):
            axes.axhline(margin, color=MUTED, linewidth=0.8, linestyle="--")
        if has_interval:
            axes.fill_between(steps, *ends, color=colour, alpha=0.22, linewidth=0)
        axes.plot(steps, along.means, color=colour, linewidth=1.6, marker="o", markersize=3)
        axes.set_ylim(-reach, reach)
        axes.set_xlim(left=0)
        axes.set_xlabel("optimizer steps")
        axes.set_ylabel(f"difference, {found.course_label}")
        title = f"{shortened(found.arm)} − {shortened(found.baseline)}"
        axes.set_title(title, loc="left", fontsize=10, parse_math=False)
        side = "worse" if _is_lower(results) else "better"
        axes.set_title(f"↑ {side}", loc="right", fontsize=9, color=MUTED)
        axes.grid(axis="y")
        axes.set_axisbelow(True)

    return page_svg(draw, SIZE, "difference over the course of training", f"course-{number}")


def _draw_best(results: Results, tuned: Sequence[tuple[ArmResult, Tuning]], number: int) -> str:
    styles = looks(results)
    (_, first), *_ = tuned

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for arm, tuning in tuned:
            best = [tuning.factor * value for value in tuned_best(tuning)]
            style = styles[arm.name]
            axes.plot(
                range(1, len(best) + 1),
                best,
                style.line,
                color=style.placeholder,
                linewidth=1.4,
                marker="o",
                markersize=4,
            )
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel(f"trials, {first.stage}" if first.stage else "trials")
        axes.set_ylabel(f"validation, {first.label}")
        axes.grid(axis="y")
        axes.set_axisbelow(True)

    return page_svg(draw, SIZE, "expected best of n trials", f"best-{number}")


def _power_words(results: Results, known: Sequence[Power]) -> str:
    kinds = {power.of for power in known}
    phrases = []
    if "margin" in kinds:
        phrases.append(f"the margin ({results.margin:.3g} {results.metric.difference})")
    if "published" in kinds:
        phrases.append("the published effect")
    if "excluded" in kinds:
        beside = " where none was published" if len(kinds) > 1 else ""
        phrases.append(f"the far end of the interval{beside}")
    return (
        f"Probability that so many seeds of each arm detect a true difference as large as "
        f"{' or '.join(phrases)}, at the level of the verdict and the spread observed here. Dots: "
        f"the seeds of this study. Dashed: {POWER:.0%}."
    )


NEVER = "not reached"
FROM = "from"
"""A range over runs of which not all reached it begins with this."""
COSTS = {"steps": "steps", "flops": "FLOPs", "seconds": "time"}
"""What is read off the curves, and what it is called."""


@dataclass(frozen=True)
class QualityCell:
    """A median over seeds, and the range below it; empty where there is none."""

    median: str
    spread: str


@dataclass(frozen=True)
class QualityRow:
    """One comparison: who reaches whose final quality, and at what."""

    arm: str
    whose: str
    is_baseline: bool
    """Whether it is the baseline that reaches what its arm ended with."""
    cells: tuple[QualityCell, ...]
    """In the order of ``COSTS``."""
    parameters: str
    sentence: str


def same_quality_rows(results: Results) -> list[QualityRow]:
    """Return a row for each comparison that the curves say something of."""
    found = []
    pairs = [each for each in results.differences if each.baseline]
    for each, difference in zip(same_quality(results), pairs, strict=True):
        if each.problem:
            continue
        cells = tuple(_quality_cell(each, cost) for cost in COSTS)
        parameters = DASH if each.parameters is None else _whole_percent(each.parameters)
        sentence = _quality_sentence(each, cells, parameters)
        is_baseline = each.arm == difference.baseline
        found.append(QualityRow(each.arm, each.whose, is_baseline, cells, parameters, sentence))
    return found


def same_quality_problems(results: Results) -> list[str]:
    """Return why comparisons are left out, each reason once with its arms."""
    arms: dict[str, list[str]] = {}
    for each in same_quality(results):
        if each.problem:
            arms.setdefault(each.problem, []).append(each.arm)
    everyone = sum(bool(each.baseline) for each in results.differences)
    texts = []
    for problem, names in arms.items():
        whose = "" if len(names) == everyone else f"{', '.join(names)}: "
        texts.append(f"{whose}{problem}")
    return texts


def same_quality_metric(results: Results) -> str:
    """Return what the curves are of."""
    labels = dict.fromkeys(each.metric.label for each in same_quality(results) if not each.problem)
    return " and ".join(labels)


def _quality_sentence(found: SameQuality, cells: tuple[QualityCell, ...], parameters: str) -> str:
    final = f"the final validation {found.metric.label} of {found.whose}"
    steps, flops, seconds = cells
    n_seeds = len(found.seeds)
    size = f"with {parameters} of its parameters"
    if found.n_reached == 0:
        return f"{found.arm} does not reach {final} within its run, {size}."
    if found.summary("steps").median is None:
        return f"{found.arm} reaches {final} in {steps.median}, {size}."
    over = f" ({steps.spread} over {n_seeds} seeds)" if steps.spread else ""
    if found.n_reached < n_seeds:
        over = f" ({steps.spread}; reached in {found.n_reached} of {n_seeds} runs)"
    return (
        f"{found.arm} reaches {final} after {steps.median} of the steps{over}, {flops.median} of "
        f"the FLOPs and {seconds.median} of the time that {found.whose} took, {size}."
    )


def _quality_cell(found: SameQuality, cost: str) -> QualityCell:
    summary = found.summary(cost)
    if summary.median is None:
        if found.n_reached == 0:
            return QualityCell(NEVER, "")
        return QualityCell(f"{found.n_reached} of {len(found.seeds)} runs", "")
    at_most = "at most " if any(each.is_at_first for each in found.seeds) else ""
    spread = _quality_spread(summary) if len(found.seeds) > 1 else ""
    return QualityCell(f"{at_most}{_whole_percent(summary.median)}", spread)


def _quality_spread(summary: Summary) -> str:
    assert summary.low is not None, "where half of the runs reached it, the first did"
    low = _whole_percent(summary.low)
    if summary.high is None:
        return f"{FROM} {low}"
    high = _whole_percent(summary.high)
    if low == high:
        return ""
    return f"{low.removesuffix(_UNIT)} to {high}"


def _whole_percent(share: float) -> str:
    """Write a share in whole percent, or with a decimal below ten."""
    percent = 100 * share
    decimals = 1 if percent < 9.95 else 0
    return f"{percent:.{decimals}f}{_UNIT}"
