"""A difference and its verdict in words, for studies and for runs of any trainer."""

import math
from collections.abc import Mapping, Sequence

from sublayer.numbers import enumerate_names, format_interval, format_signed, p_in_words
from sublayer.statistics.contrasts import FEWEST_SEEDS, Difference


def decimals_of(differences: Sequence[Difference], *, least: int, most: int, usual: int) -> int:
    """Choose the decimals that show the narrowest interval with two digits.

    ``usual`` is the default if all intervals are points.
    """
    widths = [
        difference.high - difference.low
        for difference in differences
        if difference.low is not None and difference.high is not None
    ]
    narrowest = min((width for width in widths if 0.0 < width < math.inf), default=None)
    if narrowest is None:
        return usual
    return min(most, max(least, 1 - math.floor(math.log10(narrowest))))


def here(differences: Sequence[Difference]) -> str:
    """Return the suffix of a verdict on one or two documents, which covers no other texts."""
    return " on this text" if any(difference.on_this_text for difference in differences) else ""


def finding(
    difference: Difference,
    *,
    decimals: int,
    unit: str,
    level: str,
    margin: float | None,
    n_seeds: int,
    n_finished: Mapping[str, int],
) -> tuple[str, str]:
    """Word a verdict: a predicate, and the text after the baseline's name.

    ``unit`` follows its numbers; ``level`` is that of intervals, as ``95%``; ``n_seeds`` were
    planned, and ``n_finished`` are the finished runs of each arm.
    """
    verdict, mean, low, high = difference.verdict, difference.mean, difference.low, difference.high
    signed = f"{format_signed(mean, decimals)}{unit}"
    text = here([difference])
    if verdict == "no verdict":
        if mean is None:
            return "cannot be compared with", ": no seed finished in both"
        few = "one seed gives " if n_seeds == 1 else f"{n_seeds} seeds give "
        few = few if n_seeds < FEWEST_SEEDS else ""
        return "differs from", f" by {signed}; {few}no verdict"
    if difference.by_ranks:
        open_still = "cannot be told apart from"
        predicate = open_still if verdict == "cannot tell" else f"is {verdict} than"
        return predicate, f"{text}{_by_ranks(difference, signed, n_finished)}"
    if mean is None or low is None or high is None:
        return "cannot be compared with", ": fewer than two seeds of each finished"
    sized = f"{signed} ({level} CI {format_interval(low, high, decimals)})"
    if verdict == "cannot tell":
        excluded = max(abs(low), abs(high)) if difference.excluded is None else difference.excluded
        above = f"differences above {excluded:.{decimals}f} are excluded"
        return "cannot be told apart from", f"{text}: {sized}; {above}"
    if verdict == "no difference that matters":
        if margin:
            is_inside = max(abs(low), abs(high)) < margin
            how = "within" if is_inside else "two one-sided tests place it within"
            sized += f"; {how} the margin of {margin:.3g}"
        return "shows no difference from", f" that matters{text}: {sized}"
    # The verdict gives the direction, so sizes have no sign.
    near, far = sorted((abs(low), abs(high)))
    ends = f"{near:.{decimals}f} to {far:.{decimals}f}"
    return f"is {verdict} than", f"{text} by {abs(mean):.{decimals}f}{unit} ({level} CI {ends})"


def _by_ranks(difference: Difference, signed: str, n_finished: Mapping[str, int]) -> str:
    """Return the detail of a comparison by ranks: failed runs, or two clusters of scores."""
    pairs = zip((difference.arm, difference.baseline), difference.n_failed, strict=True)
    failed = [
        f"{n_failed} of {n_finished[name] + n_failed} runs of {name} failed"
        for name, n_failed in pairs
        if n_failed and name in n_finished
    ]
    detail = ": scores fall into two clusters, so ranks are compared"
    if failed:
        detail = f": {enumerate_names(failed)}; failed runs rank last"
    if difference.p is not None:
        detail += f" (rank test, {p_in_words(difference.p)})"
    if difference.mean is not None:
        whose = " of the finished runs" if failed else ""
        detail += f"; mean difference{whose} {signed}"
    return detail
