"""What is said of a run that has ended."""

from sublayer.objective.families import family_of
from sublayer.objective.family import describe_valid
from sublayer.study.execution.one_run import Outcome, Task


def describe_end(task: Task, outcome: Outcome) -> str:
    """Format what came of a run: why it failed, or what it scored on validation."""
    if outcome.failure:
        return f"failed: {outcome.failure}"
    if outcome.record is None:
        return "scored"
    family = family_of(task.loaded.recipe.objective)
    return describe_valid(family, outcome.record["valid"])
