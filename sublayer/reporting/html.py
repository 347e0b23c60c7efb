"""The report of a study: one HTML file that needs nothing else, the verdict first."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.counts import count
from sublayer.files.storage import write_file
from sublayer.plot import palette
from sublayer.reporting import layer_figures, same_quality_words, secondary_words, words
from sublayer.reporting.cost_figures import draw_costs, equal_costs
from sublayer.reporting.curve_figures import all_curves
from sublayer.reporting.figures import draw_seeds, looks
from sublayer.reporting.filters import PUBLISHED, filters
from sublayer.reporting.forest import forest_of_results
from sublayer.reporting.scorecard_cells import shown_card
from sublayer.reporting.secondary_figures import (
    draw_courses,
    draw_expected_best,
    draw_power,
    turn_lines,
)
from sublayer.reporting.units import in_display_units
from sublayer.reporting.words import fact_lines, hypothesis_words, text_line
from sublayer.study.budget.words import budget_table
from sublayer.study.findings.comparisons import compared_budgets, differing_fields
from sublayer.study.findings.curves import final_losses
from sublayer.study.results import Results
from sublayer.study.scorecard import Scorecard

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
        looks=looks(results),
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
        "also": words.enumerate_names(
            [each.metric.label for each in results.further if words.is_judged(each)]
        ),
        "forest": forest_of_results(results),
        "others_too": bool(baselines - {results.baseline}),
        "direction": "Lower" if results.metric.is_lower_better else "Higher",
    }


def _costs(results: Results) -> dict[str, Any]:
    return {
        "any_published": any(arm.published for arm in results.arms),
        "published_are": PUBLISHED,
        "budgets": budget_table(compared_budgets(results), results.baseline),
        "worth": same_quality_words.rows(results),
        "worth_problems": same_quality_words.problems(results),
        "worth_metric": same_quality_words.metric_label(results),
        "worth_costs": list(same_quality_words.COSTS.values()),
        "equal_costs": words.enumerate_names(equal_costs(results)),
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

    seeds = draw_seeds(results)
    losses = [(arm, final_losses(arm, results.metric)) for arm in results.arms]
    return {
        "curves": [Markup(plot) for plot in all_curves(results)],
        "losses": losses if any(loss.gap is not None for _, loss in losses) else [],
        "cost_plots": [Markup(plot) for plot in draw_costs(results)],
        "seeds": Markup(seeds) if seeds else None,
    }


def _secondary(results: Results) -> dict[str, Any]:
    from markupsafe import Markup

    power = draw_power(results)
    return {
        "secondary": secondary_words.secondary_table(results),
        "caution": secondary_words.CAUTION,
        "basis": list(secondary_words.basis_lines(results)),
        "courses": [Markup(plot) for plot in draw_courses(results)],
        "turns": list(turn_lines(results)),
        "power": None if power is None else {"plot": Markup(power.svg), "words": power.words},
        "expected_best": [Markup(plot) for plot in draw_expected_best(results)],
    }


def _layers(results: Results) -> dict[str, Any]:
    from markupsafe import Markup

    return {
        "layer_plots": [Markup(plot) for plot in layer_figures.draw_layers(results)],
        "layer_rows": layer_figures.layer_rows(results),
        "layers_read": layer_figures.describe_read(results),
        "any_beyond": layer_figures.has_beyond(results),
    }


def scorecard_page(card: Scorecard, title: str) -> str:
    """Render a scorecard by itself as HTML; equal scores give equal text."""
    from markupsafe import Markup

    environment = page_templates()
    css = Markup(palette() + page_file(environment, "page.css"))
    template = environment.get_template("suite.html.j2")
    return template.render(title=title, css=css, scorecard=shown_card(card))
