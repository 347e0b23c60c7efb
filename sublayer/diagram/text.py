"""A diagram as lines of text for a terminal, its input at the foot."""

import textwrap
from itertools import zip_longest

from sublayer.diagram.figure import Block, Drawer, FigureBox, FigureColumn, RecipeFigure, Sum

WIDTH = 79
"""Columns of the longest line."""
_COLUMN = 38
_BOX = 26
"""Characters within a box, without an edge character on either side."""
_STREAM = 16
"""Characters of a column before the stream."""
_SIDE = _BOX - _STREAM + 5
"""Characters between the stream and its residual bypass."""


def draw_text(figure: RecipeFigure) -> str:
    """Draw a figure in lines of at most ``WIDTH`` characters."""
    lines = [figure.name]
    for text in (figure.title, figure.sizes):
        lines += textwrap.wrap(text, WIDTH)
    lines.append("")
    columns = []
    for column in figure.columns:
        drawn = _Column()
        drawn.whole(column)
        columns.append(drawn.lines)
    for row in reversed(list(zip_longest(*columns, fillvalue=""))):
        lines.append("  ".join(f"{part:<{_COLUMN}}" for part in row).rstrip())
    return "\n".join(lines)


class _Column(Drawer):
    """Writes a column line by line, from its foot."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def whole(self, column: FigureColumn) -> None:
        """Write a column."""
        self._centred(column.reads)
        self.column(column)
        if column.feeds_memory:
            self._put("│")
            self._centred("states for the decoder ▸")
        chains = column.heads
        if len(chains) > 1:
            between = "─" * (_COLUMN + 1)
            self._put(f"├{'┴'.join([between] * (len(chains) - 1))}╯")
        beside = []
        for chain in chains:
            drawn = _Column()
            for box in chain:
                drawn.box(box)
            drawn.lines[-1] = drawn.lines[-1].replace("┴", "─")
            beside.append(drawn.lines)
        for row in zip_longest(*beside, fillvalue=""):
            self.lines.append("  ".join(f"{part:<{_COLUMN}}" for part in row).rstrip())

    def sum(self, part: Sum) -> None:
        """Write a sum sign, with the term to its right."""
        self._put("│")
        first, *rest = textwrap.wrap(part.added, _COLUMN - _STREAM - 6)
        for line in reversed(rest):
            self._put(f"│   {line}")
        self._put(f"⊕ ◂ {first}")

    def block(self, block: Block, name: str) -> None:
        """Write the parts of a block in a frame, and its notes above."""
        foot = len(self.lines)
        for part in block.parts:
            self.part(part)
        self._put("│")
        inside = [f"║{line[1:]:<{_COLUMN - 2}}║" for line in self.lines[foot:]]
        before, after = "═" * (_STREAM - 1), "═" * (_COLUMN - _STREAM - 2)
        self.lines[foot:] = [f"╚{before}╤{after}╝", *inside, f"╔{before}╧{after}╗"]
        notes = [f"{name} {block.often}".strip(), *block.notes]
        if block.loss is not None:
            notes += [block.loss.title, *(f"  {note}" for note in block.loss.notes)]
        wrapped = [
            line
            for note in notes
            for line in textwrap.wrap(note, _COLUMN - 2, subsequent_indent="  ")
        ]
        self.lines += [f" {line}" for line in reversed(wrapped)]

    def split(self) -> float:
        """Write the corner where the residual stream splits off."""
        self._put(f"├{'─' * _SIDE}╯")
        return len(self.lines)

    def join(self, split: float, step: str) -> None:
        """Write the residual stream's return, and the sum."""
        self._put(f"│  {step}".rstrip())
        for index in range(int(split), len(self.lines)):
            self.lines[index] = f"{self.lines[index]:<{_STREAM + _SIDE + 1}}│"
        self._put(f"⊕ ◂{'─' * (_SIDE - 2)}╮")

    def read_memory(self, box: FigureBox) -> None:
        """Write an arrow at the edge of the last box."""
        line = self.lines[-2]
        self.lines[-2] = f"{line[0]}▸{line[2:]}"

    def box(self, box: FigureBox) -> None:
        """Write a box, or the name of a norm in brackets."""
        self._put("│")
        if box.role == "norm" and not box.notes:
            self._centred(f"[ {box.title} ]")
            return
        content = [line for text in (box.title, *box.notes) for line in textwrap.wrap(text, _BOX)]
        left, middle = "  ", _STREAM - 3
        before, after = "─" * middle, "─" * (_BOX - middle - 1)
        self.lines.append(f"{left}└{before}┬{after}┘")
        self.lines += [f"{left}│{line:^{_BOX}}│" for line in reversed(content)]
        self.lines.append(f"{left}┌{before}┴{after}┐")

    def _put(self, text: str) -> None:
        self.lines.append(f"{'':<{_STREAM}}{text}")

    def _centred(self, text: str) -> None:
        self.lines.append(f"{text:^{2 * _STREAM + 1}}".rstrip())
