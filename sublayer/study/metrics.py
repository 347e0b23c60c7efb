"""What a study compares its arms by, under each kind of objective."""

from collections.abc import Mapping

from sublayer.config.wording import choice_error
from sublayer.errors import ConfigError
from sublayer.study.definition import Study
from sublayer.study.statistics import Metric

BITS_PER_BYTE = Metric("bits_per_byte", "bits per byte", is_lower_better=True)
METRICS: Mapping[str, tuple[Metric, ...]] = {
    "causal": (BITS_PER_BYTE,),
    "masked": (
        Metric("mlm_accuracy", "MLM accuracy", is_lower_better=False),
        Metric("nsp_accuracy", "NSP accuracy", is_lower_better=False),
        Metric("sop_accuracy", "SOP accuracy", is_lower_better=False),
        Metric("loss", "nats per hidden token", is_lower_better=True),
    ),
}
"""What is scored on the test split; the first decides where a study names no other."""


def study_metrics(study: Study) -> tuple[Metric, ...]:
    """List the metrics of a study's arms, the one that decides first.

    Raises ConfigError where the arms have none in common, or not the one that the study names.
    """
    kinds = {arm.loaded.recipe.objective.kind for arm in study.arms}
    if len(kinds) > 1:
        raise ConfigError(f"arms with objective.kind = {' and '.join(sorted(kinds))} are scored by different metrics")
    known = METRICS[min(kinds)]
    names = [metric.name for metric in known]
    if study.metric is not None and study.metric not in names:
        raise ConfigError(choice_error(f"{study.name}: metric", study.metric, names))
    return tuple(sorted(known, key=lambda metric: study.metric is not None and metric.name != study.metric))
