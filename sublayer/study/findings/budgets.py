"""What the arms of a comparison took beyond the arm that each is compared with."""

from sublayer.study.budget.excess import ArmBudget, Budget, excess_over
from sublayer.study.results import ArmResult, Results


def compared_budgets(results: Results) -> list[ArmBudget]:
    """Return the excess of one arm over another for each comparison of two arms, in order.

    Realised are operations by the tokens that the runs were trained on, medians over seeds, and
    time by their seconds of training, where it was matched. Planned operations are not known of
    studies with stages. A contrast of more than two arms has no excess.
    """
    by_name = {arm.name: arm for arm in results.arms}
    found = []
    for difference in results.differences:
        if difference.arm in by_name and difference.baseline in by_name:
            arm, other = by_name[difference.arm], by_name[difference.baseline]
            found.append(_budget(arm, other, is_timed=results.match == "time"))
    return found


def arm_budgets(results: Results) -> list[ArmBudget]:
    """Return the excess of each arm over the one that it is compared with, in the arms' order.

    The baseline, and controls, are compared with none.
    """
    first: dict[str, ArmBudget] = {}
    for budget in compared_budgets(results):
        first.setdefault(budget.arm, budget)
    return [first.get(arm.name, ArmBudget(arm.name, None)) for arm in results.arms]


def _budget(arm: ArmResult, other: ArmResult, *, is_timed: bool) -> ArmBudget:
    planned = excess_over(_planned(arm), _planned(other))
    realised = excess_over(_realised(arm, is_timed=is_timed), _realised(other, is_timed=is_timed))
    return ArmBudget(arm.name, other.name, planned, realised)


def _planned(arm: ArmResult) -> Budget:
    return Budget(_parameters(arm), arm.costs.planned_operations)


def _realised(arm: ArmResult, *, is_timed: bool) -> Budget:
    seconds = arm.costs.training_seconds if is_timed else None
    return Budget(_parameters(arm), arm.costs.operations, seconds)


def _parameters(arm: ArmResult) -> int:
    total = arm.parameters["total"]
    assert total is not None, "every model has a number of parameters"
    return total
