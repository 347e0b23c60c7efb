"""The metrics by which a study compares its arms."""

from sublayer.config.fields.messages import choice_error
from sublayer.errors import ConfigError
from sublayer.objective.families import FAMILIES
from sublayer.objective.metric import Metric
from sublayer.study.definition import Study


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
    metrics = FAMILIES[kind].metrics
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
