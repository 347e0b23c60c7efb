"""Words of secondary analyses: tests, the basis of verdicts, turns of the course, power."""

from collections.abc import Iterator

from sublayer.counts import count, enumerate_names
from sublayer.numbers import NO_BREAK, format_interval, format_p, format_quantity
from sublayer.statistics.difference import ERROR, POWER
from sublayer.statistics.secondary import TTest
from sublayer.study.comparisons import Secondary, secondary_analyses
from sublayer.study.results import Results

_UNIT = "%"


def tests_in_words(analysis: Secondary, decimals: int) -> str:
    """Write the paired and Welch's t test, uncorrected, in one line; empty without either."""
    parts = []
    tests: dict[str, TTest | None] = {
        "paired t test": analysis.paired_t,
        "Welch's test": analysis.welch_t,
    }
    for name, test in tests.items():
        if test is not None:
            p = format_p(test.p)
            equation = f"p {p}" if p.startswith("<") else f"p = {p}"
            interval = format_interval(test.low, test.high, decimals)
            parts.append(f"{name} {equation.replace(' ', NO_BREAK)} (95% CI {interval})")
    return "; ".join(parts)


def basis_lines(results: Results) -> Iterator[str]:
    """Yield the basis of the verdicts: level, test, tuning trials, share of the paper's budget.

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
    parts = [part for part in (_of_paper(results, name) for name in ("steps", "tokens")) if part]
    if parts:
        yield f"Share of the paper's training: {' and '.join(parts)}."


def _of_paper(results: Results, name: str) -> str:
    """Format the share of the paper's steps or tokens over the arms; empty if unknown."""
    known = [
        (amount / arm.paper[name], arm.paper[name])
        for arm in results.arms
        if (amount := getattr(arm.costs, name)) and arm.paper.get(name)
    ]
    if not known:
        return ""
    shares, papers = map(sorted, zip(*known, strict=True))
    share = " to ".join(dict.fromkeys(map(percent, (shares[0], shares[-1]))))
    paper = " to ".join(dict.fromkeys(map(format_quantity, (papers[0], papers[-1]))))
    return f"{share} of its {name} ({paper})"


def percent(share: float) -> str:
    """Write a share in percent with at least two digits, whole from ten on."""
    percent = 100 * share
    if percent >= 9.95:
        return f"{percent:.0f}{_UNIT}"
    return f"{percent:.2g}{_UNIT}" if percent >= 0.0001 else f"{percent:.0e}{_UNIT}"


def turn_lines(results: Results) -> Iterator[str]:
    """Yield a sentence for each difference whose sign changes significantly between evaluations.

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
    """Describe the plot of power over seeds by the differences that it covers."""
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
