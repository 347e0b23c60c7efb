"""What ``sublayer evaluate`` does with a fine-tuned model: score the examples of its tasks."""

from collections.abc import Mapping
from typing import Any

from sublayer.objective.evaluation import Evaluation
from sublayer.objective.supervised.against import compare_with, render_comparison
from sublayer.objective.supervised.baselines import BaselineScores
from sublayer.objective.supervised.report import (
    average_reports,
    render_averages,
    render_baselines,
    render_reports,
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


def render_tasks(result: Mapping[str, Any]) -> str:
    """Format the scores for the terminal."""
    lines = [render_reports(result["tasks"]), *render_averages(result["averages"])]
    lines += render_baselines(result["tasks"])
    if result["part"] == "valid":
        lines.append("scored on what was held out, which chose the checkpoint: too good by that")
    elif str(result["selected_by"]).startswith("dev"):
        lines.append(
            "the development set chose the checkpoint that it scores (data.select = "
            f"{result['selected_by']}), as in the papers: too good by that"
        )
    lines += result["notes"]
    if "against" in result:
        lines += render_comparison(result["against"])
    return "\n".join(lines)
