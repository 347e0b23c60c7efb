"""Results of a study: arms with costs and curves, differences, failures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np

from sublayer.evaluation.items import Metric
from sublayer.statistics.contrasts import FEWEST_SEEDS, Difference, Pairing
from sublayer.study.inspection import InspectedLayers, WrittenSample

RESULTS = "results.json"
REPORT = "report.html"


@dataclass(frozen=True)
class Curve:
    """A metric of one run at each evaluation: equally many numbers in each field."""

    seed: int
    steps: tuple[int, ...]
    tokens: tuple[float, ...]
    """Tokens so far."""
    seconds: tuple[float, ...]
    """Wall clock of the run so far, evaluations included."""
    values: tuple[float, ...]


@dataclass(frozen=True)
class Costs:
    """The costs of an arm: medians over its seeds; None without finished seeds."""

    flops_per_token: int
    """Floating-point operations of training, as estimated."""
    steps: int
    tokens: float | None = None
    """Tokens of the complete training."""
    tokens_per_s: float | None = None
    """Over the optimizer steps only."""
    peak_memory_bytes: float | None = None
    """Peak memory beyond the process's memory before the run."""
    seconds: float | None = None
    """Wall clock of the run, evaluations and checkpoints included."""
    training_seconds: float | None = None
    """Seconds of the optimizer steps only."""
    operations: float | None = None
    """Floating-point operations of the complete training, by the tokens of the runs.

    For a study with stages, of a pre-training and one run of each stage.
    """
    planned_operations: float | None = None
    """The same by steps and batches only; None for a study with stages."""


@dataclass(frozen=True)
class Tuning:
    """The trials of an arm with their validation scores, means over their runs."""

    label: str
    """The selection metric."""
    is_lower_better: bool
    factor: float
    """Display factor of scores."""
    n_runs: int
    """Runs of each trial."""
    scores: Mapping[str, float | None]
    """Scores by trial; None for a failed one."""
    stage: str = ""
    """Tuned stage of a study with stages."""


@dataclass(frozen=True)
class ArmResult:
    """One arm: its size, the metric of each seed that finished, its costs."""

    name: str
    parameters: Mapping[str, int | None]
    """Counts of parameters by name."""
    seeds: tuple[int, ...]
    """Finished seeds, in the order of ``values``."""
    values: tuple[float, ...]
    costs: Costs
    mismatch: float = 0.0
    """Excess over the arm that it is matched to, as a share of its costs: see ``Match``.

    If time is matched, of the measured time: the medians of the runs' seconds of training.
    ``arm_budgets`` returns the excess of each arm over its comparison partner.
    """
    matched: tuple[str, ...] = ()
    """Overrides from matching."""
    tuned: tuple[str, ...] = ()
    """Overrides from tuning."""
    curves: tuple[Curve, ...] = ()
    """Curves of the deciding metric, on the validation split, for each seed that has one."""
    further_curves: Mapping[str, tuple[Curve, ...]] = field(default_factory=dict)
    """Curves of other metrics by name, on the validation split."""
    training_curves: tuple[Curve, ...] = ()
    """The training loss: at each evaluation the mean of the steps since the previous one."""
    recipe: str = ""
    """The resolved TOML of one of its runs."""
    sample: WrittenSample | None = None
    """Sample of the first finished seed; None unless the arms are decoders."""
    further: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Other metrics by name, each with its value for each seed."""
    probes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Facts on probes during training, by name: chance, reference and further ones of the
    record."""
    layers: Mapping[int, InspectedLayers] = field(default_factory=dict)
    """Measures of the blocks of each seed's model, if the study inspects them."""
    published: Mapping[str, float] = field(default_factory=dict)
    """Published scores by metric, as printed."""
    tunings: tuple[Tuning, ...] = ()
    """Its trials; for a study with stages, of each tuned stage."""
    paper: Mapping[str, float] = field(default_factory=dict)
    """The ``steps`` and ``tokens`` of the paper's training, if the study has that scale."""

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
    """Names of corpora and files."""
    sizes: Mapping[str, Mapping[str, int]]
    """Bytes, tokens, documents and other facts of each split."""


@dataclass(frozen=True)
class Cell:
    """A score, its spread over runs and its standard error over examples."""

    mean: float
    sd: float | None = None
    """Over pre-trainings; over fine-tunings if there is one pre-training. None for one run."""
    inner_sd: float | None = None
    """Over the fine-tunings of a pre-training, pooled; None if each has one."""
    error: float | None = None
    """Standard error over the scored examples, the mean of the runs'; for a speed, over its
    timings."""
    n_runs: int = 1
    n_collapsed: int = 0
    """Collapsed runs, which give one answer to all examples."""


@dataclass(frozen=True)
class ScoreRow:
    """Scores of an arm, of a model by itself, of a baseline, or published ones."""

    name: str
    kind: Literal["arm", "model", "baseline", "published"]
    cells: Mapping[str, Cell]
    """By column name; missing scores have none."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Reasons for missing scores, by column name."""
    description: str = ""


@dataclass(frozen=True)
class Scorecard:
    """Scores in each column's unit; the column's factor is for display."""

    columns: Sequence[Metric]
    rows: Sequence[ScoreRow]
    notes: Sequence[str] = ()

    def shown_columns(self) -> list[Metric]:
        """Return the columns with a score, or a reason for its absence, in any row."""
        shown = {name for row in self.rows for name in (*row.cells, *row.reasons)}
        return [column for column in self.columns if column.name in shown]


SIGNATURE = "signature of "


@dataclass(frozen=True)
class Reproduction:
    """Command, environment and checksums that reproduce the numbers."""

    command: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Versions, commit, machine, precision and threads, by name; for translations sacreBLEU's
    signatures, by ``SIGNATURE`` and the measure."""
    checksums: Mapping[str, str] = field(default_factory=dict)
    """Checksums of the texts and the tokenizer, by name."""
    text: StudyText | None = None
    date: str = ""
    """End of the last run, in ISO 8601; empty if unknown."""


SHOWN_DIGITS = 12


@dataclass(frozen=True)
class Sealing:
    """The sealed plan of a study, or its absence, and its changes since."""

    date: str = ""
    """Date of the first seal; empty without one."""
    hash: str = ""
    additions: tuple[str, ...] = ()
    """Changes recorded later, each with its date and hash."""
    alterations: tuple[str, ...] = ()
    """Unrecorded changes of the sealed plan."""
    why_not: str = ""
    """Reason for the absence of a seal."""

    def describe(self) -> str:
        """Describe it in one line, for a report."""
        if not self.hash:
            return f"Plan: not sealed; {self.why_not}."
        kinds = {
            "recorded since": self.additions,
            "changed since without a record": self.alterations,
        }
        changes = [f"{kind}: {'; '.join(texts)}" for kind, texts in kinds.items() if texts]
        return (
            f"Plan: sealed before the first run, on {shown_date(self.date)} (hash "
            f"{self.hash[:SHOWN_DIGITS]}); {'. '.join(changes) or 'unchanged since'}."
        )


def shown_date(date: str) -> str:
    """Write an ISO 8601 date for people, to the minute."""
    try:
        return f"{datetime.fromisoformat(date).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return date


@dataclass(frozen=True)
class Further:
    """A metric besides the deciding one, and the differences of arms in it."""

    metric: Metric
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Results:
    """A finished study."""

    name: str
    title: str
    metric: Metric
    """The deciding metric."""
    split: str
    """The scored split."""
    match: str
    """The matched budget: parameters, flops, time or none."""
    baseline: str
    n_seeds: int
    """Planned runs of each arm; some may have failed."""
    arms: tuple[ArmResult, ...]
    differences: tuple[Difference, ...]
    failures: tuple[Failure, ...]
    reproduction: Reproduction
    notes: tuple[str, ...] = ()
    """Caveats, a sentence or two each."""
    further: tuple[Further, ...] = ()
    scored_on: str = ""
    """The split and the scoring, in words; empty for only the split."""
    n_awaited: int = 0
    """Planned comparisons with an arm without ended runs."""
    scorecard: Scorecard | None = None
    """For a chain: the scores of all stages, of baselines and of publications."""
    pairing: Pairing | None = None
    """The pairing of arms by seed; None if no spread was estimated."""
    margin: float | None = None
    """The smallest difference that matters, in the metric's unit; None: no margin."""
    margin_reason: str = ""
    hypothesis: str = ""
    """The study's hypothesis, in words; it is on the last difference, or on that of two arms."""
    hypothesis_of: tuple[str, str] | None = None
    """Arm and baseline of the deciding difference of the hypothesis."""
    looks: tuple[int, ...] = ()
    """The numbers of seeds of planned looks, or of the looks so far."""
    is_sequential: bool = False
    """True if arms stop once decided."""

    n_metrics: int = 1
    """Metrics with verdicts, the first included."""
    sealing: Sealing | None = None
    """The seal of its plan before its runs; None: unknown."""

    @property
    def n_comparisons(self) -> int:
        """Count the comparisons for which the intervals are corrected."""
        return self.n_metrics * (len(self.differences) + self.n_awaited)

    @property
    def of_arms(self) -> tuple[Difference, ...]:
        """The differences of arms, without the hypothesis's contrast of other arms."""
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
