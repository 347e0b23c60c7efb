"""Results of a study: arms with costs and curves, differences, failures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from sublayer.objective.metric import Metric
from sublayer.statistics.difference import FEWEST_SEEDS, Difference, Pairing
from sublayer.study.inspection import InspectedLayers
from sublayer.study.seal import Sealing

RESULTS = "results.json"
REPORT = "report.html"


@dataclass(frozen=True)
class Curve:
    """A metric of one run at each evaluation: equally many numbers in each field."""

    seed: int
    steps: tuple[int, ...]
    tokens: tuple[float, ...]
    """Trained on until then."""
    seconds: tuple[float, ...]
    """Wall clock of the run until then, evaluations included."""
    values: tuple[float, ...]


@dataclass(frozen=True)
class Costs:
    """The costs of an arm: medians over its seeds; None where no seed finished."""

    flops_per_token: int
    """Floating-point operations of training, as estimated."""
    steps: int
    tokens: float | None = None
    """Trained on in the whole run."""
    tokens_per_s: float | None = None
    """Of the optimizer steps alone."""
    peak_memory_bytes: float | None = None
    """Beyond the memory that the process held before the run."""
    seconds: float | None = None
    """Wall clock of the run, evaluations and checkpoints included."""
    training_seconds: float | None = None
    """Of the optimizer steps alone."""
    operations: float | None = None
    """Floating-point operations of the whole training, by the tokens of the runs.

    Of a study with stages, of a pre-training and one run of each stage.
    """
    planned_operations: float | None = None
    """The same by steps and batches alone; None for a study with stages."""


@dataclass(frozen=True)
class WrittenSample:
    """Text that a decoder wrote after a prompt; U+FFFD stands for bytes that are no UTF-8."""

    prompt: str
    text: str


@dataclass(frozen=True)
class Tuning:
    """The trials of an arm with their validation scores, means over their runs."""

    label: str
    """The metric that chose."""
    is_lower_better: bool
    factor: float
    """Scores are shown times it."""
    n_runs: int
    """Of each trial."""
    scores: Mapping[str, float | None]
    """By trial; None for one that failed."""
    stage: str = ""
    """Of a study with stages, the one that was tuned."""


@dataclass(frozen=True)
class ArmResult:
    """One arm: its size, the metric of each seed that finished, its costs."""

    name: str
    parameters: Mapping[str, int | None]
    """Counts of parameters by name."""
    seeds: tuple[int, ...]
    """Those that finished, in the order of ``values``."""
    values: tuple[float, ...]
    costs: Costs
    mismatch: float = 0.0
    """Excess over the arm that it is matched to, as a share of that arm's costs: see ``Match``.

    Where time is matched, of the time that the runs took: the medians of their seconds of training.
    The excess of each arm over the arm that it is compared with is returned by ``arm_budgets``.
    """
    matched: tuple[str, ...] = ()
    """The overrides that matching gave it."""
    tuned: tuple[str, ...] = ()
    """The overrides that tuning gave it."""
    curves: tuple[Curve, ...] = ()
    """Of the metric that decides, on the validation split, for each seed that has one."""
    further_curves: Mapping[str, tuple[Curve, ...]] = field(default_factory=dict)
    """Of other metrics by name, on the validation split."""
    training_curves: tuple[Curve, ...] = ()
    """The training loss: at each evaluation the mean of the steps since the one before."""
    recipe: str = ""
    """The resolved TOML of one of its runs."""
    sample: WrittenSample | None = None
    """Of the first seed that finished; None where the arms are no decoders."""
    further: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Other metrics by name, each with its value for each seed."""
    probes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of probes that were asked along the training, by name: chance, reference and what else the
    record says."""
    layers: Mapping[int, InspectedLayers] = field(default_factory=dict)
    """Measures of the blocks of each seed's model, where the study inspects them."""
    published: Mapping[str, float] = field(default_factory=dict)
    """Published scores by metric, as printed."""
    tunings: tuple[Tuning, ...] = ()
    """Its trials; of a study with stages, of each stage that was tuned."""
    paper: Mapping[str, float] = field(default_factory=dict)
    """The ``steps`` and ``tokens`` of the paper's training, where the study has that scale."""

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


@dataclass(frozen=True)
class Failure:
    """A run that ended without a result."""

    arm: str
    seed: int
    message: str


@dataclass(frozen=True)
class StudyText:
    """The text of a study's training and test."""

    names: tuple[str, ...]
    """Of corpora and files."""
    sizes: Mapping[str, Mapping[str, int]]
    """Bytes, tokens, documents and what else is known of each split."""


@dataclass(frozen=True)
class Cell:
    """A score, its spread over runs and its standard error over examples."""

    mean: float
    sd: float | None = None
    """Over pre-trainings; over fine-tunings where there is one pre-training. None of one."""
    inner_sd: float | None = None
    """Over the fine-tunings of a pre-training, pooled; None where each has one."""
    error: float | None = None
    """Standard error over the examples that are scored, the mean of the runs'; of a speed, over
    its timings."""
    n_runs: int = 1
    n_collapsed: int = 0
    """Runs that answer nothing."""


@dataclass(frozen=True)
class ScoreRow:
    """The scores of an arm, of a model by itself, of a baseline, or published ones."""

    name: str
    kind: Literal["arm", "model", "baseline", "published"]
    cells: Mapping[str, Cell]
    """By the column's name; those that are missing have none."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """By the column's name, why a model has no score there."""
    description: str = ""


@dataclass(frozen=True)
class Scorecard:
    """Scores in each column's own unit; times the column's factor they are shown."""

    columns: Sequence[Metric]
    rows: Sequence[ScoreRow]
    notes: Sequence[str] = ()

    def shown_columns(self) -> list[Metric]:
        """Return the columns in which a row has a score, or a reason for having none."""
        shown = {name for row in self.rows for name in (*row.cells, *row.reasons)}
        return [column for column in self.columns if column.name in shown]


SIGNATURE = "signature of "


@dataclass(frozen=True)
class Reproduction:
    """Command, environment and checksums that reproduce the numbers."""

    command: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Versions, commit, machine, precision and threads, by name; of translations sacreBLEU's
    signatures, by ``SIGNATURE`` and the measure."""
    checksums: Mapping[str, str] = field(default_factory=dict)
    """Of the texts and the tokenizer, by name."""
    text: StudyText | None = None
    date: str = ""
    """When the last run finished, as ISO 8601 writes it; empty where the runs do not say."""


@dataclass(frozen=True)
class Further:
    """A metric beside the deciding one, and the differences of arms in it."""

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
    """The split that was scored."""
    match: str
    """The matched budget: parameters, flops, time or none."""
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
    scored_on: str = ""
    """The split and how it was scored, in words; empty for the split alone."""
    n_awaited: int = 0
    """Comparisons that were planned, with an arm of which no run has ended."""
    scorecard: Scorecard | None = None
    """Of a chain: the scores of all stages, of baselines and of publications."""
    pairing: Pairing | None = None
    """The pairing of arms by seed; None where no spread was estimated."""
    margin: float | None = None
    """The smallest difference that matters, in the metric's unit; None: none was named."""
    margin_reason: str = ""
    hypothesis: str = ""
    """The hypothesis that the study tests, in words; its contrast is the last difference, or that
    of its two arms."""
    hypothesis_of: tuple[str, str] | None = None
    """Arm and baseline of the difference that decides on it."""
    looks: tuple[int, ...] = ()
    """The numbers of seeds at which verdicts were planned, or taken so far."""
    is_sequential: bool = False
    """True where arms stop once they are decided."""

    n_metrics: int = 1
    """Metrics that verdicts are given on, the first among them."""
    sealing: Sealing | None = None
    """The seal of its plan before its runs; None: unknown."""

    @property
    def n_comparisons(self) -> int:
        """Count the comparisons that the intervals are corrected for."""
        return self.n_metrics * (len(self.differences) + self.n_awaited)

    @property
    def of_arms(self) -> tuple[Difference, ...]:
        """The differences of arms, without that of a hypothesis about others than are compared."""
        arms = [difference.arm for difference in self.differences]
        return tuple(
            difference
            for difference in self.differences
            if (difference.arm, difference.baseline) != self.hypothesis_of
            or (difference.baseline and arms.count(difference.arm) == 1)
        )

    @property
    def has_verdicts(self) -> bool:
        """Return whether enough seeds were planned for verdicts."""
        return self.n_seeds >= FEWEST_SEEDS
