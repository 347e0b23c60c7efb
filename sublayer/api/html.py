"""Results as a notebook shows them: tables, texts and pictures, in the notebook's own colours."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any


def page(*parts: str) -> str:
    """Put parts below each other."""
    return f"<div>{''.join(parts)}</div>"


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Lay out rows below headings; what is in them is escaped."""
    head = "".join(f'<th style="text-align:left">{escape(each)}</th>' for each in headings)
    lines = [f"<tr>{head}</tr>"]
    for row in rows:
        cells = "".join(f'<td style="text-align:left">{escape(str(each))}</td>' for each in row)
        lines.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def rows_of(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and formatted values as the rows of a table."""
    return [(name, number(value)) for name, value in values.items()]


def number(value: Any) -> str:
    """Format a number for people, with four digits behind the point where it has a fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}"


def prose(text: str, *, before: str = "") -> str:
    """Show a text with its line breaks; ``before`` stands in front of it, in bold."""
    bold = f"<b>{escape(before)}</b>" if before else ""
    style = "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere"
    return f'<pre style="{style}">{bold}{escape(text)}</pre>'


def figure(svg: str) -> str:
    """Show an SVG file as a picture, whose styles touch nothing else of the page."""
    data = b64encode(svg.encode("utf-8")).decode("ascii")
    return f'<img alt="" src="data:image/svg+xml;base64,{data}"/>'
