"""The curves of a run, read from its ``metrics.jsonl``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sublayer.study.results import Curve
from sublayer.training.metrics import METRICS, read_metrics

LOSS = "loss"
"""The metric that training and every evaluation have, in nats."""
WATCHED = "/"
"""What stands between a text that is watched and a metric of it, as in ``squad/loss``."""
_PLACE = ("step", "tokens", "seconds")


@dataclass(frozen=True)
class RunCurves:
    """The validation curves of a run by metric, and that of its training loss."""

    validation: Mapping[str, Curve] = field(default_factory=dict)
    training: Curve | None = None


def read_curves(seed: int, run: Path, metrics: Sequence[str]) -> RunCurves:
    """Read what a run of a seed measured of each metric, where it did, and its training loss.

    Every metric of the texts that are watched is read too.

    The training loss has a value for each evaluation: the mean over the steps since the one before,
    from the lines that were logged.
    """
    lines = [line for line in read_metrics(run / METRICS) if line.keys() >= {*_PLACE}]
    valid = [line for line in lines if line["kind"] == "valid"]
    trained = [line for line in lines if line["kind"] == "train" and LOSS in line]
    curves = {}
    watched = {key for line in valid for key in line if WATCHED in key}
    for name in (*metrics, *sorted(watched)):
        measured = [line for line in valid if name in line]
        if measured:
            curves[name] = _curve(seed, measured, [line[name] for line in measured])
    return RunCurves(curves, _training_curve(seed, valid, trained))


def curves_by_metric(runs: Sequence[RunCurves]) -> dict[str, tuple[Curve, ...]]:
    """Gather the validation curves of an arm's runs by metric, those that have it."""
    by_metric: dict[str, tuple[Curve, ...]] = {}
    for run in runs:
        for name, curve in run.validation.items():
            by_metric[name] = (*by_metric.get(name, ()), curve)
    return by_metric


def _training_curve(
    seed: int, valid: Sequence[Mapping[str, Any]], trained: Sequence[Mapping[str, Any]]
) -> Curve | None:
    places = []
    means = []
    previous = 0
    for line in valid:
        # A line is the mean over the steps since the line before.
        total = 0.0
        n_steps = 0
        begin = previous
        for logged in trained:
            if previous < logged["step"] <= line["step"]:
                total += logged[LOSS] * (logged["step"] - begin)
                n_steps += logged["step"] - begin
                begin = logged["step"]
        previous = line["step"]
        if n_steps:
            places.append(line)
            means.append(total / n_steps)
    return _curve(seed, places, means) if places else None


def _curve(seed: int, lines: Sequence[Mapping[str, Any]], values: Sequence[float]) -> Curve:
    return Curve(
        seed,
        steps=tuple(line["step"] for line in lines),
        tokens=tuple(line["tokens"] for line in lines),
        seconds=tuple(line["seconds"] for line in lines),
        values=tuple(values),
    )
