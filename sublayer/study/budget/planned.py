"""The budgets of arms before anything is trained, and by how much they will differ."""

from collections.abc import Sequence

from sublayer.config.recipe import Recipe
from sublayer.config.resolved import ResolvedModel
from sublayer.config.train import LENGTHS
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.study.arms import Arm
from sublayer.study.budget.excess import ArmBudget, Budget, excess_over
from sublayer.study.budget.match import Rule


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
    is_known = any(each is not None for each in tokens)
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
