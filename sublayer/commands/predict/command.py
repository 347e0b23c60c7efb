"""``sublayer predict``: the answers of a fine-tuned model to rows of a file, or to lines."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublayer.commands.predict.file import predict_file
from sublayer.commands.predict.lines import predict_lines
from sublayer.commands.shared.base import AverageOption, DeviceOption, RunArgument
from sublayer.config.limits import MOST_ROWS
from sublayer.errors import ConfigError
from sublayer.system.stages import stage
from sublayer.tasks.predicting.columns import ToldColumns

if TYPE_CHECKING:
    from sublayer.objective.supervised.answering import Answerer

EXAMPLE = "sublayer predict runs/my new.csv --out answered.csv"

FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        help="Rows as CSV, TSV, JSON lines or Parquet, or a task's own test set. Default: lines of "
        "standard input, the texts of each divided by tabs.",
    ),
]
TextOption = Annotated[
    str | None,
    typer.Option(
        "--text", metavar="COLUMN", help="The column of the text. Default: as in training."
    ),
]
TextPairOption = Annotated[
    str | None,
    typer.Option("--text-pair", metavar="COLUMN", help="The column of the second text."),
]
ChoicesOption = Annotated[
    str | None,
    typer.Option("--choices", metavar="A,B,...", help="The columns of answers to choose from."),
]
TaskOption = Annotated[
    str | None,
    typer.Option("--task", metavar="NAME", help="The task, of a model that answers several."),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="Write to a new file, of the kind that its name says. Default: standard output.",
    ),
]
RowsOption = Annotated[
    int | None,
    typer.Option(
        "--batch",
        min=1,
        max=MOST_ROWS,
        metavar="N",
        help="Rows computed at a time; affects speed and memory only.",
    ),
]
JsonLinesOption = Annotated[
    bool,
    typer.Option(
        "--json", help="Print each row with its answer as an object of JSON, a line each."
    ),
]


def command(
    run: RunArgument,
    file: FileArgument = None,
    text: TextOption = None,
    text_pair: TextPairOption = None,
    choices: ChoicesOption = None,
    task: TaskOption = None,
    out: OutOption = None,
    average: AverageOption = None,
    batch: RowsOption = None,
    device: DeviceOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Answer rows by a fine-tuned model: the same rows, in order, with the answers beside them.

    A class has its label and the probability of each, a choice its text and its number, a number
    itself, a question the part of its passage and where that begins. Columns are found by the names
    that they had in training, or that the task's fields have. A row without a text is not answered:
    its added columns stay empty, and it is counted. Without a file each line of standard input is
    answered as it comes.
    """
    told = ToldColumns(
        text or "",
        text_pair or "",
        tuple(name.strip() for name in choices.split(",")) if choices else (),
    )
    if file is None and out is not None:
        raise ConfigError("--out is of a file of rows: name it, or redirect standard output")
    if file is None and told != ToldColumns():
        raise ConfigError("lines of standard input have no columns: leave their names out")
    answerer = _load_answerer(run, task, device, average, batch)
    if file is None:
        predict_lines(answerer, sys.stdin.buffer, as_json=as_json)
    else:
        predict_file(answerer, file, told, out, as_json=as_json)


def _load_answerer(
    run: Path, task: str | None, device: str | None, average: int | None, batch: int | None
) -> "Answerer":
    with stage("starting PyTorch"):
        from sublayer.loading import load
        from sublayer.objective.supervised.answering import Answerer
        from sublayer.system.allocator import keep_freed_memory
        from sublayer.system.machine import choose_device

    keep_freed_memory()
    model = load(run, device=choose_device(device), average=average)
    return Answerer(model, task, batch=batch)
