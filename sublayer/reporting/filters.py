"""What the templates of the report call: numbers and words as people read them."""

import re
import unicodedata
from collections.abc import Callable
from typing import Any

from sublayer import numbers
from sublayer.counts import count
from sublayer.reporting import units, words
from sublayer.statistics.difference import DECIDED, Difference
from sublayer.study.results import ArmResult, Further, Results
from sublayer.study.study_file import DEVIATION

_EXPONENT = re.compile(r"(\d[\d.]*e-\d+)")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def filters(results: Results) -> dict[str, Callable[..., Any]]:
    """Return the filters of the templates by name, with the decimals of displayed results."""
    decimals = units.n_decimals(results)

    def interval(difference: Difference) -> str:
        return numbers.format_interval(difference.low, difference.high, decimals)

    def plain(value: float | None, n_decimals: int = decimals) -> str:
        return numbers.DASH if value is None else f"{value:.{n_decimals}f}"

    def signed(value: float | None, n_decimals: int = decimals) -> str:
        return numbers.format_signed(value, n_decimals)

    return {
        "further": words.further_value,
        "further_difference": further_difference,
        "slug": lambda verdict: verdict.replace(" ", "-"),
        "signed": signed,
        "interval": interval,
        "plain": plain,
        "finer": lambda value: plain(value, decimals + 1),
        "p": numbers.format_p,
        "quantity": numbers.format_quantity,
        "duration": numbers.format_duration,
        "published": lambda arm: published_value(results, arm),
        "failed": lambda arm: failed_share(results, arm),
        "comparison": lambda difference: words.comparison(results, difference),
        "printable": printable,
        "unbroken": unbroken,
    }


PUBLISHED = "published: reported by the study's source for its own models, texts and lengths"


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
    return "; ".join(texts) or numbers.DASH


def failed_share(results: Results, arm: ArmResult) -> str:
    """Format how many of an arm's runs failed; empty where none did."""
    n_failed = sum(failure.arm == arm.name for failure in results.failures)
    if not n_failed:
        return ""
    return f"{n_failed} of {count(n_failed + len(arm.seeds), 'run')} failed"


def further_difference(arm: ArmResult, further: Further) -> Any:
    """Return an arm's difference in a further metric, bold where it is decided."""
    from markupsafe import Markup

    text = words.further_difference(arm, further)
    verdicts = {each.verdict for each in further.differences if each.arm == arm.name}
    is_decided = bool(verdicts & DECIDED)
    if not is_decided:
        return text
    return Markup("<b>{}</b>").format(text)


def unbroken(text: str) -> Any:
    """Escape a sentence, and keep its numbers, as ``1.6e-2``, from being broken at the hyphen."""
    from markupsafe import Markup

    parts = []
    for position, part in enumerate(_EXPONENT.split(text)):
        is_number = position % 2 == 1
        parts.append(Markup("<span class=number>{}</span>").format(part) if is_number else part)
    return Markup("").join(parts)


def printable(text: str) -> Any:
    """Escape generated text, and mark line breaks, what is no UTF-8 and what cannot be seen."""
    from markupsafe import Markup

    parts = []
    for character in text:
        is_invalid = character == _REPLACEMENT
        is_control = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn")
        if character == "\n":
            parts.append(Markup('<i class="break">↵</i> '))
            continue
        if not (is_invalid or is_control):
            parts.append(Markup.escape(character))
            continue
        what = "not valid UTF-8" if is_invalid else f"U+{ord(character):04X}"
        parts.append(Markup('<i class="invalid" title="{}">{}</i>').format(what, _REPLACEMENT))
    return Markup("").join(parts)
