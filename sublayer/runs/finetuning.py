"""Fine-tuning: a run for each seed, scored once each, beside what needs no model."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sublayer.config.load import LoadedRecipe, vary
from sublayer.config.recipe import Recipe
from sublayer.config.supervised import SupervisedObjective
from sublayer.data.prepare import Data
from sublayer.data.tasks.split_notes import describe_cuts
from sublayer.data.tasks.task_split import TaskSplit, of_tasks
from sublayer.files.checkpoints import checkpoint_path
from sublayer.files.storage import write_file
from sublayer.loading import load
from sublayer.objective.supervised.batches import rule_of_model
from sublayer.objective.supervised.evaluation import trained_examples
from sublayer.objective.supervised.scores import (
    BaselineScores,
    PartReport,
    answer_loss,
    answer_split,
    report_split,
    task_items,
)
from sublayer.runs.inputs import trained_tokenizer
from sublayer.runs.items import write_items
from sublayer.runs.run import train_run
from sublayer.runs.session import prepare_data
from sublayer.system.launch import is_first_launched
from sublayer.system.machine import choose_device
from sublayer.system.stages import stage
from sublayer.tasks.task import Prediction
from sublayer.training.metrics import METRICS, read_metrics
from sublayer.training.processes.joining import join_world
from sublayer.training.progress import Progress
from sublayer.training.warm_start import Pretrained

SCORES = "scores.json"
"""What a fine-tuned run scored on the development set, in its folder."""
_LAST_SHARE = 0.1
"""Of the run: the steps whose mean loss is that of its end."""


@dataclass(frozen=True)
class SeedResult:
    """A run of one seed."""

    seed: int
    folder: Path
    record: Mapping[str, Any]
    reports: Sequence[PartReport]
    task_bests: Sequence[PartReport]
    """Of a mixture: each task by the checkpoint that was best for it."""
    notes: Sequence[str]
    """Lines on rows and targets that were cut as it was scored."""

    @property
    def score(self) -> float:
        """The mean of the parts' scores."""
        return statistics.fmean(each.score.value for each in self.reports)

    @property
    def has_collapsed(self) -> bool:
        """Whether it answers nothing of any part."""
        return any(each.collapse for each in self.reports)


def finetune_seed(
    loaded: LoadedRecipe,
    folder: Path,
    data: Data,
    baselines: BaselineScores,
    *,
    resume: bool,
    device: str | None,
    progress: Progress | None = None,
    replans: bool = False,
    plan: Mapping[str, Any] | None = None,
) -> SeedResult:
    """Train a run, and score its best checkpoint on the development set.

    ``replans`` and ``plan`` are as ``train_run`` has them.

    Raises as ``train_run`` does.
    """
    record = train_run(
        loaded,
        folder,
        resume=resume,
        device=device,
        progress=progress,
        data=data,
        replans=replans,
        plan=plan,
    )
    recipe = loaded.recipe
    assert isinstance(recipe.objective, SupervisedObjective), "load_finetune refuses others"
    test = of_tasks(data.test or data.train)
    loss = answer_loss(of_tasks(data.train), recipe.objective, last_loss(folder))
    with stage("scoring the development set"):
        predictions, notes = _answers(recipe, folder, test, device)
    reports = report_split(test, baselines, predictions, loss)
    bests = []
    by_step: dict[int, list[str]] = {}
    for task, best in record.get("task_bests", {}).items():
        by_step.setdefault(best["step"], []).append(task)
    for step, tasks in by_step.items():
        parts = tuple(part for part in test.parts if part.task.name in tasks)
        own = replace(test, parts=parts)
        if step == record["valid"]["step"]:
            # The run's model is that checkpoint, and has answered.
            asked = [own for part, own in test.by_part(predictions) if part.task.name in tasks]
            answered = [each for of_part in asked for each in of_part]
        else:
            with stage(f"scoring the best checkpoint of {', '.join(tasks)}"):
                path = checkpoint_path(folder / "checkpoints", step)
                answered, _ = _answers(recipe, path, own, device)
        bests += report_split(own, baselines, answered)
    order = [part.task.name for part in test.parts]
    bests.sort(key=lambda each: order.index(each.task.name))
    scores = {
        "tasks": [each.to_json() for each in reports],
        "task_bests": [each.to_json() for each in bests],
        "seed": loaded.recipe.train.seed,
    }
    if is_first_launched():
        scores["items_sha256"] = write_items(folder, task_items(test, reports), {})
        write_file(folder / SCORES, json.dumps(scores, indent=1).encode() + b"\n")
    return SeedResult(loaded.recipe.train.seed, folder, record, reports, bests, notes)


def _answers(
    recipe: Recipe, path: Path, split: TaskSplit, device: str | None
) -> tuple[list[Prediction], list[str]]:
    """Answer examples with a run or one of its checkpoints, by the processes that trained it.

    Beside the answers stand lines on what of the examples is cut.
    """
    world = join_world(choose_device(device))
    model = load(path, device=world.device)
    rule = rule_of_model(model, recipe, split)
    answers, _ = answer_split(model, split, rule, model.task, world)
    return answers, describe_cuts(split, rule)


def finetune_seeds(
    loaded: LoadedRecipe,
    folder: Path,
    n_seeds: int | None,
    *,
    resume: bool,
    device: str | None,
) -> list[SeedResult]:
    """Fine-tune once, or with seeds 0 to ``n_seeds - 1``, each in a folder of its own below.

    What is held out is the same for all. Raises as ``train_run`` does.
    """
    recipe = loaded.recipe
    begun = folder if n_seeds is None else folder / "seed-0"
    tokenizer = trained_tokenizer(begun, recipe)
    data = prepare_data(recipe, Pretrained(recipe.init), tokenizer)
    baselines = BaselineScores(lambda: trained_examples(data))
    if n_seeds is None:
        alone = finetune_seed(
            loaded, folder, data, baselines, resume=resume, device=device, replans=True
        )
        return [alone]
    results = []
    for seed in range(n_seeds):
        # What is to be said of the recipe is the same for all seeds.
        varied = vary(loaded, {"train.seed": seed}, origin=f"seed {seed}")
        seeded = replace(varied, notes=loaded.notes)
        own = folder / f"seed-{seed}"
        own_resume = resume or (own / SCORES).is_file()
        results.append(
            finetune_seed(seeded, own, data, baselines, resume=own_resume, device=device)
        )
    return results


def last_loss(folder: Path) -> float | None:
    """Compute the mean loss of a run's last tenth; None where it was not logged."""
    losses = []
    for line in read_metrics(folder / METRICS):
        if line["kind"] == "train" and "loss" in line:
            losses.append(float(line["loss"]))
    if not losses:
        return None
    return statistics.fmean(losses[-max(1, math.ceil(_LAST_SHARE * len(losses))) :])
