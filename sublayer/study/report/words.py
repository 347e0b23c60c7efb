"""Verdicts, conditions and intervals in words: the same in the report and on the terminal."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sublayer.counts import count
from sublayer.statistics.difference import (
    DECIDED,
    FEWEST_SEEDS,
    MOST_SEEDS,
    Difference,
    Verdict,
)
from sublayer.study.budget.excess import Currency
from sublayer.study.findings.budgets import compared_budgets
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
    format_p,
    format_quantity,
    format_signed,
    n_decimals,
)
from sublayer.study.results import SIGNATURE, ArmResult, Further, Results, StudyText

FEW = 4  # arms that a headline can name

_VERBS: dict[Verdict, tuple[str, str, str]] = {
    "better": ("is better", "are better", "than"),
    "worse": ("is worse", "are worse", "than"),
    "no difference that matters": (
        "makes no difference that matters",
        "make no difference that matters",
        "against",
    ),
    "cannot tell": ("cannot be told", "cannot be told", "from"),
    "no verdict": ("has no verdict", "have no verdict", "against"),
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
    figures: str = ""
    """The detail of a summary, which names the unit: by how much, with the interval."""

    @property
    def brief(self) -> str:
        """The sentence of a summary."""
        return f"{self.arm} {self.predicate} {self.baseline}{self.figures}"

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
        n_seeds = "One seed" if results.n_seeds == 1 else f"{results.n_seeds} seeds"
        return f"{n_seeds}: values, no verdict"
    differences = results.of_arms
    if not differences:
        return "Nothing to compare yet"
    if len(differences) == 1:
        (statement,) = statements(replace(results, differences=differences))
        if statement.verdict == "no verdict":
            return f"{statement.arm} has no verdict against {statement.baseline}"
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
        if not clauses or verdict not in ("better", "worse"):
            clause += f" {against} {baseline}"
        clauses.append(clause)
    return "; ".join(clauses)


def comparison(results: Results, difference: Difference) -> str:
    """Name a comparison by its arm, and by its baseline where that is not the first arm.

    A contrast of more than two arms has none.
    """
    if difference.baseline in ("", results.baseline):
        return difference.arm
    return f"{difference.arm}, against {difference.baseline}"


def conditions(results: Results) -> str:
    """Describe what was matched, tuned, paired and scored, as the start of a sentence."""
    seeds = _seeds(results)
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


def _seeds(results: Results) -> str:
    if not results.differences:
        return "not compared yet"
    if results.n_seeds == 1:
        return "one seed of each"
    if results.is_sequential:
        return f"seeds added until it is decided, {results.looks[-1]} at most"
    paired = results.pairing is not None and results.pairing.is_paired
    return f"paired over {results.n_seeds} seeds" if paired else f"{results.n_seeds} seeds of each"


def further_difference(arm: ArmResult, further: Further) -> str:
    """Format an arm's difference in a further metric; empty for the baseline.

    With its interval only where the study asks for a verdict on it.
    """
    differences = [each for each in further.differences if each.arm == arm.name]
    if not differences:
        return ""
    difference = differences[0]
    decimals = decimals_for(further.differences, further.metric)
    mean = format_signed(difference.mean, decimals)
    if difference.low is None or difference.verdict == "no verdict":
        return mean
    interval = format_interval(difference.low, difference.high, decimals)
    return f"{mean} [{interval}]"


def is_judged(further: Further) -> bool:
    """Return whether a further metric has verdicts, as the study asks for."""
    return any(each.verdict != "no verdict" for each in further.differences)


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
    if difference.verdict in DECIDED:
        return "decided"
    if difference.verdict == "no verdict":
        return DASH
    if difference.by_ranks:
        return "runs failed"
    if difference.low is None:
        return "unknown"
    if difference.more_seeds is None:
        return f"more than {MOST_SEEDS}" if difference.fewest_more_seeds else _hopeless(difference)
    return f"about {difference.more_seeds} ({_seeds_range(difference)})"


def _hopeless(difference: Difference) -> str:
    """Say what would decide where a thousand seeds would not."""
    parts = difference.parts
    if parts is not None and parts.tuning > (parts.items or 0.0):
        return "more tuning seeds"
    if parts is not None and parts.items:
        return "more test items"
    return f"more than {MOST_SEEDS}"


def _seeds_range(difference: Difference) -> str:
    """Format the numbers of seeds that the ends of the spread's interval ask for."""
    most = difference.most_more_seeds
    end = f"more than {MOST_SEEDS}" if most is None else str(most)
    return f"{difference.fewest_more_seeds} to {end}"


def _statement(results: Results, difference: Difference) -> Statement:
    predicate, detail = _finding(results, difference)
    # A contrast of more than two arms is a sum, which is held against 0.
    baseline = arm_name(results, difference.baseline) or "0"
    figures = detail.partition(";")[0].replace(f" {results.metric.difference}", "")
    short = ""
    if difference.verdict in ("better", "worse") and not difference.by_ranks:
        short, _, _ = detail.partition(" (95%")
    beyond = describe_excess(_beyond(results, difference))
    if beyond:
        detail += f"; with {beyond}"
    if difference.note:
        detail += f"; {difference.note}"
    name = arm_name(results, difference.arm)
    return Statement(name, baseline, difference.verdict, predicate, detail, short, figures)


def _beyond(results: Results, difference: Difference) -> Mapping[Currency, float]:
    """Return what the arm of a comparison took beyond the other, where that is not equal."""
    for budget in compared_budgets(results):
        if (budget.arm, budget.against) == (difference.arm, difference.baseline):
            return budget.realised.beyond
    return {}  # of more than two arms


def _finding(results: Results, difference: Difference) -> tuple[str, str]:
    """Return the predicate and the detail of a statement."""
    unit = results.metric.difference
    decimals = n_decimals(results)
    mean, low, high = difference.mean, difference.low, difference.high
    if difference.verdict == "no verdict":
        return _without_verdict(results, difference)
    if difference.by_ranks:
        return _by_ranks(results, difference)
    if mean is None or low is None or high is None:
        return "cannot be compared with", ", for want of two seeds of each that finished"
    signed = format_signed(mean, decimals)
    interval = format_interval(low, high, decimals)
    if difference.verdict == "cannot tell":
        detail = f": {signed} {unit} (95% CI {interval}); {_outlook(difference)}"
        return "cannot be told from", detail
    if difference.verdict == "no difference that matters":
        margin = f"{results.margin:.3g}" if results.margin is not None else DASH
        detail = f": {signed} {unit} (95% CI {interval}), inside the margin of {margin}"
        return "makes no difference that matters against", detail
    # The verdict says in which direction, so that sizes have no sign.
    near, far = sorted((abs(low), abs(high)))
    size = f"{abs(mean):.{decimals}f}"
    ends = f"{near:.{decimals}f} to {far:.{decimals}f}"
    return f"is {difference.verdict} than", f" by {size} {unit} (95% CI {ends})"


def _by_ranks(results: Results, difference: Difference) -> tuple[str, str]:
    """Return the predicate and detail of a comparison in which runs failed."""
    by_name = {arm.name: arm for arm in results.arms}
    told = []
    pairs = zip((difference.arm, difference.baseline), difference.n_failed, strict=True)
    for name, n_failed in pairs:
        if n_failed and name in by_name:
            n_runs = len(by_name[name].seeds) + n_failed
            told.append(f"{n_failed} of {n_runs} runs of {arm_name(results, name)} failed")
    detail = f": {enumerate_names(told)}, which count as the worst" if told else ": runs failed"
    if difference.p is not None:
        detail += f" (ranks, p = {format_p(difference.p)})"
    if difference.mean is not None:
        signed = format_signed(difference.mean, n_decimals(results))
        detail += f"; of the others {signed} {results.metric.difference}"
    if difference.verdict == "cannot tell":
        return "cannot be told from", detail
    return f"is {difference.verdict} than", detail


def _without_verdict(results: Results, difference: Difference) -> tuple[str, str]:
    mean = difference.mean
    if mean is None:
        return "cannot be compared with", ", for want of a seed that finished in both"
    signed = format_signed(mean, n_decimals(results))
    detail = f" by {signed} {results.metric.difference}"
    if results.n_seeds < FEWEST_SEEDS:
        n_seeds = "one seed" if results.n_seeds == 1 else f"{results.n_seeds} seeds"
        return "differs from", f"{detail} with {n_seeds}, which gives no verdict"
    return "differs from", f"{detail}, without a verdict"


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
    if difference.mean == 0.0:
        return "the means are equal, which no number of seeds would tell apart"
    if difference.more_seeds is None:
        what = _hopeless(difference)
        return (
            f"{what} would be needed"
            if what.startswith("more t")
            else f"{what} more seeds would be needed"
        )
    seeds = count(difference.more_seeds, "more seed")
    return f"about {seeds} would decide four times in five ({_seeds_range(difference)})"


@dataclass(frozen=True)
class Halves:
    """How far an interval reaches to either side, and would without one of its causes."""

    now: float
    endless_seeds: float | None
    """With endless seeds: other test items alone. None: not known."""
    endless_items: float
    """With an endless test: other seeds alone."""


_REVERSED: dict[Verdict, Verdict] = {"better": "worse", "worse": "better"}
_HYPOTHESIS: dict[Verdict, str] = {
    "better": "holds",
    "worse": "the contrary holds",
    "no difference that matters": "no difference that matters",
    "cannot tell": "cannot tell",
    "no verdict": "not judged",
}


def halves(difference: Difference) -> Halves | None:
    """Return what a difference's interval is made of; None without an interval."""
    low, high, error, parts = (
        difference.low, difference.high, difference.standard_error, difference.parts,
    )  # fmt: skip
    if low is None or high is None or not error or parts is None:
        return None
    now = (high - low) / 2
    reach = now / error
    of_items = None if parts.items is None else parts.items * reach
    return Halves(now, of_items, parts.seeds * reach)


def spread_lines(results: Results) -> Iterator[str]:
    """Yield the margin, what the widest interval is made of, and how seeds were compared.

    ``results`` are in display units.
    """
    if not results.has_verdicts:
        return
    yield _margin(results)
    yield from _parts(results)
    yield from _tuning_spread(results)
    yield from _pairing(results)
    yield from _looks(results)


def hypothesis_words(results: Results) -> tuple[Verdict, str] | None:
    """Return the verdict on the hypothesis, and its words; None where there is none."""
    if results.hypothesis_of is None:
        return None
    for each in results.differences:
        verdict = None
        if (each.arm, each.baseline) == results.hypothesis_of:
            verdict = each.verdict
        elif (each.baseline, each.arm) == results.hypothesis_of:
            verdict = _REVERSED.get(each.verdict, each.verdict)
        if verdict is not None:
            return verdict, _HYPOTHESIS[verdict]
    return "no verdict", _HYPOTHESIS["no verdict"]


def _margin(results: Results) -> str:
    unit = results.metric.difference
    if results.margin is None:
        return (
            "Margin: none was named, so that no verdict says that a difference does not matter "
            "(--margin, or margin in the study's file)."
        )
    reason = f": {results.margin_reason}" if results.margin_reason else ""
    return f"Margin: a difference below {results.margin:.3g} {unit} does not matter{reason}."


def _parts(results: Results) -> Iterator[str]:
    known = [each for each in map(halves, results.differences) if each is not None]
    if not known:
        return
    widest = max(known, key=lambda each: each.now)
    decimals = n_decimals(results)
    which = "The interval reaches" if len(known) == 1 else "The widest interval reaches"
    text = f"Spread: {which[0].lower()}{which[1:]} {widest.now:.{decimals}f} to either side"
    if widest.endless_seeds is None:
        yield (
            f"{text}, for other seeds alone: what another test of as many items would give is not "
            "known, for none were kept, they were too few, or the metric follows from none."
        )
        return
    yield (
        f"{text}: endless seeds would leave {widest.endless_seeds:.{decimals}f}, from which test "
        f"items there are; an endless test would leave {widest.endless_items:.{decimals}f}, from "
        "which seeds."
    )


def _tuning_spread(results: Results) -> Iterator[str]:
    reaches = []
    for each in results.differences:
        made = halves(each)
        if made is not None and each.parts is not None and each.standard_error:
            reaches.append(each.parts.tuning * made.now / each.standard_error)
    widest = max(reaches, default=0.0)
    if widest:
        yield (
            f"Tuning: of the widest interval endless seeds and an endless test would leave "
            f"{widest:.{n_decimals(results)}f}, for what few runs of each trial have chosen: "
            "more tuning seeds make it less."
        )


def _pairing(results: Results) -> Iterator[str]:
    pairing = results.pairing
    if pairing is None:
        return
    correlation = f"{pairing.correlation:+.2f}".replace("-", "\N{MINUS SIGN}")
    if pairing.is_paired:
        yield f"Seeds: compared pair by pair, for arms vary together (correlation {correlation})."
    else:
        yield (
            "Seeds: compared as independent runs, for it is not beyond accident that arms vary "
            f"together (correlation {correlation})."
        )


def _looks(results: Results) -> Iterator[str]:
    if results.is_sequential:
        shown = ", ".join(map(str, results.looks))
        stopped = [
            f"{each.arm} at {each.n_seeds}"
            for each in results.differences
            if each.n_seeds < results.looks[-1] and each.baseline
        ]
        at = f" Decided before the last: {', '.join(stopped)}." if stopped else ""
        saved = _saved(results)
        yield (
            f"Looks: planned at {shown} seeds; intervals are wider, so that they hold at every "
            f"look.{at}{saved}"
        )
    elif len(results.looks) > 1:
        shown = ", ".join(map(str, results.looks))
        yield (
            f"Looks: judged with {shown} seeds in turn. The first may spend four fifths of the "
            "error, each further one half of what is left: intervals are wider for it, and hold."
        )


def _saved(results: Results) -> str:
    most = results.looks[-1] * len(results.arms)
    made = sum(len(arm.seeds) for arm in results.arms) + len(results.failures)
    if made >= most:
        return ""
    return f" {made} of {most} runs were made: {most - made} were saved."


_NAMED = 3


def text_line(results: Results) -> str:
    """Name the text, what was trained and scored on, and the date; empty where nothing is known."""
    reproduction = results.reproduction
    parts = []
    text = reproduction.text
    if text is not None and text.names:
        parts.append(f"Text: {_name(text)}")
    if text is not None:
        parts += _sizes(text, results.split if is_scored_on_text(results) else "")
    if signature := reproduction.environment.get(f"{SIGNATURE}{results.metric.name}"):
        parts.append(f"{results.metric.name} by {signature}")
    if reproduction.date:
        parts.append(f"finished on {reproduction.date[:10]}")
    return f"{'; '.join(parts)}." if parts else ""


def is_scored_on_text(results: Results) -> bool:
    """Return whether values are of a split of the text, as those of a chain's tasks are not."""
    return not results.scored_on or "split" in results.scored_on


def _name(text: StudyText) -> str:
    *others, last = text.names[:_NAMED]
    n_more = len(text.names) - _NAMED
    if n_more > 0:
        return f"{', '.join([*others, last])} and {n_more} more"
    return " and ".join([", ".join(others), last]) if others else last


def _sizes(text: StudyText, scored: str) -> list[str]:
    said = []
    trained = "trained on" if scored else "pre-trained on"
    for split, verb in (("train", trained), (scored, f"scored on the {scored} split’s")):
        sizes = text.sizes.get(split, {})
        if "bytes" not in sizes or "documents" not in sizes:
            continue
        documents = count(sizes["documents"], "document")
        size = format_quantity(sizes["bytes"], "B")
        said.append(f"{verb} {documents}, {size}")
    return said
