"""Stages of a study: their order, and the settings of each arm in them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sublayer.config.data import OwnColumns
from sublayer.config.finetune import DEFAULT
from sublayer.config.layers import EXCLUSIVE
from sublayer.config.table import MOST_FINETUNINGS
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.files.parsing import Typed, check_typed, parse_json
from sublayer.statistics.difference import FEWEST_SEEDS

PRETRAINING = "pretraining"
"""The first stage of every chain: an arm's recipe."""
FINETUNE = "finetune"
"""The prefix of settings of all stages of tasks."""
TUNING_NUMBER = MOST_FINETUNINGS - 1
"""The number of a trial among fine-tunings of the first pre-training, beyond any comparison."""
Nested = Literal["mean", "median"]
Member = str | tuple[str, ...]
"""The name of a column, or several whose mean counts as one; likewise for metrics of a column."""


def names_of(member: Member | None) -> tuple[str, ...]:
    """Return the names of a member; empty for None."""
    return (member,) if isinstance(member, str) else member or ()


@dataclass(frozen=True)
class Stage:
    """A training that starts from the previous stage's model, or an ensemble of such."""

    name: str
    after: str
    """The start stage; "" for an ensemble."""
    tasks: tuple[str, ...] = ()
    """The tasks of its fine-tuning, several as a mixture; empty: it trains on a text."""
    table: str | None = None
    """A custom table for fine-tuning instead."""
    columns: OwnColumns | None = None
    """The meaning of the table's columns."""
    preset: str = DEFAULT
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of all arms, ``table.field`` to its value."""
    n_seeds: int | None = None
    """Fine-tunings under each pre-training, if fewer than those of other stages."""
    from_step: int | None = None
    """The step of its start checkpoint; None: the final model."""
    ensemble: tuple[str, ...] = ()
    """Members of an ensemble: stages of its tasks, whose runs' answers it averages.

    Another arm's is ``ARM: STAGE``.
    """

    @property
    def start(self) -> str:
        """The start of its runs, or the averaged stages, in words."""
        if self.ensemble:
            return ", ".join(self.ensemble)
        return self.after if self.from_step is None else f"{self.after} at step {self.from_step:,}"

    @property
    def finetunes(self) -> bool:
        """True for a stage of tasks, false for one that predicts a text."""
        return bool(self.tasks) or self.table is not None

    @property
    def before(self) -> tuple[str, ...]:
        """The stages whose runs it needs."""
        return tuple(member_of("", name)[1] for name in self.ensemble) or (self.after,)

    def members(self, arm: str) -> list[tuple[str, str]]:
        """Return the arm and the stage of each member of an arm's ensemble."""
        return [member_of(arm, name) for name in self.ensemble]


def member_of(arm: str, name: str) -> tuple[str, str]:
    """Return the arm and the stage of a member's name; the arm is by default ``arm``."""
    of, colon, stage = name.rpartition(": ")
    return (of if colon else arm), stage


@dataclass(frozen=True)
class ArmStages:
    """The deviations of an arm from the chain."""

    pretrains: bool = True
    """False: no pre-training, so that later stages start from random weights."""
    start: str = ""
    """The arm whose pre-training of the same seed its pre-training starts from; "": random
    weights."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of its stages by name, over the common ones."""


@dataclass(frozen=True)
class Chain:
    """The stages of all arms of a study after their pre-training."""

    stages: tuple[Stage, ...]
    """Sorted: a stage comes after its start."""
    arms: Mapping[str, ArmStages] = field(default_factory=dict)
    """By arm; arms without deviations may be missing."""
    n_seeds: int = 1
    """Fine-tunings of each stage of tasks under each pre-training."""
    nested: Nested = "mean"
    """The summary of the fine-tunings of a pre-training."""
    metrics: Mapping[str, Member] = field(default_factory=dict)
    """By column its metric, if not its score, or its metrics that are columns, too."""
    averages: Mapping[str, tuple[Member, ...]] = field(default_factory=dict)
    """Averages over columns, by name."""
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Published scores, by arm or any other name and by column, as printed."""
    data: str | None = None
    """The folder of the tasks' files; None: the cache."""
    tune: tuple[str, ...] = ()
    """The tuning grid of every stage of tasks: ``field=a,b`` texts."""

    def of(self, arm: str) -> ArmStages:
        """Return the deviations of an arm."""
        return self.arms.get(arm, ArmStages())

    @property
    def all_stages(self) -> tuple[Stage, ...]:
        """The pre-training, and the stages after it."""
        return (Stage(PRETRAINING, ""), *self.stages)

    def stage(self, name: str) -> Stage:
        """Return a stage by name; the pre-training is one without a start."""
        return next(stage for stage in self.all_stages if stage.name == name)

    def starts(self, arm: str, stage: Stage) -> list[tuple[str, str]]:
        """Return the arm and stage of each run that a run starts from; empty: random weights."""
        if stage.name == PRETRAINING:
            start = self.of(arm).start
            return [(start, PRETRAINING)] if start else []
        is_first = stage.after == PRETRAINING and not self.of(arm).pretrains
        return stage.members(arm) or ([] if is_first else [(arm, stage.after)])

    def settings_of(self, arm: str, stage: Stage) -> dict[str, Any]:
        """Return the settings of an arm's stage."""
        return laid_over(stage.settings, self.of(arm).settings.get(stage.name, {}))

    @property
    def finetunes(self) -> bool:
        """True if any stage learns tasks."""
        return any(stage.finetunes for stage in self.stages)

    def n_starts(self, arm: str) -> int:
        """Count the chained pre-trainings before an arm's."""
        start = self.of(arm).start
        return 1 + self.n_starts(start) if start else 0

    def n_runs(self, stage: Stage) -> int:
        """Count the runs of a stage under one pre-training."""
        if stage.ensemble:
            return self.n_runs(self.stage(stage.before[0]))
        if not stage.finetunes:
            return 1
        return self.n_seeds if stage.n_seeds is None else min(stage.n_seeds, self.n_seeds)

    def depth(self, stage: Stage) -> int:
        """Count the stages before this one in a row, the pre-training included."""
        before = [name for name in stage.before if name != PRETRAINING]
        return 1 + max((self.depth(self.stage(name)) for name in before), default=0)


def laid_over(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings: later ones replace earlier ones and those that they exclude."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for group in EXCLUSIVE:
            if any(key in layer for key in group):
                merged = {key: value for key, value in merged.items() if key not in group}
        merged |= layer
    return merged


def describe_stages(chain: Chain) -> str:
    """Write as JSON the identity of a chain besides its arms' recipes.

    Without the number of fine-tunings, which may grow, columns, and file paths: runs are identified
    by content.
    """
    arms = {name: asdict(arm) for name, arm in chain.arms.items()}
    stages = [asdict(stage) for stage in chain.stages]
    for described in (*stages, *arms.values()):
        described.pop("n_seeds", None)
        # Studies begun before these fields existed are equal without them.
        for name in ("start", "from_step", "ensemble"):
            if described.get(name) in (None, "", ()):
                described.pop(name, None)
    return json.dumps({"stages": stages, "arms": arms, "tune": list(chain.tune)}, sort_keys=True)


class _Named(Typed, extra="allow"):
    name: str = ""


class _Identity(Typed):
    """The content of ``describe_stages``; older versions added the folder of the tasks' files."""

    stages: list[_Named]
    arms: dict[str, Any]
    tune: list[str]


def differing_stages(before: str | None, now: str | None) -> str:
    """Name the difference between two texts of ``describe_stages``; "" without any.

    Raises ConfigError if one is damaged.
    """
    if before is None or now is None:
        return "" if before == now else "stages"
    source = "the stages in the study's folder"
    old, new = (
        check_typed(parse_json(text, source, ConfigError), _Identity, source, ConfigError)
        for text in (before, now)
    )
    known, given = (
        {"stage": {x.name: x for x in chain.stages}, "arm": chain.arms} for chain in (old, new)
    )
    for kind, contents in given.items():
        if list(known[kind]) != list(contents):
            return f"{kind}s"
        for name, content in contents.items():
            if content != known[kind][name]:
                return f"settings of its {kind} {name}"
    return "" if old.tune == new.tune else "values to tune"


def finetuning_seed(pretraining: int, number: int) -> int:
    """Return the seed of a fine-tuning, the same under no two pre-trainings.

    Otherwise a seed's draws, such as the order of the examples, would be common to all
    pre-trainings, and averaging would not remove their effect.
    """
    return MOST_FINETUNINGS * pretraining + number


def is_within(chain: Chain, n_seeds: int) -> bool:
    """Return whether fine-tunings of one pre-training are compared, not pre-trainings."""
    return n_seeds == 1 and chain.n_seeds > 1 and chain.finetunes


def n_compared(chain: Chain, n_seeds: int) -> int:
    """Count the compared units: pre-trainings, or fine-tunings of the only one."""
    return chain.n_seeds if is_within(chain, n_seeds) else n_seeds


def explain_nesting(chain: Chain, n_seeds: int) -> str:
    """Word the population that a verdict of a chain generalizes to."""
    if not chain.finetunes:
        return (
            f"All stages of a chain have the seed of its pre-training: {count(n_seeds, 'chain')} "
            "of each arm, which the verdicts are over."
        )
    finetunings = count(chain.n_seeds, "fine-tuning")
    if is_within(chain, n_seeds):
        return (
            f"Verdicts are over {finetunings} of one pre-training of each arm: they hold for these "
            "weights alone, not for architectures or objectives, whose next pre-training may come "
            "out otherwise. --seeds 3 pre-trains three times."
        )
    if chain.n_seeds == 1:
        nested = "each with one fine-tuning on each task"
    else:
        nested = f"each scored by the {chain.nested} of its {finetunings} on each task"
    verdicts = "Verdicts are over pre-trainings."
    if n_seeds < FEWEST_SEEDS:
        verdicts = f"Fewer than {FEWEST_SEEDS} pre-trainings give no verdict."
    return f"Seeds are nested: {count(n_seeds, 'pre-training')} of each arm, {nested}. {verdicts}"
