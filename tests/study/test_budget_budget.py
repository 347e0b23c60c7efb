"""What every arm is given: steps for minutes, the baseline's precision and threads, a budget."""

from dataclasses import replace

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.config.recipe import Recipe
from sublayer.study.arms import Arm, expand
from sublayer.study.budget.budget import Measures, match_budgets

STEPS = 301


def resolve(recipe: Recipe) -> Recipe:
    settled = {"steps": STEPS, "evaluate_steps": 31, "precision": "bfloat16", "threads": 2}
    return recipe.model_copy(update={"train": recipe.train.model_copy(update=settled)})


MEASURES = Measures(
    vocab_size=lambda recipe: 257,
    train_tokens=lambda recipe: 70_000,
    resolve=resolve,
    step_s=lambda loaded: 0.25 if loaded.recipe.model.block == "macaron" else 0.2,
)


def arms(*texts: str, vary: str = "model.block=transformer,macaron") -> list[Arm]:
    return expand(load_recipe("gpt", list(texts)), [vary])


def test_minutes_become_the_baselines_steps_for_every_arm():
    for each in match_budgets(arms("train.minutes=3"), "parameters", MEASURES):
        assert each.loaded.recipe.train.steps == STEPS
        assert each.loaded.recipe.train.minutes is None


def test_an_arm_with_other_batches_gets_as_many_tokens_as_minutes_gave_the_baseline():
    baseline, half = match_budgets(
        arms("train.minutes=3", vary="train.batch_sequences=16,7"), "none", MEASURES
    )
    assert baseline.loaded.recipe.train.steps == STEPS
    assert half.loaded.recipe.train.steps == round(STEPS * 16 / 7)


def test_arms_are_evaluated_as_seldom_and_as_briefly_as_the_minutes_of_the_baseline_ask_for():
    def briefly(recipe: Recipe) -> Recipe:
        train = resolve(recipe).train.model_copy(
            update={"evaluate_steps": 151, "evaluate_tokens": 999}
        )
        return recipe.model_copy(update={"train": train})

    settled = match_budgets(
        arms("train.minutes=3", vary="train.batch_sequences=16,8"),
        "none",
        replace(MEASURES, resolve=briefly),
    )
    trains = [each.loaded.recipe.train for each in settled]
    assert [(each.evaluate_steps, each.evaluate_tokens) for each in trains] == [
        (151, 999),
        (301, 999),
    ]
    (usual, _) = match_budgets(arms("train.minutes=3"), "none", MEASURES)
    assert (
        usual.loaded.recipe.train.evaluate_steps,
        usual.loaded.recipe.train.evaluate_tokens,
    ) == (None, None)


def test_an_arm_with_a_length_of_its_own_keeps_it():
    _, longer = match_budgets(arms(vary="train.steps=11,13"), "none", MEASURES)
    assert longer.loaded.recipe.train.steps == 13


def test_precision_and_threads_are_the_baselines():
    for each in match_budgets(arms(), "parameters", MEASURES):
        assert (each.settings["train.precision"], each.settings["train.threads"]) == ("bfloat16", 2)
    for each in match_budgets(
        arms("train.precision=float32", "train.threads=1"), "parameters", MEASURES
    ):
        assert each.settings.keys() <= {"train.steps", "model.d_ff"}


def test_matching_adds_its_settings_and_leaves_the_baseline_alone():
    baseline, macaron = match_budgets(arms("train.steps=300"), "parameters", MEASURES)
    assert baseline.matched == ()
    assert macaron.matched == (f"model.d_ff={macaron.loaded.recipe.model.d_ff}",)
    assert abs(macaron.mismatch) < 0.005


def test_matching_by_time_starts_from_the_steps_that_minutes_gave():
    _, macaron = match_budgets(arms("train.minutes=3"), "time", MEASURES)
    assert macaron.loaded.recipe.train.steps == round(STEPS * 0.2 / 0.25)


def test_a_machine_that_slows_down_steadily_slows_all_arms_alike():
    timed = []

    def step_s(loaded):
        seconds = 0.2 + 0.05 * len(timed)
        timed.append(loaded.recipe.model.block)
        return seconds

    _, macaron = match_budgets(arms("train.steps=300"), "time", replace(MEASURES, step_s=step_s))
    assert timed == ["transformer", "macaron", "macaron", "transformer"]
    assert macaron.loaded.recipe.train.steps == 300


def test_epochs_are_counted_on_the_training_split():
    slow = replace(MEASURES, step_s=lambda loaded: 1.0)
    _, macaron = match_budgets(arms("train.epochs=2"), "time", slow)
    assert macaron.loaded.recipe.train.steps == pytest.approx(2 * 70_000 / (8 * 128), abs=1)
