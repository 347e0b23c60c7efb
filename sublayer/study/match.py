"""Give every arm of a comparison the baseline's budget: its parameters, its operations or its time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sublayer.config.layers import LoadedRecipe, vary
from sublayer.config.length import batch_sequences
from sublayer.config.model import ModelConfig
from sublayer.config.resolve import entries
from sublayer.config.train import LENGTHS
from sublayer.errors import ConfigError
from sublayer.model.cost import count_parameters, flops_per_token
from sublayer.study.arms import Arm

Rule = Literal["parameters", "flops", "time", "none"]
RULES: tuple[Rule, ...] = ("parameters", "flops", "time", "none")
TOLERANCE = 0.005


@dataclass(frozen=True)
class Match:
    """What matching changes in an arm, and what difference is left from the arm that it is matched to.

    ``overrides`` are settings as on the command line. ``residual`` is the arm's excess over that other arm, as a share
    of what the other has, in what the rule matches (in parameters where the rule is none).
    """

    overrides: tuple[str, ...]
    residual: float

    @property
    def is_unequal(self) -> bool:
        """Whether the arm differs by more than 0.5 % and is marked."""
        return abs(self.residual) > TOLERANCE


def match_arms(
    arms: Sequence[Arm],
    models: Sequence[ModelConfig],
    rule: Rule,
    *,
    steps: int | None = None,
    step_seconds: Sequence[float] | None = None,
) -> list[Match | None]:
    """Match every arm to the first, whose own match changes nothing; where nothing is matched, say what is left.

    What is left is the difference from the arm that each is compared with; of a control there is none.
    ``models`` are the arms' resolved configs. ``steps`` is the length of the baseline's run, ``step_seconds`` the
    measured time of each arm's step; what the rule needs and is not known makes a match None.
    Raises ConfigError for an arm that cannot be matched, or sets what the rule would solve.
    """
    matches: list[Match | None]
    if rule == "none":
        named = {arm.name: model for arm, model in zip(arms, models, strict=True)}
        matches = [leave_unmatched(named[arm.name], named[arm.against or arms[0].name]) for arm in arms]
    elif rule == "parameters":
        matches = [match_parameters(arm.name, model, models[0]) for arm, model in zip(arms, models, strict=True)]
    else:
        costs = step_seconds if rule == "time" else [step_flops(*pair) for pair in zip(arms, models, strict=True)]
        if steps is None or costs is None:
            return [None] * len(arms)
        others = [match_steps(steps, cost=cost, baseline_cost=costs[0]) for cost in costs[1:]]
        matches = [Match((), 0.0), *others]
    for arm, match in zip(arms, matches, strict=True):
        _check_free(arm, match, rule)
    return matches


def step_flops(arm: Arm, model: ModelConfig) -> float:
    """Count the operations of one optimizer step of an arm."""
    recipe = arm.loaded.recipe
    context = recipe.data.context
    return float(flops_per_token(model, context, recipe.objective) * batch_sequences(recipe) * context)


def apply_match(arm: Arm, match: Match | None) -> LoadedRecipe:
    """Lay what matching changes over an arm's recipe."""
    return vary(arm.loaded, match.overrides, origin="match") if match and match.overrides else arm.loaded


def match_parameters(name: str, arm: ModelConfig, baseline: ModelConfig) -> Match:
    """Solve ``model.d_ff`` of an arm so that its parameters come nearest to the baseline's.

    Parameters are the unique ones of the inference model, embeddings included. The width is the nearest integer, never
    rounded to a multiple. Both configs are resolved; ``name`` is the arm's in errors.

    Raises ConfigError where no width can match: no ffn entry, too much outside them, or weights that blocks share.
    """
    target = count_parameters(baseline).total
    if count_parameters(arm).total == target:
        return Match((), 0.0)
    width = _solve_width(name, arm, target)
    if arm.share != "none" or baseline.share != "none":
        sharing = arm if arm.share != "none" else baseline
        raise ConfigError(
            f"{name}: model.share = {sharing.share} is not matched by parameters, which would take model.d_ff = {width}"
            f" instead of {arm.d_ff}; use --match flops or --match time"
        )
    overrides = () if width == arm.d_ff else (f"model.d_ff={width}",)
    return Match(overrides, _excess(_total(arm, width), target))


def match_steps(steps: int, *, cost: float, baseline_cost: float) -> Match:
    """Solve ``train.steps`` of an arm so that its whole run costs what the baseline's does.

    ``steps`` is the baseline's number; the costs are those of one step, both in operations or both in seconds.
    """
    matched = max(1, round(steps * baseline_cost / cost))
    return Match((f"train.steps={matched}",), _excess(matched * cost, steps * baseline_cost))


def leave_unmatched(arm: ModelConfig, baseline: ModelConfig) -> Match:
    """Change nothing, and say how far the parameters are apart."""
    return Match((), _excess(count_parameters(arm).total, count_parameters(baseline).total))


def _check_free(arm: Arm, match: Match | None, rule: Rule) -> None:
    solved = {"model.d_ff"} if rule == "parameters" else {f"train.{name}" for name in LENGTHS}
    both = solved & arm.settings.keys()
    if match and match.overrides and both:
        raise ConfigError(
            f"arm {arm.name} sets {min(both)}, which --match {rule} solves ({match.overrides[0]}): "
            "leave it out, or use --match none"
        )


def _solve_width(name: str, arm: ModelConfig, target: int) -> int:
    if not any(entry.name == "ffn" for entry in entries(arm)):
        raise ConfigError(
            f"{name}: model.block has no ffn entry whose width could match the baseline's parameters; "
            "use --match flops, time or none"
        )
    smallest = _total(arm, 1)
    width = 1 + round((target - smallest) / (_total(arm, 2) - smallest))  # the count is linear in the width
    if width < 1:
        raise ConfigError(
            f"{name}: it has {smallest:,} parameters at model.d_ff = 1, the baseline {target:,}; "
            "make the arm smaller, or use --match flops, time or none"
        )
    return width


def _total(config: ModelConfig, d_ff: int) -> int:
    return count_parameters(config.model_copy(update={"d_ff": d_ff})).total


def _excess(value: float, baseline: float) -> float:
    return value / baseline - 1.0
