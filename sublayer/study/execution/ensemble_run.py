"""What stands for a run of an ensemble: the average of its members' answers, scored and kept."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.data.tasks.task_split import of_tasks
from sublayer.files.storage import write_file
from sublayer.loading import load
from sublayer.objective.supervised.ensemble import answer_together
from sublayer.objective.supervised.evaluation import trained_examples
from sublayer.objective.supervised.scores import BaselineScores, report_split, task_items
from sublayer.runs.finetuning import SCORES
from sublayer.runs.folder import ENSEMBLE
from sublayer.runs.items import write_items
from sublayer.study.execution.finetuned_run import read_scores
from sublayer.system.machine import choose_device
from sublayer.system.stages import stage


def score_ensemble(
    folder: Path,
    members: Sequence[Path],
    recipe: Recipe,
    data: Data,
    *,
    device: str | None,
    plan: Mapping[str, Any] | None = None,
) -> Mapping[str, float]:
    """Score the average of runs' answers to the development set, and keep it as a run's scores.

    ``recipe`` and ``data`` are the first member's, ``plan`` is the study's, sealed. Raises
    CheckpointError where a member has no model, or a damaged one, and ConfigError where members do
    not answer the same.
    """
    if recipe.train.threads is not None:
        torch.set_num_threads(recipe.train.threads)
    folder.mkdir(parents=True, exist_ok=True)
    named = [os.path.relpath(member, folder) for member in members]
    began = {"members": named} if plan is None else {"members": named, "plan": dict(plan)}
    write_file(folder / ENSEMBLE, json.dumps(began, indent=1).encode() + b"\n")
    chosen = choose_device(device)
    models = [load(member, device=chosen) for member in members]
    test = of_tasks(data.test or data.train)
    with stage("scoring the development set"):
        predictions = answer_together(models, test.parts, names=list(map(str, members)))
    baselines = BaselineScores(lambda: trained_examples(data), are_scored=False)
    reports = report_split(test, baselines, predictions)
    scores = {
        "tasks": [each.to_json() for each in reports],
        "task_bests": [],
        "seed": recipe.train.seed,
        "items_sha256": write_items(folder, task_items(test, reports), {}),
    }
    write_file(folder / SCORES, json.dumps(scores, indent=1).encode() + b"\n")
    found = read_scores(folder)
    assert found is not None, "they have been written"
    return found
