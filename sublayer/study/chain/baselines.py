"""What the baselines score on the tasks of a chain: computed once, kept in the study's folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from sublayer.config.recipe import Recipe
from sublayer.data.cache import content_key
from sublayer.data.tasks.task_split import of_tasks
from sublayer.errors import ConfigError
from sublayer.files.parsing import read_json_object
from sublayer.files.storage import write_file
from sublayer.objective.supervised.baselines import BaselineScores
from sublayer.objective.supervised.scores import part_name
from sublayer.objective.supervised.scoring import trained_examples
from sublayer.study.chain.columns import Column, run_scores
from sublayer.study.execution.finetuned_run import ERROR
from sublayer.study.execution.shared_data import SharedData
from sublayer.study.scorecard import Cell
from sublayer.tasks.metrics.score import Score

_KEPT = "baselines"


def score_baselines(
    folder: Path, recipes: Mapping[str, Recipe], columns: Sequence[Column]
) -> dict[str, dict[str, Cell]]:
    """Score every baseline on the tasks of stages, and return its scores by column.

    ``recipes`` has one of the recipes of each stage of tasks.
    """
    shared = SharedData()
    by_baseline: dict[str, dict[str, Cell]] = {}
    for stage, recipe in recipes.items():
        for name, test in _kept(folder, recipe, shared).items():
            cells = by_baseline.setdefault(name, {})
            for column, value in run_scores(columns, stage, test).items():
                if not column.endswith(ERROR):
                    cells[column] = Cell(value, error=test.get(f"{_part(columns, column)}{ERROR}"))
    return by_baseline


def _part(columns: Sequence[Column], name: str) -> str:
    return next((column.part for column in columns if column.name == name), "")


def _kept(folder: Path, recipe: Recipe, shared: SharedData) -> dict[str, dict[str, float]]:
    """Return what baselines score on a recipe's tasks by ``part`` and ``part:metric``."""
    data = shared.of(recipe)
    key = content_key("baselines", data.checksums["train"], data.checksums["test"])
    path = folder / _KEPT / f"{key[:16]}.json"
    if path.is_file():
        kept = read_json_object(path, ConfigError)
        return {name: dict(scores) for name, scores in kept.items()}
    baselines = BaselineScores(lambda: trained_examples(data))
    found: dict[str, dict[str, float]] = {}
    parts = of_tasks(data.test or data.train).parts
    for part in parts:
        for name, score in baselines.of(part).items():
            found.setdefault(name, {}).update(_scores(part_name(part, parts), score))
    for scores in found.values():
        own = [scores[part_name(part, parts)] for part in parts if part_name(part, parts) in scores]
        scores[""] = sum(own) / len(own)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps(found, indent=1) + "\n")
    return found


def _scores(part: str, score: Score) -> dict[str, float]:
    scores = {part: score.value}
    if score.standard_error is not None:
        scores[f"{part}{ERROR}"] = score.standard_error
    for name, metric in score.metrics.items():
        scores[f"{part}:{name}"] = metric.value
    return scores
