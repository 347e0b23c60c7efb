"""Options of ``sublayer finetune`` alone: where it starts, what it learns, which column is what."""

from pathlib import Path
from typing import Annotated

import typer

from sublayer.commands.shared import candidates
from sublayer.config.presets import preset_names

_MOST_SEEDS = 100

StartArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run, a checkpoint or an imported folder to start from; or a recipe, whose "
        "model then starts from random weights.",
        autocompletion=candidates.runs,
    ),
]
WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="{TASK|TABLE} ...",
        help="Tasks by name (`sublayer tasks` lists them), or the file of a table of your own; "
        "then settings such as optimizer.lr=1e-4 (see `sublayer fields`).",
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The folder of the tasks' files. Default: the cache, into which they are "
        "downloaded where they are missing.",
    ),
]
TextOption = Annotated[
    str | None,
    typer.Option("--text", metavar="COLUMN", help="Of a table of your own: the column of texts."),
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        "--label", metavar="COLUMN", help="The column of labels; with --choices of the right one."
    ),
]
NumberOption = Annotated[
    bool,
    typer.Option("--number", help="The label is a number to predict, and no class."),
]
AnswerOption = Annotated[
    str | None,
    typer.Option(
        "--answer", metavar="COLUMN", help="The column of answers that are a part of the text."
    ),
]
AnswerStartOption = Annotated[
    str | None,
    typer.Option(
        "--answer-start",
        metavar="COLUMN",
        help="Where the answer begins in the text, in characters. Default: where it first stands.",
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="COLUMN",
        help="The column of texts that a T5 or a decoder learns to write: any words, such as a "
        "summary.",
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="COLUMN",
        help="The column of the document or author: rows of one are never divided between what is "
        "trained on and what is scored.",
    ),
]
IdOption = Annotated[
    str | None, typer.Option("--id", metavar="COLUMN", help="The column of the rows' ids.")
]
PresetOption = Annotated[
    str,
    typer.Option(
        "--preset",
        metavar="NAME",
        help=f"Settings of published work, with their sources: {', '.join(preset_names())}. "
        "Settings on the command line replace them.",
        autocompletion=candidates.presets,
    ),
]
SeedsOption = Annotated[
    int | None,
    typer.Option(
        "--seeds",
        min=1,
        max=_MOST_SEEDS,
        metavar="N",
        help="Train with seeds 0 to N - 1, and give median, spread and how many collapsed.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", help="The run's folder. Default: runs/TASK, then runs/TASK.2, ..."),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Resume the run in --out, or the last of this task.")
]
