"""Verdicts, conditions and intervals in words: the same in the report and on the terminal."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sublayer.counts import count, enumerate_names
from sublayer.numbers import (
    DASH,
    format_interval,
    format_p,
    format_quantity,
    format_signed,
    p_in_words,
)
from sublayer.reporting.budgets import describe_excess, describe_largest, describe_matching
from sublayer.reporting.units import decimals_for, in_display_units, n_decimals
from sublayer.statistics.difference import (
    CONFIDENCE,
    ERROR,
    FEWEST_SEEDS,
    Difference,
    Verdict,
)
from sublayer.study.budget.excess import Currency
from sublayer.study.findings.comparisons import compared_budgets
from sublayer.study.results import SIGNATURE, ArmResult, Further, Results, StudyText
from sublayer.study.study_file import DEVIATION

PUBLISHED = "published: reported by the study's source for its own models, texts and lengths"
LONGEST_HEADLINE = 120
"""Characters: two lines of the report."""
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_SEVERAL = "their baselines"
_NAMED = 3
"""Texts that are named."""
_ORDER: tuple[Verdict, ...] = (
    "better",
    "worse",
    "no difference that matters",
    "cannot tell",
    "no verdict",
)
_REVERSED: dict[Verdict, Verdict] = {"better": "worse", "worse": "better"}
_HYPOTHESIS: dict[Verdict, str] = {
    "better": "holds",
    "worse": "the opposite holds",
    "no difference that matters": "no difference that matters",
    "cannot tell": "cannot tell",
    "no verdict": "not judged",
}


@dataclass(frozen=True)
class Statement:
    """One comparison: ``arm predicate baseline detail``, as "gelu is better than relu by ...".

    ``baseline`` is the arm that this one is compared with.
    """

    arm: str
    baseline: str
    verdict: Verdict
    predicate: str
    detail: str
    """Begins with a space or a mark, for it follows a name."""
    brief: str
    """The sentence without the unit and the remarks, and without a full stop."""
    further: tuple[str, ...] = ()
    """Sentences on how sure the verdict is."""

    def __str__(self) -> str:
        """Join the parts into one sentence."""
        return f"{self.arm} {self.predicate} {self.baseline}{self.detail}."


def statements(results: Results) -> list[Statement]:
    """Return a sentence about each comparison, with its numbers in display units."""
    shown = in_display_units(results)
    return [_statement(shown, difference) for difference in shown.differences]


def headline(results: Results) -> str:
    """Summarize the verdicts and name the budget, in at most two lines for any number of arms.

    Where names are too long for that, the budget is left out first, then the names.
    """
    return "".join(headline_parts(results))


def headline_parts(results: Results) -> tuple[str, str, str, str]:
    """Return the verdict of the headline, its budget, its size, and the other verdicts.

    What a narrow screen leaves out, the budget and the others, stands below the headline too.
    """
    parts = ("", "", "", "")
    for parts in _headlines(in_display_units(results)):
        if len("".join(parts)) <= LONGEST_HEADLINE:
            break
    return parts


def conditions(results: Results) -> str:
    """Describe budgets, tuning, seeds and scoring, as the start of a sentence."""
    parts = [
        describe_matching(results),
        budget_in_words(results),
        _tuning(results),
        _seeds(results),
        f"scored on {results.scored_on or f'the {results.split} split'}",
    ]
    text = "; ".join(filter(None, [", ".join(filter(None, parts)), describe_largest(results)]))
    return f"{text[0].upper()}{text[1:]}"


def fact_lines(results: Results) -> Iterator[str]:
    """Yield what holds for all verdicts: the margin, test items, pairing, looks.

    ``results`` are in display units. A line begins with its subject and a colon.
    """
    if not results.has_verdicts:
        return
    yield _margin(results)
    if any(each.parts and each.parts.items is None for each in results.differences):
        yield (
            "Test items: intervals allow for other seeds, not for other test items. Either no item "
            "scores were kept, or there are too few, or the metric is no mean over items."
        )
    if results.pairing is not None:
        correlation = f"{results.pairing.correlation:+.2f}".replace("-", "\N{MINUS SIGN}")
        how = "arms compared seed by seed" if results.pairing.is_paired else "none"
        yield f"Pairing: {how}; correlation between arms over seeds {correlation}."
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


def confidence(results: Results) -> str:
    """Name the level of a study's intervals, as ``95%``."""
    for each in results.differences:
        return _confidence(each, is_sequential=results.is_sequential)
    return f"{100 * CONFIDENCE:.4g}%"


def comparison(results: Results, difference: Difference) -> str:
    """Name a comparison by its arm, and by its baseline where that is not the first arm.

    A contrast of more than two arms has none.
    """
    if difference.baseline in ("", results.baseline):
        return difference.arm
    return f"{difference.arm}, against {difference.baseline}"


def difference_cells(results: Results, difference: Difference) -> list[str]:
    """Format a row of a table of differences: name, difference, interval, p, verdict, seeds.

    ``results`` are in display units.
    """
    decimals = n_decimals(results)
    return [
        comparison(results, difference),
        format_signed(difference.mean, decimals),
        format_interval(difference.low, difference.high, decimals),
        format_p(difference.p),
        difference.verdict,
        str(difference.n_seeds),
    ]


def budget_in_words(results: Results) -> str:
    """Name the length of the runs, as ``400 steps (410 k tokens)``, or its range over arms.

    Empty where runs take no steps, as in a study of stages alone.
    """
    steps = [arm.costs.steps for arm in results.arms if arm.costs.steps]
    if not steps:
        return ""
    text = count(max(steps), "step")
    if min(steps) < max(steps):
        text = f"{min(steps):,} to {text}"
    known = [arm.costs.tokens for arm in results.arms if arm.costs.tokens]
    of_stage = "" if results.scorecard is None else " of pre-training"
    if not known:
        return f"{text}{of_stage}"
    least, most = format_quantity(min(known)), format_quantity(max(known))
    tokens = most if least == most else f"{least} to {most}"
    return f"{text} ({tokens} tokens){of_stage}"


def text_line(results: Results) -> str:
    """Name the text, what was trained and scored on, and the date; empty where nothing is known."""
    reproduction = results.reproduction
    sentences = []
    text = reproduction.text
    if text is not None:
        sizes = "; ".join(_sizes(text, results.split if is_scored_on_text(results) else ""))
        names = f"Text: {_name(text)}" if text.names else ""
        joined = f"{names} ({sizes})" if names and sizes else names or sizes
        sentences.append(joined)
    if signature := reproduction.environment.get(f"{SIGNATURE}{results.metric.name}"):
        sentences.append(f"Signature of {results.metric.name}: {signature}")
    if reproduction.date:
        sentences.append(f"Finished on {reproduction.date[:10]}")
    return " ".join(f"{each}." for each in sentences if each)


def is_scored_on_text(results: Results) -> bool:
    """Return whether values are of a split of the text, as those of a chain's tasks are not."""
    return not results.scored_on or "split" in results.scored_on


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


def published_value(results: Results, arm: ArmResult) -> str:
    """Format what was published of an arm; a dash for nothing.

    What the metric that decides has none of is named, as ``28.9 BLEU``.
    """
    further = {each.metric.name: each.metric for each in results.further}
    texts: list[str] = []
    for name, value in arm.published.items():
        if name.endswith(f":{DEVIATION}"):
            continue
        deviation = arm.published.get(f"{name}:{DEVIATION}")
        text = f"{value:g}" if deviation is None else f"{value:g} (SD {deviation:g})"
        if name == results.metric.name:
            texts.insert(0, text)
        else:
            label = further[name].label if name in further else name
            texts.append(f"{text} {label}")
    return "; ".join(texts) or DASH


def is_judged(further: Further) -> bool:
    """Return whether a further metric has verdicts, as the study asks for."""
    return any(each.verdict != "no verdict" for each in further.differences)


def _headlines(results: Results) -> Iterator[tuple[str, str, str, str]]:
    """Yield headlines, the fullest first; the last names nothing that may be long."""
    differences = results.of_arms
    largest = describe_largest(results)
    if not results.has_verdicts:
        n_seeds = "One seed" if results.n_seeds == 1 else f"{results.n_seeds} seeds"
        yield f"{n_seeds}: values, no verdict", "", "", f"; {largest}" if largest else ""
        return
    if all(each.mean is None and not each.by_ranks for each in differences):
        yield "Nothing to compare yet", "", "", ""
        return
    if len(differences) == 1:
        verdict, size = _one(results, differences[0])
        others = ""
        beyond = describe_excess(_beyond(results, differences[0]))
        unequal = f" with {beyond}" if beyond else ""
    else:
        verdict, size, others = _several(results, differences)
        unequal = ""
    budget = budget_in_words(results)
    at = f" at {budget}" if budget else ""
    brief_at, _, _ = at.partition(" (")
    if len(differences) > 1 and largest:
        yield verdict, at, size, f"{others}; {largest}"
    yield verdict, f"{at}{unequal}", size, others
    yield verdict, at, size, others
    yield verdict, brief_at, size, others
    yield verdict, at, size, ""
    yield verdict, brief_at, size, ""
    yield verdict, "", size, ""
    yield verdict, "", "", ""
    counts = _counts([each.verdict for each in differences])
    yield count(len(differences), "comparison"), at, f": {counts}", ""


def _one(results: Results, difference: Difference) -> tuple[str, str]:
    """Word the verdict on a single comparison for a headline, and what follows the budget."""
    arm, baseline = difference.arm, difference.baseline or "0"
    here = _here([difference])
    verdict = difference.verdict
    if verdict == "no verdict":
        return f"No verdict on {arm} against {baseline}", ""
    if verdict in ("better", "worse"):
        told = f"{arm} is {verdict} than {baseline}{here}"
        return told if difference.by_ranks else f"{told} by {_size(results, difference)}", ""
    if verdict == "no difference that matters":
        margin = f" (margin {_margin_size(results)})" if results.margin is not None else ""
        return f"No difference that matters between {arm} and {baseline}{here}", margin
    detectable = _detectable(results, [difference])
    return f"No difference detected between {arm} and {baseline}{here}", detectable


def _several(results: Results, differences: Sequence[Difference]) -> tuple[str, str, str]:
    """Word several verdicts for a headline: one by name, its size, and the others by number."""
    verdicts = [each.verdict for each in differences]
    n_arms = len({name for each in differences for name in (each.arm, each.baseline)})
    baselines = {each.baseline for each in differences}
    baseline = baselines.pop() if len(baselines) == 1 else _SEVERAL
    here = _here(differences)
    if set(verdicts) == {"cannot tell"}:
        among = f"{_number(n_arms)} arms"
        detectable = _detectable(results, differences)
        return f"No difference detected among {among}{here}", detectable, ""
    if set(verdicts) == {"no difference that matters"}:
        return f"No arm differs from {baseline}{here} by {_margin_size(results)} or more", "", ""
    for verdict in ("better", "worse"):
        of_it = [each for each in differences if each.verdict == verdict]
        if not of_it:
            continue
        if len(of_it) == 1:
            told, _ = _one(results, of_it[0])
        else:
            all_arms = "Both" if len(differences) == 2 else f"All {len(differences)}"
            some = f"{len(of_it)} of {len(differences)}"
            n_of_it = all_arms if len(of_it) == len(differences) else some
            told = f"{n_of_it} arms are {verdict} than {baseline}{here}"
            if baseline == _SEVERAL:
                told = f"{verdict.capitalize()}{here} in {n_of_it.lower()} comparisons"
        others = [each for each in verdicts if each != verdict]
        return told, "", f"; others: {_counts(others)}" if others else ""
    return f"{len(differences)} arms against {baseline}{here}", f": {_counts(verdicts)}", ""


def _counts(verdicts: Sequence[Verdict]) -> str:
    parts = [f"{verdicts.count(each)} {each}" for each in _ORDER if each in verdicts]
    return ", ".join(parts)


def _number(n: int) -> str:
    return _NUMBERS[n] if n < len(_NUMBERS) else str(n)


def _size(results: Results, difference: Difference) -> str:
    """Format a difference without its sign, for the verdict gives the direction."""
    size = abs(difference.mean or 0.0)
    return f"{size:.{n_decimals(results)}f} {results.metric.difference}"


def _margin_size(results: Results) -> str:
    return f"{results.margin:.3g} {results.metric.difference}"


def _detectable(results: Results, differences: Sequence[Difference]) -> str:
    """Say which difference would have been detected in each of some comparisons, if known."""
    known = [each.detectable for each in differences]
    largest = max((each for each in known if each is not None), default=0.0)
    if None in known or not largest:
        return ""
    size = f"{largest:.{n_decimals(results)}f} {results.metric.difference}"
    return f"; {size} would have been"


def _here(differences: Sequence[Difference]) -> str:
    """Return what follows a verdict on one or two documents, which says nothing of other texts."""
    return " on this text" if any(each.on_this_text for each in differences) else ""


def _confidence(difference: Difference, *, is_sequential: bool) -> str:
    """Name the level of an interval, all comparisons together; of planned looks, of all looks."""
    level = ERROR if is_sequential else difference.level
    return f"{100 * (1 - level):.4g}%"


def _seeds(results: Results) -> str:
    if not results.differences:
        return "not compared yet"
    if results.n_seeds == 1:
        return "one seed of each arm"
    if results.is_sequential:
        return f"seeds added until each arm is decided, at most {results.looks[-1]}"
    paired = results.pairing is not None and results.pairing.is_paired
    return f"{results.n_seeds} {'paired ' if paired else ''}seeds of each arm"


def _tuning(results: Results) -> str:
    fields: dict[str, None] = {}
    for arm in results.arms:
        for setting in arm.tuned:
            field, _, _ = setting.partition("=")
            fields.setdefault(field)
    return f"{enumerate_names(list(fields))} tuned for each arm" if fields else "nothing tuned"


def _statement(results: Results, difference: Difference) -> Statement:
    unit = f" {results.metric.difference}"
    predicate, detail = _finding(results, difference, unit)
    # A contrast of more than two arms is a sum, which is compared with 0.
    baseline = difference.baseline or "0"
    _, figures = _finding(results, difference, "")
    brief = f"{difference.arm} {predicate} {baseline}{figures}"
    beyond = describe_excess(_beyond(results, difference))
    if beyond:
        detail += f"; {difference.arm} takes {beyond}"
    if difference.note:
        detail += f"; {difference.note}"
    further = tuple(_further(results, difference))
    return Statement(
        difference.arm, baseline, difference.verdict, predicate, detail, brief, further
    )


def _beyond(results: Results, difference: Difference) -> Mapping[Currency, float]:
    """Return what the arm of a comparison took beyond the other, where that is not equal."""
    for budget in compared_budgets(results):
        if (budget.arm, budget.against) == (difference.arm, difference.baseline):
            return budget.realised.beyond
    return {}  # of more than two arms


def _finding(results: Results, difference: Difference, unit: str) -> tuple[str, str]:
    """Return the predicate and the detail of a statement; ``unit`` stands behind its numbers."""
    decimals = n_decimals(results)
    mean, low, high = difference.mean, difference.low, difference.high
    if difference.verdict == "no verdict":
        return _without_verdict(results, difference, unit)
    here = _here([difference])
    if difference.by_ranks:
        predicate, detail = _by_ranks(results, difference, unit)
        return predicate, f"{here}{detail}"
    if mean is None or low is None or high is None:
        return "cannot be compared with", ": fewer than two seeds of each finished"
    interval = format_interval(low, high, decimals)
    level = _confidence(difference, is_sequential=results.is_sequential)
    signed = f"{format_signed(mean, decimals)}{unit} ({level} CI {interval})"
    if difference.verdict == "cannot tell":
        excluded = max(abs(low), abs(high)) if difference.excluded is None else difference.excluded
        above = f"differences above {excluded:.{decimals}f} are excluded"
        return "cannot be told apart from", f"{here}: {signed}; {above}"
    if difference.verdict == "no difference that matters":
        margin = f"; smaller than the margin of {results.margin:.3g}" if results.margin else ""
        return "shows no difference from", f" that matters{here}: {signed}{margin}"
    # The verdict says in which direction, so that sizes have no sign.
    near, far = sorted((abs(low), abs(high)))
    size = f"{abs(mean):.{decimals}f}"
    ends = f"{near:.{decimals}f} to {far:.{decimals}f}"
    return f"is {difference.verdict} than", f"{here} by {size}{unit} ({level} CI {ends})"


def _by_ranks(results: Results, difference: Difference, unit: str) -> tuple[str, str]:
    """Return the predicate and detail of a comparison in which runs failed."""
    by_name = {arm.name: arm for arm in results.arms}
    failed = []
    pairs = zip((difference.arm, difference.baseline), difference.n_failed, strict=True)
    for name, n_failed in pairs:
        if n_failed and name in by_name:
            n_runs = len(by_name[name].seeds) + n_failed
            failed.append(f"{n_failed} of {n_runs} runs of {name} failed")
    clusters = "scores fall into two clusters, so ranks are compared"
    detail = f": {enumerate_names(failed)}; failed runs rank last" if failed else f": {clusters}"
    if difference.p is not None:
        detail += f" (rank test, {p_in_words(difference.p)})"
    if difference.mean is not None:
        signed = format_signed(difference.mean, n_decimals(results))
        whose = " of the finished runs" if failed else ""
        detail += f"; mean difference{whose} {signed}{unit}"
    if difference.verdict == "cannot tell":
        return "cannot be told apart from", detail
    return f"is {difference.verdict} than", detail


def _without_verdict(results: Results, difference: Difference, unit: str) -> tuple[str, str]:
    if difference.mean is None:
        return "cannot be compared with", ": no seed finished in both"
    detail = f" by {format_signed(difference.mean, n_decimals(results))}{unit}"
    if results.n_seeds < FEWEST_SEEDS:
        n_seeds = "one seed gives" if results.n_seeds == 1 else f"{results.n_seeds} seeds give"
        return "differs from", f"{detail}; {n_seeds} no verdict"
    return "differs from", f"{detail}; no verdict"


def _further(results: Results, difference: Difference) -> Iterator[str]:
    """Yield sentences on how sure a verdict is: p, the parts of the standard error, power."""
    decimals = n_decimals(results)

    def size(value: float) -> str:
        return f"{value:.{decimals + 1}f}"

    if difference.p is not None:
        n = results.n_comparisons
        adjusted = f", adjusted for {n} comparisons" if n > 1 else ""
        seeds = count(difference.n_seeds, "seed")
        yield f"{p_in_words(difference.p)}{adjusted}; judged with {seeds} of each arm."
    if difference.by_ranks:
        return
    error, parts = difference.standard_error, difference.parts
    if error and parts is not None:
        sources = [f"from seeds {size(parts.seeds)}"]
        if parts.items is not None:
            sources.append(f"from test items {size(parts.items)}")
        if parts.tuning:
            sources.append(f"from tuning {size(parts.tuning)}")
        parted = ": " + ", ".join(sources) if len(sources) > 1 else ", from seeds alone"
        yield f"Standard error {size(error)}{parted}."
    if difference.detectable:
        detectable = f"{difference.detectable:.{decimals}f} {results.metric.difference}"
        yield f"These seeds detect a true difference of {detectable} four times in five."
    if difference.more_seeds is not None:
        seeds = count(difference.more_seeds, "more seed")
        yield f"About {seeds} of each arm would detect the margin four times in five."


def _margin(results: Results) -> str:
    if results.margin is None:
        return (
            'Margin: none named, so no verdict can be "no difference that matters" (name one by '
            "--margin, or by margin in the study's file)."
        )
    reason = f" ({results.margin_reason})" if results.margin_reason else ""
    return f"Margin: differences below {_margin_size(results)} do not matter{reason}."


def _looks(results: Results) -> Iterator[str]:
    if results.is_sequential:
        shown = ", ".join(map(str, results.looks))
        stopped = [
            f"{each.arm} ({each.n_seeds} seeds)"
            for each in results.differences
            if each.n_seeds < results.looks[-1] and each.baseline
        ]
        early = f" Decided early: {', '.join(stopped)}." if stopped else ""
        yield (
            f"Looks: planned at {shown} seeds. Intervals are wider than for a single look, so that "
            f"the error over all looks stays at 5%.{early}{_saved(results)}"
        )
    elif len(results.looks) > 1:
        shown = ", then ".join(map(str, results.looks))
        last = min((each.level for each in results.differences), default=ERROR)
        yield (
            f"Looks: judged with {shown} seeds. Looks beyond the plan come on top of its error of "
            f"5%: this one adds {100 * last:.3g}%, so its intervals are wider."
        )


def _saved(results: Results) -> str:
    most = results.looks[-1] * len(results.arms)
    made = sum(len(arm.seeds) for arm in results.arms) + len(results.failures)
    return f" {made} of at most {most} runs were needed." if made < most else ""


def _name(text: StudyText) -> str:
    names = list(text.names[:_NAMED])
    n_more = len(text.names) - _NAMED
    if n_more > 0:
        return f"{', '.join(names)} and {n_more} more"
    return enumerate_names(names)


def _sizes(text: StudyText, scored: str) -> Iterator[str]:
    training = "training" if scored else "pre-training"
    for split, name in (("train", training), (scored, f"{scored} split")):
        sizes = text.sizes.get(split, {})
        if "bytes" in sizes and "documents" in sizes:
            documents = count(sizes["documents"], "document")
            yield f"{name}: {documents}, {format_quantity(sizes['bytes'], 'B')}"
