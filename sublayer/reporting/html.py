"""Pages of HTML that need nothing else: the report of a study, its forest plot, a scorecard."""

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sublayer import numbers
from sublayer.counts import count, enumerate_names
from sublayer.files.storage import write_file
from sublayer.plot import palette
from sublayer.reporting import figures, secondary, units, words
from sublayer.reporting.budgets import budget_table
from sublayer.reporting.scorecard import shown_card
from sublayer.reporting.units import in_display_units
from sublayer.reporting.words import fact_lines, hypothesis_words, text_line
from sublayer.statistics.difference import DECIDED, Difference
from sublayer.study.findings.comparisons import compared_budgets, differing_fields
from sublayer.study.findings.curves import final_losses
from sublayer.study.results import ArmResult, Further, Results, Scorecard

if TYPE_CHECKING:
    from jinja2 import Environment


def page_templates() -> "Environment":
    """Return the templates of pages, ``page.css`` and ``copy.js``; what is no Markup is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("sublayer.reporting", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page_file(environment: "Environment", name: str) -> str:
    """Return a file that stands in pages as it is: ``page.css`` or ``copy.js``."""
    assert environment.loader is not None, "templates have a folder"
    text, *_ = environment.loader.get_source(environment, name)
    return text


def render_report(results: Results) -> str:
    """Render the report as HTML; equal results give equal text."""
    from markupsafe import Markup

    results = in_display_units(results)
    environment = page_templates()
    environment.filters.update(filters(results))
    style, script = (page_file(environment, name) for name in ("page.css", "copy.js"))
    template = environment.get_template("report.html.j2")
    # What is Markup was made here; all else is escaped.
    return template.render(
        results=results,
        css=Markup(palette() + style),
        script=Markup(script),
        looks=figures.looks(results),
        **_verdict(results),
        scorecard=None if results.scorecard is None else shown_card(results.scorecard),
        **_costs(results),
        **_arms(results),
        **_figures(results),
        **_secondary(results),
        **_layers(results),
    )


def write_report(results: Results, path: Path) -> None:
    """Write the report, whole or not at all. Raises OSError."""
    html = render_report(results)
    write_file(path, html)


def _verdict(results: Results) -> dict[str, Any]:
    baselines = {each.baseline for each in results.differences if each.baseline}
    n_failed = len(results.failures)
    return {
        "headline": words.headline_parts(results),
        "conditions": words.conditions(results),
        "statements": words.statements(results),
        "n_failed": f"{count(n_failed, 'run')} failed",
        "text": text_line(results),
        "facts": list(fact_lines(results)),
        "confidence": words.confidence(results),
        "any_tuned": any(each.parts and each.parts.tuning for each in results.differences),
        "hypothesis": hypothesis_words(results),
        "also": enumerate_names(
            [each.metric.label for each in results.further if words.is_judged(each)]
        ),
        "forest": forest_of_results(results),
        "others_too": bool(baselines - {results.baseline}),
        "direction": "Lower" if results.metric.is_lower_better else "Higher",
    }


def _costs(results: Results) -> dict[str, Any]:
    return {
        "any_published": any(arm.published for arm in results.arms),
        "published_are": words.PUBLISHED,
        "budgets": budget_table(compared_budgets(results), results.baseline),
        "worth": secondary.same_quality_rows(results),
        "worth_problems": secondary.same_quality_problems(results),
        "worth_metric": secondary.same_quality_metric(results),
        "worth_costs": list(secondary.COSTS.values()),
        "equal_costs": enumerate_names(figures.equal_costs(results)),
    }


def _arms(results: Results) -> dict[str, Any]:
    text = results.reproduction.text
    units: dict[str, None] = {}
    if text is not None:
        for sizes in text.sizes.values():
            units |= dict.fromkeys(sizes)
    return {
        "differing": differing_fields(results.arms),
        "samples": [arm for arm in results.arms if arm.sample is not None],
        "text_units": list(units),
    }


def _figures(results: Results) -> dict[str, Any]:
    from markupsafe import Markup

    seeds = figures.draw_seeds(results)
    losses = [(arm, final_losses(arm, results.metric)) for arm in results.arms]
    return {
        "curves": [Markup(plot) for plot in figures.all_curves(results)],
        "losses": losses if any(loss.gap is not None for _, loss in losses) else [],
        "cost_plots": [Markup(plot) for plot in figures.draw_costs(results)],
        "seeds": Markup(seeds) if seeds else None,
    }


def _secondary(results: Results) -> dict[str, Any]:
    from markupsafe import Markup

    power = secondary.draw_power(results)
    return {
        "secondary": secondary.secondary_table(results),
        "caution": secondary.CAUTION,
        "basis": list(secondary.basis_lines(results)),
        "courses": [Markup(plot) for plot in secondary.draw_courses(results)],
        "turns": list(secondary.turn_lines(results)),
        "power": None if power is None else {"plot": Markup(power.svg), "words": power.words},
        "expected_best": [Markup(plot) for plot in secondary.draw_expected_best(results)],
    }


def _layers(results: Results) -> dict[str, Any]:
    from markupsafe import Markup

    return {
        "layer_plots": [Markup(plot) for plot in figures.draw_layers(results)],
        "layer_rows": figures.layer_rows(results),
        "layers_read": figures.describe_read(results),
        "any_beyond": figures.has_beyond(results),
    }


def scorecard_page(card: Scorecard, title: str) -> str:
    """Render a scorecard by itself as HTML; equal scores give equal text."""
    from markupsafe import Markup

    environment = page_templates()
    css = Markup(palette() + page_file(environment, "page.css"))
    template = environment.get_template("suite.html.j2")
    return template.render(title=title, css=css, scorecard=shown_card(card))


_EXPONENT = re.compile(r"(\d[\d.]*e-\d+)")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def filters(results: Results) -> dict[str, Callable[..., Any]]:
    """Return the filters of the templates by name, with the decimals of displayed results."""
    decimals = units.n_decimals(results)

    def interval(difference: Difference) -> str:
        return numbers.format_interval(difference.low, difference.high, decimals)

    def plain(value: float | None, n_decimals: int = decimals) -> str:
        return numbers.format_plain(value, n_decimals)

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
        "published": lambda arm: words.published_value(results, arm),
        "failed": lambda arm: failed_share(results, arm),
        "comparison": lambda difference: words.comparison(results, difference),
        "printable": printable,
        "unbroken": unbroken,
    }


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


class Interval(Protocol):
    """A difference with its interval."""

    @property
    def mean(self) -> float | None:
        """None where it is not known."""

    @property
    def low(self) -> float | None:
        """None where there is no interval."""

    @property
    def high(self) -> float | None:
        """None where there is no interval."""


@dataclass(frozen=True)
class Span:
    """A stretch of the forest plot, in percent of its width."""

    place: float
    """Where it begins, from the left."""
    width: float


@dataclass(frozen=True)
class Tick:
    """A mark on the forest plot's axis."""

    place: float
    label: str


@dataclass(frozen=True)
class ForestRow:
    """One difference as places on the forest plot, in percent of its width."""

    difference: Interval
    interval: Span | None
    mean: float | None
    seeds: tuple[float, ...]


@dataclass(frozen=True)
class Forest:
    """The forest plot: intervals over one axis, all places in percent of its width."""

    rows: tuple[ForestRow, ...]
    ticks: tuple[Tick, ...]
    zero: float
    """Where no difference is."""
    left: str
    """What an arm is whose interval lies there: better or worse."""
    right: str
    margin: Span | None = None
    """Where differences lie that do not matter; None: no margin was named."""


def forest_of_results(results: Results) -> Forest:
    """Lay out the differences of a study, with those of the seeds that both arms finished."""
    by_name = {}
    for arm in results.arms:
        by_name[arm.name] = dict(zip(arm.seeds, arm.values, strict=True))
    pairs = []
    for difference in results.differences:
        values = by_name.get(difference.arm, {})
        baseline = by_name.get(difference.baseline, {})
        # A contrast of several arms has no pairs.
        seeds = difference.seeds if difference.baseline else ()
        pairs.append([values[seed] - baseline[seed] for seed in seeds])
    return lay_out_forest(
        results.differences,
        pairs,
        margin=results.margin,
        is_lower_better=results.metric.is_lower_better,
    )


def lay_out_forest(
    differences: Sequence[Interval],
    pairs: Sequence[Sequence[float]],
    *,
    margin: float | None,
    is_lower_better: bool,
) -> Forest:
    """Place every interval, mean and seed on one axis that holds them and 0.

    ``pairs`` are the differences of seeds, of each difference.
    """
    numbers = [0.0]  # all that the axis must show
    for difference, own_pairs in zip(differences, pairs, strict=True):
        numbers += own_pairs
        if difference.low is not None:
            numbers.append(difference.low)
        if difference.high is not None:
            numbers.append(difference.high)
    if margin is not None:
        numbers += [-margin, margin]
    low = min(numbers)
    high = max(numbers)
    free = 0.06 * (high - low) or 1.0
    low -= free
    high += free

    def place(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    left, right = "worse", "better"
    if is_lower_better:
        left, right = right, left
    rows = []
    for difference, own_pairs in zip(differences, pairs, strict=True):
        rows.append(_forest_row(difference, own_pairs, place))
    ticks = [Tick(place(value), label) for value, label in _ticks(low, high)]
    shaded = None
    if margin is not None:
        begin = place(-margin)
        shaded = Span(begin, round(place(margin) - begin, 2))
    return Forest(tuple(rows), tuple(ticks), zero=place(0.0), left=left, right=right, margin=shaded)


def _forest_row(
    difference: Interval, pairs: Sequence[float], place: Callable[[float], float]
) -> ForestRow:
    span = None
    if difference.low is not None and difference.high is not None:
        begin = place(difference.low)
        end = place(difference.high)
        span = Span(begin, round(end - begin, 2))
    mean = None if difference.mean is None else place(difference.mean)
    seeds = tuple(place(value) for value in pairs)
    return ForestRow(difference, span, mean, seeds)


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return round values between two ends, about six, with their labels."""
    rough = (high - low) / 6
    unit = 10 ** math.floor(math.log10(rough))
    steps = [unit * factor for factor in (1, 2, 5, 10)]
    step = min(each for each in steps if each >= rough)
    decimals = max(0, -math.floor(math.log10(step)))
    first = math.ceil(low / step)
    last = math.floor(high / step)
    ticks = []
    for n in range(first, last + 1):
        value = n * step
        label = numbers.format_signed(value, decimals) if n else "0"
        ticks.append((value, label))
    return ticks
