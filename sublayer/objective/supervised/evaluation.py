"""What ``sublayer evaluate`` does with a fine-tuned model: score the examples of its tasks."""

from typing import Any

from sublayer.objective.evaluation import Evaluation
from sublayer.objective.supervised.against import compare_with
from sublayer.objective.supervised.baselines import BaselineScores
from sublayer.objective.supervised.report import (
    average_reports,
    report_split,
)
from sublayer.objective.supervised.scoring import answer_asked


def evaluate_tasks(asked: Evaluation) -> dict[str, Any]:
    """Score the published development set, what was held out, or another file or folder.

    Beside the scores stand the baselines, where there is something that they can learn from, and
    the comparison with another model, if one is named (``against``). Raises as ``answer_asked`` and
    ``compare_with`` do.
    """
    answered = answer_asked(asked)
    scoring = answered.scoring
    against = asked.options.get("against")
    compared = None if against is None else compare_with(asked, answered, against)
    reports = report_split(
        scoring.split, BaselineScores(lambda: scoring.train), answered.predictions
    )
    result = {
        "tasks": [each.to_json() for each in reports],
        "averages": average_reports(reports),
        "loss": answered.loss,
        "selected_by": selected_by(asked),
        "part": asked.split,
        "notes": list(scoring.notes),
        "run": str(asked.run),
    }
    return result if compared is None else {**result, "against": compared}


def selected_by(asked: Evaluation) -> str | None:
    """Return what chose a run's checkpoint: last, held-out or dev; None outside a run."""
    if asked.recipe is None:
        return None
    if asked.recipe.train.best_by == "last":
        return "last"
    return asked.recipe.data.select
