"""What a study found: the arms with their costs, the differences, the failures; written to ``results.json``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.config.texts import resolved
from sublayer.storage import write_file
from sublayer.study.match import TOLERANCE
from sublayer.study.statistics import CONFIDENCE, Difference, Metric

RESULTS = "results.json"
REPORT = "report.html"


@dataclass(frozen=True)
class Curve:
    """The validation metric of one run, at each evaluation; ``seconds`` are the run's own, evaluation included."""

    seed: int
    steps: tuple[int, ...]
    tokens: tuple[float, ...]
    seconds: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Costs:
    """What an arm takes: medians over its seeds; None where no seed finished."""

    flops_per_token: int
    steps: int
    tokens: float | None = None
    tokens_per_s: float | None = None
    peak_memory_bytes: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class ArmResult:
    """One arm: its size, the metric of each seed that finished, its costs.

    ``residual`` is its excess over the baseline in what the study matches (parameters where it matches nothing), as a
    share. ``further`` maps the names of other metrics to their value for each seed. ``matched`` and ``tuned`` hold the
    overrides that matching and tuning gave it, ``recipe`` the resolved TOML.
    """

    name: str
    parameters: Mapping[str, int | None]
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    costs: Costs
    residual: float = 0.0
    matched: tuple[str, ...] = ()
    tuned: tuple[str, ...] = ()
    curves: tuple[Curve, ...] = ()
    recipe: str = ""
    further: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    @property
    def mean(self) -> float | None:
        """The mean over seeds."""
        return float(np.mean(self.values)) if self.values else None

    @property
    def sd(self) -> float | None:
        """The standard deviation over seeds."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    @property
    def is_mismatched(self) -> bool:
        """Whether the residual is one to be marked."""
        return abs(self.residual) > TOLERANCE


@dataclass(frozen=True)
class Failure:
    """A run that ended without a result."""

    arm: str
    seed: int
    message: str


@dataclass(frozen=True)
class Reproduction:
    """What it takes to see the same numbers again."""

    command: str
    environment: Mapping[str, str] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Further:
    """A metric that is shown beside the one that decides, and what the arms' differences in it are."""

    metric: Metric
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Results:
    """A finished study. ``match`` is parameters, flops, time or none; ``split`` is what the metric was scored on."""

    name: str
    title: str
    metric: Metric
    split: str
    match: str
    baseline: str
    n_seeds: int
    arms: tuple[ArmResult, ...]
    differences: tuple[Difference, ...]
    failures: tuple[Failure, ...]
    reproduction: Reproduction
    notes: tuple[str, ...] = ()
    further: tuple[Further, ...] = ()


def results_to_json(results: Results, report: Path) -> dict[str, Any]:
    """Put results into the object that ``compare --json`` prints; ``report`` becomes an absolute path."""
    return {
        "report": str(resolved(report)),
        "metric": results.metric.name,
        "is_lower_better": results.metric.is_lower_better,
        "split": results.split,
        "match": results.match,
        "baseline": results.baseline,
        "confidence": CONFIDENCE,
        "arms": [_arm_to_json(arm) for arm in results.arms],
        "differences": [_difference_to_json(difference) for difference in results.differences],
        "further": [
            {
                "metric": each.metric.name,
                "is_lower_better": each.metric.is_lower_better,
                "differences": [_difference_to_json(difference) for difference in each.differences],
            }
            for each in results.further
        ],
        "failures": [asdict(failure) for failure in results.failures],
        "notes": list(results.notes),
        "name": results.name,
        "title": results.title,
        "planned_seeds": results.n_seeds,
        "reproduction": asdict(results.reproduction),
    }


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write one JSON object, whole or not at all."""
    write_file(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def _arm_to_json(arm: ArmResult) -> dict[str, Any]:
    curves = [
        {name: list(value) if isinstance(value, Sequence) else value for name, value in asdict(curve).items()}
        for curve in arm.curves
    ]
    return {
        "name": arm.name,
        "parameters": dict(arm.parameters),
        "seeds": list(arm.seeds),
        "values": list(arm.values),
        "mean": arm.mean,
        "sd": arm.sd,
        "residual": arm.residual,
        "further": {
            name: {"seeds": list(values), "values": list(values.values())} for name, values in arm.further.items()
        },
        "matched": list(arm.matched),
        "tuned": list(arm.tuned),
        **asdict(arm.costs),
        "curves": curves,
    }


def _difference_to_json(difference: Difference) -> dict[str, Any]:
    return {**asdict(difference), "seeds": list(difference.seeds)}
