"""The scorecard of a suite as one HTML file that needs nothing else."""

from sublayer.plot import palette
from sublayer.study.report.scorecard_cells import headings, shown_rows
from sublayer.suite.card import LEGEND, lines_below, scorecard_of
from sublayer.suite.evaluate import Evaluated


def render_page(evaluated: Evaluated) -> str:
    """Render the scorecard as HTML; equal scores give equal text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("sublayer.study.report", "page")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, *_ = loader.get_source(environment, "page.css")
    card = scorecard_of(evaluated)
    template = environment.get_template("suite.html.j2")
    return template.render(
        title=evaluated.work.suite.title or "Scorecard",
        css=Markup(palette() + style),
        scorecard={
            "headings": headings(card),
            "rows": shown_rows(card),
            "legend": LEGEND,
            "below": lines_below(evaluated, card),
        },
    )
