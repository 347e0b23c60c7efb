"""Plots as SVG, in the colours of a page or of a file; equal data give equal bytes."""

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

N_COLOURS = 7

# Placeholders: matplotlib needs colours, but a page needs variables that differ by light and dark.
INK, MUTED, RULE = "#010101", "#020202", "#030303"
_VARIABLES = {INK: "ink", MUTED: "muted", RULE: "rule"} | {
    f"#0400{index:02x}": f"series-{index}" for index in range(N_COLOURS + 1)
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 10.0,
    "axes.edgecolor": RULE,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "xtick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.color": RULE,
    "ytick.labelcolor": MUTED,
    "text.color": INK,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.0,
    "legend.frameon": False,
}

_PANELS_WIDTH, _ENTRY_HEIGHT = 7.2, 0.22  # inches of 72 units; an entry is a line of the legend
_LONGEST_ENTRY = 72
"""Maximum length of a name in a legend; a longer name keeps its end, which distinguishes runs."""
Fill = Callable[[Sequence[Any]], Mapping[str, Any]]
"""Function that fills the axes of panels, and returns matplotlib's lines by their names."""
Draw = Callable[[Any], None]
"""Function that puts axes and lines on a matplotlib figure, in placeholder colours."""


@dataclass(frozen=True)
class Look:
    """Look of one of several series: a colour of the palette, dashed when colours repeat."""

    colour: int
    """Number of the colour: 0 is the ink, 1 to 7 are the colours of the palette."""
    is_dashed: bool

    @property
    def placeholder(self) -> str:
        """Return the placeholder of the palette's colour."""
        return f"#0400{self.colour:02x}"

    @property
    def line(self) -> str:
        """Return matplotlib's name of the line style."""
        return "--" if self.is_dashed else "-"


def look(index: int) -> Look:
    """Return the look of series ``index``: the ink, then seven colours, solid and then dashed."""
    if index == 0:
        return Look(0, is_dashed=False)
    return Look(1 + (index - 1) % N_COLOURS, is_dashed=index > N_COLOURS)


def palette() -> str:
    """Return the CSS with the variables of colours and fonts of a page, light and dark."""
    return (Path(__file__).parent / "palette.css").read_text(encoding="utf-8")


def page_svg(draw: Draw, inches: tuple[float, float], title: str, key: str) -> str:
    """Draw a plot for a page that has the palette; ``key`` must differ between plots of a page.

    ``inches`` are width and height, of 72 units each. ``title`` is for screen readers, and is not
    escaped.
    """
    drawn = _drawn(draw, inches, key)
    svg = _plain(drawn)
    svg = re.sub(r' (xmlns|xmlns:xlink)="[^"]*"', "", svg)
    svg = _in_font(svg, "var(--sans)")
    svg = re.sub(
        r'<svg [^>]*?viewBox="([^"]*)"[^>]*>',
        rf'<svg viewBox="\1" role="img" aria-label="{title}">',
        svg,
    )
    for placeholder, variable in _VARIABLES.items():
        svg = svg.replace(placeholder, f"var(--{variable})")
    return svg


def file_svg(draw: Draw, inches: tuple[float, float], title: str) -> str:
    """Draw a plot as a separate file, in the light colours of the palette, on paper.

    ``inches`` are width and height, of 72 units each. ``title`` is not escaped.
    """
    # Changes for a dark page follow the colours for a light page.
    light, _, _ = palette().partition("@media")
    values = dict(re.findall(r"--([\w-]+): ([^;]+);", light))
    font = values["sans"].replace('"', "'")
    drawn = _drawn(draw, inches, title)
    svg = _in_font(_plain(drawn), font)
    colour = values["paper"]
    paper = f'<title>{title}</title>\n <rect width="100%" height="100%" fill="{colour}"/>'
    svg = re.sub(r"(<svg [^>]*)>", rf'\1 role="img">\n {paper}', svg, count=1)
    for placeholder, variable in _VARIABLES.items():
        svg = svg.replace(placeholder, values[variable])
    return svg


def panels_svg(fill: Fill, n_panels: int, height: float, title: str, *, is_shared: bool) -> str:
    """Draw panels side by side, below a legend, as a separate file.

    ``height`` is that of the panels, in inches; with ``is_shared`` they share the vertical axis.
    """

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, n_panels, sharey=is_shared, squeeze=False)[0]
        for axes in panels:
            axes.grid(axis="y")
        lines = fill(panels)
        figure.set_size_inches(_PANELS_WIDTH, height + _ENTRY_HEIGHT * len(lines))
        numbers = list(map(str, range(len(lines))))
        legend = figure.legend(list(lines.values()), numbers, loc="outside upper left")
        for text, name in zip(legend.get_texts(), lines, strict=True):
            # Not set as labels, since names that begin with an underscore would be left out, and a
            # $ would begin a formula.
            text.set_parse_math(False)
            text.set_text(name if len(name) <= _LONGEST_ENTRY else f"…{name[1 - _LONGEST_ENTRY :]}")

    return file_svg(draw, (_PANELS_WIDTH, height), title)


def dots(axes: Any, x: Sequence[float], y: Sequence[float], style: Look, **more: Any) -> Any:
    """Draw a line with a dot at each point, in its look; return matplotlib's line."""
    drawn = {"marker": "o", "markersize": 3.0, "color": style.placeholder, **more}
    (line,) = axes.plot(x, y, style.line, **drawn)
    return line


def _drawn(draw: Draw, inches: tuple[float, float], key: str) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE | {"svg.hashsalt": key}), warnings.catch_warnings():
        # Text is drawn in the fonts of the viewer; the font here only measures it.
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from")
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return buffer.getvalue()


def _plain(svg: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    return re.sub(r'<g id="[^"]*"', "<g", svg)


def _in_font(svg: str, family: str) -> str:
    # Older releases of matplotlib write the size and the family as one property.
    svg = re.sub(r"font: ([\d.]+px)[^;\"]*", rf"font: \1 {family}", svg)
    return re.sub(r"font-family: [^;\"]*", f"font-family: {family}", svg)
