"""A study is decided by its objective's first metric, or by the one that it names."""

from dataclasses import replace

import pytest

from sublayer.config.layers import load_recipe
from sublayer.errors import ConfigError
from sublayer.study.arms import make_arm
from sublayer.study.definition import Study, load_study
from sublayer.study.metrics import BITS_PER_BYTE, METRICS, study_metrics

MASKED = ["mlm_accuracy", "nsp_accuracy", "sop_accuracy", "loss"]


def study_of(*names: str, metric: str | None = None) -> Study:
    arms = tuple(make_arm(name, load_recipe(name), {}) for name in names)
    return replace(load_study("gpt"), arms=arms, metric=metric)


def test_decoders_are_compared_by_bits_per_byte() -> None:
    assert study_metrics(study_of("gpt", "modern")) == (BITS_PER_BYTE,)
    assert study_metrics(study_of("gpt", metric="bits_per_byte")) == (BITS_PER_BYTE,)


def test_encoders_are_compared_by_what_they_predict_and_judge() -> None:
    assert [metric.name for metric in study_metrics(study_of("albert-small"))] == MASKED
    assert [metric.is_lower_better for metric in METRICS["masked"]] == [False, False, False, True]


@pytest.mark.parametrize("name", MASKED)
def test_the_metric_that_is_named_decides_and_the_others_follow(name: str) -> None:
    found = [metric.name for metric in study_metrics(study_of("albert-small", metric=name))]
    assert found == [name, *(other for other in MASKED if other != name)]


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (
            study_of("gpt", "albert-small"),
            "arms with objective.kind = causal and masked are scored by different metrics",
        ),
        (study_of("gpt", metric="loss"), "gpt: metric = 'loss' is not one of bits_per_byte"),
        (
            study_of("albert-small", metric="sop_acuracy"),
            "gpt: metric = 'sop_acuracy' is not one of mlm_accuracy, nsp_accuracy, sop_accuracy, loss: did you mean "
            "sop_accuracy?",
        ),
    ],
    ids=["mixed", "of another objective", "misspelt"],
)
def test_what_the_arms_are_not_scored_by_is_refused(study: Study, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        study_metrics(study)
    assert str(caught.value) == message
