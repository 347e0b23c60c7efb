"""A diagram in a terminal: the same figure in lines of text, its input at the foot."""

import textwrap

from sublayer.diagram.figure import Block, Box, Column, Figure, Residual, Sum, step_size

WIDTH = 79
"""Letters of the longest line."""
_COLUMN = 38
_BOX = 26
"""Letters within a box; one more on either side are its edges."""
_STREAM = 16
"""Letters of a column before the stream."""


def draw_text(figure: Figure) -> str:
    """Draw a figure in lines of at most ``WIDTH`` letters."""
    lines = [figure.name]
    for text in (figure.title, figure.sizes):
        lines += textwrap.wrap(text, WIDTH)
    lines.append("")
    columns = [_lines(column) for column in figure.columns]
    n_lines = max(len(column) for column in columns)
    padded = [[*column, *[""] * (n_lines - len(column))] for column in columns]
    for row in reversed(list(zip(*padded, strict=True))):
        lines.append("  ".join(f"{part:<{_COLUMN}}" for part in row).rstrip())
    return "\n".join(lines)


def _lines(column: Column) -> list[str]:
    written = _Column()
    written.write(column)
    return written.lines


class _Column:
    """Writes a column line by line, from its foot."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, column: Column) -> None:
        """Write all of a column."""
        self._centred(column.reads)
        for part in column.below:
            self._part(part)
        self._block(column.block, column.name)
        for box in column.above:
            self._box(box)
        if column.feeds_memory:
            self._wire()
            self._centred("states for the decoder ▸")
        self._heads(column.heads)

    def _heads(self, chains: tuple[tuple[Box, ...], ...]) -> None:
        if len(chains) > 1:
            between = "─" * (_COLUMN + 1)
            self._put(f"├{'┴'.join([between] * (len(chains) - 1))}╯")
        start = len(self.lines)
        for index, chain in enumerate(chains):
            beside = _Column()
            for box in chain:
                beside._box(box)
            beside.lines[-1] = beside.lines[-1].replace("┴", "─")
            for row, line in enumerate(beside.lines, start=start):
                if row == len(self.lines):
                    self.lines.append("")
                self.lines[row] = f"{self.lines[row]:<{index * (_COLUMN + 2)}}{line}"

    def _part(self, part: Box | Sum) -> None:
        if isinstance(part, Sum):
            self._sum(part)
        else:
            self._box(part)

    def _sum(self, part: Sum) -> None:
        self._wire()
        first, *rest = textwrap.wrap(part.added, _COLUMN - _STREAM - 6)
        for line in reversed(rest):
            self._put(f"│   {line}")
        self._put(f"⊕ ◂ {first}")

    def _block(self, block: Block, name: str) -> None:
        foot = len(self.lines)
        for part in block.parts:
            if isinstance(part, Residual):
                self._residual(part)
            else:
                self._part(part)
        self._wire()
        self._frame(foot)
        often = f"× {block.n_layers} layers" if block.n_layers > 1 else "1 layer"
        notes = [f"{name} {often}".strip(), *block.notes]
        if block.loss is not None:
            notes += [block.loss.title, *(f"  {note}" for note in block.loss.notes)]
        wrapped = []
        for note in notes:
            wrapped += textwrap.wrap(
                note, _COLUMN - 2, subsequent_indent="  ", drop_whitespace=True
            )
        self.lines += [f" {line}" for line in reversed(wrapped)]

    def _frame(self, foot: int) -> None:
        inside = [f"║{line[1:]:<{_COLUMN - 2}}║" for line in self.lines[foot:]]
        before, after = "═" * (_STREAM - 1), "═" * (_COLUMN - _STREAM - 2)
        self.lines[foot:] = [f"╚{before}╤{after}╝", *inside, f"╔{before}╧{after}╗"]

    def _residual(self, part: Residual) -> None:
        side = _BOX - _STREAM + 5
        self._put(f"├{'─' * side}╯")
        start = len(self.lines)
        if part.norm is not None and part.is_pre_norm:
            self._box(part.norm)
        self._box(part.function)
        if part.reads_memory:
            line = self.lines[-2]
            self.lines[-2] = f"{line[0]}▸{line[2:]}"
        step = "" if part.step == 1.0 else f"  × {step_size(part.step)}"
        self._put(f"│{step}")
        beside = _STREAM + side + 1
        for index in range(start, len(self.lines)):
            self.lines[index] = f"{self.lines[index]:<{beside}}│"
        self._put(f"⊕ ◂{'─' * (side - 2)}╮")
        if part.norm is not None and not part.is_pre_norm:
            self._box(part.norm)

    def _box(self, box: Box) -> None:
        self._wire()
        if box.role == "norm" and not box.notes:
            self._centred(f"[ {box.title} ]")
            return
        content = textwrap.wrap(box.title, _BOX)
        for note in box.notes:
            content += textwrap.wrap(note, _BOX)
        left = "  "
        edge = "─" * _BOX
        middle = _STREAM - len(left) - 1
        foot = f"{edge[:middle]}┬{edge[middle + 1 :]}"
        head = f"{edge[:middle]}┴{edge[middle + 1 :]}"
        self.lines.append(f"{left}└{foot}┘")
        self.lines += [f"{left}│{line:^{_BOX}}│" for line in reversed(content)]
        self.lines.append(f"{left}┌{head}┐")

    def _wire(self) -> None:
        self._put("│")

    def _put(self, text: str) -> None:
        self.lines.append(f"{'':<{_STREAM}}{text}")

    def _centred(self, text: str) -> None:
        self.lines.append(f"{text:^{2 * _STREAM + 1}}".rstrip())
