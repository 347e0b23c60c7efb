"""What an interval is made of, in words: the margin, seeds, test items, pairs, looks."""

from collections.abc import Iterator
from dataclasses import dataclass

from sublayer.statistics.difference import Difference, Verdict
from sublayer.study.report.number_format import n_decimals
from sublayer.study.results import Results


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
    yield from _tuning(results)
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


def _tuning(results: Results) -> Iterator[str]:
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
