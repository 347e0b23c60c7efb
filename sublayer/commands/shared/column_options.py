"""Options that say which columns of a table are what, in training and where rows are answered."""

from typing import Annotated

import typer

TextPairOption = Annotated[
    str | None,
    typer.Option(
        "--text-pair",
        metavar="COLUMN",
        help="The column of second texts, or of the questions about the texts.",
    ),
]
ChoicesOption = Annotated[
    str | None,
    typer.Option("--choices", metavar="A,B,...", help="The columns of answers to choose from."),
]


def names_among(option: str | None) -> tuple[str, ...]:
    """Return the columns that an option names, divided by commas; none where it is not given."""
    return tuple(name.strip() for name in option.split(",")) if option else ()
