"""What a study compares its arms by, under each kind of objective."""

from collections.abc import Mapping

from sublayer.config.wording import choice_error
from sublayer.errors import ConfigError
from sublayer.study.definition import Study
from sublayer.study.statistics import Metric


def _share(name: str, label: str) -> Metric:
    return Metric(name, f"{label}, %", is_lower_better=False, unit=f"points of {label}", factor=100.0, decimals=1)


BITS_PER_BYTE = Metric("bits_per_byte", "bits per byte", is_lower_better=True)
METRICS: Mapping[str, tuple[Metric, ...]] = {
    "causal": (BITS_PER_BYTE,),
    "masked": (
        _share("mlm_accuracy", "MLM accuracy"),
        _share("nsp_accuracy", "NSP accuracy"),
        _share("sop_accuracy", "SOP accuracy"),
        Metric("loss", "nats per hidden token", is_lower_better=True),
    ),
    "translation": (
        Metric("bleu", "BLEU of words", is_lower_better=False, unit="BLEU", decimals=2),
        Metric("sacrebleu", "BLEU of text", is_lower_better=False, unit="BLEU", decimals=2),
        Metric("chrf", "chrF", is_lower_better=False, unit="chrF", decimals=2),
        Metric("loss", "nats per token", is_lower_better=True),
    ),
}
"""What is scored on the test split; the first decides where a study names no other."""
PAIR_METRICS = ("nsp_accuracy", "sop_accuracy")
"""Those that need the sentence head, and pairs of sentences in the text."""


def study_metrics(study: Study) -> tuple[Metric, ...]:
    """List the metrics of a study's arms, the one that decides first.

    Raises ConfigError where the arms have none in common, or not the one that the study names, or an arm has no head
    that it could be scored by.
    """
    kinds = {arm.loaded.recipe.objective.kind for arm in study.arms}
    if len(kinds) > 1:
        raise ConfigError(f"arms with objective.kind = {' and '.join(sorted(kinds))} are scored by different metrics")
    known = METRICS[min(kinds)]
    names = [metric.name for metric in known]
    if study.metric is not None and study.metric not in names:
        raise ConfigError(choice_error(f"{study.name}: metric", study.metric, names))
    if study.metric in PAIR_METRICS:
        headless = [arm.name for arm in study.arms if not arm.loaded.recipe.model.sentence_classes]
        if headless:
            raise ConfigError(
                f"{study.name}: metric = {study.metric} needs a head: {headless[0]} has none with "
                "model.sentence_classes = 0"
            )
    return tuple(sorted(known, key=lambda metric: study.metric is not None and metric.name != study.metric))
