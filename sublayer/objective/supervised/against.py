"""Two fine-tuned models on the same examples, compared example by example."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sublayer.config.layering.run_recipe import read_run_recipe
from sublayer.data.tasks.task_split import TaskPart
from sublayer.errors import ConfigError
from sublayer.loading import find_recipe, load
from sublayer.objective.evaluation import Evaluation
from sublayer.objective.supervised.same_rows import check_same_rows
from sublayer.objective.supervised.scores import part_name
from sublayer.objective.supervised.scoring import Answered, answer_asked
from sublayer.tasks.metrics.paired import paired
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.spec import TaskSpec


def compare_with(asked: Evaluation, ours: Answered, against: Path) -> dict[str, Any]:
    """Compare a model's answers with another's to the same examples, for each task of both.

    Raises ConfigError where the other answers none of the tasks, DataError where it is scored on
    other examples.
    """
    theirs = _answered(asked, against)
    mine, others = _by_part(ours), _by_part(theirs)
    common = [key for key in mine if key in others]
    if not common:
        raise ConfigError(
            f"{against} answers {_titles(theirs)}, and {asked.run} {_titles(ours)}: compare models "
            "of one task"
        )
    parts = ours.scoring.split.parts
    tasks = []
    for key in common:
        part, predictions = mine[key]
        other, other_predictions = others[key]
        check_same_rows(asked.run, part, against, other)
        found = paired(part.examples, predictions, other_predictions, part.task.metrics)
        tasks.append(
            {
                "task": part_name(part, parts),
                "title": part.task.title,
                "examples": len(part.examples),
                **asdict(found),
                "is_decided": found.is_decided,
            }
        )
    return {"run": str(against), "tasks": tasks}


def _answered(asked: Evaluation, against: Path) -> Answered:
    model = load(against, device=asked.model.embedding.weight.device)
    spec: TaskSpec | None = model.task
    if spec is None:
        raise ConfigError(f"{against} answers no task: name a fine-tuned model")
    recipe = find_recipe(against)
    options = {name: value for name, value in asked.options.items() if name != "against"}
    if spec.format != "text":
        options.pop("answer", None)
    return answer_asked(
        replace(
            asked,
            run=against,
            model=model,
            recipe=None if recipe is None else read_run_recipe(recipe),
            options=options,
        )
    )


def _by_part(
    answered: Answered,
) -> dict[tuple[str, str], tuple[TaskPart, Sequence[Prediction]]]:
    by_part = answered.scoring.split.by_part(answered.predictions)
    return {(part.task.name, part.published): (part, own) for part, own in by_part}


def _titles(answered: Answered) -> str:
    return ", ".join(dict.fromkeys(part.task.title for part in answered.scoring.split.parts))
