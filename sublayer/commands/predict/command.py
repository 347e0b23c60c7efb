"""``sublayer predict``: the answers of a fine-tuned model to rows of a file, or to lines."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from sublayer.commands.generate.options import (
    SearchOption,
    SeedOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
)
from sublayer.commands.predict.answerer import Decoding, as_dtype, load_answerer
from sublayer.commands.predict.file import predict_file, predict_together
from sublayer.commands.predict.lines import predict_lines
from sublayer.commands.predict.submission import render_submission, submit_runs
from sublayer.commands.shared.base import AverageOption, DeviceOption, RunArgument, emit
from sublayer.commands.shared.column_options import ChoicesOption, TextPairOption, names_among
from sublayer.config.limits import LARGEST_PENALTY, MOST_ROWS
from sublayer.errors import CheckpointError, ConfigError
from sublayer.system.allocator import keep_freed_memory
from sublayer.system.launch import n_launched
from sublayer.tasks.predicting.columns import ToldColumns

EXAMPLE = "sublayer predict runs/my new.csv --out answered.csv"

PlacesArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE|RUN",
        help="A file of rows as CSV, TSV, JSON lines or Parquet, or a task's own test set; "
        "default: lines of standard input, the texts of each divided by tabs. More runs before it "
        "are an ensemble, whose answers are averaged, with --submission those of one task.",
    ),
]
TextOption = Annotated[
    str | None,
    typer.Option(
        "--text", metavar="COLUMN", help="The column of the text. Default: as in training."
    ),
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
SubmissionOption = Annotated[
    Path | None,
    typer.Option(
        "--submission",
        metavar="DIR",
        help="Answer the test sets of the runs' suite, and write what is handed in into a new "
        "folder, complete: sets that no run answers have the majority's answer.",
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="With --submission, the folder of the tasks' files. Default: that of each run.",
    ),
]
SuiteOption = Annotated[
    str | None,
    typer.Option(
        "--suite",
        metavar="NAME",
        help="With --submission: glue, superglue, squad or race. Default: that of the runs.",
    ),
]
RowsOption = Annotated[
    int | None,
    typer.Option(
        "--batch",
        min=1,
        max=MOST_ROWS,
        metavar="N",
        help="Rows computed at a time; affects speed and memory, and what sampling draws.",
    ),
]
PenaltyOption = Annotated[
    float | None,
    typer.Option(
        "--length-penalty",
        min=-LARGEST_PENALTY,
        max=LARGEST_PENALTY,
        help="Of a beam, the exponent p of n^p, which divides the log probability of n tokens: 0 "
        "favours short texts, more longer ones. Default: 1.",
    ),
]
PrecisionOption = Annotated[
    Literal["float32", "bfloat16"],
    typer.Option(
        "--precision",
        help="What is computed in: bfloat16 is faster where the processor has units for it, and "
        "rounds probabilities to two or three digits.",
    ),
]
JsonLinesOption = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print each row with its answer as an object of JSON, a line each; with --submission "
        "what was written, as one.",
    ),
]


def command(
    run: RunArgument,
    places: PlacesArgument = None,
    text: TextOption = None,
    text_pair: TextPairOption = None,
    choices: ChoicesOption = None,
    task: TaskOption = None,
    out: OutOption = None,
    submission: SubmissionOption = None,
    data: DataOption = None,
    suite: SuiteOption = None,
    beam: SearchOption = None,
    length_penalty: PenaltyOption = None,
    temperature: TemperatureOption = None,
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    seed: SeedOption = None,
    average: AverageOption = None,
    batch: RowsOption = None,
    precision: PrecisionOption = "float32",
    device: DeviceOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Answer rows by a fine-tuned model: the same rows, in order, with the answers beside them.

    A class has its label and the probability of each, a choice its text and its number, a number
    itself, a question the part of its passage and where that begins, a written text itself. Columns
    are found by the names that they had in training, or that the task's fields have. A row without
    a text is not answered: its added columns stay empty, and it is counted. Without a file each
    line of standard input is answered as it comes. Several runs of one task answer as one, by the
    average of what they say.
    """
    decoding = Decoding(beam, length_penalty, temperature, top_k, top_p, seed)
    if submission is not None:
        rounded = precision if precision != "float32" else None
        _check_alone(text, text_pair, choices, task, out, average, rounded, *decoding)
        runs = [run, *(places or ())]
        _check_one_process("what is handed in is written")
        result = submit_runs(runs, submission, suite, data, batch, device)
        emit(result, as_json, render_submission)
        return
    if data is not None or suite is not None:
        raise ConfigError("--data and --suite are of what is handed in: give --submission, too")
    runs, file = _divided(run, places or [])
    told = ToldColumns(text or "", text_pair or "", names_among(choices))
    if file is None and out is not None:
        raise ConfigError("--out is of a file of rows: name it, or redirect standard output")
    if file is None and told != ToldColumns():
        raise ConfigError("lines of standard input have no columns: leave their names out")
    keep_freed_memory()
    if file is None:
        _check_one_process("lines of standard input are answered")
    answerer = load_answerer(runs, task, device, average, batch, as_dtype(precision), decoding)
    if file is None:
        predict_lines(answerer, sys.stdin.buffer, as_json=as_json)
    elif n_launched() == 1:
        predict_file(answerer, file, told, out, as_json=as_json)
    else:
        predict_together(answerer, file, told, out, device, as_json=as_json)


def _check_one_process(what: str) -> None:
    if n_launched() > 1:
        raise ConfigError(f"{what} by one process: start one, or name a file of rows")


def _check_alone(*others: object) -> None:
    names = (
        *("--text", "--text-pair", "--choices", "--task", "--out", "--average", "--precision"),
        *(f"--{name.replace('_', '-')}" for name in Decoding._fields),
    )
    for name, value in zip(names, others, strict=True):
        if value is not None:
            raise ConfigError(f"--submission answers whole test sets: leave out {name}")


def _divided(run: Path, places: Sequence[Path]) -> tuple[list[Path], Path | None]:
    """Divide what is named into runs, which are folders, and the file of rows behind them."""
    runs = [run, *(place for place in places if place.is_dir())]
    files = [place for place in places if not place.is_dir()]
    missing = [file for file in files[:-1] if not file.exists()]
    if missing:
        raise CheckpointError(f"{missing[0]} does not exist: name runs, and then one file of rows")
    if len(files) > 1:
        raise ConfigError(
            f"{files[1]} is more than one file: answer each by itself, or give --submission"
        )
    if files and files[0] != places[-1]:
        raise ConfigError(f"{files[0]} is a file, and a run follows it: name the runs before it")
    return runs, files[0] if files else None
