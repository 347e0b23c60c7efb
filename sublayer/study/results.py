"""The results of a study: arms with their costs, differences, failures; and ``results.json``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.files.paths import resolved
from sublayer.files.storage import write_file
from sublayer.objective.metric import Metric
from sublayer.study.budget.match import TOLERANCE
from sublayer.study.statistics import CONFIDENCE, Difference

RESULTS = "results.json"
REPORT = "report.html"


@dataclass(frozen=True)
class Curve:
    """The validation metric of one run at each evaluation: equally many numbers in each field."""

    seed: int
    steps: tuple[int, ...]
    tokens: tuple[float, ...]
    """Trained on until then."""
    seconds: tuple[float, ...]
    """Wall clock of the run until then, evaluations included."""
    values: tuple[float, ...]


@dataclass(frozen=True)
class Costs:
    """What an arm takes: medians over its seeds; None where no seed finished."""

    flops_per_token: int
    """Floating-point operations of training, as estimated."""
    steps: int
    tokens: float | None = None
    """Trained on in the whole run."""
    tokens_per_s: float | None = None
    """Of the optimizer steps alone."""
    peak_memory_bytes: float | None = None
    """Beyond what the process held before the run."""
    seconds: float | None = None
    """Wall clock of the run, evaluations and checkpoints included."""


@dataclass(frozen=True)
class ArmResult:
    """One arm: its size, the metric of each seed that finished, its costs."""

    name: str
    parameters: Mapping[str, int | None]
    """Counts by what they are of."""
    seeds: tuple[int, ...]
    """Those that finished, in the order of ``values``."""
    values: tuple[float, ...]
    costs: Costs
    residual: float = 0.0
    """Excess over the arm that it is matched to, as a share of what that has: see ``Match``."""
    matched: tuple[str, ...] = ()
    """The overrides that matching gave it."""
    tuned: tuple[str, ...] = ()
    """The overrides that tuning gave it."""
    curves: tuple[Curve, ...] = ()
    recipe: str = ""
    """The resolved TOML of one of its runs."""
    further: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Other metrics by name, each with its value for each seed."""

    @property
    def mean(self) -> float | None:
        """Compute the mean over seeds; None without any."""
        if not self.values:
            return None
        return float(np.mean(self.values))

    @property
    def sd(self) -> float | None:
        """Compute the sample standard deviation over seeds; None with fewer than two."""
        if len(self.values) < 2:
            return None
        return float(np.std(self.values, ddof=1))

    @property
    def is_mismatched(self) -> bool:
        """Return whether the residual is larger than the tolerance of 0.5 %."""
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
    """Versions, commit, machine, precision and threads, by name."""
    checksums: Mapping[str, str] = field(default_factory=dict)
    """Of the texts and the tokenizer, by name."""


@dataclass(frozen=True)
class Further:
    """A metric that is shown beside the one that decides, and the arms' differences in it."""

    metric: Metric
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Results:
    """A finished study."""

    name: str
    title: str
    metric: Metric
    """The one that decides."""
    split: str
    """What the metric was scored on."""
    match: str
    """What was matched: parameters, flops, time or none."""
    baseline: str
    n_seeds: int
    """Runs that were planned of each arm; some may have failed."""
    arms: tuple[ArmResult, ...]
    differences: tuple[Difference, ...]
    failures: tuple[Failure, ...]
    reproduction: Reproduction
    notes: tuple[str, ...] = ()
    """Caveats, a sentence or two each."""
    further: tuple[Further, ...] = ()

    @property
    def has_verdicts(self) -> bool:
        """Return whether two seeds were planned, without which there is no verdict."""
        return self.n_seeds > 1


def results_to_json(results: Results, report: Path) -> dict[str, Any]:
    """Build the object that ``compare --json`` prints; ``report`` becomes an absolute path."""
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
        "further": [_further_to_json(further) for further in results.further],
        "failures": [asdict(failure) for failure in results.failures],
        "notes": list(results.notes),
        "name": results.name,
        "title": results.title,
        "planned_seeds": results.n_seeds,
        "reproduction": asdict(results.reproduction),
    }


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write one JSON object, whole or not at all.

    Raises ValueError for a number that is not finite, and OSError.
    """
    text = json.dumps(content, indent=1, allow_nan=False)
    write_file(path, f"{text}\n")


def _arm_to_json(arm: ArmResult) -> dict[str, Any]:
    further = {}
    for name, values in arm.further.items():
        further[name] = {"seeds": list(values), "values": list(values.values())}
    return {
        "name": arm.name,
        "parameters": dict(arm.parameters),
        "seeds": list(arm.seeds),
        "values": list(arm.values),
        "mean": arm.mean,
        "sd": arm.sd,
        "residual": arm.residual,
        "further": further,
        "matched": list(arm.matched),
        "tuned": list(arm.tuned),
        **asdict(arm.costs),
        "curves": [_curve_to_json(curve) for curve in arm.curves],
    }


def _curve_to_json(curve: Curve) -> dict[str, Any]:
    content = {}
    for name, value in asdict(curve).items():
        content[name] = list(value) if isinstance(value, Sequence) else value
    return content


def _further_to_json(further: Further) -> dict[str, Any]:
    return {
        "metric": further.metric.name,
        "is_lower_better": further.metric.is_lower_better,
        "differences": [_difference_to_json(difference) for difference in further.differences],
    }


def _difference_to_json(difference: Difference) -> dict[str, Any]:
    return {**asdict(difference), "seeds": list(difference.seeds)}
