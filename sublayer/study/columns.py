"""Columns of compared scores: metrics of a plain study, tasks and averages of stages."""

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sublayer.config.messages import choice_error
from sublayer.errors import ConfigError, nearest_hint
from sublayer.evaluation.items import Metric
from sublayer.objective.base import family
from sublayer.study.arms import PRETRAINING, Chain, Member, names_of
from sublayer.study.definition import Study
from sublayer.study.jobs.run import BEST, ERROR
from sublayer.study.stage_recipes import StagePart
from sublayer.tasks.metrics import METRICS
from sublayer.tasks.registry import TASKS


def study_metrics(study: Study) -> tuple[Metric, ...]:
    """List the metrics of a study's arms, the deciding one first.

    It is the study's, or the first of the objective's by default. Raises ConfigError if the arms
    lack a common metric, or the study's, or if an arm has no head for scoring.
    """
    kinds = {arm.loaded.recipe.objective.kind for arm in study.arms}
    if len(kinds) > 1:
        named = " and ".join(sorted(kinds))
        raise ConfigError(
            f"arms with objective.kind = {named} have different metrics and cannot be compared"
        )
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
"""Speed-up column: published, and by tokens per second in pre-training, relative to the arm with
published speed 1."""


@dataclass(frozen=True)
class Column:
    """A score on which arms are compared."""

    metric: Metric
    """The column's metric, with the column's name."""
    stage: str
    """The scored stage; "" for an average."""
    key: str = ""
    """The name of the value in a run's scores."""
    part: str = ""
    """The scored part, if there are several; else the only one."""
    members: tuple[Member, ...] = ()
    """Members of an average."""
    metrics: tuple[str, ...] = ()
    """Metrics that an average may name after its name and a colon."""

    @property
    def name(self) -> str:
        """The column's name."""
        return self.metric.name

    def value_of(self, scores: Mapping[str, float]) -> float | None:
        """Return a column's value from the scores of a run or a pre-training; None if missing.

        ``scores`` are by column name, without averages; ``member:metric`` names a metric.
        """
        if not self.members:
            return scores.get(self.name)
        members = list(map(names_of, self.members))
        if not scores.keys() >= {name for names in members for name in names}:
            return None
        values = [math.fsum(scores[name] for name in names) / len(names) for names in members]
        return math.fsum(values) / len(values)


def list_columns(
    study: str,
    chain: Chain,
    parts: Mapping[str, Sequence[StagePart]],
    kinds: Sequence[str],
) -> list[Column]:
    """List the columns of a chain: averages, then stages, then pre-training.

    ``parts`` are by stage of tasks, ``kinds`` are of the arms' objectives. Raises ConfigError for
    averages and metrics of unknown columns.
    """
    scored: list[Column] = []
    for stage in chain.stages:
        of_stage = parts[stage.name] if stage.finetunes else ()
        if len(of_stage) == 1:
            scored += _of_part(chain, stage.name, stage.name, of_stage[0].name, of_stage[0])
        elif of_stage:
            scored.append(Column(points_metric(stage.name, f"{stage.name}, mean"), stage.name))
            # An ensemble selects no checkpoint per task.
            is_one = len({part.task.name for part in of_stage}) == 1 or stage.ensemble
            for best, part in itertools.product(("",) if is_one else ("", BEST), of_stage):
                key = f"{best}{part.name}"
                scored += _of_part(chain, f"{stage.name}/{key}", stage.name, key, part)
    _check(study, chain, scored)
    labels = Counter(column.metric.label for column in scored)
    scored = [
        replace(column, metric=replace(shown, label=f"{shown.label} ({shown.name})"))
        if labels[shown.label] > 1  # no two columns have one label
        else column
        for column in scored
        for shown in (column.metric,)
    ]
    averages = [
        Column(points_metric(name, name), "", members=members)
        for name, members in chain.averages.items()
    ]
    texts = [PRETRAINING, *(stage.name for stage in chain.stages if not stage.finetunes)]
    measured = []
    # Losses of different objectives are not comparable.
    for kind in dict.fromkeys(kinds) if len(set(kinds)) == 1 else ():
        for text in texts:
            for metric in family(kind).metrics:
                name = f"{text}/{metric.name}"
                label = f"{metric.label}, {text}"
                shown = replace(metric, name=name, label=label, unit=metric.unit or metric.label)
                measured.append(Column(shown, text, key=metric.name))
    return [*averages, *scored, *measured]


def metric_columns(study: Study) -> list[Column]:
    """List the metrics of a plain study as columns, the deciding one first.

    Raises ConfigError as ``study_metrics`` does.
    """
    return [Column(metric, PRETRAINING, key=metric.name) for metric in study_metrics(study)]


def run_scores(
    columns: Sequence[Column], stage: str, test: Mapping[str, float]
) -> dict[str, float]:
    """Return the scores of a run of a stage by the names of columns, and of their metrics.

    ``ERROR`` after a column's name gives its standard error, if known.
    """
    scores = {}
    for column in columns:
        if column.stage != stage:
            continue
        for suffix in ("", ERROR):
            if test.get(f"{column.key}{suffix}") is not None:
                scores[f"{column.name}{suffix}"] = float(test[f"{column.key}{suffix}"])
        for key, value in test.items():
            part, colon, metric = key.partition(":")
            if colon and part == column.part and not key.endswith(ERROR):
                scores[f"{column.name}:{metric}"] = float(value)
    return scores


def primary_column(study: str, columns: Sequence[Column], name: str | None) -> Column:
    """Return the deciding column: the named one, or the first.

    Raises ConfigError for an unknown name.
    """
    if name is None:
        return columns[0]
    by_name = {column.name: column for column in columns}
    _check_is_column(f"{study}: metric = {name}", name, by_name)
    return by_name[name]


def _of_part(chain: Chain, name: str, stage: str, key: str, part: StagePart) -> Iterator[Column]:
    """Return the column of a part, and of its metrics if several are named."""
    named = chain.metrics.get(name)
    label = part_label(part.name, part.task.title)
    if key != part.name:
        label = f"{label}, its best checkpoint"
    if stage not in (part.task.name, part.name) and name == stage:
        label = f"{label} ({stage})"
    metrics = part.task.metrics
    if not isinstance(named, str):
        yield Column(points_metric(name, label), stage, key=key, part=key, metrics=metrics)
    for metric in names_of(named):
        if metric not in metrics:
            raise ConfigError(
                f"{part.task.title} has no metric {metric}{nearest_hint(metric, metrics)}: it has "
                f"{', '.join(metrics)}"
            )
        titled, of_part = f"{label}, {METRICS[metric].title}", f"{key}:{metric}"
        if isinstance(named, str):
            shown = points_metric(name, titled)
            yield Column(shown, stage, key=of_part, part=key, metrics=metrics)
        else:
            yield Column(points_metric(f"{name}:{metric}", titled), stage, key=of_part)


def speed_metric(base: str) -> Metric:
    """Return the metric of speed-ups over an arm, measured and published."""
    label = f"speed-up over {base}" if base else SPEED
    return replace(points_metric(SPEED, label), unit="times", factor=1.0)


def published_metric(name: str) -> Metric:
    """Return the metric of a published column that no stage measures."""
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
    """Return a part's label: its task's title, and its name if the task has several parts.

    ``part`` is as in ``part_name``.
    """
    if part in TASKS or "_" not in part:
        return title
    return f"{title} {part.rpartition('_')[2]}"


def points_metric(name: str, label: str) -> Metric:
    """Return the metric of a column of shares, shown in percent."""
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
    """Raise ConfigError for averages or metrics that name an unknown column, or one twice."""
    by_name = {column.name: column for column in columns}
    lists = {f"metrics of {name}": names_of(member) for name, member in chain.metrics.items()}
    for average, members in chain.averages.items():
        if average in by_name:
            raise ConfigError(
                f"{study}: the average {average} has the name of a column: rename the average"
            )
        flat = tuple(name for member in members for name in names_of(member))
        lists[f"the average {average}"] = flat
    for what, names in lists.items():
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"{study}: {what} has {name} twice: leave one out")
    for name in chain.metrics:
        _check_is_column(f"{study}: {name}", name, by_name)
    for average in chain.averages:
        for member in lists[f"the average {average}"]:
            name, _, metric = member.partition(":")
            if member in by_name:
                continue
            _check_is_column(f"{study}: {name}", name, by_name)
            metrics = by_name[name].metrics
            if metric not in metrics:
                there = f"it has {', '.join(metrics)}" if metrics else "it is a mean of several"
                raise ConfigError(
                    f"{study}: the average {average} has {member}, and {name} has no metric "
                    f"{metric}{nearest_hint(metric, metrics)}: {there}"
                )


def _check_is_column(what: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        raise ConfigError(
            f"{what} is not a column{nearest_hint(name, list(names))}: the columns are "
            f"{', '.join(names)}"
        )
