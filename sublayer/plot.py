"""Plots as SVG, for a page whose colours and font they take or for a file; equal data give equal bytes."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

N_COLOURS = 7

# Placeholders: matplotlib wants colours, a page wants variables that differ between light and dark.
INK, MUTED, RULE = "#010101", "#020202", "#030303"
_VARIABLES = {INK: "ink", MUTED: "muted", RULE: "rule"} | {
    f"#0400{index:02x}": f"series-{index}" for index in range(N_COLOURS + 1)
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 10.0,
    "axes.edgecolor": RULE,
    "axes.linewidth": 0.8,
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
}

Draw = Callable[[Any], None]
"""What puts axes and lines on a matplotlib figure, in the placeholders of colours."""


@dataclass(frozen=True)
class Look:
    """How one of several things is drawn: a colour of the palette, dashed where all colours have been used before."""

    colour: int
    is_dashed: bool

    @property
    def placeholder(self) -> str:
        """The colour that becomes the palette's."""
        return f"#0400{self.colour:02x}"

    @property
    def line(self) -> str:
        """Matplotlib's name of the style of its lines."""
        return "--" if self.is_dashed else "-"


def look(place: int) -> Look:
    """Give the look of the first (place 0), which is the ink, or of a later one: seven colours, solid, then dashed."""
    return Look(1 + (place - 1) % N_COLOURS, place > N_COLOURS) if place else Look(0, is_dashed=False)


def palette() -> str:
    """Give the CSS that sets the variables of a page's colours and fonts, light and dark."""
    return (Path(__file__).parent / "palette.css").read_text(encoding="utf-8")


def page_svg(draw: Draw, inches: tuple[float, float], title: str, key: str) -> str:
    """Draw a plot for a page that has the palette; ``key`` tells the plots of one page apart."""
    svg = _plain(_drawn(draw, inches, key))
    svg = re.sub(r' (xmlns|xmlns:xlink)="[^"]*"', "", svg)
    svg = _in_font(svg, "var(--sans)")
    svg = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', rf'<svg viewBox="\1" role="img" aria-label="{title}">', svg)
    for placeholder, variable in _VARIABLES.items():
        svg = svg.replace(placeholder, f"var(--{variable})")
    return svg


def file_svg(draw: Draw, inches: tuple[float, float], title: str) -> str:
    """Draw a plot as a file of its own: real colours on paper, the light ones of the palette, wherever it is shown."""
    values = dict(re.findall(r"--([\w-]+): ([^;]+);", palette().partition("@media")[0]))
    svg = _in_font(_plain(_drawn(draw, inches, title)), values["sans"].replace('"', "'"))
    paper = f'<title>{title}</title>\n <rect width="100%" height="100%" fill="{values["paper"]}"/>'
    svg = re.sub(r"(<svg [^>]*)>", rf'\1 role="img">\n {paper}', svg, count=1)
    for placeholder, variable in _VARIABLES.items():
        svg = svg.replace(placeholder, values[variable])
    return svg


def _drawn(draw: Draw, inches: tuple[float, float], key: str) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE | {"svg.hashsalt": key}):
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
