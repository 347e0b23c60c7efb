"""Options of commands that compare arms: which seeds, until when, and what matters."""

from typing import Annotated

import typer

from sublayer.config.limits import LARGEST_SEED, MOST_SEEDS

UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="decided",
        help="Add seeds until an arm is decided: better, worse, or no difference that matters. It "
        "then stops; intervals hold at every look.",
    ),
]
AtMostOption = Annotated[
    int | None,
    typer.Option(
        "--seeds-at-most",
        metavar="N",
        min=1,
        max=MOST_SEEDS,
        help="With --until decided: the most seeds of an arm.",
    ),
]
MarginOption = Annotated[
    str | None,
    typer.Option(
        "--margin",
        metavar="AMOUNT",
        help="The smallest difference that matters, either way, in the unit of differences, such "
        'as "0.01 bits per byte" or 0.01. Default: the study\'s, or none.',
    ),
]
FirstSeedOption = Annotated[
    int | None,
    typer.Option(
        "--first-seed",
        metavar="S",
        min=0,
        max=LARGEST_SEED,
        help="Train with the seeds from S on. Default: 0.",
    ),
]
TuningSeedsOption = Annotated[
    int | None,
    typer.Option(
        "--tuning-seeds",
        metavar="N",
        min=1,
        max=MOST_SEEDS,
        help="With --tune: runs of each trial, of whose scores the mean chooses. Default: 1.",
    ),
]
FirstTuningSeedOption = Annotated[
    int | None,
    typer.Option(
        "--first-tuning-seed",
        metavar="S",
        min=0,
        max=LARGEST_SEED,
        help="With --tune: the first seed of a trial's runs, which are never seeds that are "
        "compared. Default: 1000.",
    ),
]
ExtendOption = Annotated[
    int | None,
    typer.Option(
        "--extend",
        metavar="N",
        min=1,
        max=20,
        help="With --tune: where an arm's best value lies at an edge of the grid, every arm tries "
        "the next one beyond, N times at most.",
    ),
]
