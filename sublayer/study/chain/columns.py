"""The columns of a chain's scores: of each stage and its parts, and their averages."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sublayer.errors import ConfigError
from sublayer.nearest import nearest_hint
from sublayer.objective.families import FAMILIES
from sublayer.objective.metric import Metric
from sublayer.study.chain.keys import Part
from sublayer.study.chain.stages import PRETRAINING, Chain, Member
from sublayer.study.execution.finetuned_run import BEST
from sublayer.tasks.metrics.table import METRICS


@dataclass(frozen=True)
class Column:
    """A score that every arm has, higher the better but for what the metric says."""

    metric: Metric
    """Named as the column."""
    stage: str
    """The stage that is scored; "" for an average."""
    key: str = ""
    """What the value is called among those of a run."""
    part: str = ""
    """What it is of, where it is a part of several; else the only one."""
    members: tuple[Member, ...] = ()
    """Of an average."""

    @property
    def name(self) -> str:
        """The column's name."""
        return self.metric.name


def list_columns(
    study: str,
    chain: Chain,
    parts: Mapping[str, Sequence[Part]],
    kinds: Sequence[str],
) -> list[Column]:
    """List the columns of a chain, the averages first, then its stages, then its pre-training.

    ``parts`` are by stage of tasks, ``kinds`` are those of the arms' objectives. Raises ConfigError
    for averages and metrics of what is no column.
    """
    scored: list[Column] = []
    for stage in chain.stages:
        if stage.finetunes:
            scored += _of_tasks(chain, stage.name, parts[stage.name])
    _check(study, chain, scored)
    averages = [
        Column(points_metric(name, name), "", members=members)
        for name, members in chain.averages.items()
    ]
    texts = [PRETRAINING, *(stage.name for stage in chain.stages if not stage.finetunes)]
    measured = []
    # What arms of different objectives lose is not comparable.
    for kind in dict.fromkeys(kinds) if len(set(kinds)) == 1 else ():
        for text in texts:
            for metric in FAMILIES[kind].metrics:
                name = f"{text}/{metric.name}"
                label = f"{metric.label}, {text}"
                own = replace(metric, name=name, label=label, unit=metric.unit or metric.label)
                measured.append(Column(own, text, key=metric.name))
    return [*averages, *scored, *measured]


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
    """Return what a run of a stage scored, by the names of columns, and of their metrics."""
    found = {}
    for column in columns:
        if column.stage != stage:
            continue
        if column.key in test:
            found[column.name] = float(test[column.key])
        for key, value in test.items():
            part, colon, metric = key.partition(":")
            if colon and part == column.part:
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


def _of_tasks(chain: Chain, stage: str, parts: Sequence[Part]) -> Iterator[Column]:
    if len(parts) == 1:
        yield _column(chain, stage, stage, parts[0].name, parts[0])
        return
    yield Column(points_metric(stage, f"{stage}, mean"), stage)
    for part in parts:
        yield _column(chain, f"{stage}/{part.name}", stage, part.name, part)
    if len({part.task.name for part in parts}) > 1:
        for part in parts:
            name = f"{stage}/{BEST}{part.name}"
            yield _column(chain, name, stage, f"{BEST}{part.name}", part)


def _column(chain: Chain, name: str, stage: str, key: str, part: Part) -> Column:
    metric = chain.metrics.get(name)
    of_part = key
    label = part.task.title if key == part.name else f"{part.task.title}, its best checkpoint"
    if stage not in (part.task.name, part.name) and name == stage:
        label = f"{label} ({stage})"
    if metric is not None:
        if metric not in part.task.metrics:
            raise ConfigError(
                f"{part.task.title} has no metric {metric}{nearest_hint(metric, part.task.metrics)}"
                f": it has {', '.join(part.task.metrics)}"
            )
        key = f"{key}:{metric}"
        label = f"{label}, {METRICS[metric].title}"
    return Column(points_metric(name, label), stage, key=key, part=of_part)


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
    """Raise ConfigError where averages and metrics name what is no column."""
    names = [column.name for column in columns]
    members: list[str] = [*chain.metrics]
    for average in chain.averages.values():
        for member in average:
            members += [member] if isinstance(member, str) else member
    for member in members:
        column = member.partition(":")[0]
        if column not in names:
            raise ConfigError(
                f"{study}: {column} is no column{nearest_hint(column, names)}: there are "
                f"{', '.join(names)}"
            )
    for name in chain.averages:
        if name in names:
            raise ConfigError(f"{study}: the average {name} has the name of a column")
