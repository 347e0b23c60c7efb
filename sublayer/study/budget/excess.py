"""The excess of an arm's budget over the arm that it is compared with: planned and realised."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sublayer.config.recipe import Recipe, ResolvedModel
from sublayer.config.train import LENGTHS
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.study.arms import Arm
from sublayer.study.budget.match import TOLERANCE, Rule

Currency = Literal["parameters", "operations", "time"]

TIME_TOLERANCE = 0.03
"""The largest excess of measured time, as a share, that is not told.

Runs of one recipe, one after another on a quiet machine, spread by 0.8 to 1.6 % (standard deviation
over five seeds of each arm, records/t5-optimizer), and so the difference between two medians of
five by 0.6 to 1.3 %: what is two to five times that is hardly the clock's noise.
"""
TOLERANCES: dict[Currency, float] = {
    "parameters": TOLERANCE,
    "operations": TOLERANCE,
    "time": TIME_TOLERANCE,
}


@dataclass(frozen=True)
class Budget:
    """What a run of an arm takes, or is planned to; None where it is not known."""

    parameters: int
    """The unique ones of the inference model."""
    operations: float | None = None
    """Floating-point operations of the whole training."""
    seconds: float | None = None
    """Of training; None where time is not what was made equal."""


@dataclass(frozen=True)
class Excess:
    """What an arm takes beyond the arm that it is compared with, as shares of what that takes.

    Each is below 0 where the arm takes less, and None where it is not known of one of the two.
    """

    parameters: float | None
    operations: float | None
    time: float | None = None

    @property
    def shares(self) -> dict[Currency, float]:
        """Those that are known, by their currencies."""
        known: dict[Currency, float | None] = {
            "parameters": self.parameters,
            "operations": self.operations,
            "time": self.time,
        }
        return {currency: share for currency, share in known.items() if share is not None}

    @property
    def beyond(self) -> dict[Currency, float]:
        """Those that are beyond their tolerance: 0.5 %, and 3 % of time, which is measured."""
        return {
            currency: share
            for currency, share in self.shares.items()
            if abs(share) > TOLERANCES[currency]
        }


NOTHING = Excess(None, None)
"""Of what nothing is known."""


@dataclass(frozen=True)
class ArmBudget:
    """An arm's excess over the arm that it is compared with, as it was planned and as it came."""

    arm: str
    against: str | None
    """None for an arm that is compared with none."""
    planned: Excess = NOTHING
    """By the settings, before anything is trained."""
    realised: Excess = NOTHING
    """By what was trained."""


def budget_to_json(budget: ArmBudget) -> dict[str, Any]:
    """Write an arm's excess as plain values; the arm's name stands elsewhere."""
    content = asdict(budget)
    del content["arm"]
    return content


def read_budget(arm: str, content: Mapping[str, Any]) -> ArmBudget:
    """Read what ``budget_to_json`` wrote."""
    planned, realised = Excess(**content["planned"]), Excess(**content["realised"])
    return ArmBudget(arm, content["against"], planned, realised)


def excess_over(budget: Budget, other: Budget) -> Excess:
    """Compute the excess of a budget over another."""
    return Excess(
        parameters=_share(budget.parameters, other.parameters),
        operations=_share(budget.operations, other.operations),
        time=_share(budget.seconds, other.seconds),
    )


def _share(value: float | None, other: float | None) -> float | None:
    if value is None or not other:
        return None
    return value / other - 1.0


def plan_budgets(
    arms: Sequence[Arm],
    recipes: Sequence[Recipe],
    models: Sequence[ResolvedModel],
    tokens: Sequence[float | None],
    rule: Rule,
    *,
    seconds: Sequence[float | None] = (),
) -> list[ArmBudget]:
    """Compute the planned excess of each arm over the arm that it is compared with, in order.

    ``recipes`` and ``models`` are those of the arms as they are matched; ``tokens`` are those that
    a run of each is trained on, ``seconds`` what that takes where time is matched: None where that
    is not known yet. Lengths that are not known and will be the same for all are taken as equal.
    """
    if _have_one_length(recipes, tokens, rule):
        tokens = [1.0 for _ in arms]
    seconds = seconds or [None for _ in arms]
    budgets = {}
    for arm, recipe, model, n_tokens, time in zip(
        arms, recipes, models, tokens, seconds, strict=True
    ):
        operations = None
        if n_tokens is not None:
            operations = n_tokens * flops_per_token(model, recipe.data.context, recipe.objective)
        budgets[arm.name] = Budget(count_parameters(model).total, operations, time)
    planned = []
    for arm in arms:
        other = arm.against or arms[0].name
        if other == arm.name:
            planned.append(ArmBudget(arm.name, None))
        else:
            excess = excess_over(budgets[arm.name], budgets[other])
            planned.append(ArmBudget(arm.name, other, excess))
    return planned


def _have_one_length(recipes: Sequence[Recipe], tokens: Sequence[float | None], rule: Rule) -> bool:
    """Return whether no length is known, and all arms will be trained on as many tokens."""
    is_known = any(n_tokens is not None for n_tokens in tokens)
    if is_known or rule in ("flops", "time"):
        return False
    first = recipes[0]
    if any(_length(recipe) != _length(first) for recipe in recipes):
        return False
    # Minutes become the baseline's tokens. An epoch has as many as the text has, and the context
    # divides it into.
    return first.train.epochs is None or all(recipe.data == first.data for recipe in recipes)


def _length(recipe: Recipe) -> list[object]:
    return [getattr(recipe.train, name) for name in LENGTHS]
