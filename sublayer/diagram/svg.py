"""A diagram as a file of its own: an SVG for light and dark, with the palette of the reports."""

import textwrap
from collections.abc import Iterator
from html import escape

from sublayer.diagram.figure import Figure
from sublayer.diagram.layout import MARGIN, RADIUS, lay_out
from sublayer.diagram.shapes import Label, Plus, Rectangle, Wire
from sublayer.plot import palette

_COLOURS = {
    "embedding": "series-4",
    "norm": "series-5",
    "attention": "series-1",
    "recurrent": "series-1",
    "ffn": "series-3",
    "linear": "series-4",
    "head": "series-7",
    "loss": "series-2",
}
_STYLE = """
text { font-family: var(--sans); fill: var(--ink); font-size: 12.5px; }
.name { font-size: 19px; font-weight: 650; }
.title { font-size: 13px; }
.sizes, .note, .input { fill: var(--muted); }
.sizes { font-size: 12.5px; }
.note { font-size: 11.5px; }
.input { font-size: 12.5px; font-style: italic; }
.step { font-weight: 650; }
.strong, .box-title { font-weight: 600; }
.strong { font-size: 13.5px; }
.paper { fill: var(--paper); }
.panel { fill: var(--panel); stroke: var(--rule); }
.wire { fill: none; stroke: var(--ink); stroke-width: 1.2; stroke-linejoin: round; }
.arrow { fill: var(--ink); }
.sum { fill: var(--paper); stroke: var(--ink); stroke-width: 1.2; }
"""
_HEAD_LETTERS = 6.9
"""Pixels that a letter of the heading takes, at most."""
_TOP = 14.0


def draw_svg(figure: Figure) -> str:
    """Draw a figure as an SVG file; equal figures give equal bytes."""
    drawing = lay_out(figure)
    width = max(drawing.width, 440.0)
    shift = (width - drawing.width) / 2
    heading = list(_heading(figure, int((width - 2 * MARGIN) / _HEAD_LETTERS)))
    top = MARGIN + 21.0 * len(heading) + _TOP
    foot = top + drawing.height
    height = foot + MARGIN
    parts = [_file_head(width, height, figure)]
    for index, (style, line) in enumerate(heading):
        y = MARGIN + 14.0 + 21.0 * index
        parts.append(f'<text class="{style}" x="{MARGIN:g}" y="{y:g}">{escape(line)}</text>')
    parts.append(f'<g transform="translate({shift:g} {foot:g})">')
    parts += [_panel(each) for each in drawing.panels]
    parts += [_wire(each) for each in drawing.wires]
    parts += [_box(each) for each in drawing.boxes]
    parts += [_plus(each) for each in drawing.sums]
    parts += [_label(each) for each in drawing.labels]
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _heading(figure: Figure, letters: int) -> Iterator[tuple[str, str]]:
    yield "name", figure.name
    for style, text in (("title", figure.title), ("sizes", figure.sizes)):
        for line in textwrap.wrap(text, letters):
            yield style, line


def _file_head(width: float, height: float, figure: Figure) -> str:
    name = escape(f"{figure.name}: {figure.sizes}", quote=True)
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    colours = "".join(
        f".{role} {{ fill: color-mix(in srgb, var(--{colour}) 15%, var(--paper)); "
        f"stroke: var(--{colour}); }}\n"
        for role, colour in _COLOURS.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{name}">\n'
        f"<title>{name}</title>\n<style>\n{palette()}{_STYLE}{colours}</style>\n"
        '<rect class="paper" width="100%" height="100%"/>'
    )


def _panel(panel: Rectangle) -> str:
    return _rectangle(panel, 10.0)


def _rectangle(shape: Rectangle, radius: float) -> str:
    y = -shape.bottom - shape.height
    return (
        f'<rect class="{shape.role}" x="{shape.x:g}" y="{y:g}" width="{shape.width:g}" '
        f'height="{shape.height:g}" rx="{radius:g}"/>'
    )


def _box(box: Rectangle) -> str:
    parts = [_rectangle(box, 5.0)]
    middle = box.x + box.width / 2
    y = -box.bottom - box.height + 7.0
    for line in box.title:
        y += 17.0
        parts.append(_text("box-title", middle, y - 4.5, line))
    for line in box.notes:
        y += 14.5
        parts.append(_text("note", middle, y - 4.0, line))
    return "\n".join(parts)


def _text(style: str, x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _label(label: Label) -> str:
    x, height = label.at
    return _text(label.style, x, -height, label.text, label.anchor)


def _plus(plus: Plus) -> str:
    x, height = plus.at
    arm = RADIUS - 4.0
    return (
        f'<circle class="sum" cx="{x:g}" cy="{-height:g}" r="{RADIUS:g}"/>\n'
        f'<path class="wire" d="M{x - arm:g} {-height:g}h{2 * arm:g}'
        f'M{x:g} {-height - arm:g}v{2 * arm:g}"/>'
    )


def _wire(wire: Wire) -> str:
    points = " ".join(f"{x:g},{-height:g}" for x, height in wire.points)
    line = f'<polyline class="wire" points="{points}"/>'
    if not wire.has_arrow:
        return line
    (from_x, from_height), (x, height) = wire.points[-2:]
    dx = (x > from_x) - (x < from_x)
    dy = (height < from_height) - (height > from_height)
    y = -height
    base = f"{x - 7 * dx - 3.5 * dy:g},{y - 7 * dy - 3.5 * dx:g}"
    other = f"{x - 7 * dx + 3.5 * dy:g},{y - 7 * dy + 3.5 * dx:g}"
    return f'{line}\n<polygon class="arrow" points="{x:g},{y:g} {base} {other}"/>'
