"""The file that ``sublayer inspect`` draws a plot in."""

from collections.abc import Sequence
from pathlib import Path

from sublayer.errors import ConfigError
from sublayer.files.paths import resolved


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


def short_names(runs: Sequence[Path]) -> list[str]:
    """Return the names of runs in a plot: their folders', or paths where those are equal."""
    names = [resolved(run).name for run in runs]
    if len(set(names)) < len(names):
        return [str(run) for run in runs]
    return names
