"""Cost of the same quality, in words: the same in the report and on the terminal."""

from dataclasses import dataclass

from sublayer.numbers import DASH, NO_BREAK
from sublayer.study.findings.curves import SameQuality, Summary, same_quality
from sublayer.study.results import Results

NEVER = "not reached"
FROM = "from"
"""A range over runs of which not all reached it begins with this."""
COSTS = {"steps": "steps", "flops": "FLOPs", "seconds": "time"}
"""What is read off the curves, and what it is called."""
_UNIT = f"{NO_BREAK}%"


@dataclass(frozen=True)
class Cell:
    """A median over seeds, and the range below it; empty where there is none."""

    median: str
    spread: str


@dataclass(frozen=True)
class Row:
    """One comparison: who reaches whose final quality, and at what."""

    arm: str
    whose: str
    is_baseline: bool
    """Whether it is the baseline that reaches what its arm ended with."""
    cells: tuple[Cell, ...]
    """In the order of ``COSTS``."""
    parameters: str
    sentence: str


def rows(results: Results) -> list[Row]:
    """Return a row for each comparison that the curves say something of."""
    found = []
    pairs = [each for each in results.differences if each.baseline]
    for each, difference in zip(same_quality(results), pairs, strict=True):
        if each.problem:
            continue
        cells = tuple(_cell(each, cost) for cost in COSTS)
        parameters = DASH if each.parameters is None else _percent(each.parameters)
        sentence = _sentence(each, cells, parameters)
        is_baseline = each.arm == difference.baseline
        found.append(Row(each.arm, each.whose, is_baseline, cells, parameters, sentence))
    return found


def problems(results: Results) -> list[str]:
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


def metric_label(results: Results) -> str:
    """Return what the curves are of."""
    labels = dict.fromkeys(each.metric.label for each in same_quality(results) if not each.problem)
    return " and ".join(labels)


def _sentence(found: SameQuality, cells: tuple[Cell, ...], parameters: str) -> str:
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


def _cell(found: SameQuality, cost: str) -> Cell:
    summary = found.summary(cost)
    if summary.median is None:
        if found.n_reached == 0:
            return Cell(NEVER, "")
        return Cell(f"{found.n_reached} of {len(found.seeds)} runs", "")
    at_most = "at most " if any(each.is_at_first for each in found.seeds) else ""
    spread = _spread(summary) if len(found.seeds) > 1 else ""
    return Cell(f"{at_most}{_percent(summary.median)}", spread)


def _spread(summary: Summary) -> str:
    assert summary.low is not None, "where half of the runs reached it, the first did"
    low = _percent(summary.low)
    if summary.high is None:
        return f"{FROM} {low}"
    high = _percent(summary.high)
    if low == high:
        return ""
    return f"{low.removesuffix(_UNIT)} to {high}"


def _percent(share: float) -> str:
    """Write a share in whole percent, or with a decimal below ten."""
    percent = 100 * share
    decimals = 1 if percent < 9.95 else 0
    return f"{percent:.{decimals}f}{_UNIT}"
