"""What is derived from a run's length, and its length from minutes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublayer.config.layering.layers import load_recipe
from sublayer.config.resolve_train import Length, length_in, resolve_train, run_steps
from sublayer.errors import ConfigError


def test_minutes_hold_steps_evaluations_and_a_hundredth_of_other_work() -> None:
    # Ten evaluations of 2 s leave 574 s of 594 for steps of 0.5 s; at one in 4 steps, 4 of them
    # take 4 s.
    assert length_in(10, 0.5, 2.0, evaluate_steps=None, scored_tokens=None) == Length(1148, 10)
    assert length_in(10, 0.5, 2.0, evaluate_steps=4, scored_tokens=None) == Length(594, 10)


def test_minutes_that_hold_no_step_are_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"train\.minutes = 0\.01 is too short: a step takes 1 s and an evaluation 0\.1",
    ):
        length_in(0.01, 1.0, 0.1, evaluate_steps=None, scored_tokens=None)


def test_a_minute_of_slow_evaluations_is_not_one_step() -> None:
    # Ten of 5.9 s would leave 0.4 s of 59.4; two, a fifth of them, leave 47.6.
    assert length_in(1, 0.3, 5.9, evaluate_steps=None, scored_tokens=None) == Length(158, 2)


def test_an_evaluation_that_alone_takes_more_than_a_fifth_scores_fewer_tokens() -> None:
    # A fifth of 59.4 s is 11.88 s, 0.297 of 40 s.
    assert length_in(1, 0.3, 40.0, evaluate_steps=None, scored_tokens=1000) == Length(158, 1, 297)
    assert length_in(1, 0.3, 40.0, evaluate_steps=None, scored_tokens=None) == Length(64, 1)


@given(
    minutes=st.floats(0.01, 1e4),
    step_s=st.floats(1e-6, 1e4),
    evaluation_s=st.floats(0.0, 1e5),
    scored_tokens=st.integers(1, 10**6),
)
@settings(max_examples=300)
def test_evaluations_take_at_most_a_fifth_and_all_fits(
    minutes: float, step_s: float, evaluation_s: float, scored_tokens: int
) -> None:
    try:
        length = length_in(
            minutes, step_s, evaluation_s, evaluate_steps=None, scored_tokens=scored_tokens
        )
    except ConfigError:
        assert step_s > 60 * minutes * 0.7 or evaluation_s / scored_tokens > 60 * minutes * 0.1
        return
    tokens = scored_tokens if length.evaluate_tokens is None else length.evaluate_tokens
    evaluations_s = length.n_evaluations * evaluation_s * tokens / scored_tokens
    assert length.steps >= 1
    assert 1 <= length.n_evaluations <= 10
    # One token is the least that can be scored.
    assert evaluations_s <= 0.2001 * 60 * minutes or tokens == 1
    assert length.steps * step_s + evaluations_s <= 60.001 * minutes


@pytest.mark.parametrize(
    ("settings", "evaluated"),
    [
        ([], (79, 79, 297)),
        (["train.evaluate_steps=7", "train.evaluate_tokens=50"], (7, 7, 50)),
    ],
)
def test_a_run_is_evaluated_as_often_and_as_far_as_its_length_says(
    settings: list[str], evaluated: tuple[int, int, int]
) -> None:
    train = resolve_train(
        load_recipe("gpt", settings).recipe,
        steps=158,
        valid_tokens=10**6,
        is_gpu=False,
        threads=1,
        n_evaluations=2,
        evaluate_tokens=297,
    )
    found = train.evaluate_steps, train.checkpoint_steps, train.evaluate_tokens
    assert found == evaluated


@pytest.mark.parametrize(
    ("settings", "is_gpu", "threads", "expected"),
    [
        ((), False, 3, 12),
        ((), False, 99, 16),
        ((), True, 1, 16),
        (("train.threads=2",), False, 1, 8),
        (("data.context=3000",), False, 2, 1),
        (("train.micro_batch_sequences=5",), False, 2, 5),
        (("model.d_model=192",), False, 1, 4),
        (("model.d_model=128", "train.batch_sequences=64"), False, 2, 32),
    ],
)
def test_a_micro_batch_has_1024_tokens_for_each_thread_and_more_in_narrow_models(
    settings: tuple[str, ...], is_gpu: bool, threads: int, expected: int
) -> None:
    given = dict(each.split("=") for each in settings)
    whole = {
        "train.batch_sequences": 16,
        "data.context": 256,
        "model.d_model": 256,
        "model.n_heads": 4,
    } | given
    recipe = load_recipe("gpt", [f"{name}={value}" for name, value in whole.items()]).recipe
    train = resolve_train(recipe, steps=10, valid_tokens=None, is_gpu=is_gpu, threads=threads)
    assert train.micro_batch_sequences == expected


def test_tasks_have_a_length_by_their_number_of_examples_unless_told() -> None:
    tasks = {
        "model.kind": "encoder",
        "objective.kind": "supervised",
        "data.tasks": "rte",
        "data.path": "files",
        "data.context": 64,
        "train.batch_sequences": 32,
        "train.epochs": 5,
    }
    told = load_recipe("gpt", tasks).recipe
    unset = told.model_copy(update={"train": told.train.model_copy(update={"epochs": None})})
    # 2,400 examples, of which ten epochs are 24,000: 750 steps of 32.
    assert run_steps(unset, train_tokens=2400 * 64) == 750
    assert run_steps(told, train_tokens=2400 * 64) == 375
    assert run_steps(unset, train_tokens=None) is None
