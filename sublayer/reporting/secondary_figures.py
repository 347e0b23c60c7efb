"""The report's plots of secondary analyses: differences over training, power, best of n trials."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sublayer.plot import INK, MUTED, RULE, page_svg
from sublayer.reporting.figures import SIZE, looks, shortened
from sublayer.statistics.difference import POWER
from sublayer.statistics.secondary import Course
from sublayer.study.findings.comparisons import Power, Secondary, secondary_analyses, tuned_best
from sublayer.study.results import ArmResult, Results, Tuning

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
