"""Secondary analyses in words: the same in the report and on the terminal."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sublayer.counts import count
from sublayer.numbers import (
    DASH,
    NO_BREAK,
    format_interval,
    format_p,
    format_quantity,
    format_signed,
)
from sublayer.reporting.units import n_decimals
from sublayer.reporting.words import comparison, enumerate_names
from sublayer.statistics.difference import ERROR
from sublayer.statistics.secondary import Superiority, TTest
from sublayer.study.findings.comparisons import PublishedEffect, Secondary, secondary_analyses
from sublayer.study.findings.curves import SameQuality, same_quality
from sublayer.study.results import Results

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
