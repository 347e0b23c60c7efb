import math
from typing import get_args

import pytest

from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.config.resolve_train import resolve_optimizer
from sublayer.errors import ConfigError
from sublayer.training.schedule import FALLS, learning_rate


def rates(steps, **settings):
    config = resolve_optimizer(AdamWConfig(lr=1.0, **settings), steps=steps)
    return [learning_rate(config, step, steps) for step in range(steps)]


def test_every_schedule_of_a_recipe_has_a_curve():
    annotation = AdamWConfig.model_fields["schedule"].annotation
    assert {*FALLS, "constant", "inverse-sqrt"} == set(get_args(annotation))


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


def test_fairseqs_warm_up_counts_from_its_first_rate():
    values = rates(17, schedule="inverse-sqrt", warmup_steps=4, warmup_init_lr=0.2)
    assert values[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert values[9] == pytest.approx(2 / 3) and values[16] == pytest.approx(0.5)
    assert rates(5, schedule="inverse-sqrt", warmup_steps=4, warmup_init_lr=0.0)[:2] == [0.0, 0.25]


def test_warm_up_share_becomes_steps():
    assert resolve_optimizer(AdamWConfig(warmup_share=0.1), steps=200).warmup_steps == 20
    assert resolve_optimizer(AdamWConfig(), steps=200).warmup_steps == 10


def test_warm_up_beyond_the_run_and_inverse_sqrt_without_it_are_refused():
    with pytest.raises(ConfigError, match=r"warmup_steps = 30 is longer .* 20 steps"):
        resolve_optimizer(AdamWConfig(warmup_steps=30), steps=20)
    with pytest.raises(ConfigError, match="inverse-sqrt needs optimizer.warmup_steps"):
        resolve_optimizer(AdamWConfig(schedule="inverse-sqrt", warmup_steps=0), steps=20)


def test_a_warm_up_at_the_peak_may_be_longer_than_the_run():
    # T5's schedule of a short run: the rate is constant, and then ends on a line.
    values = rates(20, schedule="inverse-sqrt", warmup="constant", warmup_steps=10_000)
    assert values == [1.0] * 20
    ended = rates(
        20, schedule="inverse-sqrt", warmup="constant", warmup_steps=10_000, cooldown_share=0.1
    )
    assert ended == pytest.approx([1.0] * 19 + [0.5])


def test_a_polynomial_of_power_1_is_linear():
    for settings in ({}, {"final_lr_share": 0.1}, {"warmup": "albert"}):
        polynomial = rates(50, schedule="polynomial", warmup_steps=7, **settings)
        assert polynomial == rates(50, schedule="linear", warmup_steps=7, **settings)


def test_a_polynomial_falls_by_the_power_of_what_is_left():
    # A quarter, a half and three quarters of the way down from update 2 of 10, towards a fifth.
    values = rates(10, schedule="polynomial", power=2.0, warmup_steps=2, final_lr_share=0.2)
    assert values[:3] == [0.5, 1, 1]
    assert values[4::2] == pytest.approx([0.2 + 0.8 * left**2 for left in (0.75, 0.5, 0.25)])


def test_alberts_warm_up_begins_at_zero_and_drops_to_a_fall_measured_from_the_first_update():
    values = rates(10, schedule="linear", warmup="albert", warmup_steps=4)
    assert values == pytest.approx([0, 0.25, 0.5, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
    squared = rates(
        10, schedule="polynomial", power=2.0, warmup="albert", warmup_steps=4, final_lr_share=0.5
    )
    assert squared[:4] == values[:4]
    assert squared[4:] == pytest.approx(
        [0.5 + 0.5 * left**2 for left in (0.6, 0.5, 0.4, 0.3, 0.2, 0.1)]
    )


def test_the_rates_of_alberts_pre_training_are_its_own():
    config = LambConfig(schedule="polynomial", warmup="albert", warmup_steps=3125)
    assert config.lr == 0.00176
    assert learning_rate(config, 0, 125_000) == 0
    assert learning_rate(config, 3124, 125_000) == pytest.approx(0.00176 * 3124 / 3125, rel=1e-12)
    assert learning_rate(config, 3125, 125_000) == pytest.approx(0.001716, rel=1e-12)
    assert learning_rate(config, 124_999, 125_000) == pytest.approx(0.00176 / 125_000, rel=1e-9)


def test_alberts_warm_up_of_no_steps_is_refused_and_a_share_of_a_short_run_is_one_step():
    with pytest.raises(
        ConfigError, match=r"optimizer.warmup = albert needs optimizer.warmup_steps of at least 1"
    ):
        resolve_optimizer(LambConfig(schedule="linear", warmup="albert", warmup_steps=0), steps=20)
    with pytest.raises(ConfigError, match="needs optimizer.warmup_steps"):
        resolve_optimizer(
            LambConfig(schedule="linear", warmup="albert", warmup_share=0.0), steps=20
        )
    assert (
        resolve_optimizer(LambConfig(schedule="linear", warmup="albert"), steps=5).warmup_steps == 1
    )


def test_gpt1s_rates_are_those_of_its_code_at_0_w_half_and_the_end():
    # x = step / 20 and w = 0.2: linear min(1, x/w) (1 - x), cosine x/w, then (1 + cos(pi x)) / 2.
    settings = {"warmup": "gpt1", "warmup_steps": 4}
    linear = rates(20, schedule="linear", **settings)
    assert linear[:6] == pytest.approx([0, 0.2375, 0.45, 0.6375, 0.8, 0.75])
    assert (linear[10], linear[19]) == pytest.approx((0.5, 0.05))
    cosine = rates(20, schedule="cosine", **settings)
    assert cosine[:5] == [0, 0.25, 0.5, 0.75, 1]
    assert cosine[5] == pytest.approx((1 + math.sqrt(0.5)) / 2)  # pi / 4: it is not started anew
    assert (cosine[10], cosine[19]) == pytest.approx((0.5, (1 + math.cos(0.95 * math.pi)) / 2))
    assert rates(6, schedule="constant", **settings) == [0, 0.25, 0.5, 0.75, 1, 1]
    with pytest.raises(ConfigError, match="warmup = gpt1 needs optimizer.warmup_steps"):
        rates(20, schedule="linear", warmup="gpt1", warmup_steps=0)


T5 = {"lr": 0.01, "schedule": "inverse-sqrt", "warmup": "constant", "warmup_steps": 10_000}


def test_a_constant_warm_up_has_the_peak_from_the_first_update_and_halves_as_steps_quadruple():
    values = rates(65, schedule="inverse-sqrt", warmup="constant", warmup_steps=4)
    assert values[:5] == [1, 1, 1, 1, 1]
    assert values[16] == pytest.approx(0.5)
    assert values[64] == pytest.approx(0.25)


@pytest.mark.parametrize(("steps", "at_90_percent"), [(65_536, 0.00412), (524_288, 0.00146)])
def test_the_rates_of_t5s_pre_training_are_its_own(steps, at_90_percent):
    config = AdamWConfig(**T5, cooldown_share=0.1)
    assert learning_rate(config, 0, steps) == learning_rate(config, 1, steps) == 0.01
    assert learning_rate(config, 10_000, steps) == 0.01
    assert learning_rate(config, 40_000, steps) == pytest.approx(0.005, rel=1e-12)
    begins = int(0.9 * steps)
    assert learning_rate(config, begins, steps) == pytest.approx(at_90_percent, abs=5e-6)
    assert learning_rate(config, begins, steps) == learning_rate(
        AdamWConfig(**T5), begins, steps
    ), "the line begins at the curve"
    for step in (1, 10_000, begins, begins + 1, steps - steps // 20, steps - 1):
        left = min(1.0, (steps - step) / (0.1 * steps))
        expected = left / math.sqrt(max(step, 10_000))
        assert learning_rate(config, step, steps) == pytest.approx(expected, rel=1e-12)
    last = 1 / math.sqrt(steps - 1) / (0.1 * steps)
    assert learning_rate(config, steps - 1, steps) == pytest.approx(last, rel=1e-12)


def test_the_last_share_of_a_constant_rate_falls_on_a_line():
    values = rates(10, schedule="constant", warmup_steps=2, cooldown_share=0.4)
    assert values == pytest.approx([0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25])


def test_a_cooldown_of_the_whole_run_falls_from_the_first_update_during_warm_up_too():
    values = rates(4, schedule="constant", warmup_steps=2, cooldown_share=1.0)
    assert values == pytest.approx([0.5 * 1, 0.75, 0.5, 0.25])
