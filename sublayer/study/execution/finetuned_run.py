"""A run of a stage of tasks: fine-tuned and scored as `sublayer finetune` does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from sublayer.config.layering.layers import LoadedRecipe
from sublayer.data.prepare import Data
from sublayer.errors import CheckpointError
from sublayer.files.typed import Number, Typed, read_typed
from sublayer.objective.supervised.evaluation import trained_examples
from sublayer.objective.supervised.scores import BaselineScores
from sublayer.runs.finetuning import SCORES, finetune_seed
from sublayer.training.progress import Progress

ERROR, COLLAPSED = ":error", ":collapsed"
"""What is said of a column beside its values: its standard error over examples, and whether the
run answers nothing."""
BEST = "best/"
"""What the columns of a mixture begin with that are of each task's own best checkpoint."""


class _MetricScore(Typed):
    model_config = ConfigDict(extra="ignore")
    value: Number
    standard_error: Number | None = None


class _PartScore(Typed):
    model_config = ConfigDict(extra="ignore")
    task: str
    title: str
    score: Number
    standard_error: Number | None = None
    metrics: dict[str, _MetricScore]
    collapse: str = ""


class _Scores(Typed):
    model_config = ConfigDict(extra="ignore")
    tasks: list[_PartScore] = Field(min_length=1)
    task_bests: list[_PartScore] = []


def finetune_run(
    loaded: LoadedRecipe,
    folder: Path,
    data: Data,
    progress: Progress,
    *,
    device: str | None,
    plan: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    """Fine-tune and score, or what is missing of that; return the run's record.

    ``plan`` is as ``train_run`` has it. Raises as ``train_run`` does.
    """
    baselines = BaselineScores(lambda: trained_examples(data), are_scored=False)
    result = finetune_seed(
        loaded,
        folder,
        data,
        baselines,
        resume=True,
        device=device,
        progress=progress,
        plan=plan,
    )
    return result.record


def read_scores(folder: Path) -> dict[str, float] | None:
    """Read what a fine-tuned run scored; None without any.

    By "" the mean over the parts of its tasks, by ``part`` its score, by ``part:metric`` a metric
    of it; with ``ERROR`` after them their standard errors over examples. Raises CheckpointError
    where the file is damaged.
    """
    try:
        scores = read_typed(folder / SCORES, _Scores, CheckpointError)
    except FileNotFoundError:
        return None
    columns = {"": sum(each.score for each in scores.tasks) / len(scores.tasks)}
    columns |= _columns(scores.tasks)
    if scores.task_bests:
        bests = _columns(scores.task_bests)
        columns |= {f"{BEST}{name}": value for name, value in bests.items()}
    return columns


def _columns(parts: list[_PartScore]) -> dict[str, float]:
    columns = {}
    for part in parts:
        columns[part.task] = part.score
        if part.standard_error is not None:
            columns[f"{part.task}{ERROR}"] = part.standard_error
        columns[f"{part.task}{COLLAPSED}"] = float(bool(part.collapse))
        for name, metric in part.metrics.items():
            columns[f"{part.task}:{name}"] = metric.value
            if metric.standard_error is not None:
                columns[f"{part.task}:{name}{ERROR}"] = metric.standard_error
    return columns
