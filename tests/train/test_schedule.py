import math

import pytest

from sublayer.config.length import resolve_optimizer
from sublayer.config.optimizer import AdamWConfig
from sublayer.errors import ConfigError
from sublayer.train.schedule import learning_rate


def rates(steps, **settings):
    config = resolve_optimizer(AdamWConfig(lr=1.0, **settings), steps=steps)
    return [learning_rate(config, step, steps) for step in range(steps)]


def test_warm_up_is_linear_and_reaches_the_peak_at_its_last_step():
    assert rates(8, schedule="constant", warmup_steps=4) == [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]


def test_linear_falls_from_the_peak_towards_zero_after_the_last_step():
    assert rates(6, schedule="linear", warmup_steps=2) == [0.5, 1, 1, 0.75, 0.5, 0.25]


def test_cosine_is_half_way_down_at_half_the_way():
    values = rates(10, schedule="cosine", warmup_steps=2, final_lr_share=0.1)
    assert values[2] == 1
    assert values[6] == pytest.approx(0.1 + 0.9 * 0.5)
    assert values[9] == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 7 / 8)))


def test_inverse_sqrt_halves_when_the_steps_quadruple():
    values = rates(100, schedule="inverse-sqrt", warmup_steps=4)
    assert values[3] == 1
    assert values[15] == pytest.approx(0.5)
    assert values[63] == pytest.approx(0.25)


def test_warm_up_share_becomes_steps():
    assert resolve_optimizer(AdamWConfig(warmup_share=0.1), steps=200).warmup_steps == 20
    assert resolve_optimizer(AdamWConfig(), steps=200).warmup_steps == 10


def test_warm_up_beyond_the_run_and_inverse_sqrt_without_it_are_refused():
    with pytest.raises(ConfigError, match=r"optimizer.warmup_steps = 30 is longer than the run of 20 steps"):
        resolve_optimizer(AdamWConfig(warmup_steps=30), steps=20)
    with pytest.raises(ConfigError, match="inverse-sqrt needs optimizer.warmup_steps"):
        resolve_optimizer(AdamWConfig(schedule="inverse-sqrt", warmup_steps=0), steps=20)
