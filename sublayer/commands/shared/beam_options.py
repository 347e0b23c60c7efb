"""Options of commands that translate: beam search."""

from typing import Annotated, Any, Literal

import typer

from sublayer.config.limits import LARGEST_FACTOR, LARGEST_PENALTY, LONGEST_WINDOW, WIDEST_BEAM

BeamOption = Annotated[
    int | None,
    typer.Option(
        "--beam",
        min=1,
        max=WIDEST_BEAM,
        help="Beam size; 1 is greedy. Default: the run's objective.beam, 5.",
    ),
]
RuleOption = Annotated[
    Literal["fairseq", "gnmt"] | None,
    typer.Option(
        "--length-rule",
        help="What divides a hypothesis's log probability: "
        "n^p of its n tokens (fairseq), or ((5 + n) / 6)^p (gnmt). "
        "Default: the run's objective.length_rule, fairseq.",
    ),
]
PenaltyOption = Annotated[
    float | None,
    typer.Option(
        "--length-penalty",
        min=-LARGEST_PENALTY,
        max=LARGEST_PENALTY,
        help="The exponent p: 0 favours short ones, more longer ones. Default: "
        "the run's objective.length_penalty, 1.",
    ),
]
# The second spelling of each is the one that it had first: command lines with it still work.
MaxLengthRatioOption = Annotated[
    float | None,
    typer.Option(
        "--max-length-ratio",
        "--longest-share",
        metavar="RATIO",
        min=0.0,
        max=LARGEST_FACTOR,
        help="Maximum length of a translation: RATIO x the source's tokens ...",
    ),
]
MaxLengthOffsetOption = Annotated[
    float | None,
    typer.Option(
        "--max-length-offset",
        "--longest-more",
        metavar="OFFSET",
        min=-LONGEST_WINDOW,
        max=LONGEST_WINDOW,
        help="... + OFFSET. Default: 200.",
    ),
]


def beam_options(
    beam: int | None,
    rule: Literal["fairseq", "gnmt"] | None,
    penalty: float | None,
    max_length_ratio: float | None,
    max_length_offset: float | None,
) -> dict[str, Any]:
    """Return those of the options that were given, by their names."""
    options = {
        "beam": beam,
        "length_rule": rule,
        "length_penalty": penalty,
        "max_length_ratio": max_length_ratio,
        "max_length_offset": max_length_offset,
    }
    return {name: value for name, value in options.items() if value is not None}
