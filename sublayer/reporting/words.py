"""Verdicts, conditions, budgets and secondary analyses in words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sublayer.evaluation.items import Metric
from sublayer.numbers import (
    count,
    enumerate_names,
    format_excess,
    format_factor,
    format_quantity,
    p_in_words,
)
from sublayer.reporting.difference import decimals_of, finding, here
from sublayer.statistics.contrasts import (
    CONFIDENCE,
    ERROR,
    POWER,
    Difference,
    Parts,
    Verdict,
)
from sublayer.statistics.covariance import are_separate
from sublayer.study.budget import Currency
from sublayer.study.comparisons import (
    DOUBLE,
    compared_budgets,
    describe_excesses,
    secondary_analyses,
)
from sublayer.study.results import SIGNATURE, Further, Results

LONGEST_HEADLINE = 120
"""Characters in two lines of the report."""
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_SEVERAL = "their baselines"
_NAMED = 3
"""Texts named at most."""
_HYPOTHESIS: dict[Verdict, str] = {
    "better": "holds",
    "worse": "the opposite holds",
    "no difference that matters": "no difference that matters",
    "cannot tell": "cannot tell",
    "no verdict": "not judged",
}
"""By the verdict on its contrast, in counting order."""
_REVERSED: dict[Verdict, Verdict] = {"better": "worse", "worse": "better"}
_MATCHED: dict[str, Currency] = {
    "parameters": "parameters",
    "flops": "operations",
    "time": "time",
}
"""The currency equalized by each rule."""
_IN_UNITS = (
    *("mean", "sd", "low", "high", "detectable", "excluded", "equivalent", "standard_error"),
    "parts",
)
"""Fields of a difference in the unit of its metric."""
_PARTS = ("seeds", "items", "tuning")


def in_display_units(results: Results) -> Results:
    """Multiply scores by their metric's display factor, which becomes 1: shares in percent.

    Files keep the metric's unit.
    """
    factor = results.metric.factor
    factors = {extra.metric.name: extra.metric.factor for extra in results.further}
    arms = [
        replace(
            arm,
            values=_scaled(arm.values, factor),
            curves=_scaled(arm.curves, factor, "values"),
            further={
                name: {seed: factors.get(name, 1.0) * value for seed, value in values.items()}
                for name, values in arm.further.items()
            },
            further_curves={
                name: _scaled(curves, factors.get(name, 1.0), "values")
                for name, curves in arm.further_curves.items()
            },
        )
        for arm in results.arms
    ]
    further = [
        Further(
            replace(extra.metric, factor=1.0),
            _scaled(extra.differences, extra.metric.factor, *_IN_UNITS),
        )
        for extra in results.further
    ]
    return replace(
        results,
        metric=replace(results.metric, factor=1.0),
        arms=tuple(arms),
        differences=_scaled(results.differences, factor, *_IN_UNITS),
        further=tuple(further),
        margin=_scaled(results.margin, factor),
    )


def _scaled(value: Any, factor: float, *names: str) -> Any:
    """Multiply a number, each of several, or the named fields of a dataclass."""
    if value is None or isinstance(value, float):
        return None if value is None else factor * value
    if isinstance(value, tuple):
        return tuple(_scaled(member, factor, *names) for member in value)
    names = _PARTS if isinstance(value, Parts) else names
    return replace(value, **{name: _scaled(getattr(value, name), factor) for name in names})


def n_decimals(results: Results) -> int:
    """Choose the decimals of a study's differences."""
    return decimals_for(results.differences, results.metric)


def decimals_for(differences: Sequence[Difference], metric: Metric) -> int:
    """Choose the decimals that show the narrowest interval with two digits.

    At most 5, at least the metric's.
    """
    return decimals_of(differences, least=metric.decimals, most=5, usual=metric.decimals)


def describe_excess(results: Results, difference: Difference) -> str:
    """Format an arm's budget excess, as ``12 % more operations``; empty for none.

    Empty within the tolerance, and for a contrast of more than two arms.
    """
    budgets = {(budget.arm, budget.against): budget for budget in compared_budgets(results)}
    budget = budgets.get((difference.arm, difference.baseline))
    parts = []
    for currency, share in budget.realised.beyond.items() if budget else ():
        less = "less" if currency == "time" else "fewer"
        part = f"{format_excess(share)} {'more' if share > 0 else less} {currency}"
        if 1.0 + share >= DOUBLE:
            part = f"{format_factor(1.0 + share)} times the {currency}"
        parts.append(part)
    return enumerate_names(parts)


def describe_largest(results: Results) -> str:
    """Format the largest budget differences, in one clause; empty if all are equal.

    Equal: within the tolerance of 0.5%, and 3% of time.
    """
    largest = describe_excesses([budget.realised for budget in compared_budgets(results)])
    return f"budgets {largest}" if largest else ""


@dataclass(frozen=True)
class Statement:
    """One comparison: ``arm predicate baseline detail``, as "gelu is better than relu by ...".

    ``baseline`` is its comparison partner.
    """

    arm: str
    baseline: str
    verdict: Verdict
    predicate: str
    detail: str
    """Begins with a space or a mark, for it follows a name."""
    brief: str
    """The sentence without unit, remarks and full stop."""
    further: tuple[str, ...] = ()
    """Sentences on the certainty of the verdict."""

    def __str__(self) -> str:
        """Join the parts into one sentence."""
        return f"{self.arm} {self.predicate} {self.baseline}{self.detail}."


def statements(results: Results) -> list[Statement]:
    """Return a sentence about each comparison, with its numbers in display units."""
    shown = in_display_units(results)

    def wording(difference: Difference, unit: str) -> tuple[str, str]:
        return finding(
            difference,
            decimals=n_decimals(shown),
            unit=unit,
            level=_confidence(shown, difference),
            margin=shown.margin,
            n_seeds=shown.n_seeds,
            n_finished={arm.name: len(arm.seeds) for arm in shown.arms},
        )

    sentences = []
    for difference in shown.differences:
        predicate, detail = wording(difference, f" {shown.metric.difference}")
        # A contrast of more than two arms is a sum, compared with 0.
        arm, baseline = difference.arm, difference.baseline or "0"
        brief = f"{arm} {predicate} {baseline}{wording(difference, '')[1]}"
        if beyond := describe_excess(shown, difference):
            detail += f"; {arm} takes {beyond}"
        if difference.note:
            detail += f"; {difference.note}"
        further = tuple(_certainty(shown, difference))
        sentences.append(
            Statement(arm, baseline, difference.verdict, predicate, detail, brief, further)
        )
    return sentences


def _certainty(results: Results, difference: Difference) -> Iterator[str]:
    """Yield sentences on the certainty of a verdict: p, the parts of the standard error, power."""
    decimals = n_decimals(results)
    if difference.p is not None:
        n = results.n_comparisons
        adjusted = f", adjusted for {n} comparisons" if n > 1 else ""
        seeds = count(difference.n_seeds, "seed")
        yield f"{p_in_words(difference.p)}{adjusted}; judged with {seeds} of each arm."
    if difference.by_ranks:
        return
    error, parts = difference.standard_error, difference.parts
    if error and parts is not None:
        sizes = {"seeds": parts.seeds, "test items": parts.items, "tuning": parts.tuning or None}
        sources = [
            f"from {name} {size:.{decimals + 1}f}"
            for name, size in sizes.items()
            if size is not None
        ]
        parted = ": " + ", ".join(sources) if len(sources) > 1 else ", from seeds alone"
        yield f"Standard error {error:.{decimals + 1}f}{parted}."
    if difference.detectable:
        detectable = f"{difference.detectable:.{decimals}f} {results.metric.difference}"
        yield f"These seeds detect a true difference of {detectable} four times in five."
    if difference.more_seeds is not None:
        seeds = count(difference.more_seeds, "more seed")
        yield f"About {seeds} of each arm would detect the margin four times in five."


def headline(results: Results) -> str:
    """Summarize the verdicts and name the budget, in at most two lines for any number of arms.

    If names are too long, the budget is left out first, then the names.
    """
    return "".join(headline_parts(results))


def headline_parts(results: Results) -> tuple[str, ...]:
    """Return the verdict of the headline, its budget, its size, and the other verdicts.

    A narrow screen leaves out the budget and the others, repeated below.
    """
    parts: tuple[str, ...] = ()
    for parts in _headlines(in_display_units(results)):
        if len("".join(parts)) <= LONGEST_HEADLINE:
            break
    return parts


def _headlines(results: Results) -> Iterator[tuple[str, ...]]:
    """Yield headlines, the fullest first; the last has no long names."""
    differences = results.of_arms
    largest = describe_largest(results)
    if not results.has_verdicts:
        n_seeds = "One seed" if results.n_seeds == 1 else f"{results.n_seeds} seeds"
        yield f"{n_seeds}: values, no verdict", "", "", f"; {largest}" if largest else ""
        return
    if all(difference.mean is None and not difference.by_ranks for difference in differences):
        yield "Nothing to compare yet", "", "", ""
        return
    budget = budget_in_words(results)
    at = f" at {budget}" if budget else ""
    brief_at = at.partition(" (")[0]
    if len(differences) == 1:
        verdict, size, others = *_one(results, differences[0]), ""
        beyond = describe_excess(results, differences[0])
        yield verdict, f"{at} with {beyond}" if beyond else at, size, others
    else:
        verdict, size, others = _several(results, differences)
        if largest:
            yield verdict, at, size, f"{others}; {largest}"
    for others_or_none in (others, ""):
        yield verdict, at, size, others_or_none
        yield verdict, brief_at, size, others_or_none
    yield verdict, "", size, ""
    yield verdict, "", "", ""
    counts = _counts([difference.verdict for difference in differences])
    yield count(len(differences), "comparison"), at, f": {counts}", ""


def _one(results: Results, difference: Difference) -> tuple[str, str]:
    """Word a single comparison's verdict for a headline, and the text after the budget."""
    arm, baseline, verdict = difference.arm, difference.baseline or "0", difference.verdict
    on_text = here([difference])
    if verdict == "no verdict":
        return f"No verdict on {arm} against {baseline}", ""
    if verdict == "no difference that matters":
        margin = f" (margin {_margin_size(results)})" if results.margin is not None else ""
        return f"No difference that matters between {arm} and {baseline}{on_text}", margin
    if verdict == "cannot tell":
        detectable = _detectable(results, [difference])
        return f"No difference detected between {arm} and {baseline}{on_text}", detectable
    sentence = f"{arm} is {verdict} than {baseline}{on_text}"
    if difference.by_ranks:
        return sentence, ""
    # Without sign: the verdict gives the direction.
    size = f"{abs(difference.mean or 0.0):.{n_decimals(results)}f}"
    return f"{sentence} by {size} {results.metric.difference}", ""


def _several(results: Results, differences: Sequence[Difference]) -> tuple[str, str, str]:
    """Word several verdicts for a headline: one by name, its size, and the others by number."""
    verdicts = [difference.verdict for difference in differences]
    baselines = {difference.baseline for difference in differences}
    baseline = baselines.pop() if len(baselines) == 1 else _SEVERAL
    on_text, n_all = here(differences), len(differences)
    if set(verdicts) == {"cannot tell"}:
        n_arms = len(
            {name for difference in differences for name in (difference.arm, difference.baseline)}
        )
        among = f"{_NUMBERS[n_arms] if n_arms < len(_NUMBERS) else n_arms} arms{on_text}"
        return f"No difference detected among {among}", _detectable(results, differences), ""
    if set(verdicts) == {"no difference that matters"}:
        sentence = f"No arm differs from {baseline}{on_text} by {_margin_size(results)} or more"
        return sentence, "", ""
    for verdict in ("better", "worse"):
        n_of_it = verdicts.count(verdict)
        if not n_of_it:
            continue
        n_told = f"{n_of_it} of {n_all}"
        if n_of_it == n_all:
            n_told = "Both" if n_all == 2 else f"All {n_all}"
        sentence = f"{n_told} arms are {verdict} than {baseline}{on_text}"
        if n_of_it == 1:
            sentence, _ = _one(results, differences[verdicts.index(verdict)])
        elif baseline == _SEVERAL:
            sentence = f"{verdict.capitalize()}{on_text} in {n_told.lower()} comparisons"
        others = _counts([other for other in verdicts if other != verdict])
        return sentence, "", f"; others: {others}" if others else ""
    return f"{n_all} arms against {baseline}{on_text}", f": {_counts(verdicts)}", ""


def _counts(verdicts: Sequence[Verdict]) -> str:
    return ", ".join(
        f"{verdicts.count(verdict)} {verdict}" for verdict in _HYPOTHESIS if verdict in verdicts
    )


def _margin_size(results: Results) -> str:
    return f"{results.margin:.3g} {results.metric.difference}"


def _detectable(results: Results, differences: Sequence[Difference]) -> str:
    """Name the detectable difference of each of some comparisons, if known."""
    sizes = [difference.detectable for difference in differences]
    known_sizes = [size for size in sizes if size is not None]
    if len(known_sizes) < len(sizes) or not any(known_sizes):
        return ""
    size = f"{max(known_sizes):.{n_decimals(results)}f} {results.metric.difference}"
    return f"; detectable: {size}"


def conditions(results: Results) -> str:
    """Describe budgets, tuning, seeds and scoring, as the start of a sentence."""
    fields = [setting.partition("=")[0] for arm in results.arms for setting in arm.tuned]
    tuned = f"{enumerate_names(list(dict.fromkeys(fields)))} tuned for each arm"
    matching = "budgets not matched"
    if results.match in _MATCHED:
        currency = _MATCHED[results.match]
        realised = [budget.realised for budget in compared_budgets(results)]
        is_equal = all(
            currency in excess.shares and currency not in excess.beyond for excess in realised
        )
        matching = f"{'at equal' if is_equal else 'matched by'} {currency}"
    paired = results.pairing is not None and results.pairing.is_paired
    seeds = f"{results.n_seeds} {'paired ' if paired else ''}seeds of each arm"
    if not results.differences:
        seeds = "not compared yet"
    elif results.n_seeds == 1:
        seeds = "one seed of each arm"
    elif results.is_sequential:
        seeds = f"seeds added until each arm is decided, at most {results.looks[-1]}"
    parts = [
        matching,
        budget_in_words(results),
        tuned if fields else "nothing tuned",
        seeds,
        f"scored on {results.scored_on or f'the {results.split} split'}",
    ]
    text = "; ".join(filter(None, [", ".join(filter(None, parts)), describe_largest(results)]))
    return f"{text[0].upper()}{text[1:]}"


def fact_lines(results: Results) -> Iterator[str]:
    """Yield facts common to all verdicts: the margin, test items, pairing, looks.

    ``results`` are in display units. A line begins with its subject and a colon.
    """
    if not results.has_verdicts:
        return
    if results.margin is None:
        yield (
            'Margin: none named, so no verdict can be "no difference that matters" (name one by '
            "--margin, or with margin in the study's file)."
        )
    else:
        reason = f" ({results.margin_reason})" if results.margin_reason else ""
        yield f"Margin: differences below {_margin_size(results)} do not matter{reason}."
    if any(
        difference.parts and difference.parts.items is None for difference in results.differences
    ):
        yield (
            "Test items: intervals allow for other seeds, not for other test items. Either no "
            "item scores were kept, or there are too few, or the metric is not a mean over "
            "items."
        )
    if results.pairing is not None:
        how = "arms compared seed by seed" if results.pairing.is_paired else "none"
        correlation = f"{results.pairing.correlation:+.2f}".replace("-", "\N{MINUS SIGN}")
        yield f"Pairing: {how}; correlation between arms over seeds {correlation}."
    if results.is_sequential:
        stopped = [
            f"{difference.arm} ({difference.n_seeds} seeds)"
            for difference in results.differences
            if difference.n_seeds < results.looks[-1] and difference.baseline
        ]
        early = f" Decided early: {', '.join(stopped)}." if stopped else ""
        most = results.looks[-1] * len(results.arms)
        made = sum(len(arm.seeds) for arm in results.arms) + len(results.failures)
        saved = f" {made} of at most {most} runs were needed." if made < most else ""
        yield (
            f"Looks: planned at {', '.join(map(str, results.looks))} seeds. Intervals are wider "
            "than for a single look, so that the error over all looks stays at 5%."
            f"{early}{saved}"
        )
    elif len(results.looks) > 1:
        last = min((difference.level for difference in results.differences), default=ERROR)
        yield (
            f"Looks: judged with {', then '.join(map(str, results.looks))} seeds. Looks beyond "
            f"the plan add to its error of 5%: this one adds {100 * last:.3g}%, so its intervals "
            "are wider."
        )


def hypothesis_words(results: Results) -> tuple[Verdict, str] | None:
    """Return the verdict on the hypothesis, and its words; None without one."""
    if results.hypothesis_of is None:
        return None
    verdict: Verdict = "no verdict"
    for difference in results.differences[::-1]:
        if (difference.arm, difference.baseline) == results.hypothesis_of:
            verdict = difference.verdict
        elif (difference.baseline, difference.arm) == results.hypothesis_of:
            verdict = _REVERSED.get(difference.verdict, difference.verdict)
    return verdict, _HYPOTHESIS[verdict]


def confidence(results: Results) -> str:
    """Name the level of a study's intervals, as ``95%``."""
    for difference in results.differences:
        return _confidence(results, difference)
    return f"{100 * CONFIDENCE:.4g}%"


def _confidence(results: Results, difference: Difference) -> str:
    """Name the level of an interval, all comparisons together; of planned looks, of all looks."""
    level = ERROR if results.is_sequential else difference.level
    return f"{100 * (1 - level):.4g}%"


def budget_in_words(results: Results) -> str:
    """Name the length of the runs, as ``400 steps (410 k tokens)``, or its range over arms.

    Empty if runs take no steps, as in a study of only stages.
    """
    steps = [arm.costs.steps for arm in results.arms if arm.costs.steps]
    if not steps:
        return ""
    text = f"{min(steps):,} to " * (min(steps) < max(steps)) + count(max(steps), "step")
    of_stage = "" if results.scorecard is None else " of pre-training"
    tokens = sorted(arm.costs.tokens for arm in results.arms if arm.costs.tokens)
    if not tokens:
        return f"{text}{of_stage}"
    ends = dict.fromkeys(map(format_quantity, (tokens[0], tokens[-1])))
    return f"{text} ({' to '.join(ends)} tokens){of_stage}"


def text_line(results: Results) -> str:
    """Name the text, its sizes and the date; empty if unknown."""
    reproduction = results.reproduction
    sentences = []
    if (text := reproduction.text) is not None:
        scored = results.split if is_scored_on_text(results) else ""
        splits = {"train": "training" if scored else "pre-training", scored: f"{scored} split"}
        sizes = "; ".join(
            f"{name}: {count(size['documents'], 'document')}, {format_quantity(size['bytes'], 'B')}"
            for split, name in splits.items()
            if (size := text.sizes.get(split, {})).keys() >= {"bytes", "documents"}
        )
        n_more = len(text.names) - _NAMED
        names = enumerate_names(text.names)
        if n_more > 0:
            names = f"{', '.join(text.names[:_NAMED])} and {n_more} more"
        named = f"Text: {names} ({sizes})" if sizes else f"Text: {names}"
        sentences.append(named if names else sizes)
    if signature := reproduction.environment.get(f"{SIGNATURE}{results.metric.name}"):
        sentences.append(f"Signature of {results.metric.name}: {signature}")
    if reproduction.date:
        sentences.append(f"Finished on {reproduction.date[:10]}")
    return " ".join(f"{sentence}." for sentence in sentences if sentence)


def is_scored_on_text(results: Results) -> bool:
    """Return whether values are on a split of the text, unlike a chain's task scores."""
    return not results.scored_on or "split" in results.scored_on


_UNIT = "%"


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
            how = "simultaneous intervals"
            n_seeds = max(difference.n_seeds for difference in results.differences)
            if are_separate(len(results.arms), n_seeds):
                how += ", by Bonferroni; each comparison of so many arms has its own variance"
            over = f"all {n} comparisons together ({how})"
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
    parts = []
    for name in ("steps", "tokens"):
        spent = [
            (amount / arm.paper[name], arm.paper[name])
            for arm in results.arms
            if (amount := getattr(arm.costs, name)) and arm.paper.get(name)
        ]
        if spent:
            shares, papers = map(sorted, zip(*spent, strict=True))
            share = " to ".join(dict.fromkeys(map(percent, (shares[0], shares[-1]))))
            paper = " to ".join(dict.fromkeys(map(format_quantity, (papers[0], papers[-1]))))
            parts.append(f"{share} of its {name} ({paper})")
    if parts:
        yield f"Share of the paper's training: {' and '.join(parts)}."


def percent(share: float) -> str:
    """Write a share in percent with at least two digits, whole from ten on."""
    percent = 100 * share
    if percent >= 9.95:
        return f"{percent:.0f}{_UNIT}"
    return f"{percent:.2g}{_UNIT}" if percent >= 0.0001 else f"{percent:.0e}{_UNIT}"


def turn_lines(results: Results) -> Iterator[str]:
    """Yield a sentence for each difference with a significant change of sign between evaluations.

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
        "Probability that this number of seeds of each arm detects a true difference as large "
        f"as {' or '.join(phrases)}, at the level of the verdict and the spread observed here. "
        f"Dots: the seeds of this study. Dashed: {POWER:.0%}."
    )
