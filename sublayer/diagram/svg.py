"""A diagram as a file of its own: an SVG for light and dark, with the palette of the reports.

Columns stand side by side, each built up from its foot. Lengths are pixels; heights are measured
upwards from the foot of the diagram.
"""

import textwrap
from collections.abc import Iterator
from html import escape

from sublayer.diagram.figure import Block, Box, Column, Figure, Residual, Sum, step_size
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
"""Distance of the residual stream from the sub-layer that is added to it."""
_GAP = 17.0
_BETWEEN = 52.0
"""Between two columns, where an encoder's states cross over."""
_LANE = _BOX + 28.0
"""Width of a chain of heads beside another."""
_SIDE = 104.0
"""Room for how often a block is repeated."""
_TITLE_LINE, _NOTE_LINE, _PADDING = 17.0, 14.5, 7.0
_TITLE_LETTERS, _NOTE_LETTERS, _SIDE_LETTERS, _SUM_LETTERS = 31, 38, 17, 19
_HEADING_LINE = 21.0
_HEADING_LETTER = 6.9
"""Width that a letter of the heading takes, at most."""
_ABOVE = 14.0
"""Between the heading and the diagram."""
_LEAST_WIDTH = 440.0

_Point = tuple[float, float]
"""Right of the left edge, and above the foot."""


def draw_svg(figure: Figure) -> str:
    """Draw a figure as an SVG file; equal figures give equal bytes."""
    drawing = _draw(figure)
    width = max(drawing.width, _LEAST_WIDTH)
    shift = (width - drawing.width) / 2
    heading = list(_heading(figure, int((width - 2 * _MARGIN) / _HEADING_LETTER)))
    foot = _MARGIN + _HEADING_LINE * len(heading) + _ABOVE + drawing.height
    parts = [_file_head(width, foot + _MARGIN, figure)]
    for index, (style, line) in enumerate(heading):
        y = _MARGIN + 14.0 + _HEADING_LINE * index
        parts.append(f'<text class="{style}" x="{_MARGIN:g}" y="{y:g}">{escape(line)}</text>')
    parts.append(f'<g transform="translate({shift:g} {foot:g})">')
    parts += [*drawing.panels, *drawing.wires, *drawing.boxes, *drawing.sums, *drawing.labels]
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


class _Drawing:
    """The elements of a diagram, in lists that cover each other in their order."""

    def __init__(self) -> None:
        self.width = 0.0
        self.height = 0.0
        self.panels: list[str] = []
        self.wires: list[str] = []
        self.boxes: list[str] = []
        self.sums: list[str] = []
        self.labels: list[str] = []

    def add_panel(self, x: float, bottom: float, height: float) -> None:
        """Draw the panel behind a block."""
        self.panels.append(_rectangle("panel", x, bottom, (_PANEL, height), radius=10.0))

    def add_box(self, box: Box, x: float, bottom: float) -> None:
        """Draw a rounded box with lines of text in its middle."""
        title, notes, height = _lines(box)
        parts = [_rectangle(box.role, x, bottom, (_BOX, height), radius=5.0)]
        y = -bottom - height + _PADDING
        for line in title:
            y += _TITLE_LINE
            parts.append(_text("box-title", x + _BOX / 2, y - 4.5, line))
        for line in notes:
            y += _NOTE_LINE
            parts.append(_text("note", x + _BOX / 2, y - 4.0, line))
        self.boxes.append("\n".join(parts))

    def add_sum(self, x: float, height: float) -> None:
        """Draw the sign of a sum on the stream."""
        arm = _RADIUS - 4.0
        self.sums.append(
            f'<circle class="sum" cx="{x:g}" cy="{-height:g}" r="{_RADIUS:g}"/>\n'
            f'<path class="wire" d="M{x - arm:g} {-height:g}h{2 * arm:g}'
            f'M{x:g} {-height - arm:g}v{2 * arm:g}"/>'
        )

    def add_wire(self, *points: _Point, has_arrow: bool = False) -> None:
        """Draw a line through points, with an arrow at its end where it enters something."""
        corners = " ".join(f"{x:g},{-height:g}" for x, height in points)
        line = f'<polyline class="wire" points="{corners}"/>'
        if has_arrow:
            (from_x, from_height), (x, height) = points[-2:]
            dx = (x > from_x) - (x < from_x)
            dy = (height < from_height) - (height > from_height)
            y = -height
            base = f"{x - 7 * dx - 3.5 * dy:g},{y - 7 * dy - 3.5 * dx:g}"
            other = f"{x - 7 * dx + 3.5 * dy:g},{y - 7 * dy + 3.5 * dx:g}"
            line += f'\n<polygon class="arrow" points="{x:g},{y:g} {base} {other}"/>'
        self.wires.append(line)

    def add_label(self, text: str, style: str, at: _Point, anchor: str = "middle") -> None:
        """Write a line of text beside its subject."""
        x, height = at
        self.labels.append(_text(style, x, -height, text, anchor))


def _rectangle(
    style: str, x: float, bottom: float, size: tuple[float, float], *, radius: float
) -> str:
    width, height = size
    return (
        f'<rect class="{style}" x="{x:g}" y="{-bottom - height:g}" width="{width:g}" '
        f'height="{height:g}" rx="{radius:g}"/>'
    )


def _text(style: str, x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _lines(box: Box) -> tuple[list[str], list[str], float]:
    """Return a box's title and notes as lines that fit, and its height."""
    title = textwrap.wrap(box.title, _TITLE_LETTERS)
    notes = [line for note in box.notes for line in textwrap.wrap(note, _NOTE_LETTERS)]
    return title, notes, len(title) * _TITLE_LINE + len(notes) * _NOTE_LINE + 2 * _PADDING


def _draw(figure: Figure) -> _Drawing:
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
        pen.column(column)
        if memory is not None:
            # The states of the encoder enter what reads them in the decoder beside it.
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


class _Pen:
    """Draws a column upwards."""

    def __init__(self, drawing: _Drawing, centre: float, *, is_labelled_right: bool) -> None:
        self.drawing = drawing
        self.centre = centre
        self.height = 0.0
        self.readers: list[float] = []
        """Heights at which an encoder's states are read."""
        self._is_labelled_right = is_labelled_right

    def column(self, column: Column) -> None:
        """Draw all of a column."""
        self.drawing.add_label(column.reads, "input", (self.centre, 0.0))
        self.height = 20.0
        for part in column.below:
            self._part(part)
        self._block(column.block, column.name)
        for box in column.above:
            self._box(box)
        if column.feeds_memory:
            self._up(_GAP)
        elif column.heads:
            self._heads(column.heads)

    def _heads(self, chains: tuple[tuple[Box, ...], ...]) -> None:
        if len(chains) > 1:
            self._up(_GAP)
        start, stream, highest = self.height, self.centre, 0.0
        for index, chain in enumerate(chains):
            self.centre = stream + _LANE * (index - (len(chains) - 1) / 2)
            self.height = start
            if self.centre != stream:
                self.drawing.add_wire((stream, start), (self.centre, start))
            for box in chain:
                self._box(box)
            highest = max(highest, self.height)
        self.centre, self.height = stream, highest

    def _part(self, part: Box | Sum | Residual) -> None:
        if isinstance(part, Residual):
            self._residual(part)
        elif isinstance(part, Sum):
            self._sum(part)
        else:
            self._box(part)

    def _sum(self, part: Sum) -> None:
        lines = textwrap.wrap(part.added, _SUM_LETTERS)
        self._up(_GAP + 5.0 * len(lines), has_arrow=True)
        at = self.height + _RADIUS
        self.drawing.add_sum(self.centre, at)
        self.drawing.add_wire((self.centre + 40.0, at), (self.centre + _RADIUS, at), has_arrow=True)
        top = at + (len(lines) - 1) * _NOTE_LINE / 2 - 4.0
        for index, line in enumerate(lines):
            beside = (self.centre + 45.0, top - index * _NOTE_LINE)
            self.drawing.add_label(line, "note", beside, "start")
        self.height = at + _RADIUS
        self._up(6.0 * (len(lines) - 1))

    def _block(self, block: Block, name: str) -> None:
        self._up(_GAP)
        foot = self.height
        self._up(6.0)
        for part in block.parts:
            self._part(part)
        self._up(_GAP)
        self.drawing.add_panel(self.centre - _PANEL / 2, foot, self.height - foot)
        self._repetition(block, name, (foot + self.height) / 2)
        if block.loss is not None:
            start = self.height - 8.0
            *_, height = _lines(block.loss)
            x = self.centre + _PANEL / 2 + 44.0
            self.drawing.add_box(block.loss, x, start - height / 2)
            self.drawing.add_wire((self.centre, start), (x, start), has_arrow=True)

    def _repetition(self, block: Block, name: str, middle: float) -> None:
        """Write beside a block how often it is repeated, and what its layers share."""
        notes = [line for note in block.notes for line in textwrap.wrap(note, _SIDE_LETTERS)]
        edge = self.centre + (_PANEL / 2 + 10.0) * (1 if self._is_labelled_right else -1)
        anchor = "start" if self._is_labelled_right else "end"
        heading = [name] if name else []
        heading.append(f"× {block.n_layers} layers" if block.n_layers > 1 else "1 layer")
        height = middle + (len(heading) + len(notes)) * 8.0
        for text in heading:
            self.drawing.add_label(text, "strong", (edge, height), anchor)
            height -= _TITLE_LINE
        for text in notes:
            self.drawing.add_label(text, "note", (edge, height), anchor)
            height -= _NOTE_LINE

    def _residual(self, part: Residual) -> None:
        self._up(10.0)
        split = self.height
        if part.norm is not None and part.is_pre_norm:
            self._box(part.norm)
        self._box(part.function)
        if part.reads_memory:
            *_, height = _lines(part.function)
            self.readers.append(self.height - height / 2)
        self._up(_GAP + (4.0 if part.step != 1.0 else 0.0), has_arrow=True)
        if part.step != 1.0:
            beside = (self.centre - 11.0, self.height - 15.0)
            self.drawing.add_label(f"× {step_size(part.step)}", "step", beside, "end")
        at = self.height + _RADIUS
        self.drawing.add_sum(self.centre, at)
        side = self.centre + _BYPASS
        end = (self.centre + _RADIUS, at)
        corners = ((side, split), (side, at))
        self.drawing.add_wire((self.centre, split), *corners, end, has_arrow=True)
        self.height = at + _RADIUS
        if part.norm is not None and not part.is_pre_norm:
            self._box(part.norm)

    def _box(self, box: Box) -> None:
        self._up(_GAP, has_arrow=True)
        self.drawing.add_box(box, self.centre - _BOX / 2, self.height)
        *_, height = _lines(box)
        self.height += height

    def _up(self, by: float, *, has_arrow: bool = False) -> None:
        above = (self.centre, self.height + by)
        self.drawing.add_wire((self.centre, self.height), above, has_arrow=has_arrow)
        self.height += by
