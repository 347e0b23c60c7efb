"""What commands that translate share: how translations are searched for."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sublayer.config.limits import LARGEST_FACTOR, LARGEST_PENALTY, LONGEST_WINDOW, WIDEST_BEAM

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.decode.beam import BeamSettings

BeamOption = Annotated[
    int | None,
    typer.Option(
        "--beam",
        min=1,
        max=WIDEST_BEAM,
        help="Hypotheses kept at a time; 1 is greedy. Default: the run's objective.beam, 5.",
    ),
]
RuleOption = Annotated[
    Literal["fairseq", "gnmt"] | None,
    typer.Option(
        "--length-rule",
        help="What divides a hypothesis's log probability: n^p of its n tokens (fairseq), or ((5 + n) / 6)^p (gnmt). "
        "Default: the run's objective.length_rule, fairseq.",
    ),
]
PenaltyOption = Annotated[
    float | None,
    typer.Option(
        "--length-penalty",
        min=-LARGEST_PENALTY,
        max=LARGEST_PENALTY,
        help="The exponent p: 0 favours short ones, more longer ones. Default: the run's objective.length_penalty, 1.",
    ),
]
ShareOption = Annotated[
    float | None,
    typer.Option(
        "--longest-share",
        min=0.0,
        max=LARGEST_FACTOR,
        help="Tokens of a translation at most: so many times the source's ...",
    ),
]
MoreOption = Annotated[
    float | None,
    typer.Option("--longest-more", min=-LONGEST_WINDOW, max=LONGEST_WINDOW, help="... and so many more. Default: 200."),
]


def beam_settings(
    recipe: "Recipe | None",
    *,
    beam: int | None,
    rule: Literal["fairseq", "gnmt"] | None,
    penalty: float | None,
    share: float | None,
    more: float | None,
) -> "BeamSettings":
    """Make settings of what was given, and else the run's own. Raises ConfigError for values without meaning."""
    from sublayer.config.objective import TranslationObjective
    from sublayer.decode.beam import BeamSettings

    objective = None if recipe is None else recipe.objective
    own = BeamSettings.of(objective) if isinstance(objective, TranslationObjective) else BeamSettings()
    asked = {"beam": beam, "rule": rule, "penalty": penalty, "longest_share": share, "longest_more": more}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    return replace(own, **given)
