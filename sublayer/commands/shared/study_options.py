"""Options of commands that compare arms: matching, the size of a study, runs at a time."""

from typing import Annotated, Literal

import typer

from sublayer.commands.shared import candidates
from sublayer.config.limits import MOST_FINETUNINGS, MOST_JOBS

MatchOption = Annotated[
    Literal["parameters", "flops", "time", "none"] | None,
    typer.Option(
        "--match",
        help="The budget that every arm shares with the baseline. Default: the study's, or "
        "parameters.",
    ),
]
ScaleOption = Annotated[
    str | None,
    typer.Option(
        "--scale",
        metavar="NAME",
        help="The scale at which a study is run, such as paper or cpu. Default: paper, else cpu, "
        "else its first.",
        autocompletion=candidates.scales,
    ),
]
JobsOption = Annotated[
    int,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        max=MOST_JOBS,
        help="Runs trained at the same time, each in a process of its own with its share of the "
        "threads.",
    ),
]
OnOption = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="ray[:ADDRESS]|slurm[:PARTITION]",
        help="Make the runs on a cluster whose nodes share the study's folder. Ctrl-C leaves them "
        "there, and the same command joins them again.",
    ),
]
FinetuningsOption = Annotated[
    int | None,
    typer.Option(
        "--finetunings",
        metavar="N",
        min=1,
        max=MOST_FINETUNINGS,
        help="Of a study with stages: fine-tune on each task so often under each pre-training. "
        "Default: the study's, or 1.",
    ),
]
TaskDataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Of a study with stages: the folder of the tasks' files. Default: the cache, into "
        "which they are downloaded where they are missing.",
    ),
]
