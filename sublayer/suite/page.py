"""The scorecard of a suite as one HTML file that needs nothing else."""

from sublayer.plot import palette
from sublayer.study.report.html import page_file, page_templates
from sublayer.study.report.scorecard_cells import headings, shown_rows
from sublayer.suite.card import LEGEND, lines_below, scorecard_of
from sublayer.suite.evaluate import Evaluated


def render_page(evaluated: Evaluated) -> str:
    """Render the scorecard as HTML; equal scores give equal text."""
    from markupsafe import Markup

    environment = page_templates()
    style = page_file(environment, "page.css")
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
