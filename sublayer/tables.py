"""Tables for a terminal, in Markdown, in LaTeX and as CSV."""

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

_WORD = re.compile(r" *(?:[^ |]*\|(?=[^ ])|[^ |]+\|?)")
"""Words of a cell, which may also be broken at bars, as in ``case:lc|eff:no``."""
_HEADING_WORD = re.compile(r" *(?:[^ /]+/(?=[^ ]{2})|[^ ]+)")
"""Words of a heading, which may also be broken at slashes, as in ``FLOPs/token``."""
_GAP = 2
_MOST_HEADING_LINES = 3
"""Maximum number of lines of a heading, beyond which cells are broken instead."""
_FEWEST_DIVIDED = 2
"""Minimum number of columns of each part of a divided table: the first and another."""
Column = Sequence[str]
"""Heading and the cells below it."""


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    width: int | None = None,
) -> str:
    """Format rows in columns as wide as their widest cell, so that lines can be searched and cut.

    ``right`` lists the right-aligned columns, from 0: the numbers. The result has the
    headings, a rule and a line per row, without a final line break. To fit ``width``, headings are
    broken at blanks, then cells; then the table is split by columns into several tables, each with
    the first column. Raises ValueError for a row whose number of cells differs from that of the
    headings.
    """
    columns = list(zip(headings, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    if width is None or _total(widths) <= width:
        return _laid_out(columns, widths, right)
    least = [_filled(column, 0) for column in columns]
    if _total(least) <= width or len(columns) <= _FEWEST_DIVIDED:
        widths = _with_broken_headings(columns, widths, width)
        return _laid_out(columns, _with_broken_cells(columns, widths, least, width), right)
    parts = [[0]]
    for index in range(1, len(widths)):
        if len(parts[-1]) > 1 and _total([widths[col] for col in [*parts[-1], index]]) > width:
            parts.append([0])
        parts[-1].append(index)
    texts = []
    for part in parts:
        first, *others = zip(*(columns[index] for index in part), strict=True)
        to_right = [position for position, index in enumerate(part) if index in right]
        texts.append(table(first, others, right=to_right, width=width))
    return "\n\n".join(texts)


def _laid_out(columns: Sequence[Column], widths: Sequence[int], right: Collection[int]) -> str:
    """Lay out columns with a rule below headings; cells may take several lines."""
    broken = [_broken_cells(column, width) for column, width in zip(columns, widths, strict=True)]
    for cells, width in zip(broken, widths, strict=True):
        cells.insert(1, ["-" * width])
    lines = []
    for row in zip(*broken, strict=True):
        for parts in zip_longest(*row, fillvalue=""):
            line = [
                part.rjust(width) if index in right else part.ljust(width)
                for index, (part, width) in enumerate(zip(parts, widths, strict=True))
            ]
            lines.append((" " * _GAP).join(line).rstrip())
    return "\n".join(lines)


def _broken_cells(column: Column, width: int) -> list[list[str]]:
    """Break the heading and the cells of a column into lines of at most ``width``."""
    heading, *cells = column
    return [_broken(heading, width, _HEADING_WORD), *(_broken(x, width, _WORD) for x in cells)]


def _broken(cell: str, width: int, words: re.Pattern[str]) -> list[str]:
    """Break a cell at blanks into lines of at most ``width``, if its words allow it."""
    if len(cell) <= width:
        return [cell]
    lines: list[str] = []
    for word in words.findall(cell):
        if lines and len(lines[-1]) + len(word) <= width:
            lines[-1] += word
        else:
            lines.append(word.lstrip(" "))
    return lines


def _with_broken_headings(
    columns: Sequence[Column], widths: Sequence[int], width: int
) -> list[int]:
    """Break headings as long as the table is too wide, the one that saves most first."""
    narrowed = list(widths)
    while _total(narrowed) > width:
        saved = []
        for index, (heading, *cells) in enumerate(columns):
            n_lines = 1 + len(_broken(heading, narrowed[index], _HEADING_WORD))
            if n_lines > _MOST_HEADING_LINES:
                continue
            narrower = _filled([heading], 0)
            while len(_broken(heading, narrower, _HEADING_WORD)) > n_lines:
                narrower += 1
            saved.append((narrowed[index] - max([narrower, *map(len, cells)]), -index))
        most, index = max(saved, default=(0, 0))
        if most <= 0:
            break
        narrowed[-index] -= most
    return narrowed


def _with_broken_cells(
    columns: Sequence[Column], widths: Sequence[int], least: Sequence[int], width: int
) -> list[int]:
    """Narrow the widest columns until all fit, and break their cells."""
    narrowed = list(widths)
    while _total(narrowed) > width:
        left = [index for index in range(len(least)) if narrowed[index] > least[index]]
        if not left:
            break
        narrowed[max(left, key=narrowed.__getitem__)] -= 1
    return [_filled(column, width) for column, width in zip(columns, narrowed, strict=True)]


def _filled(column: Column, width: int) -> int:
    """Return the width of a column broken into lines; at width 0, the width of its longest word."""
    return max((len(line) for lines in _broken_cells(column, width) for line in lines), default=0)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


FILES = (".csv", ".md", ".tex")
"""Suffixes of table files."""
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
    | {"<": "$<$", ">": "$>$", "\N{NO-BREAK SPACE}": "~"}
    | {"\N{MINUS SIGN}": "$-$", "\N{EN DASH}": "--"}
)


@dataclass(frozen=True)
class Sheet:
    """Table to display on a terminal, in Markdown, LaTeX and HTML."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Cells; a second line is a remark on the first."""
    caption: str = ""
    legend: Sequence[str] = ()
    """Lines below the table, without full stops."""
    texts: Collection[int] = (0,)
    """Columns of text, from 0; columns of numbers are right-aligned."""

    @property
    def flat(self) -> list[list[str]]:
        """Headings and rows, with remarks in brackets."""
        parted = [[cell.partition("\n") for cell in row] for row in (self.headings, *self.rows)]
        return [
            [f"{first} ({rest})" if rest else first for first, _, rest in row] for row in parted
        ]

    def fitted(self, width: int | None = None) -> str:
        """Format the table for a terminal of ``width`` columns."""
        headings, *rows = self.flat
        right = set(range(len(headings))).difference(self.texts)
        return table(headings, rows, right=right, width=width)

    def as_markdown(self) -> str:
        """Format the table in Markdown below its caption, columns after the first right-aligned."""
        rows = [[cell.replace("|", "\\|") for cell in row] for row in self.flat]
        rows.insert(1, ["---", *["---:"] * (len(self.headings) - 1)])
        return "\n".join([self.caption, "", *(f"| {' | '.join(row)} |" for row in rows)])

    def as_latex(self) -> str:
        """Format the table in LaTeX, as a float with a caption; it needs the package booktabs."""
        first, *others = (
            f"{' & '.join(cell.translate(_LATEX) for cell in row)} \\\\" for row in self.flat
        )
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{self.caption.translate(_LATEX)}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(self.headings) - 1)}}}",
                r"\toprule",
                first,
                r"\midrule",
                *others,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
            ]
        )


def as_papers(suffix: str, sheets: Iterable[Sheet]) -> str:
    """Format tables in Markdown for the suffix .md, else in LaTeX, one below the other."""
    is_markdown = suffix.lower() == ".md"
    texts = [sheet.as_markdown() if is_markdown else sheet.as_latex() for sheet in sheets]
    return "\n\n".join(texts) + "\n"


def as_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Format rows as CSV; unknown names are left out, and missing cells are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
