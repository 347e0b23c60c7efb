"""Length, batches, frozen parts and selection of a run."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublayer.config.batch_shares import check_shares
from sublayer.config.freezing import Frozen
from sublayer.config.layering.layers import load_recipe
from sublayer.config.resolve_train import Length, length_in, resolve_train, run_steps
from sublayer.config.selection import is_better
from sublayer.errors import ConfigError


@pytest.mark.parametrize("times, given, length", [
    # Ten evaluations of 2 s leave 574 s of 594 for steps of 0.5 s; at one in 4 steps, 4 of
    # them take 4 s.
    ((10, 0.5, 2.0), {}, Length(1148, 10)),
    ((10, 0.5, 2.0), {"evaluate_steps": 4}, Length(594, 10)),
    # Ten of 5.9 s would leave 0.4 s of 59.4; two, a fifth of them, leave 47.6.
    ((1, 0.3, 5.9), {}, Length(158, 2)),
    # A fifth of 59.4 s is 11.88 s, 0.297 of 40 s.
    ((1, 0.3, 40.0), {"scored_tokens": 1000}, Length(158, 1, 297)),
    ((1, 0.3, 40.0), {}, Length(64, 1)),
])  # fmt: skip
def test_minutes_hold_steps_evaluations_and_a_hundredth_of_other_work(times, given, length):
    assert length_in(*times, **{"evaluate_steps": None, "scored_tokens": None, **given}) == length


def test_minutes_that_hold_no_step_are_refused():
    with pytest.raises(ConfigError, match=r"train\.minutes = 0\.01 is too short: a step takes 1 s"):
        length_in(0.01, 1.0, 0.1, evaluate_steps=None, scored_tokens=None)


@given(
    minutes=st.floats(0.01, 1e4),
    step_s=st.floats(1e-6, 1e4),
    evaluation_s=st.floats(0.0, 1e5),
    scored=st.integers(1, 10**6),
)
@settings(max_examples=300)
def test_evaluations_take_at_most_a_fifth_and_all_fits(minutes, step_s, evaluation_s, scored):
    try:
        length = length_in(minutes, step_s, evaluation_s, evaluate_steps=None, scored_tokens=scored)
    except ConfigError:
        assert step_s > 60 * minutes * 0.7 or evaluation_s / scored > 60 * minutes * 0.1
        return
    tokens = scored if length.evaluate_tokens is None else length.evaluate_tokens
    evaluations_s = length.n_evaluations * evaluation_s * tokens / scored
    assert length.steps >= 1
    assert 1 <= length.n_evaluations <= 10
    # One token is the least that can be scored.
    assert evaluations_s <= 0.2001 * 60 * minutes or tokens == 1
    assert length.steps * step_s + evaluations_s <= 60.001 * minutes


@pytest.mark.parametrize("setting, is_gpu, threads, expected", [
    ({}, False, 3, 12), ({}, True, 1, 16),
    ({"train.micro_batch_sequences": 5}, False, 2, 5),
    ({"model.d_model": 128, "train.batch_sequences": 64}, False, 2, 32),
])  # fmt: skip
def test_a_micro_batch_has_1024_tokens_for_each_thread_and_more_in_narrow_models(
    setting, is_gpu, threads, expected
):
    whole = {"train.batch_sequences": 16, "data.context": 256}
    whole |= {"model.d_model": 256, "model.n_heads": 4, **setting}
    recipe = load_recipe("gpt", whole).recipe
    train = resolve_train(recipe, steps=10, valid_tokens=None, is_gpu=is_gpu, threads=threads)
    assert train.micro_batch_sequences == expected


def test_tasks_have_a_length_by_their_number_of_examples_unless_given():
    tasks = {"model.kind": "encoder", "objective.kind": "supervised", "data.tasks": "rte"}
    tasks |= {"data.path": "files", "data.context": 64, "train.batch_sequences": 32}
    given = load_recipe("gpt", {**tasks, "train.epochs": 5}).recipe
    unset = given.model_copy(update={"train": given.train.model_copy(update={"epochs": None})})
    # 2,400 examples, of which ten epochs are 24,000: 750 steps of 32.
    assert run_steps(unset, train_tokens=2400 * 64) == 750
    assert run_steps(given, train_tokens=2400 * 64) == 375
    assert run_steps(unset, train_tokens=None) is None


def check(n_processes, *settings, is_gpu=False):
    recipe = load_recipe("gpt", ["data.path=none.txt", "data.context=64", *settings]).recipe
    check_shares(recipe, n_processes, is_gpu=is_gpu)


@pytest.mark.parametrize("n_processes, settings, words, remedy", [
    (5, ["train.batch_sequences=4"], "is less than the 5 processes", "train.batch_sequences=5"),
    (5, ["train.batch_tokens=256"], "256, 4 windows, is less than", "train.batch_tokens=320"),
    (3, ["train.micro_batch_sequences=6", "train.batch_sequences=12", "train.exact=true"],
     "into 2 micro-batches, less than the 3 processes", "train.micro_batch_sequences=4"),
])  # fmt: skip
def test_too_little_is_refused_with_what_would_be_enough(n_processes, settings, words, remedy):
    with pytest.raises(ConfigError, match=f"{words}.* give {remedy}"):
        check(n_processes, *settings)
    check(n_processes, remedy, *settings[1:])


@pytest.mark.parametrize("is_gpu", [False, True])
def test_one_process_and_batches_that_do_not_divide_evenly_are_taken(is_gpu):
    check(1, "train.batch_sequences=1", "train.exact=true", is_gpu=is_gpu)
    check(4, "train.batch_sequences=7", is_gpu=is_gpu)
    check(4, "train.batch_sequences=7", "train.exact=true", is_gpu=is_gpu)


def test_all_blocks_of_the_start_may_stay(tmp_path):
    (tmp_path / "recipe.toml").write_text("[model]\nn_layers = 4\n")
    settings = {"init.run": str(tmp_path), "init.freeze": ("layers:4", "embeddings")}
    frozen = load_recipe("gpt", settings).recipe.init.frozen
    assert frozen == Frozen(embeddings=True, n_layers=4)


@pytest.mark.parametrize("name, values, best, better", [
    ("loss", {"loss": 1.0}, {"loss": 2.0}, True),
    ("loss", {"loss": 2.0}, {"loss": 2.0}, False),
    ("score", {"loss": 3.0, "score": 0.9}, {"loss": 1.0, "score": 0.8}, True),
    ("score", {"loss": 0.5, "score": 0.8}, {"loss": 1.0, "score": 0.8}, True),
    ("score", {"loss": 1.5, "score": 0.8}, {"loss": 1.0, "score": 0.8}, False),
    ("score", {"score": 0.8}, {"loss": 1.0, "score": 0.8}, False),
])  # fmt: skip
def test_a_metric_has_its_direction_and_the_loss_decides_between_equals(name, values, best, better):
    assert is_better(name, values, best) is better
