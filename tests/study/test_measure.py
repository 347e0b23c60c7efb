"""Steps are timed where they fit, and their time extrapolated where they do not."""

import time
from collections.abc import Sequence
from dataclasses import replace

from sublayer.config.layers import load_recipe
from sublayer.study.arms import expand
from sublayer.study.measure import Stopwatch
from sublayer.study.plan import Plan, make_plan
from sublayer.study.resources import Resources

PLENTY = Resources("cpu", memory_bytes=1 << 40, disk_bytes=1 << 40, has_fast_bfloat16=True, cores=1)
SHAPE = ("model.n_layers=4", "model.d_model=32")
FIXED = ("data.context=32", "train.threads=1", "train.precision=float32")


def measured(
    *settings: str,
    name: str = "gpt",
    shape: Sequence[str] = SHAPE,
    resources: Resources = PLENTY,
    budget_s: float = 8.0,
) -> Plan:
    said: list[str] = []
    arms = expand(load_recipe(name, [*shape, *FIXED, *settings]), [])
    plan = make_plan(arms, "none", resources, Stopwatch(resources, said.append, budget_s))
    assert said == [f"measuring {name} (1 of 1)"]
    return plan


def test_a_small_step_is_measured() -> None:
    (arm,) = measured().arms
    assert arm.step_time is not None
    assert arm.step_time.is_measured
    assert 0.0005 < arm.step_time.seconds < 2


def test_a_small_step_of_an_encoder_is_measured() -> None:
    settings = ("train.batch_sequences=4", "model.vocab_size=100", "model.n_heads=4", "data.vocab_size=100")
    (arm,) = measured(*settings, name="albert-base", shape=("model.n_layers=4", "model.d_model=32")).arms
    assert arm.step_time is not None
    assert arm.step_time.is_measured
    assert 0.0005 < arm.step_time.seconds < 2


def test_a_step_that_does_not_fit_is_extrapolated_from_one_that_does() -> None:
    (whole,) = measured("train.micro_batch_sequences=16").arms
    tight = replace(PLENTY, memory_bytes=(400 << 20) + whole.memory_bytes // 2)
    (arm,) = measured("train.micro_batch_sequences=16", resources=tight).arms
    assert arm.step_time is not None
    assert not arm.step_time.is_measured
    assert 0.0005 < arm.step_time.seconds < 10


def test_a_model_far_too_large_is_estimated_at_once() -> None:
    begun = time.perf_counter()
    (arm,) = measured(shape=["model.d_model=16384", "model.n_layers=64"], budget_s=1.0).arms
    assert time.perf_counter() - begun < 5
    assert arm.step_time is not None
    assert not arm.step_time.is_measured
    assert arm.step_time.seconds > 60


def test_the_budget_is_kept() -> None:
    begun = time.perf_counter()
    measured(budget_s=0.2)
    assert time.perf_counter() - begun < 3
