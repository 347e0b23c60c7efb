"""Values of metrics as they are published: in points, 82.0 for 0.82."""

from collections.abc import Sequence


def points(value: float) -> str:
    """Format a value, a correlation too, in points."""
    return f"{100 * value:z.1f}"


def signed_points(difference: float) -> str:
    """Format a difference of values in points, with its sign."""
    return f"{100 * difference:+z.1f}"


def interval_ends(interval: Sequence[float], decimals: int) -> tuple[str, str]:
    """Format the ends of an interval of differences, with their signs."""
    low, high = interval
    begin, end = f"{low:+z.{decimals}f}", f"{high:+z.{decimals}f}"
    if begin.startswith("-") and high < 0:  # it leaves 0 out, if by less than is shown
        end = f"-{end[1:]}"
    return begin, end
