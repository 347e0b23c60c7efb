"""Results of the functions: in a shell the text of the command, in a notebook tables and plots."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.errors import ConfigError
from sublayer.plot import file_svg, look
from sublayer.system.terminal import searchable
from sublayer.values import as_json_values

if TYPE_CHECKING:
    pass


def page(*parts: str) -> str:
    """Put parts below each other."""
    return f"<div>{''.join(parts)}</div>"


def html_table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Lay out rows below headings; the texts of both are escaped."""
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


_SIZE = (6.4, 2.9)


def draw_run(name: str, lines: Sequence[Mapping[str, Any]]) -> str:
    """Plot the loss of a run on batches and on validation, in nats, against steps."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for index, (kind, label) in enumerate((("train", "training"), ("valid", "validation"))):
            points = [line for line in lines if line["kind"] == kind and "loss" in line]
            steps = [line["step"] for line in points]
            losses = [line["loss"] for line in points]
            marker = "o" if kind == "valid" else ""
            colour = look(index + 1).placeholder
            axes.plot(steps, losses, color=colour, label=label, marker=marker, markersize=4)
        _finish(axes, "loss in nats")

    return file_svg(draw, _SIZE, f"The loss of {name} over its steps")


def draw_comparison(result: Mapping[str, Any]) -> str:
    """Plot the validation curve of each seed of each arm against steps."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for index, arm in enumerate(result["arms"]):
            style = look(index)
            for number, curve in enumerate(arm["curves"]):
                label = arm["name"] if number == 0 else None
                marker = "o" if len(curve["steps"]) == 1 else ""
                axes.plot(
                    curve["steps"],
                    curve["values"],
                    style.line,
                    color=style.placeholder,
                    label=label,
                    marker=marker,
                    markersize=4,
                    linewidth=1.2,
                )
        _finish(axes, f"{result['metric']} (valid)")

    return file_svg(draw, _SIZE, "The validation curves of the arms")


def _finish(axes: Any, ylabel: str) -> None:
    axes.set_xlabel("steps")
    axes.set_ylabel(ylabel)
    axes.grid()
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)


def check_new(out: Path) -> None:
    """Raise ConfigError for a file that exists, or that is no .svg file."""
    if out.suffix != ".svg":
        raise ConfigError(f"--out {out} is not an .svg file: the plot is drawn as SVG")
    if out.exists():
        raise ConfigError(f"{out} exists, and nothing is overwritten: name another file")


def write_plot(out: Path, drawn: str) -> None:
    """Write a plot to a file that is not yet there, in folders that may not be there yet.

    Raises FileExistsError where there is one by now, and OSError.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("x", encoding="utf-8") as file:
        file.write(drawn)


@dataclass(frozen=True)
class Shown:
    """A text that a result is shown as, already formatted."""

    text: str

    def __call__(self, found: Mapping[str, Any]) -> str:
        """Return the text, whatever the result."""
        return self.text


@dataclass(frozen=True, repr=False)
class Result:
    """The object that ``--json`` prints, read by ``result["name"]``, and its text."""

    found: dict[str, Any]
    render: Callable[[Mapping[str, Any]], str] = field(compare=False)

    def __getitem__(self, name: str) -> Any:
        return self.found[name]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that the command prints with ``--json``."""
        plain: dict[str, Any] = as_json_values(self.found)
        return plain

    def __repr__(self) -> str:
        return searchable(self.render(self.found))

    def _repr_html_(self) -> str:
        return prose(repr(self))
