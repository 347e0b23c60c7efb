"""The metrics and columns that arms are compared by, and the scores and test items behind them."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from sublayer.config.messages import choice_error
from sublayer.errors import ConfigError
from sublayer.evaluation.items import FromItems, Items
from sublayer.nearest import nearest_hint
from sublayer.objective.families import family
from sublayer.objective.metric import Metric
from sublayer.objective.supervised.scores import SCORE, moved_by
from sublayer.runs.items import read_items
from sublayer.statistics.items import Effects
from sublayer.statistics.scores import Scores
from sublayer.statistics.tuning import Tuned
from sublayer.study.arm_runs import Runs, StageRuns, failed_runs, trial_loss
from sublayer.study.definition import Study
from sublayer.study.items import RunItems, TestUnits, item_effects
from sublayer.study.jobs.run import BEST, ERROR
from sublayer.study.stage_recipes import ScoredPart
from sublayer.study.stages import PRETRAINING, Chain, Member
from sublayer.tasks.registry import TASKS
from sublayer.tasks.scoring import METRICS


def study_metrics(study: Study) -> tuple[Metric, ...]:
    """List the metrics of a study's arms, the one that decides first.

    That is the study's, or the first of the objective's where the study names none. Raises
    ConfigError where the arms have none in common, or not the one that the study names, or an arm
    has no head that it could be scored by.
    """
    kinds = {arm.loaded.recipe.objective.kind for arm in study.arms}
    if len(kinds) > 1:
        named = " and ".join(sorted(kinds))
        raise ConfigError(f"arms with objective.kind = {named} are scored by different metrics")
    (kind,) = kinds
    metrics = family(kind).metrics
    if study.metric is None:
        return metrics
    by_name = {metric.name: metric for metric in metrics}
    chosen = by_name.get(study.metric)
    if chosen is None:
        raise ConfigError(choice_error(f"{study.name}: metric", study.metric, by_name))
    for arm in study.arms:
        if not chosen.has_head(arm.loaded.recipe):
            raise ConfigError(
                f"{study.name}: metric = {chosen.name} needs {chosen.asks}: "
                f"{arm.name} has none with {chosen.head}"
            )
    others = [metric for metric in metrics if metric is not chosen]
    return (chosen, *others)


SPEED = "speed"
"""The column of speed-ups: published, and tokens a second in pre-training where an arm's is 1."""


@dataclass(frozen=True)
class Column:
    """A score that every arm has; its metric says whether higher is better."""

    metric: Metric
    """Named as the column."""
    stage: str
    """The stage that is scored; "" for an average."""
    key: str = ""
    """The name of the value among those of a run."""
    part: str = ""
    """The scored part, where there are several; else the only one."""
    members: tuple[Member, ...] = ()
    """Of an average."""
    metrics: tuple[str, ...] = ()
    """Those that an average may name behind its name and a colon."""

    @property
    def name(self) -> str:
        """The column's name."""
        return self.metric.name


def list_columns(
    study: str,
    chain: Chain,
    parts: Mapping[str, Sequence[ScoredPart]],
    kinds: Sequence[str],
) -> list[Column]:
    """List the columns of a chain, the averages first, then its stages, then its pre-training.

    ``parts`` are by stage of tasks, ``kinds`` are those of the arms' objectives. Raises ConfigError
    for averages and metrics of unknown columns.
    """
    scored: list[Column] = []
    for stage in chain.stages:
        if stage.finetunes:
            scored += _of_tasks(chain, stage.name, parts[stage.name])
    _check(study, chain, scored)
    scored = _told_apart(scored)
    averages = [
        Column(points_metric(name, name), "", members=members)
        for name, members in chain.averages.items()
    ]
    texts = [PRETRAINING, *(stage.name for stage in chain.stages if not stage.finetunes)]
    measured = []
    # What arms of different objectives lose is not comparable.
    for kind in dict.fromkeys(kinds) if len(set(kinds)) == 1 else ():
        for text in texts:
            for metric in family(kind).metrics:
                name = f"{text}/{metric.name}"
                label = f"{metric.label}, {text}"
                own = replace(metric, name=name, label=label, unit=metric.unit or metric.label)
                measured.append(Column(own, text, key=metric.name))
    return [*averages, *scored, *measured]


def metric_columns(study: Study) -> list[Column]:
    """List the metrics of a study without stages as columns, the one that decides first.

    Raises ConfigError as ``study_metrics`` does.
    """
    return [Column(metric, PRETRAINING, key=metric.name) for metric in study_metrics(study)]


def value_of(column: Column, scores: Mapping[str, float]) -> float | None:
    """Return a column's value among those of a run or a pre-training; None where it is missing.

    ``scores`` are by the column's name, averages left out; ``member:metric`` names a metric.
    """
    if not column.members:
        return scores.get(column.name)
    values = []
    for member in column.members:
        names = (member,) if isinstance(member, str) else member
        own = [scores.get(name) for name in names]
        if any(each is None for each in own):
            return None
        values.append(math.fsum(each for each in own if each is not None) / len(own))
    return math.fsum(values) / len(values)


def run_scores(
    columns: Sequence[Column], stage: str, test: Mapping[str, float]
) -> dict[str, float]:
    """Return the scores of a run of a stage by the names of columns, and of their metrics.

    With ``ERROR`` after a column's name, its standard error, where that is known.
    """
    found = {}
    for column in columns:
        if column.stage != stage:
            continue
        if column.key in test:
            found[column.name] = float(test[column.key])
        error = test.get(f"{column.key}{ERROR}")
        if error is not None:
            found[f"{column.name}{ERROR}"] = float(error)
        for key, value in test.items():
            part, colon, metric = key.partition(":")
            if colon and part == column.part and not key.endswith(ERROR):
                found[f"{column.name}:{metric}"] = float(value)
    return found


def primary_column(study: str, columns: Sequence[Column], name: str | None) -> Column:
    """Return the column that decides: the one that is named, or the first.

    Raises ConfigError for a name that is none.
    """
    if name is None:
        return columns[0]
    for column in columns:
        if column.name == name:
            return column
    names = [column.name for column in columns]
    raise ConfigError(
        f"{study}: metric = {name} is no column{nearest_hint(name, names)}: there are "
        f"{', '.join(names)}"
    )


def _of_tasks(chain: Chain, stage: str, parts: Sequence[ScoredPart]) -> Iterator[Column]:
    if len(parts) == 1:
        yield from _of_part(chain, stage, stage, parts[0].name, parts[0])
        return
    yield Column(points_metric(stage, f"{stage}, mean"), stage)
    for part in parts:
        yield from _of_part(chain, f"{stage}/{part.name}", stage, part.name, part)
    # No checkpoint of an ensemble is chosen for a task.
    is_chosen = not chain.stage(stage).ensemble
    if is_chosen and len({part.task.name for part in parts}) > 1:
        for part in parts:
            name = f"{stage}/{BEST}{part.name}"
            yield from _of_part(chain, name, stage, f"{BEST}{part.name}", part)


def _of_part(chain: Chain, name: str, stage: str, key: str, part: ScoredPart) -> Iterator[Column]:
    """Return the column of a part, and of its metrics where several are asked for."""
    asked = chain.metrics.get(name)
    label = part_label(part.name, part.task.title)
    if key != part.name:
        label = f"{label}, its best checkpoint"
    if stage not in (part.task.name, part.name) and name == stage:
        label = f"{label} ({stage})"
    if asked is None or not isinstance(asked, str):
        metrics = tuple(part.task.metrics)
        yield Column(points_metric(name, label), stage, key=key, part=key, metrics=metrics)
    for metric in [asked] if isinstance(asked, str) else asked or ():
        if metric not in part.task.metrics:
            raise ConfigError(
                f"{part.task.title} has no metric {metric}{nearest_hint(metric, part.task.metrics)}"
                f": it has {', '.join(part.task.metrics)}"
            )
        own = name if isinstance(asked, str) else f"{name}:{metric}"
        shown = points_metric(own, f"{label}, {METRICS[metric].title}")
        yield Column(
            shown,
            stage,
            key=f"{key}:{metric}",
            part=key if own == name else "",
            metrics=tuple(part.task.metrics) if own == name else (),
        )


def _told_apart(columns: Sequence[Column]) -> list[Column]:
    """Return columns of which no two have one label: those that would, with their names."""
    labels = Counter(column.metric.label for column in columns)
    apart = []
    for column in columns:
        metric = column.metric
        if labels[metric.label] > 1:
            metric = replace(metric, label=f"{metric.label} ({metric.name})")
        apart.append(replace(column, metric=metric))
    return apart


def speed_metric(base: str) -> Metric:
    """Return the metric of speed-ups over an arm, measured and published."""
    return Metric(
        SPEED,
        f"speed-up over {base}" if base else SPEED,
        is_lower_better=False,
        from_items=None,
        unit="times",
        factor=1.0,
        decimals=1,
    )


def published_metric(name: str) -> Metric:
    """Return the metric of a column that was published, and is measured in no stage."""
    if name == SPEED:
        return speed_metric("")
    last, _, metric = name.rpartition("/")[2].partition(":")
    task = TASKS.get(last) or TASKS.get(last.partition("_")[0])
    if task is None:
        return points_metric(name, name)
    label = part_label(last, task.title)
    if f"/{BEST}" in name:
        label = f"{label}, its best checkpoint"
    if metric in METRICS:
        label = f"{label}, {METRICS[metric].title}"
    return points_metric(name, label)


def part_label(part: str, title: str) -> str:
    """Return a part's label: its task's title, and of one of several parts of a task which it is.

    ``part`` is as ``part_name`` has it.
    """
    if part in TASKS or "_" not in part:
        return title
    return f"{title} {part.rpartition('_')[2]}"


def points_metric(name: str, label: str) -> Metric:
    """Return the metric of a column whose values are shares, shown in percent."""
    return Metric(
        name,
        label,
        is_lower_better=False,
        from_items=None,
        unit="points",
        factor=100.0,
        decimals=1,
    )


def _check(study: str, chain: Chain, columns: Sequence[Column]) -> None:
    """Raise ConfigError where averages and metrics name unknown columns."""
    by_name = {column.name: column for column in columns}
    names = list(by_name)
    for name, asked in chain.metrics.items():
        _check_is_column(study, name, names)
        _check_once(f"{study}: metrics of {name}", [asked] if isinstance(asked, str) else asked)
    for average, members in chain.averages.items():
        if average in names:
            raise ConfigError(f"{study}: the average {average} has the name of a column")
        flat = [
            name for member in members for name in ([member] if isinstance(member, str) else member)
        ]
        _check_once(f"{study}: the average {average}", flat)
        for member in flat:
            if member in names:
                continue
            name, _, metric = member.partition(":")
            _check_is_column(study, name, names)
            known = by_name[name].metrics
            if metric not in known:
                there = f"it has {', '.join(known)}" if known else "it is a mean of several"
                raise ConfigError(
                    f"{study}: the average {average} has {member}, and {name} has no metric "
                    f"{metric}{nearest_hint(metric, known)}: {there}"
                )


def _check_is_column(study: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise ConfigError(
            f"{study}: {name} is no column{nearest_hint(name, names)}: there are {', '.join(names)}"
        )


def _check_once(what: str, members: Sequence[str]) -> None:
    for member in members:
        if list(members).count(member) > 1:
            raise ConfigError(f"{what} has {member} twice: leave one out")


Values = Mapping[str, Mapping[int, float]]
"""A metric's value of each seed that finished, by arm."""


@dataclass(frozen=True)
class Evidence:
    """The scores that a metric is judged by, and what else its intervals depend on."""

    scores: Scores
    tuned: Mapping[str, Tuned] = field(default_factory=dict)
    """By arm, the trials of those that were tuned by this metric."""
    resolution: float = 0.0
    """The smallest step of the metric, in its unit."""
    scored_elsewhere: Collection[str] = ()
    """Arms that were scored on other items than their baseline."""

    def first(self, n_seeds: int) -> "Evidence":
        """Return the evidence of the first ``n_seeds`` seeds."""
        scores = self.scores.first(n_seeds)
        tuned = {}
        for arm, own in self.tuned.items():
            compared = {seed: own.compared[seed] for seed in scores.seeds if seed in own.compared}
            tuned[arm] = replace(own, compared=compared)
        return replace(self, scores=scores, tuned=tuned)


def gather_evidence(
    study: Study,
    column: Column,
    columns: Sequence[Column],
    values: Values,
    runs: Runs,
    items: Sequence[RunItems],
    *,
    n_seeds: int,
    n_tuning: int = 1,
    within: bool = False,
) -> Evidence:
    """Gather the evidence on a column; ``items`` are those of the runs of a study without stages.

    ``n_seeds`` are those that are compared, ``n_tuning`` the runs of each trial, where arms were
    tuned. Where a metric follows from no items, or too few, the variance over seeds alone is known.
    """
    metric = column.metric
    shown = 10.0 ** -(metric.decimals + 1) / metric.factor
    if study.chain is not None:
        with_failures = {arm for arm, *_ in failed_runs(runs)}
        failed = {
            arm: [seed for seed in range(n_seeds) if seed not in own]
            for arm, own in values.items()
            if arm in with_failures
        }
        units = column_units(study.chain, runs, list(values), columns, column, within=within)
        return Evidence(scores_of(values, failed, units), resolution=shown)
    failed = {arm: [] for arm, _ in runs}
    for arm, _, seed, _ in failed_runs(runs):
        failed[arm].append(seed)
    found = _units(items, metric)
    steps = [each.step for own in found.values() for each in own.values()]
    elsewhere: Collection[str] = ()
    if metric.basis == "items":
        elsewhere = scored_elsewhere(items, study.arms[0].name, metric, study.against)
    tuned = _tuned(runs, metric, n_tuning)
    return Evidence(scores_of(values, failed, found), tuned, max([shown, *steps]), elsewhere)


def scores_of(
    values: Values,
    failed: Mapping[str, Collection[int]],
    units: Mapping[str, Mapping[int, TestUnits]],
) -> Scores:
    """Arrange values, failed seeds and test units, all by arm, as scores."""
    known = [each for own in units.values() for each in own.values()]
    effects = {
        arm: {seed: each.effects for seed, each in own.items()} for arm, own in units.items()
    }
    return Scores.of(
        values,
        failed=failed,
        effects=effects,
        n_items=known[0].n_items if known else None,
        n_documents=known[0].n_documents if known else None,
        shares=known[0].shares if known else None,
    )


def _tuned(runs: Runs, metric: Metric, n_tuning: int) -> Mapping[str, Tuned]:
    """Return the scores of trials of arms that were tuned by the metric, of each that ended."""
    tuned = {}
    for (arm, _), stage_runs in runs.items():
        if stage_runs.is_chosen_by(metric):
            names = [name for name, loss in stage_runs.losses.items() if loss is not None]
            scores = tuple(loss for loss in stage_runs.losses.values() if loss is not None)
            runs_of = tuple(stage_runs.trial_runs.get(name, ()) for name in names)
            compared = {
                seed: loss
                for seed, outcome in stage_runs.seeded()
                if (loss := trial_loss([outcome], stage_runs.chosen_by)) is not None
            }
            tuned[arm] = Tuned(scores, n_tuning, compared, runs_of)
    return tuned


def scored_elsewhere(
    kept: Sequence[RunItems],
    baseline: str,
    metric: Metric,
    against: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the arms that a metric scored on other items than their baseline, in order.

    That is ``baseline``, or their arm in ``against``. A metric that follows from no items tells of
    none.
    """
    if metric.from_items is None:
        return []
    against = against or {}
    digests: dict[str, str] = {}
    for run in kept:
        table = run.items.tables.get(metric.from_items.table)
        if table is not None:
            digests[run.arm] = table.digest
    found = []
    for arm, digest in digests.items():
        expected = digests.get(against.get(arm, baseline), digest)
        if digest != expected:
            found.append(arm)
    return found


def _units(kept: Sequence[RunItems], metric: Metric) -> dict[str, dict[int, TestUnits]]:
    """Return how runs' test units move the metric, by arm and seed."""
    rule = metric.from_items
    found: dict[str, dict[int, TestUnits]] = {}
    if rule is None:
        return found
    digest = None
    for run in kept:
        table = run.items.tables.get(rule.table)
        if table is None:
            continue
        # Runs that were scored on other items than the first share none with it.
        digest = digest or table.digest
        if table.digest != digest:
            continue
        units = item_effects(table, rule)
        if units is not None:
            found.setdefault(run.arm, {})[run.seed] = units
    return found


def column_units(
    chain: Chain,
    runs: Runs,
    arms: Sequence[str],
    columns: Sequence[Column],
    column: Column,
    *,
    within: bool,
) -> Mapping[str, Mapping[int, TestUnits]]:
    """Return how much each test unit moves a column, by arm and by the seed that is compared.

    Of a pre-training that is the mean over its fine-tunings, and of an average that of its members,
    one after another. An arm is missing where its runs kept no items, or others than the first
    arm's.
    """
    by_name = {column.name: column for column in columns}
    found: dict[str, dict[int, TestUnits]] = {}
    shape = None
    for arm in arms:
        own = _of_arm(chain, runs, arm, column, by_name, within=within)
        if not own:
            continue
        marks = {mark for _, mark in own.values()}
        shape = shape or min(marks)
        if marks == {shape}:
            found[arm] = {seed: units for seed, (units, _) in own.items()}
    return found


def has_items(chain: Chain, column: Column) -> bool:
    """Return whether intervals of a column allow for other test items."""
    return bool(column.members) or _rule_of(chain, column, "") is not None


_Marked = tuple[TestUnits, str]
"""Test units, and the checksum of their items."""


def _of_arm(
    chain: Chain,
    runs: Runs,
    arm: str,
    column: Column,
    by_name: Mapping[str, Column],
    *,
    within: bool,
) -> dict[int, _Marked]:
    if not column.members:
        return _of_column(chain, runs, arm, column, "", within=within)
    parts: list[tuple[float, dict[int, _Marked]]] = []
    for member in column.members:
        names = (member,) if isinstance(member, str) else member
        for name in names:
            title, _, metric = name.partition(":")
            known = by_name.get(name)
            if known is None:
                known = by_name.get(title)
            else:
                metric = ""
            if known is None:
                return {}
            share = 1.0 / len(column.members) / len(names)
            parts.append((share, _of_column(chain, runs, arm, known, metric, within=within)))
    seeds = set.intersection(*(set(part) for _, part in parts)) if parts else set()
    joined = {}
    for seed in sorted(seeds):
        units = [part[seed][0] for _, part in parts]
        pieces = [share * part[seed][0].effects for share, part in parts]
        counts = [unit.n_documents for unit in units]
        whole = replace(
            units[0],
            effects=np.concatenate(pieces),
            n_items=sum(unit.n_items for unit in units),
            n_documents=None if None in counts else sum(count or 0 for count in counts),
            shares=_joined_shares([share for share, _ in parts], units),
        )
        joined[seed] = whole, " ".join(part[seed][1] for _, part in parts)
    return joined


def _joined_shares(weights: Sequence[float], units: Sequence[TestUnits]) -> Effects | None:
    """Return the share of each unit in a mean over tests; None where all are equal."""
    sizes = []
    for weight, each in zip(weights, units, strict=True):
        n_units = len(each.effects)
        own = np.full(n_units, 1.0 / n_units) if each.shares is None else each.shares
        sizes.append(weight * own)
    joined: Effects = np.concatenate(sizes)
    return None if np.allclose(joined, joined[0], rtol=1e-9) else joined / joined.sum()


def _of_column(
    chain: Chain, runs: Runs, arm: str, column: Column, metric: str, *, within: bool
) -> dict[int, _Marked]:
    """Return the effects on a column of one stage, or on a ``metric`` of it."""
    own = runs.get((arm, column.stage))
    rule = _rule_of(chain, column, metric)
    if own is None or rule is None:
        return {}
    return _of_stage(own, rule, chain, within=within)


def _rule_of(chain: Chain, column: Column, metric: str) -> FromItems | None:
    """Return how a column of one stage follows from its items; None where it does not."""
    stages = {stage.name: stage for stage in chain.stages}
    if column.stage not in stages or not stages[column.stage].finetunes:
        return column.metric.from_items
    table, _, usual = column.key.partition(":")
    is_kept = table and not table.startswith(BEST)
    return moved_by(metric or usual or SCORE, table) if is_kept else None


def _of_stage(own: StageRuns, rule: FromItems, chain: Chain, *, within: bool) -> dict[int, _Marked]:
    """Return the effects of a stage's items by the seed that is compared."""
    by_seed: dict[int, list[_Marked]] = {}
    for seed, outcomes in own.outcomes.items():
        for number, outcome in enumerate(outcomes):
            if outcome.test is None:
                continue
            marked = _of_run(outcome.path, rule)
            if marked is None:
                return {}
            is_alone = len(outcomes) == 1
            compared = (range(chain.n_seeds) if is_alone else (number,)) if within else (seed,)
            for each in compared:
                by_seed.setdefault(each, []).append(marked)
    found = {}
    for seed, marked_runs in by_seed.items():
        marks = {mark for _, mark in marked_runs}
        if len(marks) != 1:
            return {}
        mean = np.mean([units.effects for units, _ in marked_runs], axis=0)
        found[seed] = replace(marked_runs[0][0], effects=mean), min(marks)
    return found


def _of_run(path: Path, rule: FromItems) -> _Marked | None:
    items = _items(path)
    table = items.tables.get(rule.table) if items is not None else None
    if table is None:
        return None
    try:
        units = item_effects(table, rule)
    except KeyError:
        return None  # the run has no such metric
    return None if units is None else (units, table.digest)


@lru_cache(maxsize=256)
def _items(path: Path) -> Items | None:
    return read_items(path)
