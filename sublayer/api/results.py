"""Results of the functions: text in a shell, tables and plots in a notebook."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from sublayer.errors import ConfigError
from sublayer.plot import file_svg
from sublayer.system.terminal import searchable
from sublayer.values import as_json_values

Style = Mapping[str, Any]
"""The arguments of a curve in ``Axes.plot``."""


def page(*parts: str) -> str:
    """Stack parts vertically."""
    return f"<div>{''.join(parts)}</div>"


def html_table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Lay out rows below headings; all texts are escaped."""
    head = "".join(f'<th style="text-align:left">{escape(heading)}</th>' for heading in headings)
    lines = [f"<tr>{head}</tr>"]
    for row in rows:
        cells = "".join(f'<td style="text-align:left">{escape(str(cell))}</td>' for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def rows_of(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and formatted values as the rows of a table."""
    return [(name, number(value)) for name, value in values.items()]


def number(value: Any) -> str:
    """Format a number for people, with four decimals if it has a fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}"


def prose(text: str, *, before: str = "") -> str:
    """Show a text with its line breaks; ``before`` precedes it, in bold."""
    bold = f"<b>{escape(before)}</b>" if before else ""
    style = "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere"
    return f'<pre style="{style}">{bold}{escape(text)}</pre>'


def figure(svg: str) -> str:
    """Show an SVG file as a picture, so that its styles do not affect the rest of the page."""
    data = b64encode(svg.encode("utf-8")).decode("ascii")
    return f'<img alt="" src="data:image/svg+xml;base64,{data}"/>'


def draw_curves(
    title: str, ylabel: str, curves: Iterable[tuple[Sequence[float], Sequence[float], Style]]
) -> str:
    """Plot curves against steps as SVG, each with its steps, its values and its style."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for steps, values, style in curves:
            axes.plot(steps, values, markersize=4, **style)
        axes.set_xlabel("steps")
        axes.set_ylabel(ylabel)
        axes.grid()
        axes.set_axisbelow(True)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False)

    return file_svg(draw, (6.4, 2.9), title)


def check_new(out: Path) -> None:
    """Raise ConfigError for a file that exists, or that is no .svg file."""
    if out.suffix != ".svg":
        raise ConfigError(
            f"--out {out} is not an .svg file: name one, since plots are drawn as SVG"
        )
    if out.exists():
        raise ConfigError(f"{out} already exists: name another file")


def write_plot(out: Path, drawn: str) -> None:
    """Write a plot to a new file, in folders that may be new.

    Raises FileExistsError if it exists by now, and OSError.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("x", encoding="utf-8") as file:
        file.write(drawn)


class Result:
    """A result: text in a shell, tables and plots in a notebook."""

    def to_dict(self) -> dict[str, Any]:
        """Return the object of the command's ``--json``."""
        plain: dict[str, Any] = as_json_values(vars(self))
        return plain

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return prose(repr(self))


@dataclass(frozen=True, repr=False)
class Found(Result):
    """The object of ``--json``, read by ``result["name"]``, and its text."""

    found: Mapping[str, Any]
    text: str = field(compare=False)
    html: str = field(default="", compare=False)
    """HTML for a notebook; empty: the text."""
    exit_code: int = 0
    """The exit code of the command."""

    def to_dict(self) -> dict[str, Any]:
        """Return the object of the command's ``--json``."""
        plain: dict[str, Any] = as_json_values(self.found)
        return plain

    def __getitem__(self, name: str) -> Any:
        return self.found[name]

    def __str__(self) -> str:
        return searchable(self.text)

    def _repr_html_(self) -> str:
        return self.html or super()._repr_html_()
