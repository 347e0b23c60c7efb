"""What commands that translate share: how translations are searched for."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from sublayer.decode.beam import BeamSettings

DEFAULT_BEAM, DEFAULT_MORE = 5, 200.0

BeamOption = Annotated[
    int | None, typer.Option("--beam", min=1, help="Hypotheses kept at a time; 1 is greedy. Default: 5.")
]
RuleOption = Annotated[
    Literal["fairseq", "gnmt"] | None,
    typer.Option(
        "--length-rule",
        help="What divides a hypothesis's log probability: n^p of its n tokens (fairseq, the default), or "
        "((5 + n) / 6)^p (gnmt).",
    ),
]
PenaltyOption = Annotated[
    float | None,
    typer.Option("--length-penalty", help="The exponent p: 0 favours short ones, more longer ones. Default: 1."),
]
ShareOption = Annotated[
    float | None,
    typer.Option("--longest-share", min=0.0, help="Tokens of a translation at most: so many times the source's ..."),
]
MoreOption = Annotated[float | None, typer.Option("--longest-more", help="... and so many more. Default: 200.")]


def beam_settings(
    beam: int | None,
    rule: Literal["fairseq", "gnmt"] | None,
    penalty: float | None,
    share: float | None,
    more: float | None,
) -> "BeamSettings":
    """Make settings of what was given. Raises ConfigError for values without meaning."""
    from sublayer.decode.beam import BeamSettings

    return BeamSettings(
        beam=beam or DEFAULT_BEAM,
        rule=rule or "fairseq",
        penalty=1.0 if penalty is None else penalty,
        longest_share=share or 0.0,
        longest_more=DEFAULT_MORE if more is None else more,
    )
