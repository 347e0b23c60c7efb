"""What the baselines score on the tasks of a chain: computed once, kept in the study's folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from sublayer.config.recipe import Recipe
from sublayer.data.cache import content_key
from sublayer.data.tasks.split_notes import describe_cuts
from sublayer.data.tasks.task_split import of_tasks
from sublayer.errors import ConfigError
from sublayer.files.storage import write_file
from sublayer.files.typed import Number, read_typed
from sublayer.objective.supervised.baselines import BaselineScores
from sublayer.objective.supervised.batches import row_rule, supervised
from sublayer.objective.supervised.scores import part_name
from sublayer.objective.supervised.scoring import trained_examples
from sublayer.study.chain.columns import Column, run_scores
from sublayer.study.execution.finetuned_run import ERROR
from sublayer.study.execution.shared_data import SharedData
from sublayer.study.scorecard import Cell
from sublayer.tasks.metrics.score import Score

_KEPT = "baselines"


def score_baselines(
    folder: Path, recipes: Mapping[str, Recipe]
) -> tuple[dict[str, str], dict[str, str]]:
    """Score every baseline on the tasks of stages; return the names of files in a study's folder.

    With them, by stage, what is cut of the rows that it trains on. ``recipes`` has one of the
    recipes of each stage of tasks. What is kept there is not scored again.
    """
    shared = SharedData()
    files, cuts = {}, {}
    for stage, recipe in recipes.items():
        files[stage] = _keep(folder, recipe, shared)
        split = of_tasks(shared.of(recipe).train)
        rule = row_rule(
            supervised(recipe),
            split,
            context=recipe.data.context,
            kind=recipe.model.kind,
            starts_with_pad=recipe.model.decoder_start == "pad",
        )
        if notes := describe_cuts(split, rule):
            cuts[stage] = f"{stage}: {notes[0]}."
    return files, cuts


def read_baselines(
    folder: Path, files: Mapping[str, str], columns: Sequence[Column]
) -> dict[str, dict[str, Cell]]:
    """Read what every baseline scored, by column; ``files`` are by stage.

    Raises ConfigError where they are damaged.
    """
    by_baseline: dict[str, dict[str, Cell]] = {}
    for stage, file in files.items():
        for name, test in _read(folder / _KEPT / file).items():
            cells = by_baseline.setdefault(name, {})
            scores = run_scores(columns, stage, test)
            for column, value in scores.items():
                if not column.endswith(ERROR):
                    cells[column] = Cell(value, error=scores.get(f"{column}{ERROR}"))
    return by_baseline


def _read(path: Path) -> dict[str, dict[str, float]]:
    """Read what baselines score on a stage's tasks by ``part`` and ``part:metric``."""
    remedy = "remove it, and the study's command scores them anew"
    try:
        return read_typed(path, dict[str, dict[str, Number]], ConfigError)
    except FileNotFoundError:
        raise ConfigError(
            f"{path} is not there, which has the baselines' scores: the study's command scores them"
        ) from None
    except ConfigError as error:
        raise ConfigError(f"{error}: {remedy}") from None


def _keep(folder: Path, recipe: Recipe, shared: SharedData) -> str:
    """Score the baselines on a recipe's tasks, unless they are kept; return the file's name."""
    data = shared.of(recipe)
    key = content_key("baselines", data.checksums["train"], data.checksums["test"])
    path = folder / _KEPT / f"{key[:16]}.json"
    if path.is_file():
        return path.name
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
    return path.name


def _scores(part: str, score: Score) -> dict[str, float]:
    scores = {part: score.value}
    if score.standard_error is not None:
        scores[f"{part}{ERROR}"] = score.standard_error
    for name, metric in score.metrics.items():
        scores[f"{part}:{name}"] = metric.value
        if metric.standard_error is not None:
            scores[f"{part}:{name}{ERROR}"] = metric.standard_error
    return scores
