"""What the commands share: their arguments, and where results and messages go."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from sublayer.config.limits import MOST_ROWS
from sublayer.streams import Stream, lasting_stderr

RecipeArgument = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A recipe's name (see `sublayer recipes`), a .toml file, or a run.")
]
SettingsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE", help="Settings over the recipe's, such as model.d_ff=512 (see `sublayer fields`)."
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object as the last line; all else goes to standard error.")
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="cpu, cuda, cuda:1 ... Default: the GPU where there is one.")
]
AverageOption = Annotated[
    int | None,
    typer.Option("--average", min=1, max=10_000, help="Use the mean of the run's newest checkpoints, so many."),
]

BatchOption = Annotated[
    int | None,
    typer.Option("--batch", min=1, max=MOST_ROWS, help="Windows computed at a time; it changes speed and memory only."),
]

_RESULTS: ContextVar[TextIO | None] = ContextVar("results", default=None)


def emit(result: Mapping[str, Any], as_json: bool, render: Callable[[Mapping[str, Any]], str]) -> None:
    """Print a command's result on standard output: one line of JSON, or the text that ``render`` makes of it.

    Numbers that are not finite become null, which JSON has; paths become texts.
    """
    # No-break spaces are for pages that wrap; on a terminal they defeat searching and cutting.
    text = json.dumps(_plain(result), allow_nan=False) if as_json else render(result).replace("\N{NO-BREAK SPACE}", " ")
    write_result(f"{text}\n")


def write_result(text: str) -> None:
    """Write a part of a result on standard output as it is. Raises OutputLost where it cannot be written."""
    output = _RESULTS.get() or sys.stdout
    output.write(text)
    output.flush()
    if isinstance(output, Stream):
        output.require()


def say(message: str) -> None:
    """Print progress or a warning on standard error."""
    print(message, file=lasting_stderr(), flush=True)


@contextmanager
def only_results_on_stdout() -> Iterator[None]:
    """Send whatever else is printed to standard error, so that standard output holds the JSON object alone."""
    results = sys.stdout
    token = _RESULTS.set(results)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = results
        _RESULTS.reset(token)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Lay rows out in columns as wide as their widest cell, so that lines can be searched and cut.

    ``right`` lists the columns, from 0, that are set to the right: the numbers.
    """
    widths = [max(len(row[column]) for row in [headings, *rows]) for column in range(len(headings))]

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    return "\n".join([line(headings), "  ".join("-" * width for width in widths), *map(line, rows)])


def describe_scores(scores: Mapping[str, Any]) -> str:
    """Say a run's scores in words: loss and bits per byte, or loss and accuracies."""
    if "bits_per_byte" in scores:
        return f"loss {scores['loss']:.4f} nats per token, {scores['bits_per_byte']:.4f} bits per byte"
    if "perplexity" in scores:
        return f"loss {scores['loss']:.4f} nats per token, perplexity {scores['perplexity']:.2f}"
    names = {"mlm_accuracy": "hidden tokens", "nsp_accuracy": "next sentence", "sop_accuracy": "sentence order"}
    said = [f"{label} {scores[name]:.1%}" for name, label in names.items() if name in scores]
    return f"loss {scores['loss']:.4f} nats per hidden token; right: {', '.join(said)}"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(content) for name, content in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
