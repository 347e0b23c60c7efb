"""What is derived from a run's length, and its length from minutes."""

import pytest

from sublayer.config.layers import load_recipe
from sublayer.config.length import resolve_train, steps_in
from sublayer.errors import ConfigError


def test_minutes_hold_steps_evaluations_and_a_hundredth_of_other_work() -> None:
    # Ten evaluations of 2 s leave 574 s of 594 for steps of 0.5 s; at one in 4 steps, 4 of them take 4 s.
    assert steps_in(10, 0.5, 2.0, evaluate_steps=None) == 1148
    assert steps_in(10, 0.5, 2.0, evaluate_steps=4) == 594


def test_minutes_that_hold_no_step_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.minutes = 0\.01 is too short"):
        steps_in(0.01, 1.0, 0.1, evaluate_steps=None)


@pytest.mark.parametrize(
    ("settings", "is_gpu", "threads", "expected"),
    [
        ((), False, 1, 4),
        ((), False, 3, 12),
        ((), False, 99, 16),
        ((), True, 1, 16),
        (("train.threads=2",), False, 1, 8),
        (("data.context=3000",), False, 2, 1),
        (("train.micro_batch_sequences=5",), False, 2, 5),
        (("model.d_model=512",), False, 1, 4),
        (("model.d_model=192",), False, 1, 4),
        (("model.d_model=128", "train.batch_sequences=64"), False, 2, 32),
        (("model.d_model=64", "train.batch_sequences=64"), False, 2, 32),
    ],
)
def test_a_micro_batch_has_1024_tokens_for_each_thread_and_more_in_narrow_models(
    settings: tuple[str, ...], is_gpu: bool, threads: int, expected: int
) -> None:
    given = dict(each.split("=") for each in settings)
    whole = {"train.batch_sequences": 16, "data.context": 256, "model.d_model": 256, "model.n_heads": 4} | given
    recipe = load_recipe("gpt", [f"{name}={value}" for name, value in whole.items()]).recipe
    train = resolve_train(recipe, steps=10, valid_tokens=None, is_gpu=is_gpu, threads=threads)
    assert train.micro_batch_sequences == expected
