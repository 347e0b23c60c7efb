"""From the runs of a study to its results."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.config.model import ModelConfig
from sublayer.model.cost import count_parameters, flops_per_token
from sublayer.study.execution import ArmRuns, Outcome
from sublayer.study.results import ArmResult, Costs, Curve, Failure
from sublayer.study.statistics import Metric
from sublayer.train.metrics import METRICS, read_metrics


def collect_arm(runs: ArmRuns, model: ModelConfig, metrics: Sequence[Metric], *, steps: int) -> ArmResult:
    """Put the runs of one arm into its result; ``steps`` are those that it was given, the first metric decides."""
    metric, *others = metrics
    finished = {seed: outcome for seed, outcome in runs.outcomes.items() if outcome.test is not None}
    values = _values(finished, metric)
    records = [outcome.record for outcome in finished.values() if outcome.record is not None]
    recipe = runs.settled.loaded.recipe
    objective, context = recipe.objective, recipe.data.context
    return ArmResult(
        name=runs.settled.arm.name,
        parameters=asdict(count_parameters(model, objective)),
        seeds=tuple(values),
        values=tuple(values.values()),
        costs=Costs(
            flops_per_token=flops_per_token(model, context, objective),
            steps=steps,
            tokens=_median(records, "tokens"),
            tokens_per_s=_median(records, "tokens_per_s"),
            peak_memory_bytes=_median(records, "peak_memory_bytes"),
            seconds=_median(records, "seconds"),
        ),
        residual=runs.settled.residual,
        matched=runs.settled.matched,
        tuned=tuple(f"{key}={value}" for key, value in runs.trial.settings.items()),
        curves=tuple(
            curve for seed, outcome in finished.items() if (curve := _curve(seed, outcome.path, metric)) is not None
        ),
        recipe=_recipe(runs.outcomes.values()),
        further={each.name: _values(finished, each) for each in others},
    )


def collect_failures(arms: Sequence[ArmRuns]) -> tuple[Failure, ...]:
    """List the runs that failed."""
    return tuple(
        Failure(runs.settled.arm.name, seed, outcome.failure)
        for runs in arms
        for seed, outcome in runs.outcomes.items()
        if outcome.failure
    )


def describe_environment(arms: Sequence[ArmRuns]) -> tuple[dict[str, str], dict[str, str]]:
    """Describe what the runs ran on, and the checksums of what they read, from their records."""
    records = [outcome.record for runs in arms for outcome in runs.outcomes.values() if outcome.record is not None]
    if not records:
        return {}, {}
    first = records[0]
    facts = {**first["versions"], "commit": first["commit"], **first["machine"]}
    facts |= {"precision": first["precision"], "threads": first["threads"]}
    commits = sorted({str(record["commit"]) for record in records})
    if len(commits) > 1:
        facts["commit"] = ", ".join(commits)
    checksums = {f"data, {name}": str(value) for name, value in first["data"]["checksums"].items()}
    return {name: str(value) for name, value in facts.items() if value is not None}, checksums


def _values(finished: Mapping[int, Outcome], metric: Metric) -> dict[int, float]:
    # What a text is too short for was not scored.
    scores = {seed: (outcome.test or {}).get(metric.name) for seed, outcome in finished.items()}
    return {seed: float(value) for seed, value in scores.items() if value is not None}


def _curve(seed: int, run: Path, metric: Metric) -> Curve | None:
    names = ("step", "tokens", "seconds", metric.name)
    lines = [line for line in read_metrics(run / METRICS) if line["kind"] == "valid" and line.keys() >= set(names)]
    if not lines:
        return None
    columns = {name: tuple(line[name] for line in lines) for name in names}
    return Curve(seed, columns["step"], columns["tokens"], columns["seconds"], columns[metric.name])


def _median(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [record[name] for record in records if record.get(name) is not None]
    return float(np.median(values)) if values else None


def _recipe(outcomes: Any) -> str:
    paths: list[Outcome] = list(outcomes)
    written = [outcome.path / "recipe.toml" for outcome in paths if (outcome.path / "recipe.toml").is_file()]
    return written[0].read_text(encoding="utf-8") if written else ""
