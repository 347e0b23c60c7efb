"""Number formats for people: signs, intervals, p values, prefixes, durations, shares, counts.

Thousands are divided by commas, percents have no space (``5%``), bytes have binary prefixes (IEC
80000-13: 1 KiB = 1,024 B), all other units decimal ones (1 kB/s = 1,000 B/s).
"""

import math
from collections.abc import Sequence

MINUS = "\N{MINUS SIGN}"
NO_BREAK = "\N{NO-BREAK SPACE}"
DASH = "\N{EN DASH}"

_PREFIXES = ("", "k", "M", "G", "T", "P")


def format_plain(value: float | None, decimals: int) -> str:
    """Write a number with ``decimals`` decimals; a dash for None."""
    return DASH if value is None else f"{value:.{decimals}f}"


def plus_minus(value: str, spread: str) -> str:
    """Write a value with its spread, without a line break between them."""
    return f"{value}{NO_BREAK}±{NO_BREAK}{spread}"


def format_signed(value: float | None, decimals: int) -> str:
    """Write a difference with its sign and a true minus; a dash for None."""
    if value is None:
        return DASH
    return f"{value:+z.{decimals}f}".replace("-", MINUS)


def interval_ends(interval: Sequence[float], decimals: int) -> tuple[str, str]:
    """Format the ends of an interval of differences, with their signs."""
    low, high = interval
    begin, end = f"{low:+z.{decimals}f}", f"{high:+z.{decimals}f}"
    if begin.startswith("-") and high < 0:  # 0 is excluded, even by less than the shown decimals
        end = f"-{end[1:]}"
    return begin, end


def format_interval(low: float | None, high: float | None, decimals: int) -> str:
    """Write an interval of differences; a dash if either end is None."""
    if low is None or high is None:
        return DASH
    return " to ".join(interval_ends((low, high), decimals)).replace("-", MINUS)


def format_p(p: float | None) -> str:
    """Write a p value with two digits, or as below 0.0001 or above 0.99; a dash for None."""
    if p is None:
        return DASH
    if p < 0.0001:
        return "< 0.0001"
    return f"{p:.2g}" if p < 0.995 else "> 0.99"


def p_in_words(p: float) -> str:
    """Write a p value as ``p = 0.03``, or as ``p < 0.0001``."""
    text = format_p(p)
    return f"p {text}" if text[0] in "<>" else f"p = {text}"


def format_quantity(value: float | None, unit: str = "") -> str:
    """Write a large number with three digits and a prefix; a dash for None.

    Integers below 1000 are written in full. ``unit`` follows the prefix, which is binary for bytes,
    ``B``, and otherwise decimal.
    """
    if value is None:
        return DASH
    power, base = 0, 1024 if unit == "B" else 1000
    if value:
        # The margin prevents rounding to 1000 of a smaller prefix.
        thousands = math.floor(math.log(abs(value), base) + 1e-9)
        power = min(len(_PREFIXES) - 1, max(0, thousands))
    scaled = value / base**power
    decimals = 0
    is_count = power == 0 and float(value).is_integer()
    if 0 < scaled < 1000 and not is_count:
        decimals = max(0, 2 - math.floor(math.log10(scaled)))
    number = f"{scaled:.{decimals}f}"
    prefix = _PREFIXES[power]
    if base == 1024 and prefix:
        prefix = f"{prefix.upper()}i"
    prefixed_unit = f"{prefix}{unit}"
    if not prefixed_unit:
        return number
    return f"{number}{NO_BREAK}{prefixed_unit}"


def format_duration(seconds: float | None) -> str:
    """Write a duration in seconds below two minutes, in minutes below two hours, else in hours.

    None is written as a dash.
    """
    if seconds is None:
        return DASH
    minutes = seconds / 60
    if seconds < 10:
        return f"{seconds:.1f}{NO_BREAK}s"
    if seconds < 120:
        return f"{seconds:.0f}{NO_BREAK}s"
    if minutes < 120:
        return f"{minutes:.1f}{NO_BREAK}min"
    return f"{minutes / 60:.1f}{NO_BREAK}h"


def format_share(share: float | None) -> str:
    """Write a relative difference in percent; a dash for None."""
    if share is None:
        return DASH
    if share == 0.0:
        return "0%"
    decimals = 2 if abs(share) >= 0.00005 else 4
    percent = format_signed(100 * share, decimals)
    return f"{percent}%"


def format_factor(factor: float) -> str:
    """Write a ratio, with one decimal below ten."""
    return f"{factor:.1f}" if factor < 9.95 else f"{factor:,.0f}"


def format_excess(share: float) -> str:
    """Write a relative difference without its sign, in whole percent from ten on."""
    percent = 100 * abs(share)
    # 99.97 % less is not 100 % less.
    if 99.0 < percent < 100.0:
        percent = math.floor(10 * percent) / 10
    decimals = 0 if 9.95 <= percent <= 99.0 else 1
    return f"{percent:.{decimals}f}%"


_HISSING = ("s", "x", "sh", "tch")


def count(number: float, unit: str, form: str = ",") -> str:
    """Format a number of things, such as ``1 step`` and ``2,000 steps``.

    ``unit`` is the singular noun; ``form`` is the number's format, which also decides the plural.
    """
    text = format(number, form)
    if text == "1":
        return f"1 {unit}"
    return f"{text} {unit}{'es' if unit.endswith(_HISSING) else 's'}"


def with_article(noun: str) -> str:
    """Return a noun after its indefinite article, as in ``an encoder`` and ``an lstm``."""
    return f"{'an' if noun[0] in 'aeiou' or noun == 'lstm' else 'a'} {noun}"


def enumerate_names(names: Sequence[str], conjunction: str = "and") -> str:
    """Join names by commas, the last by a conjunction."""
    if not names:
        return ""
    *others, last = names
    if not others:
        return last
    return f"{', '.join(others)} {conjunction} {last}"
