"""SVG of a diagram, light and dark, in the palette of the reports.

Columns are side by side, built up from the foot. Lengths are pixels; heights are measured upwards
from the foot.
"""

import textwrap
from collections.abc import Iterator
from html import escape
from itertools import chain

from sublayer.diagram.figure import Block, Drawer, FigureBox, FigureColumn, RecipeFigure, Sum
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
_BOX = 222.0
"""Width of a box."""
_MARGIN = 24.0
_RADIUS = 9.0
_PANEL = _BOX + 72.0
_BYPASS = _BOX / 2 + 19.0
"""Distance of the residual stream from its sub-layer."""
_GAP = 17.0
_BETWEEN = 52.0
"""Gap between two columns, crossed by an encoder's states."""
_LANE = _BOX + 28.0
"""Width of a chain of heads next to another."""
_SIDE = 104.0
"""Room for the number of repetitions of a block."""
_TITLE_LINE, _NOTE_LINE, _PADDING = 17.0, 14.5, 7.0
_TITLE_LETTERS, _NOTE_LETTERS, _SIDE_LETTERS, _SUM_LETTERS = 31, 38, 17, 19
_HEADING_LINE = 21.0
_HEADING_LETTER = 6.9
"""Upper bound on the width of a letter of the heading."""
_ABOVE = 14.0
"""Gap between the heading and the diagram."""
_LEAST_WIDTH = 440.0

_Point = tuple[float, float]
"""Coordinates: to the right of the left edge, and above the foot."""


def draw_svg(figure: RecipeFigure) -> str:
    """Draw a figure as an SVG file; equal figures give equal bytes."""
    drawing = _draw(figure)
    width = max(drawing.width, _LEAST_WIDTH)
    shift = (width - drawing.width) / 2
    heading = list(_heading(figure, int((width - 2 * _MARGIN) / _HEADING_LETTER)))
    foot = _MARGIN + _HEADING_LINE * len(heading) + _ABOVE + drawing.height
    parts = [_file_head(width, foot + _MARGIN, figure)]
    for index, (style, line) in enumerate(heading):
        at = {"x": _MARGIN, "y": _MARGIN + 14.0 + _HEADING_LINE * index}
        parts.append(_tag("text", style, line, **at))
    parts.append(f'<g transform="translate({shift:g} {foot:g})">')
    return "\n".join([*parts, *chain(*drawing.layers.values()), "</g>", "</svg>", ""])


def _tag(name: str, style: str, content: str | None = None, /, **attributes: float | str) -> str:
    """Return an element; its content is escaped."""
    listed = "".join(
        f' {key.replace("_", "-")}="{value if isinstance(value, str) else format(value, "g")}"'
        for key, value in attributes.items()
    )
    end = "/>" if content is None else f">{escape(content)}</{name}>"
    return f'<{name} class="{style}"{listed}{end}'


def _heading(figure: RecipeFigure, letters: int) -> Iterator[tuple[str, str]]:
    yield "name", figure.name
    for style, text in (("title", figure.title), ("sizes", figure.sizes)):
        for line in textwrap.wrap(text, letters):
            yield style, line


def _file_head(width: float, height: float, figure: RecipeFigure) -> str:
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


class _Drawing:
    """The elements of a diagram, in layers from back to front."""

    def __init__(self) -> None:
        self.width = 0.0
        self.height = 0.0
        names = ("panels", "wires", "boxes", "sums", "labels")
        self.layers: dict[str, list[str]] = {name: [] for name in names}

    def add(self, layer: str, *elements: str) -> None:
        """Add elements to a layer."""
        self.layers[layer].append("\n".join(elements))

    def add_box(self, box: FigureBox, x: float, bottom: float) -> None:
        """Draw a rounded box with centred lines of text."""
        title, notes, height = _lines(box)
        elements = [_rectangle(box.role, x, bottom, _BOX, height, 5.0)]
        y = -bottom - height + _PADDING
        lines = [("box-title", line, _TITLE_LINE, 4.5) for line in title]
        lines += [("note", line, _NOTE_LINE, 4.0) for line in notes]
        for style, line, line_height, above in lines:
            y += line_height
            middle = x + _BOX / 2
            elements.append(_tag("text", style, line, x=middle, y=y - above, text_anchor="middle"))
        self.add("boxes", *elements)

    def add_wire(self, *points: _Point, has_arrow: bool = False) -> None:
        """Draw a line through points, with an arrow at its end if it enters a box."""
        corners = " ".join(f"{x:g},{-height:g}" for x, height in points)
        elements = [_tag("polyline", "wire", points=corners)]
        if has_arrow:
            (from_x, from_height), (x, height) = points[-2:]
            dx = (x > from_x) - (x < from_x)
            dy = (height < from_height) - (height > from_height)
            tips = [(x, -height)]
            for side in (-3.5, 3.5):
                tips.append((x - 7 * dx + side * dy, -height - 7 * dy + side * dx))
            shown = " ".join(f"{tip_x:g},{tip_y:g}" for tip_x, tip_y in tips)
            elements.append(_tag("polygon", "arrow", points=shown))
        self.add("wires", *elements)

    def add_label(self, text: str, style: str, at: _Point, anchor: str = "middle") -> None:
        """Write a line of text next to its subject."""
        x, height = at
        self.add("labels", _tag("text", style, text, x=x, y=-height, text_anchor=anchor))


def _rectangle(
    style: str, x: float, bottom: float, width: float, height: float, radius: float
) -> str:
    return _tag("rect", style, x=x, y=-bottom - height, width=width, height=height, rx=radius)


def _lines(box: FigureBox) -> tuple[list[str], list[str], float]:
    """Return a box's title and notes as lines that fit, and its height."""
    title = textwrap.wrap(box.title, _TITLE_LETTERS)
    notes = [line for note in box.notes for line in textwrap.wrap(note, _NOTE_LETTERS)]
    return title, notes, len(title) * _TITLE_LINE + len(notes) * _NOTE_LINE + 2 * _PADDING


def _draw(figure: RecipeFigure) -> _Drawing:
    """Draw all parts of a figure."""
    drawing = _Drawing()
    left = _MARGIN
    memory: _Pen | None = None
    for index, column in enumerate(figure.columns):
        is_labelled_right = index > 0
        width = max(_PANEL, _LANE * len(column.heads))
        overhang = (width - _PANEL) / 2
        before = 0.0 if is_labelled_right else max(0.0, _SIDE - overhang)
        after = _SIDE if is_labelled_right else 0.0
        if column.block.loss is not None:
            after = max(after, _BOX + 44.0)
        pen = _Pen(drawing, left + before + width / 2, is_labelled_right=is_labelled_right)
        pen.whole(column)
        if memory is not None:
            # The encoder's states enter their readers in the decoder.
            between = pen.centre - _PANEL / 2 - _BETWEEN / 2
            start = (memory.centre, memory.height)
            for height in pen.readers:
                corners = ((between, memory.height), (between, height))
                target = (pen.centre - _BOX / 2, height)
                drawing.add_wire(start, *corners, target, has_arrow=True)
        memory = pen if column.feeds_memory else None
        drawing.height = max(drawing.height, pen.height)
        left += before + width + max(0.0, after - overhang) + _BETWEEN
    drawing.width = left - _BETWEEN + _MARGIN
    return drawing


class _Pen(Drawer):
    """Draws a column from its foot."""

    def __init__(self, drawing: _Drawing, centre: float, *, is_labelled_right: bool) -> None:
        self.drawing = drawing
        self.centre = centre
        self.height = 0.0
        self.readers: list[float] = []
        """Heights where an encoder's states are read."""
        self._is_labelled_right = is_labelled_right

    def whole(self, column: FigureColumn) -> None:
        """Draw a column."""
        self.drawing.add_label(column.reads, "input", (self.centre, 0.0))
        self.height = 20.0
        self.column(column)
        if column.feeds_memory or len(column.heads) > 1:
            self._up(_GAP)
        start, stream, highest = self.height, self.centre, self.height
        for index, boxes in enumerate(column.heads):
            self.centre = stream + _LANE * (index - (len(column.heads) - 1) / 2)
            self.height = start
            if self.centre != stream:
                self.drawing.add_wire((stream, start), (self.centre, start))
            for box in boxes:
                self.box(box)
            highest = max(highest, self.height)
        self.centre, self.height = stream, highest

    def sum(self, part: Sum) -> None:
        """Draw a sum sign, with the term to its right."""
        lines = textwrap.wrap(part.added, _SUM_LETTERS)
        self._up(_GAP + 5.0 * len(lines), has_arrow=True)
        at = self._plus()
        self.drawing.add_wire((self.centre + 40.0, at), (self.centre + _RADIUS, at), has_arrow=True)
        top = at + (len(lines) - 1) * _NOTE_LINE / 2 - 4.0
        for index, line in enumerate(lines):
            beside = (self.centre + 45.0, top - index * _NOTE_LINE)
            self.drawing.add_label(line, "note", beside, "start")
        self._up(6.0 * (len(lines) - 1))

    def _plus(self) -> float:
        """Draw a sum sign on the stream; return the height of its middle."""
        at, arm, x = self.height + _RADIUS, _RADIUS - 4.0, self.centre
        path = f"M{x - arm:g} {-at:g}h{2 * arm:g}M{x:g} {-at - arm:g}v{2 * arm:g}"
        circle = _tag("circle", "sum", cx=x, cy=-at, r=_RADIUS)
        self.drawing.add("sums", circle, _tag("path", "wire", d=path))
        self.height = at + _RADIUS
        return at

    def block(self, block: Block, name: str) -> None:
        """Draw a block on its panel, with its loss to the right."""
        self._up(_GAP)
        foot = self.height
        self._up(6.0)
        for part in block.parts:
            self.part(part)
        self._up(_GAP)
        top, left = self.height, self.centre - _PANEL / 2
        panel = _rectangle("panel", left, foot, _PANEL, top - foot, 10.0)
        self.drawing.add("panels", panel)
        self._repetition(block, name, (foot + top) / 2)
        if block.loss is not None:
            start, x = top - 8.0, self.centre + _PANEL / 2 + 44.0
            *_, height = _lines(block.loss)
            self.drawing.add_box(block.loss, x, start - height / 2)
            self.drawing.add_wire((self.centre, start), (x, start), has_arrow=True)

    def _repetition(self, block: Block, name: str, middle: float) -> None:
        """Write next to a block its repetitions, and the weights that its layers share."""
        notes = [line for note in block.notes for line in textwrap.wrap(note, _SIDE_LETTERS)]
        edge = self.centre + (_PANEL / 2 + 10.0) * (1 if self._is_labelled_right else -1)
        anchor = "start" if self._is_labelled_right else "end"
        lines = [("strong", text, _TITLE_LINE) for text in (name, block.often) if text]
        lines += [("note", text, _NOTE_LINE) for text in notes]
        height = middle + len(lines) * 8.0
        for style, text, line_height in lines:
            self.drawing.add_label(text, style, (edge, height), anchor)
            height -= line_height

    def split(self) -> float:
        """Begin a residual sub-layer."""
        self._up(10.0)
        return self.height

    def read_memory(self, box: FigureBox) -> None:
        """Keep the height of the last box."""
        *_, height = _lines(box)
        self.readers.append(self.height - height / 2)

    def join(self, split: float, step: str) -> None:
        """Draw the residual stream past a sub-layer, and the sum."""
        self._up(_GAP + (4.0 if step else 0.0), has_arrow=True)
        if step:
            beside = (self.centre - 11.0, self.height - 15.0)
            self.drawing.add_label(step, "step", beside, "end")
        at, side = self._plus(), self.centre + _BYPASS
        corners = (self.centre, split), (side, split), (side, at), (self.centre + _RADIUS, at)
        self.drawing.add_wire(*corners, has_arrow=True)

    def box(self, box: FigureBox) -> None:
        """Draw a box on the stream."""
        self._up(_GAP, has_arrow=True)
        self.drawing.add_box(box, self.centre - _BOX / 2, self.height)
        *_, height = _lines(box)
        self.height += height

    def _up(self, by: float, *, has_arrow: bool = False) -> None:
        above = (self.centre, self.height + by)
        self.drawing.add_wire((self.centre, self.height), above, has_arrow=has_arrow)
        self.height += by
