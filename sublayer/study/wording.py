"""A study's findings in plain words and legible numbers, the same in the report and on the terminal."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from sublayer.study.results import ArmResult, Further, Results
from sublayer.study.shown import shown
from sublayer.study.statistics import Difference, Metric, Verdict

MINUS = "\N{MINUS SIGN}"
NO_BREAK = "\N{NO-BREAK SPACE}"
DASH = "\N{EN DASH}"

FEW = 4  # arms that a headline can name

EQUAL = {"parameters": "at equal parameters", "flops": "at equal operations", "time": "at equal time"}
MATCHED = {"parameters": "parameters", "flops": "operations", "time": "time", "none": "parameters"}

_VERBS: dict[Verdict, tuple[str, str, str]] = {
    "better": ("is better", "are better", "than"),
    "worse": ("is worse", "are worse", "than"),
    "cannot tell": ("cannot be told", "cannot be told", "from"),
}


@dataclass(frozen=True)
class Statement:
    """What one comparison says: ``arm predicate baseline detail``; ``short`` is the detail of a headline."""

    arm: str
    baseline: str
    verdict: Verdict
    predicate: str
    detail: str
    short: str = ""

    def __str__(self) -> str:
        """Join the parts into one sentence."""
        return f"{self.arm} {self.predicate} {self.baseline}{self.detail}."


def statements(results: Results) -> list[Statement]:
    """Say each comparison in a sentence."""
    results = shown(results)
    return [_statement(results, difference) for difference in results.differences]


def headline(results: Results) -> str:
    """Say the verdicts in one line: by name where they are few, else by number."""
    if len(results.differences) == 1:
        statement = statements(results)[0]
        return f"{statement.arm} {statement.predicate} {statement.baseline}{statement.short}"
    baselines = {difference.baseline for difference in results.differences}
    found = [(verdict, [d.arm for d in results.differences if d.verdict == verdict]) for verdict in _VERBS]
    if len(results.differences) > FEW or len(baselines) > 1:
        counts = [f"{len(arms)} {verdict}" for verdict, arms in found if arms]
        whom = results.baseline if len(baselines) == 1 else "another each"
        return f"Of {len(results.differences)} arms compared with {whom}: {_enumerate(counts)}"
    clauses: list[str] = []
    for verdict, arms in found:
        if arms:
            one, many, against = _VERBS[verdict]
            says_against = not clauses or verdict == "cannot tell"
            than = f" {against} {results.baseline}" if says_against else ""
            clauses.append(f"{_enumerate(arms)} {one if len(arms) == 1 else many}{than}")
    return "; ".join(clauses)


def comparison(results: Results, difference: Difference) -> str:
    """Name a comparison by its arm, and by what the arm is compared with where that is not the first."""
    if difference.baseline == results.baseline:
        return difference.arm
    return f"{difference.arm}, against {difference.baseline}"


def conditions(results: Results) -> str:
    """Say what was equal and tuned, how many seeds were paired and what was scored, as the start of a sentence."""
    equal = EQUAL.get(results.match, "with no budget matched")
    parts = [equal, _tuning(results), f"paired over {results.n_seeds} seeds", f"scored on the {results.split} split"]
    said = ", ".join(parts)
    return f"{said[0].upper()}{said[1:]}"


def further_value(arm: ArmResult, further: Further) -> str:
    """Write an arm's mean and spread in a further metric of results as shown; a dash where it has none."""
    values = list(arm.further.get(further.metric.name, {}).values())
    if not values:
        return DASH
    decimals = _decimals(further.differences, further.metric)
    mean = f"{math.fsum(values) / len(values):.{decimals}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{decimals}f}"


def further_difference(arm: ArmResult, further: Further) -> str:
    """Write an arm's difference in a further metric with its interval, if it has both; nothing for the baseline."""
    found = [each for each in further.differences if each.arm == arm.name]
    if not found:
        return ""
    (difference,) = found
    decimals = _decimals(further.differences, further.metric)
    mean = format_signed(difference.mean, decimals)
    return mean if difference.low is None else f"{mean} [{format_interval(difference.low, difference.high, decimals)}]"


def more_seeds(difference: Difference) -> str:
    """Say about how many more seeds would decide."""
    if difference.verdict != "cannot tell":
        return "decided"
    if difference.sd == 0.0:
        return "no number of seeds would"
    if difference.low is None:
        return "unknown"
    if difference.more_seeds is None:
        return "more than 1000"
    return f"about {difference.more_seeds}"


def n_decimals(results: Results) -> int:
    """Choose the decimals that show the narrowest interval of results as shown with two figures, 5 at most."""
    return _decimals(results.differences, results.metric)


def format_signed(value: float | None, decimals: int) -> str:
    """Write a difference with its sign and a true minus."""
    if value is None:
        return DASH
    return f"{value:+.{decimals}f}".replace("-", MINUS)


def format_interval(low: float | None, high: float | None, decimals: int) -> str:
    """Write an interval of differences."""
    if low is None or high is None:
        return DASH
    return f"{format_signed(low, decimals)} to {format_signed(high, decimals)}"


def format_p(p: float | None) -> str:
    """Write a p value with two figures, or as below a bound."""
    if p is None:
        return DASH
    return f"{p:.2g}" if p >= 0.0001 else "< 0.0001"


def format_quantity(value: float | None, unit: str = "") -> str:
    """Write a large number with three figures and an SI prefix."""
    if value is None:
        return DASH
    power = min(5, max(0, math.floor(math.log10(abs(value)) / 3 + 1e-9))) if value else 0
    scaled = value / 1000**power
    digits = max(0, 2 - math.floor(math.log10(scaled))) if 0 < scaled < 1000 else 0
    if power == 0 and float(value).is_integer():
        digits = 0
    return f"{scaled:.{digits}f}{NO_BREAK}{('', 'k', 'M', 'G', 'T', 'P')[power]}{unit}".rstrip(NO_BREAK)


def format_duration(seconds: float | None) -> str:
    """Write a duration in the unit that suits it."""
    if seconds is None:
        return DASH
    if seconds < 120:
        return f"{seconds:.1f}{NO_BREAK}s" if seconds < 10 else f"{seconds:.0f}{NO_BREAK}s"
    minutes = seconds / 60
    return f"{minutes:.1f}{NO_BREAK}min" if minutes < 120 else f"{minutes / 60:.1f}{NO_BREAK}h"


def format_residual(arm: ArmResult) -> str:
    """Write how far an arm's budget is from that of the arm it is matched to."""
    if arm.residual == 0.0:
        return f"0{NO_BREAK}%"
    decimals = 2 if abs(arm.residual) >= 0.00005 else 4
    return f"{format_signed(100 * arm.residual, decimals)}{NO_BREAK}%"


def _decimals(differences: Sequence[Difference], metric: Metric) -> int:
    widths = [
        difference.high - difference.low
        for difference in differences
        if difference.low is not None and difference.high is not None and difference.high > difference.low
    ]
    return min(5, max(metric.decimals, 1 - math.floor(math.log10(min(widths))))) if widths else metric.decimals


def _statement(results: Results, difference: Difference) -> Statement:
    predicate, detail = _finding(results, difference)
    arm = next(arm for arm in results.arms if arm.name == difference.arm)
    short = detail.partition(f" (95{NO_BREAK}%")[0] if difference.verdict != "cannot tell" else ""
    if arm.is_mismatched:
        is_own = results.match == "none" and difference.baseline != results.baseline
        whose = f"{difference.baseline}'s" if is_own else "the baseline's"
        detail += f"; {MATCHED[results.match]} {format_residual(arm)} against {whose}"
    if difference.note:
        detail += f"; {difference.note}"
    return Statement(difference.arm, difference.baseline, difference.verdict, predicate, detail, short)


def _finding(results: Results, difference: Difference) -> tuple[str, str]:
    unit, decimals = results.metric.difference, n_decimals(results)
    mean, low, high = difference.mean, difference.low, difference.high
    if mean is None or low is None or high is None:
        return "cannot be compared with", ", for want of two seeds that finished in both"
    if difference.verdict == "cannot tell":
        detail = f" by these seeds: {format_signed(mean, decimals)} {unit}"
        detail += f" (95{NO_BREAK}% interval {format_interval(low, high, decimals)})"
        return "cannot be told from", detail if difference.sd == 0.0 else f"{detail}; {_outlook(difference)}"
    near, far = sorted((abs(low), abs(high)))
    detail = f" by {abs(mean):.{decimals}f} {unit} (95{NO_BREAK}% interval {near:.{decimals}f} to {far:.{decimals}f})"
    return f"is {difference.verdict} than", detail


def _tuning(results: Results) -> str:
    fields = dict.fromkeys(text.partition("=")[0] for arm in results.arms for text in arm.tuned)
    return f"{_enumerate(list(fields))} tuned for each arm" if fields else "no setting tuned"


def _outlook(difference: Difference) -> str:
    if difference.more_seeds is None:
        return "more than 1000 more seeds would be needed"
    return f"about {difference.more_seeds} more {'seed' if difference.more_seeds == 1 else 'seeds'} would decide"


def _enumerate(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
