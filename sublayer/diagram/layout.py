"""Where each part of a figure stands: columns side by side, each built up from its foot."""

import textwrap

from sublayer.diagram.figure import Block, Box, Column, Figure, Residual, Sum
from sublayer.diagram.shapes import Drawing, Label, Plus, Rectangle, Wire

BOX = 222.0
"""Width of a box."""
MARGIN = 24.0
RADIUS = 9.0
_PANEL = BOX + 72.0
_BYPASS = BOX / 2 + 19.0
"""How far the residual stream goes around what is added to it."""
_GAP = 17.0
_BETWEEN = 52.0
"""Between two columns, where an encoder's states cross over."""
_LANE = BOX + 28.0
"""Width of a chain of heads beside another."""
_SIDE = 104.0
"""Room for how often a block is repeated."""
_TITLE_LINE, _NOTE_LINE, _PADDING = 17.0, 14.5, 7.0
_TITLE_LETTERS, _NOTE_LETTERS, _SIDE_LETTERS, _SUM_LETTERS = 31, 38, 17, 19


def lay_out(figure: Figure) -> Drawing:
    """Place all parts of a figure."""
    drawing = Drawing()
    left = MARGIN
    memory: _Pen | None = None
    for index, column in enumerate(figure.columns):
        is_labelled_right = index > 0
        width = max(_PANEL, _LANE * len(column.heads))
        overhang = (width - _PANEL) / 2
        before = 0.0 if is_labelled_right else max(0.0, _SIDE - overhang)
        after = _SIDE if is_labelled_right else 0.0
        if column.block.loss is not None:
            after = max(after, BOX + 44.0)
        pen = _Pen(drawing, left + before + width / 2, is_labelled_right=is_labelled_right)
        pen.column(column)
        if memory is not None:
            _cross(drawing, memory, pen)
        memory = pen if column.feeds_memory else None
        drawing.height = max(drawing.height, pen.height)
        left += before + width + max(0.0, after - overhang) + _BETWEEN
    drawing.width = left - _BETWEEN + MARGIN
    return drawing


def _cross(drawing: Drawing, encoder: "_Pen", decoder: "_Pen") -> None:
    """Draw the states of an encoder into what reads them in the decoder beside it."""
    between = decoder.centre - _PANEL / 2 - _BETWEEN / 2
    for height in decoder.readers:
        target = (decoder.centre - BOX / 2, height)
        points = ((encoder.centre, encoder.height), (between, encoder.height))
        drawing.wires.append(Wire((*points, (between, height), target), has_arrow=True))


class _Pen:
    """Draws a column upwards."""

    def __init__(self, drawing: Drawing, centre: float, *, is_labelled_right: bool) -> None:
        self.drawing = drawing
        self.centre = centre
        self.height = 0.0
        self.readers: list[float] = []
        """Heights at which an encoder's states are read."""
        self._is_labelled_right = is_labelled_right

    def column(self, column: Column) -> None:
        """Draw all of a column."""
        self._label(0.0, column.reads, "input")
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
                self._wire((stream, start), (self.centre, start))
            for box in chain:
                self._box(box)
            highest = max(highest, self.height)
        self.centre, self.height = stream, highest

    def _part(self, part: Box | Sum) -> None:
        if isinstance(part, Sum):
            self._sum(part)
        else:
            self._box(part)

    def _sum(self, part: Sum) -> None:
        lines = textwrap.wrap(part.added, _SUM_LETTERS)
        self._up(_GAP + 5.0 * len(lines), has_arrow=True)
        at = self.height + RADIUS
        self.drawing.sums.append(Plus((self.centre, at)))
        self._wire((self.centre + 40.0, at), (self.centre + RADIUS, at), has_arrow=True)
        top = at + (len(lines) - 1) * _NOTE_LINE / 2 - 4.0
        for index, line in enumerate(lines):
            self._label(top - index * _NOTE_LINE, line, "note", self.centre + 45.0, "start")
        self.height = at + RADIUS
        self._up(6.0 * (len(lines) - 1))

    def _block(self, block: Block, name: str) -> None:
        self._up(_GAP)
        foot = self.height
        self._up(6.0)
        for part in block.parts:
            if isinstance(part, Residual):
                self._residual(part)
            else:
                self._part(part)
        self._up(_GAP)
        left = self.centre - _PANEL / 2
        panel = Rectangle(left, foot, _PANEL, self.height - foot, "panel")
        self.drawing.panels.append(panel)
        self._repeated(block, name, (foot + self.height) / 2)
        if block.loss is not None:
            self._lower_losses(block.loss)

    def _lower_losses(self, loss: Box) -> None:
        start = self.height - 8.0
        title, notes, height = _lines(loss)
        x = self.centre + _PANEL / 2 + 44.0
        box = Rectangle(x, start - height / 2, BOX, height, "loss", title, notes)
        self.drawing.boxes.append(box)
        self._wire((self.centre, start), (x, start), has_arrow=True)

    def _repeated(self, block: Block, name: str, middle: float) -> None:
        notes = [line for note in block.notes for line in textwrap.wrap(note, _SIDE_LETTERS)]
        edge = self.centre + (_PANEL / 2 + 10.0) * (1 if self._is_labelled_right else -1)
        anchor = "start" if self._is_labelled_right else "end"
        heading = [name] if name else []
        heading.append(f"× {block.n_layers} layers" if block.n_layers > 1 else "1 layer")
        height = middle + (len(heading) + len(notes)) * 8.0
        for text in heading:
            self._label(height, text, "strong", edge, anchor)
            height -= _TITLE_LINE
        for text in notes:
            self._label(height, text, "note", edge, anchor)
            height -= _NOTE_LINE

    def _residual(self, part: Residual) -> None:
        self._up(10.0)
        split = self.height
        if part.norm is not None and part.is_pre_norm:
            self._box(part.norm)
        self._box(part.function)
        if part.reads_memory:
            _, _, height = _lines(part.function)
            self.readers.append(self.height - height / 2)
        self._up(_GAP + (4.0 if part.step != 1.0 else 0.0), has_arrow=True)
        if part.step != 1.0:
            text = f"× {step_size(part.step)}"
            self._label(self.height - 15.0, text, "step", self.centre - 11.0, "end")
        at = self.height + RADIUS
        self.drawing.sums.append(Plus((self.centre, at)))
        side = self.centre + _BYPASS
        end = (self.centre + RADIUS, at)
        self._wire((self.centre, split), (side, split), (side, at), end, has_arrow=True)
        self.height = at + RADIUS
        if part.norm is not None and not part.is_pre_norm:
            self._box(part.norm)

    def _box(self, box: Box) -> None:
        title, notes, height = _lines(box)
        self._up(_GAP, has_arrow=True)
        left = self.centre - BOX / 2
        shape = Rectangle(left, self.height, BOX, height, box.role, title, notes)
        self.drawing.boxes.append(shape)
        self.height += height

    def _up(self, by: float, *, has_arrow: bool = False) -> None:
        above = (self.centre, self.height + by)
        self._wire((self.centre, self.height), above, has_arrow=has_arrow)
        self.height += by

    def _wire(self, *points: tuple[float, float], has_arrow: bool = False) -> None:
        self.drawing.wires.append(Wire(points, has_arrow))

    def _label(
        self, height: float, text: str, style: str, x: float | None = None, anchor: str = "middle"
    ) -> None:
        at = (self.centre if x is None else x, height)
        self.drawing.labels.append(Label(at, text, style, anchor))  # type: ignore[arg-type]


def _lines(box: Box) -> tuple[tuple[str, ...], tuple[str, ...], float]:
    """Return a box's title and notes as lines that fit, and its height."""
    title = tuple(textwrap.wrap(box.title, _TITLE_LETTERS))
    notes = tuple(line for note in box.notes for line in textwrap.wrap(note, _NOTE_LETTERS))
    text = len(title) * _TITLE_LINE + len(notes) * _NOTE_LINE
    return title, notes, text + 2 * _PADDING


def step_size(value: float) -> str:
    """Format the step of a sub-layer."""
    return {0.5: "½", 0.25: "¼"}.get(value, f"{value:g}".replace("-", "−"))
