"""Format results in columns: for a terminal, in Markdown, in LaTeX."""

import re
from collections.abc import Collection, Iterator, Sequence

_WORD = re.compile(r" *(?:[^ |]*\|(?=[^ ])|[^ |]+\|?)")
"""A cell is broken behind a bar too, as in ``case:lc|eff:no``."""
_HEADING_WORD = re.compile(r" *(?:[^ /]+/(?=[^ ]{2})|[^ ]+)")
"""A heading is broken behind a slash too, as in ``FLOPs/token``."""
_GAP = 2
_MOST_HEADING_LINES = 3
"""Lines that a heading takes where breaking cells would help instead."""
_FEWEST_DIVIDED = 2
"""Columns, of which each part of a table that is divided has the first and another."""
Column = Sequence[str]
"""A heading and the cells below it."""


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    width: int | None = None,
) -> str:
    """Format rows in columns as wide as their widest cell, so that lines can be searched and cut.

    ``right`` lists the columns, from 0, that are set to the right: the numbers. The result is as
    many lines as there are rows, under two of headings, without a line break at the end. One that
    is wider than ``width`` has its headings broken at blanks, and where that is not enough its
    cells; where that is not enough either, its columns stand in several tables, one below the
    other, each with the first column. Raises ValueError for a row that has not as many cells as
    there are headings.
    """
    columns = list(zip(headings, *rows, strict=True))
    widths = [_widest(column) for column in columns]
    if width is None or _total(widths) <= width:
        return _laid_out(columns, widths, right)
    if _total([_least(column) for column in columns]) <= width or len(columns) <= _FEWEST_DIVIDED:
        widths = _with_broken_headings(columns, widths, width)
        return _laid_out(columns, _with_broken_cells(columns, widths, width), right)
    texts = []
    for part in _divided(widths, width):
        part_headings, *part_rows = zip(*(columns[index] for index in part), strict=True)
        part_right = [position for position, index in enumerate(part) if index in right]
        texts.append(table(part_headings, part_rows, right=part_right, width=width))
    return "\n\n".join(texts)


def _laid_out(columns: Sequence[Column], widths: Sequence[int], right: Collection[int]) -> str:
    headings, *rows = zip(*columns, strict=True)
    lines = _lines(headings, widths, right, _HEADING_WORD)
    lines += _lines(["-" * width for width in widths], widths, right)
    for row in rows:
        lines += _lines(row, widths, right)
    return "\n".join(lines)


def _lines(
    row: Sequence[str],
    widths: Sequence[int],
    right: Collection[int],
    words: re.Pattern[str] = _WORD,
) -> list[str]:
    """Lay out a row, whose cells may take several lines."""
    broken = [_broken(cell, width, words) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for number in range(max(map(len, broken), default=1)):
        cells = []
        for index, (parts, width) in enumerate(zip(broken, widths, strict=True)):
            part = parts[number] if number < len(parts) else ""
            cells.append(part.rjust(width) if index in right else part.ljust(width))
        lines.append((" " * _GAP).join(cells).rstrip())
    return lines


def _broken(cell: str, width: int, words: re.Pattern[str]) -> list[str]:
    """Break a cell at blanks into lines of at most ``width``, where its words allow it."""
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
    """Break headings, first the one whose next line saves most, as long as they are too wide."""
    narrowed = list(widths)
    while _total(narrowed) > width:
        saved = []
        for index, (heading, *cells) in enumerate(columns):
            n_lines = 1 + len(_broken(heading, narrowed[index], _HEADING_WORD))
            if n_lines > _MOST_HEADING_LINES:
                continue
            narrower = max([_width_of(heading, n_lines), *map(len, cells)])
            saved.append((narrowed[index] - narrower, -index))
        most, index = max(saved, default=(0, 0))
        if most <= 0:
            break
        narrowed[-index] -= most
    return narrowed


def _with_broken_cells(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Take from the widest columns what is too much, and break their cells."""
    least = [_least(column) for column in columns]
    narrowed = list(widths)
    while _total(narrowed) > width:
        left = [each for each in range(len(least)) if narrowed[each] > least[each]]
        if not left:
            break
        widest = max(left, key=narrowed.__getitem__)
        narrowed[widest] -= 1
    return [_filled(column, width) for column, width in zip(columns, narrowed, strict=True)]


def _filled(column: Column, width: int) -> int:
    """Return the width of the lines that a column is broken into."""
    heading, *cells = column
    lines = _broken(heading, width, _HEADING_WORD)
    for cell in cells:
        lines += _broken(cell, width, _WORD)
    return _widest(lines)


def _divided(widths: Sequence[int], width: int) -> Iterator[list[int]]:
    """Divide the columns into tables that fit where they can, each with the first column."""
    part = [0]
    for index in range(1, len(widths)):
        if len(part) > 1 and _total([widths[each] for each in [*part, index]]) > width:
            yield part
            part = [0]
        part.append(index)
    yield part


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _width_of(heading: str, n_lines: int) -> int:
    """Return the least width of a heading that takes at most so many lines."""
    width = _longest(heading, _HEADING_WORD)
    while len(_broken(heading, width, _HEADING_WORD)) > n_lines:
        width += 1
    return width


def _widest(column: Column) -> int:
    return max(map(len, column))


def _least(column: Column) -> int:
    heading, *cells = column
    return max([_longest(heading, _HEADING_WORD), *(_longest(cell, _WORD) for cell in cells)])


def _longest(text: str, words: re.Pattern[str]) -> int:
    return max((len(word.lstrip(" ")) for word in words.findall(text)), default=0)


FILES = (".csv", ".md", ".tex")
"""Suffixes of tables that are written as files."""
_LATEX = str.maketrans(
    {each: f"\\{each}" for each in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
    | {"<": "$<$", ">": "$>$", "\N{NO-BREAK SPACE}": "~"}
    | {"\N{MINUS SIGN}": "$-$", "\N{EN DASH}": "--"}
)


def as_markdown(caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table in Markdown below its caption, all columns but the first to the right."""
    lines = [[cell.replace("|", "\\|") for cell in row] for row in (headings, *rows)]
    lines.insert(1, ["---", *["---:"] * (len(headings) - 1)])
    return "\n".join([caption, "", *(f"| {' | '.join(row)} |" for row in lines)])


def as_latex(caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table in LaTeX, a float with a caption; it takes the package booktabs."""
    first, *others = (
        f"{' & '.join(cell.translate(_LATEX) for cell in row)} \\\\" for row in (headings, *rows)
    )
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption.translate(_LATEX)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(headings) - 1)}}}",
            r"\toprule",
            first,
            r"\midrule",
            *others,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )
