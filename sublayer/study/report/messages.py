"""A study's results in plain words and numbers, the same in the report and on the terminal."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sublayer.counts import count
from sublayer.study.budget.excess import Currency
from sublayer.study.findings.budgets import arm_budgets
from sublayer.study.report.arm_names import arm_name
from sublayer.study.report.budget_words import (
    describe_excess,
    describe_largest,
    describe_matching,
)
from sublayer.study.report.display_units import in_display_units
from sublayer.study.report.number_format import (
    DASH,
    decimals_for,
    format_interval,
    format_signed,
    n_decimals,
)
from sublayer.study.results import ArmResult, Further, Results
from sublayer.study.statistics import (
    FEWEST_TO_ESTIMATE,
    MOST_SEEDS,
    UNDECIDED,
    Difference,
    Verdict,
)

FEW = 4  # arms that a headline can name

_VERBS: dict[Verdict, tuple[str, str, str]] = {
    "better": ("is better", "are better", "than"),
    "worse": ("is worse", "are worse", "than"),
    "undecided": ("is undecided", "are undecided", "against"),
}


@dataclass(frozen=True)
class Statement:
    """One comparison: ``arm predicate baseline detail``, as "gelu is better than relu by ...".

    ``baseline`` is the arm that this one is compared with. Both are named in English, see
    ``arm_name``.
    """

    arm: str
    baseline: str
    verdict: Verdict
    predicate: str
    detail: str
    """Begins with a space or a mark, for it follows a name."""
    short: str = ""
    """The detail of a headline: by how much, without the interval."""

    def __str__(self) -> str:
        """Join the parts into one sentence."""
        return f"{self.arm} {self.predicate} {self.baseline}{self.detail}."


def statements(results: Results) -> list[Statement]:
    """Return a sentence about each comparison, with its numbers in display units."""
    shown = in_display_units(results)
    return [_statement(shown, difference) for difference in shown.differences]


def headline(results: Results) -> str:
    """Summarize the verdicts in one line, and where budgets are not equal say by how much."""
    told = _verdicts(results)
    if not results.differences:
        return told
    if len(results.differences) == 1 and results.has_verdicts:
        beyond = describe_excess(_beyond(results, results.differences[0]))
        return f"{told}, with {beyond}" if beyond else told
    largest = describe_largest(results)
    return f"{told}; {largest}" if largest else told


def _verdicts(results: Results) -> str:
    """Summarize the verdicts: by name where they are few, else by number."""
    if not results.has_verdicts:
        return "One seed: values, no verdict"
    differences = results.differences
    if not differences:
        return "Nothing to compare yet"
    if len(differences) == 1:
        (statement,) = statements(results)
        return f"{statement.arm} {statement.predicate} {statement.baseline}{statement.short}"
    baselines = {difference.baseline for difference in differences}
    by_verdict: dict[Verdict, list[str]] = {}
    for verdict in _VERBS:
        arms = [arm_name(results, each.arm) for each in differences if each.verdict == verdict]
        if arms:
            by_verdict[verdict] = arms
    baseline = arm_name(results, results.baseline)
    if len(differences) > FEW or len(baselines) > 1:
        counts = [f"{len(arms)} {verdict}" for verdict, arms in by_verdict.items()]
        whom = baseline if len(baselines) == 1 else "another each"
        return f"Of {len(differences)} arms compared with {whom}: {enumerate_names(counts)}"
    clauses: list[str] = []
    for verdict, arms in by_verdict.items():
        one, many, against = _VERBS[verdict]
        verb = one if len(arms) == 1 else many
        clause = f"{enumerate_names(arms)} {verb}"
        # "a is better than c; b is worse" reads without the second "than c".
        if not clauses or verdict == "undecided":
            clause += f" {against} {baseline}"
        clauses.append(clause)
    return "; ".join(clauses)


def comparison(results: Results, difference: Difference) -> str:
    """Name a comparison by its arm, and by its baseline where that is not the first arm."""
    if difference.baseline == results.baseline:
        return difference.arm
    return f"{difference.arm}, against {difference.baseline}"


def conditions(results: Results) -> str:
    """Describe what was matched, tuned, paired and scored, as the start of a sentence."""
    seeds = f"paired over {results.n_seeds} seeds" if results.has_verdicts else "one seed of each"
    if not results.differences:
        seeds = "not paired yet"
    parts = [
        describe_matching(results),
        _tuning(results),
        seeds,
        f"scored on {results.scored_on or f'the {results.split} split'}",
    ]
    text = ", ".join(parts)
    return f"{text[0].upper()}{text[1:]}"


def further_value(arm: ArmResult, further: Further) -> str:
    """Format an arm's mean and spread in a further displayed metric; a dash without values.

    The spread is the standard deviation over seeds; with one seed the mean stands alone.
    """
    values = list(arm.further.get(further.metric.name, {}).values())
    if not values:
        return DASH
    decimals = decimals_for(further.differences, further.metric)
    mean = math.fsum(values) / len(values)
    text = f"{mean:.{decimals}f}"
    if len(values) < 2:
        return text
    sd = statistics.stdev(values)
    return f"{text} ± {sd:.{decimals}f}"


def further_difference(arm: ArmResult, further: Further) -> str:
    """Format an arm's difference in a further metric with its interval; empty for the baseline."""
    differences = [each for each in further.differences if each.arm == arm.name]
    if not differences:
        return ""
    difference = differences[0]
    decimals = decimals_for(further.differences, further.metric)
    mean = format_signed(difference.mean, decimals)
    if difference.low is None:
        return mean
    interval = format_interval(difference.low, difference.high, decimals)
    return f"{mean} [{interval}]"


def enumerate_names(names: Sequence[str]) -> str:
    """Join names as a sentence does: by commas, and the last by "and"."""
    if not names:
        return ""
    *others, last = names
    if not others:
        return last
    return f"{', '.join(others)} and {last}"


def more_seeds(difference: Difference) -> str:
    """Format about how many more seeds would decide; in words where none or no number would."""
    if difference.verdict not in UNDECIDED:
        return "decided"
    if difference.sd == 0.0:
        return "no number of seeds would"
    if difference.low is None:
        return "unknown"
    if len(difference.seeds) < FEWEST_TO_ESTIMATE:
        return "no estimate"
    if difference.more_seeds is None:
        return f"more than {MOST_SEEDS}"
    return f"about {difference.more_seeds} ({_seeds_range(difference)})"


def _seeds_range(difference: Difference) -> str:
    """Format the numbers of seeds that the ends of the spread's interval ask for."""
    most = difference.most_more_seeds
    end = f"more than {MOST_SEEDS}" if most is None else str(most)
    return f"{difference.fewest_more_seeds} to {end}"


def _statement(results: Results, difference: Difference) -> Statement:
    predicate, detail = _finding(results, difference)
    baseline = arm_name(results, difference.baseline)
    short = ""
    if difference.verdict not in UNDECIDED:
        short, _, _ = detail.partition(" (95%")
    beyond = describe_excess(_beyond(results, difference))
    if beyond:
        detail += f"; with {beyond}"
    if difference.note:
        detail += f"; {difference.note}"
    name = arm_name(results, difference.arm)
    return Statement(name, baseline, difference.verdict, predicate, detail, short)


def _beyond(results: Results, difference: Difference) -> Mapping[Currency, float]:
    """Return what the arm of a comparison took beyond the other, where that is not equal."""
    [budget] = [each for each in arm_budgets(results) if each.arm == difference.arm]
    return budget.realised.beyond


def _finding(results: Results, difference: Difference) -> tuple[str, str]:
    """Return the predicate and the detail of a statement."""
    unit = results.metric.difference
    decimals = n_decimals(results)
    mean, low, high = difference.mean, difference.low, difference.high
    if difference.verdict == "no verdict":
        return _without_verdict(mean, unit, decimals)
    if mean is None or low is None or high is None:
        return "cannot be compared with", ", for want of two seeds that finished in both"
    if difference.verdict == "undecided":
        signed = format_signed(mean, decimals)
        interval = format_interval(low, high, decimals)
        detail = f": {signed} {unit} (95% CI {interval})"
        if difference.sd != 0.0:
            detail += f"; {_outlook(difference)}"
        return "is undecided against", detail
    # The verdict says in which direction, so that sizes have no sign.
    near, far = sorted((abs(low), abs(high)))
    size = f"{abs(mean):.{decimals}f}"
    interval = f"{near:.{decimals}f} to {far:.{decimals}f}"
    detail = f" by {size} {unit} (95% CI {interval})"
    return f"is {difference.verdict} than", detail


def _without_verdict(mean: float | None, unit: str, decimals: int) -> tuple[str, str]:
    if mean is None:
        return "cannot be compared with", ", for want of a seed that finished in both"
    signed = format_signed(mean, decimals)
    return "differs from", f" by {signed} {unit} with one seed, which gives no verdict"


def _tuning(results: Results) -> str:
    fields: dict[str, None] = {}
    for arm in results.arms:
        for setting in arm.tuned:
            field, _, _ = setting.partition("=")
            fields.setdefault(field)
    if not fields:
        return "no setting tuned"
    return f"{enumerate_names(list(fields))} tuned for each arm"


def _outlook(difference: Difference) -> str:
    if len(difference.seeds) < FEWEST_TO_ESTIMATE:
        return "two seeds give no estimate of how many would decide"
    if difference.more_seeds is None:
        return f"more than {MOST_SEEDS} more seeds would be needed"
    seeds = count(difference.more_seeds, "more seed")
    return f"about {seeds} would decide ({_seeds_range(difference)})"
