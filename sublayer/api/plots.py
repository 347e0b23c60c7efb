"""Plots of results: a run's curve, a comparison's curves; the files that plots are drawn to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sublayer.errors import ConfigError
from sublayer.plot import file_svg, look

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
