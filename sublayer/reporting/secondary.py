"""Secondary analyses and the cost of the same quality: rows of tables, legends, sentences."""

from collections.abc import Iterator
from dataclasses import dataclass

from sublayer.counts import count, enumerate_names
from sublayer.numbers import (
    DASH,
    NO_BREAK,
    format_interval,
    format_p,
    format_quantity,
    format_signed,
)
from sublayer.reporting.words import n_decimals
from sublayer.statistics.difference import ERROR, POWER, Difference
from sublayer.statistics.secondary import Superiority, TTest
from sublayer.study.comparisons import (
    PublishedEffect,
    Secondary,
    secondary_analyses,
)
from sublayer.study.curves import SameQuality, same_quality
from sublayer.study.results import Results

CAUTION = "None of these decides: each is for one comparison alone, not adjusted for the others."
_LEGENDS = {
    "P(a run is better)": (
        "P(a run is better): the probability that one run of the arm beats one run of the arm that "
        "it is compared with, for normally distributed runs with other seeds, with its 95% CI"
    ),
    "pairs of runs won": "",
    "steps at equal quality": (
        "steps at equal quality: geometric mean over seeds with its 95% CI, as a share of the "
        "steps of the other arm, whose final validation value is reached"
    ),
    "published effect": "",
}
"""By heading."""
_UNIT = "%"


def comparison(results: Results, difference: Difference) -> str:
    """Name a comparison by its arm, and by its baseline where that is not the first arm.

    A contrast of more than two arms has none.
    """
    if difference.baseline in ("", results.baseline):
        return difference.arm
    return f"{difference.arm}, against {difference.baseline}"


@dataclass(frozen=True)
class SecondaryRow:
    """The secondary analyses of one comparison."""

    arm: str
    name: str
    """The arm, and its comparison partner unless that is the baseline."""
    cells: list[str]
    """In the order of the headings."""
    tests: str
    """Results of a paired t test and Welch's test; empty where neither can be computed."""


@dataclass(frozen=True)
class SecondaryTable:
    """A row for each comparison of two arms, without the columns in which none has anything."""

    headings: list[str]
    rows: list[SecondaryRow]
    legend: list[str]
    """Descriptions of columns, a line each."""


def secondary_table(results: Results) -> SecondaryTable:
    """Lay out the secondary analyses; ``results`` are in display units."""
    decimals = n_decimals(results)
    reached = {(each.arm, each.whose): each for each in same_quality(results) if not each.problem}
    rows = []
    for difference, found in zip(results.differences, secondary_analyses(results), strict=True):
        if found.superiority is None:
            continue
        pair = found.arm, found.baseline
        cells = [
            _probability(found.superiority),
            f"{found.superiority.share * found.superiority.n_pairs:g} of "
            f"{found.superiority.n_pairs}",
            _steps(reached.get(pair) or reached.get(pair[::-1])),
            _published(found.published, decimals),
        ]
        name = comparison(results, difference)
        rows.append(SecondaryRow(found.arm, name, cells, _tests(found, decimals)))
    known = [n for n in range(len(_LEGENDS)) if any(row.cells[n] != DASH for row in rows)]
    for row in rows:
        row.cells[:] = [row.cells[n] for n in known]
    headings = [list(_LEGENDS)[n] for n in known]
    return SecondaryTable(
        headings, rows, [_LEGENDS[heading] for heading in headings if _LEGENDS[heading]]
    )


def _probability(found: Superiority) -> str:
    """Write a probability with two decimals, never as 0 or 1, and its interval where that shows."""
    shares = []
    for value in (found.estimate, found.low, found.high):
        if value is None:
            break
        text = f"<{NO_BREAK}0.01" if value < 0.01 else f"{value:.2f}"
        shares.append(f">{NO_BREAK}0.99" if value > 0.99 else text)
    if not shares:
        return DASH
    estimate, *ends = shares
    return (
        f"{estimate} ({' to '.join(ends)})"
        if len(ends) == 2 and {*shares} != {estimate}
        else estimate
    )


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
    if any(seed.is_at_first for seed in found.seeds):
        return f"{found.arm}: at most {_percent(summary.median)}"
    if summary.ratio is None:
        return f"{found.arm}: {_percent(summary.median)}"
    low, high = summary.ratio.low, summary.ratio.high
    ends = f"{_percent(low).removesuffix(_UNIT)} to {_percent(high)}".replace(" ", NO_BREAK)
    return f"{found.arm}: {_percent(summary.ratio.mean)} ({ends})"


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
    parts = []
    tests: dict[str, TTest | None] = {
        "Paired t test": found.paired_t,
        "Welch's test": found.welch_t,
    }
    for name, test in tests.items():
        if test is not None:
            p = format_p(test.p)
            equation = f"p {p}" if p.startswith("<") else f"p = {p}"
            interval = format_interval(test.low, test.high, decimals)
            parts.append(f"{name} {equation.replace(' ', NO_BREAK)} (95% CI {interval})")
    return "; ".join(parts)


def basis_lines(results: Results) -> Iterator[str]:
    """Yield the basis of the verdicts: level, test, trials of tuning, share of the paper's budget.

    A line begins with its subject and a colon.
    """
    levels = [difference.level for difference in results.differences if difference.low is not None]
    if results.has_verdicts and levels:
        level = ERROR if results.is_sequential else min(levels)
        n = results.n_comparisons
        over = "one comparison"
        if n > 1:
            over = f"all {n} comparisons together (simultaneous intervals)"
        looks = ", over all looks" if results.is_sequential else ""
        yield f"Level: {100 * level:.3g}% for {over}{looks}."
    sizes = {
        (difference.n_items, difference.n_documents)
        for difference in results.differences
        if difference.n_items
    }
    if results.has_verdicts and sizes:
        texts = [
            count(n_items or 0, "item") + (f" of {count(n, 'document')}" if n else "")
            for n_items, n in sorted(sizes, key=str)
        ]
        yield f"Test: {enumerate_names(texts)}."
    trials: dict[str, list[str]] = {}
    for arm in results.arms:
        for tuning in arm.tunings:
            runs = "" if tuning.n_runs == 1 else f" of {tuning.n_runs} runs each"
            stage = f" in {tuning.stage}" if tuning.stage else ""
            text = f"{count(len(tuning.scores), 'trial')}{runs}{stage}"
            trials.setdefault(text, []).append(arm.name)
    if trials:
        parts = [
            f"{text} for "
            + ("each arm" if len(names) == len(results.arms) else enumerate_names(names))
            for text, names in trials.items()
        ]
        yield f"Tuning: {'; '.join(parts)}."
    parts = [each for each in (_of_paper(results, name) for name in ("steps", "tokens")) if each]
    if parts:
        yield f"Share of the paper's training: {' and '.join(parts)}."


def _of_paper(results: Results, name: str) -> str:
    """Format the share of the paper's steps or tokens over the arms; empty where none is known."""
    known = [
        (own / arm.paper[name], arm.paper[name])
        for arm in results.arms
        if (own := getattr(arm.costs, name)) and arm.paper.get(name)
    ]
    if not known:
        return ""
    shares, papers = map(sorted, zip(*known, strict=True))
    share = " to ".join(dict.fromkeys(map(_percent, (shares[0], shares[-1]))))
    paper = " to ".join(dict.fromkeys(map(format_quantity, (papers[0], papers[-1]))))
    return f"{share} of its {name} ({paper})"


def _percent(share: float) -> str:
    """Write a share in percent with two digits or more, whole from ten on."""
    percent = 100 * share
    if percent >= 9.95:
        return f"{percent:.0f}{_UNIT}"
    return f"{percent:.2g}{_UNIT}" if percent >= 0.0001 else f"{percent:.0e}{_UNIT}"


def turn_lines(results: Results) -> Iterator[str]:
    """Yield a sentence for each difference that is better at one evaluation and worse at another.

    By pointwise intervals.
    """
    for analysis in secondary_analyses(results):
        if analysis.course is None or analysis.course.turns is None:
            continue
        at = dict(zip(analysis.course.steps, analysis.course.means, strict=True))
        (first, one), (last, other) = (
            (step, "better" if (at[step] < 0) == results.metric.is_lower_better else "worse")
            for step in analysis.course.turns
        )
        yield (
            f"The verdict on {analysis.arm} against {analysis.baseline} depends on the budget: "
            f"{one} at {first:,} steps, {other} at {last:,} steps."
        )


def power_words(results: Results) -> str:
    """Describe the plot of power over seeds by the differences that it is for."""
    kinds = {analysis.power.of for analysis in secondary_analyses(results) if analysis.power}
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


FROM = "from"
"""A range over runs of which not all reached it begins with this."""
COSTS = {"steps": "steps", "flops": "FLOPs", "seconds": "time"}
"""Costs that are read off the curves, with their headings."""


@dataclass(frozen=True)
class QualityRow:
    """One comparison: who reaches whose final quality, and at what."""

    arm: str
    whose: str
    is_baseline: bool
    """True where the baseline reaches the final quality of its arm."""
    cells: list[tuple[str, str]]
    """In the order of ``COSTS``: medians over seeds, and ranges, empty where there is none."""
    parameters: str
    sentence: str


def same_quality_rows(results: Results) -> list[QualityRow]:
    """Return a row for each comparison that the curves say something of."""
    rows = []
    pairs = [each for each in results.differences if each.baseline]
    for each, difference in zip(same_quality(results), pairs, strict=True):
        if each.problem:
            continue
        cells = [_quality_cell(each, cost) for cost in COSTS]
        parameters = DASH if each.parameters is None else _whole_percent(each.parameters)
        sentence = _quality_sentence(each, cells, parameters)
        is_baseline = each.arm == difference.baseline
        rows.append(QualityRow(each.arm, each.whose, is_baseline, cells, parameters, sentence))
    return rows


def same_quality_problems(results: Results) -> list[str]:
    """Return why comparisons are left out, each reason once with its arms."""
    found = [reached for reached in same_quality(results) if reached.problem]
    n_all = sum(bool(difference.baseline) for difference in results.differences)
    texts = []
    for problem in dict.fromkeys(each.problem for each in found):
        names = [each.arm for each in found if each.problem == problem]
        texts.append(problem if len(names) == n_all else f"{', '.join(names)}: {problem}")
    return texts


def same_quality_metric(results: Results) -> str:
    """Name the metrics of the curves."""
    labels = [reached.metric.label for reached in same_quality(results) if not reached.problem]
    return " and ".join(dict.fromkeys(labels))


def _quality_sentence(found: SameQuality, cells: list[tuple[str, str]], parameters: str) -> str:
    final = f"the final validation {found.metric.label} of {found.whose}"
    (steps, spread), (flops, _), (seconds, _) = cells
    n_seeds = len(found.seeds)
    size = f"with {parameters} of its parameters"
    if found.n_reached == 0:
        return f"{found.arm} does not reach {final} within its run, {size}."
    if found.summary("steps").median is None:
        return f"{found.arm} reaches {final} in {steps}, {size}."
    over = f" ({spread} over {n_seeds} seeds)" if spread else ""
    if found.n_reached < n_seeds:
        over = f" ({spread}; reached in {found.n_reached} of {n_seeds} runs)"
    return (
        f"{found.arm} reaches {final} after {steps} of the steps{over}, {flops} of the FLOPs and "
        f"{seconds} of the time that {found.whose} took, {size}."
    )


def _quality_cell(found: SameQuality, cost: str) -> tuple[str, str]:
    summary = found.summary(cost)
    n_seeds = len(found.seeds)
    if summary.median is None:
        return f"{found.n_reached} of {n_seeds} runs" if found.n_reached else "not reached", ""
    assert summary.low is not None, "where half of the runs reached it, the first did"
    low, spread = _whole_percent(summary.low), ""
    if n_seeds > 1 and summary.high is None:
        spread = f"{FROM} {low}"
    elif n_seeds > 1 and summary.high is not None and low != _whole_percent(summary.high):
        spread = f"{low.removesuffix(_UNIT)} to {_whole_percent(summary.high)}"
    at_most = "at most " if any(seed.is_at_first for seed in found.seeds) else ""
    return f"{at_most}{_whole_percent(summary.median)}", spread


def _whole_percent(share: float) -> str:
    """Write a share in whole percent, or with a decimal below ten."""
    percent = 100 * share
    return f"{percent:.{1 if percent < 9.95 else 0}f}{_UNIT}"
