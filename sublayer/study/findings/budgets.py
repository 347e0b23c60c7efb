"""What the arms of a comparison took beyond the arm that each is compared with."""

from sublayer.study.budget.excess import ArmBudget, Budget, excess_over
from sublayer.study.results import ArmResult, Results


def arm_budgets(results: Results) -> list[ArmBudget]:
    """Return the excess of each arm, in order; the baseline, and controls, have none.

    Realised are operations by the tokens that the runs were trained on, medians over seeds, and
    time by their seconds of training, where it was matched. Planned operations are not known of
    studies with stages.
    """
    by_name = {arm.name: arm for arm in results.arms}
    against = {each.arm: each.baseline for each in results.differences}
    is_timed = results.match == "time"
    found = []
    for arm in results.arms:
        if arm.name not in against:
            found.append(ArmBudget(arm.name, None))
            continue
        other = by_name[against[arm.name]]
        planned = excess_over(_planned(arm), _planned(other))
        realised = excess_over(
            _realised(arm, is_timed=is_timed), _realised(other, is_timed=is_timed)
        )
        found.append(ArmBudget(arm.name, other.name, planned, realised))
    return found


def _planned(arm: ArmResult) -> Budget:
    return Budget(_parameters(arm), arm.costs.planned_operations)


def _realised(arm: ArmResult, *, is_timed: bool) -> Budget:
    seconds = arm.costs.training_seconds if is_timed else None
    return Budget(_parameters(arm), arm.costs.operations, seconds)


def _parameters(arm: ArmResult) -> int:
    total = arm.parameters["total"]
    assert total is not None, "every model has a number of parameters"
    return total
