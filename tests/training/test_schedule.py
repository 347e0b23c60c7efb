import math
from typing import get_args

import pytest

from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.config.resolve_train import resolve_optimizer
from sublayer.errors import ConfigError
from sublayer.training.schedule import FALLS, learning_rate


def rates(steps, schedule, **settings):
    config = resolve_optimizer(AdamWConfig(lr=1.0, schedule=schedule, **settings), steps=steps)
    return [learning_rate(config, step, steps) for step in range(steps)]


def half_cosine(share):
    return (1 + math.cos(share * math.pi)) / 2


def test_every_schedule_of_a_recipe_has_a_curve():
    annotation = AdamWConfig.model_fields["schedule"].annotation
    assert {*FALLS, "constant", "inverse-sqrt"} == set(get_args(annotation))


TO_A_FIFTH = {"power": 2.0, "warmup_steps": 2, "final_lr_share": 0.2}
FAIRSEQ = {"warmup_steps": 4, "warmup_init_lr": 0.2}
"""As fairseq counts, from the first rate."""
COOLED = {"warmup_steps": 2, "cooldown_share": 0.4}
OF_ALBERT = {"warmup": "albert", "warmup_steps": 4}
TO_A_HALF = {**OF_ALBERT, "power": 2.0, "final_lr_share": 0.5}
OF_GPT1 = {"warmup": "gpt1", "warmup_steps": 4}
"""Of 20 steps x = step / 20 and w = 0.2: linear min(1, x/w) (1 - x)."""
OF_T5 = {"warmup": "constant", "warmup_steps": 10_000}


@pytest.mark.parametrize("schedule, settings, expected", [
    ("constant", {"warmup_steps": 4}, [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]),
    ("linear", {"warmup_steps": 2}, [0.5, 1, 1, 0.75, 0.5, 0.25]),
    # A quarter, a half and three quarters of the way down from update 2, towards a fifth.
    ("polynomial", TO_A_FIFTH, [0.5, 1, 1, *(0.2 + 0.8 * x**2 for x in (0.75, 0.5, 0.25))]),
    ("inverse-sqrt", {"warmup_steps": 2}, [0.5, 1, *(math.sqrt(2 / n) for n in (3, 4, 5))]),
    ("inverse-sqrt", FAIRSEQ, [0.2, 0.4, 0.6, 0.8, *(2 / n**0.5 for n in range(4, 17))]),
    # ALBERT drops to a fall measured from the first update.
    ("linear", OF_ALBERT, [0, 0.25, 0.5, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
    ("polynomial", TO_A_HALF, [0, 0.25, 0.5, 0.75, *(0.5 + n**2 / 200 for n in range(6, 0, -1))]),
    ("constant", OF_GPT1, [0, 0.25, 0.5, 0.75, 1, 1]),
    ("linear", OF_GPT1, [0, 0.2375, 0.45, 0.6375, *(1 - step / 20 for step in range(4, 20))]),
    # The cosine is not started anew behind the warm-up.
    ("cosine", OF_GPT1, [0, 0.25, 0.5, 0.75, 1, *(half_cosine(n / 20) for n in range(5, 20))]),
    # A warm-up at the peak may be longer than the run, which may end on a line.
    ("inverse-sqrt", {**OF_T5, "cooldown_share": 0.1}, [*[1.0] * 19, 0.5]),
    ("inverse-sqrt", {**OF_T5, "warmup_steps": 1}, [1, *(n**-0.5 for n in (1, 2, 3, 4))]),
    ("constant", COOLED, [0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25]),
    ("constant", {"warmup_steps": 2, "cooldown_share": 1.0}, [0.5, 0.75, 0.5, 0.25]),
])  # fmt: skip
def test_rates_by_hand(schedule, settings, expected):
    assert rates(len(expected), schedule, **settings) == pytest.approx(expected)


def test_cosine_is_half_way_down_at_half_the_way():
    values = rates(10, "cosine", warmup_steps=2, final_lr_share=0.1)
    assert values[2::4] == pytest.approx([1, 0.1 + 0.9 * 0.5])
    assert values[9] == pytest.approx(0.1 + 0.9 * half_cosine(7 / 8))


def test_a_warm_up_share_becomes_steps_of_which_alberts_has_at_least_one():
    assert resolve_optimizer(AdamWConfig(warmup_share=0.1), steps=200).warmup_steps == 20
    assert resolve_optimizer(AdamWConfig(), steps=200).warmup_steps == 10
    config = LambConfig(schedule="linear", warmup="albert")
    assert resolve_optimizer(config, steps=5).warmup_steps == 1


@pytest.mark.parametrize("settings, message", [
    ({"warmup_steps": 30}, r"warmup_steps = 30 is longer .* 20 steps"),
    ({"schedule": "inverse-sqrt", "warmup_steps": 0}, "inverse-sqrt needs .*warmup_steps"),
    ({"warmup": "albert", "warmup_steps": 0}, "warmup = albert needs .*warmup_steps .* 1"),
    ({"warmup": "albert", "warmup_share": 0.0}, "needs optimizer.warmup_steps"),
    ({"warmup": "gpt1", "warmup_steps": 0}, "warmup = gpt1 needs optimizer.warmup_steps"),
])  # fmt: skip
def test_warm_ups_that_no_run_has_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        resolve_optimizer(AdamWConfig(**{"schedule": "linear", **settings}), steps=20)


def test_the_rates_of_alberts_and_t5s_pre_training():
    config = LambConfig(schedule="polynomial", warmup="albert", warmup_steps=3125)
    found = [learning_rate(config, step, 125_000) for step in (0, 3124, 3125, 124_999)]
    peak = 0.00176
    assert found == pytest.approx([0, peak * 3124 / 3125, 0.001716, peak / 125_000], rel=1e-9)
    config = AdamWConfig(lr=0.01, schedule="inverse-sqrt", **OF_T5, cooldown_share=0.1)
    steps = [0, 1, 10_000, 40_000, int(0.9 * 524_288), 524_287]
    found = [learning_rate(config, step, 524_288) for step in steps]
    last = 1 / math.sqrt(524_287) / 52_428.8
    expected = [0.01, 0.01, 0.01, 0.005, 1 / math.sqrt(steps[4]), last]
    assert found == pytest.approx(expected, rel=1e-9)
    assert found[4] == pytest.approx(0.00146, abs=5e-6)
