"""Match every arm of a comparison to the baseline's parameters, operations or time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sublayer.config.architecture.stacks import entries
from sublayer.config.layering.layers import LoadedRecipe, vary
from sublayer.config.resolve_train import batch_sequences
from sublayer.config.resolved import ResolvedModel
from sublayer.config.train import LENGTHS
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.study.arms import Arm

Rule = Literal["parameters", "flops", "time", "none"]
RULES: tuple[Rule, ...] = ("parameters", "flops", "time", "none")
TOLERANCE = 0.005
"""The largest mismatch, as a share, that is not marked."""


@dataclass(frozen=True)
class Match:
    """What matching changes in an arm, and its mismatch difference from the arm it is matched to.

    ``overrides`` are settings as on the command line. ``mismatch`` is the arm's excess over that
    other arm, as a share of what the other has, in what the rule matches (in parameters where the
    rule is none).
    """

    overrides: tuple[str, ...]
    mismatch: float

    @property
    def is_unequal(self) -> bool:
        """Whether the arm differs by more than 0.5 % and is marked."""
        return abs(self.mismatch) > TOLERANCE


def match_arms(
    arms: Sequence[Arm],
    models: Sequence[ResolvedModel],
    rule: Rule,
    *,
    steps: int | None = None,
    step_seconds: Sequence[float] | None = None,
) -> list[Match | None]:
    """Match every arm to the first, which keeps its settings; without a rule, only compare.

    What is left is the difference from the arm that each is compared with; of a control there is
    none. ``models`` are the arms' resolved configs. ``steps`` is the length of the baseline's run,
    ``step_seconds`` the measured time of each arm's step; what the rule needs and is not known
    makes a match None. Raises ConfigError for an arm that cannot be matched, or sets what the rule
    would solve.
    """
    matches: list[Match | None]
    if rule == "none":
        by_name = {arm.name: model for arm, model in zip(arms, models, strict=True)}
        matches = []
        for arm in arms:
            own = by_name[arm.name]
            other = by_name[arm.against or arms[0].name]
            matches.append(leave_unmatched(own, other))
    elif rule == "parameters":
        matches = []
        for arm, model in zip(arms, models, strict=True):
            matches.append(match_parameters(arm.name, model, models[0]))
    else:
        costs = step_seconds
        if rule == "flops":
            costs = [step_flops(arm, model) for arm, model in zip(arms, models, strict=True)]
        if steps is None or costs is None:
            return [None] * len(arms)
        baseline, *rest = costs
        matches = [Match((), 0.0)]
        matches += [match_steps(steps, cost=cost, baseline_cost=baseline) for cost in rest]
    for arm, match in zip(arms, matches, strict=True):
        _check_free(arm, match, rule)
    return matches


def step_flops(arm: Arm, model: ResolvedModel) -> float:
    """Count the floating-point operations of one optimizer step of an arm, on its whole batch."""
    recipe = arm.loaded.recipe
    context = recipe.data.context
    n_tokens = batch_sequences(recipe) * context
    return float(flops_per_token(model, context, recipe.objective) * n_tokens)


def apply_match(arm: Arm, match: Match | None) -> LoadedRecipe:
    """Apply what matching changes to an arm's recipe; None, not matched yet, changes nothing."""
    if match and match.overrides:
        return vary(arm.loaded, match.overrides, origin="match")
    return arm.loaded


def match_parameters(name: str, arm: ResolvedModel, baseline: ResolvedModel) -> Match:
    """Solve ``model.d_ff`` of an arm so that its parameters come nearest to the baseline's.

    Parameters are the unique ones of the inference model, embeddings included. The width is the
    nearest integer, never rounded to a multiple. Both configs are resolved; ``name`` is the arm's
    in errors.

    Raises ConfigError where no width can match: no ffn entry, too much outside them, or weights
    that blocks share.
    """
    target = count_parameters(baseline).total
    if count_parameters(arm).total == target:
        return Match((), 0.0)
    width = _solve_width(name, arm, target)
    if arm.share != "none" or baseline.share != "none":
        sharing = arm if arm.share != "none" else baseline
        raise ConfigError(
            f"{name}: model.share = {sharing.share} is not matched by parameters, "
            f"which would take model.d_ff = {width}"
            f" instead of {arm.d_ff}; use --match flops or --match time"
        )
    overrides = () if width == arm.d_ff else (f"model.d_ff={width}",)
    n_matched = _total(arm, width)
    return Match(overrides, _excess(n_matched, target))


def match_steps(steps: int, *, cost: float, baseline_cost: float) -> Match:
    """Solve ``train.steps`` of an arm so that its whole run costs what the baseline's does.

    ``steps`` is the baseline's number; the costs are those of one step, both in operations or both
    in seconds. The arm takes one step at least.
    """
    matched = max(1, round(steps * baseline_cost / cost))
    mismatch = _excess(matched * cost, steps * baseline_cost)
    return Match((f"train.steps={matched}",), mismatch)


def leave_unmatched(arm: ResolvedModel, baseline: ResolvedModel) -> Match:
    """Change nothing; return the excess of parameters."""
    n_arm = count_parameters(arm).total
    n_baseline = count_parameters(baseline).total
    return Match((), _excess(n_arm, n_baseline))


def _check_free(arm: Arm, match: Match | None, rule: Rule) -> None:
    if match is None or not match.overrides:
        return
    solved = {f"train.{name}" for name in LENGTHS}
    if rule == "parameters":
        solved = {"model.d_ff"}
    both = solved & arm.settings.keys()
    if both:
        raise ConfigError(
            f"arm {arm.name} sets {min(both)}, which --match {rule} solves ({match.overrides[0]}): "
            "leave it out, or use --match none"
        )


def _solve_width(name: str, arm: ResolvedModel, target: int) -> int:
    if not any(entry.ffn is not None for entry in entries(arm)):
        raise ConfigError(
            f"{name}: model.block has no ffn entry whose width could match the baseline's "
            "parameters; "
            "use --match flops, time or none"
        )
    # The count is linear in the width.
    smallest = _total(arm, 1)
    per_unit = _total(arm, 2) - smallest
    width = 1 + round((target - smallest) / per_unit)
    if width < 1:
        raise ConfigError(
            f"{name}: it has {smallest:,} parameters at model.d_ff = 1, the baseline {target:,}; "
            "make the arm smaller, or use --match flops, time or none"
        )
    return width


def _total(config: ResolvedModel, d_ff: int) -> int:
    resized = config.model_copy(update={"d_ff": d_ff})
    return count_parameters(resized).total


def _excess(value: float, baseline: float) -> float:
    return value / baseline - 1.0
