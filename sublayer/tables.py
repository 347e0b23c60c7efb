"""Format results in columns, for people."""

from collections.abc import Sequence


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> str:
    """Format rows in columns as wide as their widest cell, so that lines can be searched and cut.

    ``right`` lists the columns, from 0, that are set to the right: the numbers. The result is as
    many lines as there are rows, under two of headings, without a line break at the end. Raises
    ValueError for a row that has not as many cells as there are headings.
    """
    columns = zip(headings, *rows, strict=True)
    widths = []
    for column in columns:
        widths.append(max(map(len, column)))
    rule = ["-" * width for width in widths]
    lines = []
    for row in (headings, rule, *rows):
        cells = []
        for index, cell in enumerate(row):
            width = widths[index]
            if index in right:
                cells.append(cell.rjust(width))
            else:
                cells.append(cell.ljust(width))
        line = "  ".join(cells)
        lines.append(line.rstrip())
    return "\n".join(lines)
