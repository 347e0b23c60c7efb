"""What fits a machine, and the smallest change of what does not."""

from dataclasses import replace

import pytest

from sublayer.config.layering.layers import LoadedRecipe, load_recipe, vary
from sublayer.config.recipe import Recipe
from sublayer.study.budget.capacity import (
    batches,
    fits_memory,
    run_disk,
    scored_disk,
    smallest_change,
    step_memory,
)
from sublayer.study.budget.resources import PROGRAM_BYTES, Resources

CPU = Resources("cpu", memory_bytes=1 << 40, disk_bytes=1 << 40, has_fast_bfloat16=False, cores=1)
GPU = replace(CPU, device="cuda", has_fast_bfloat16=True)


def change(loaded: LoadedRecipe, limit: int) -> tuple[str, ...] | None:
    resources = replace(CPU, memory_bytes=limit + PROGRAM_BYTES)
    sequences = batches(loaded.recipe, resources).micro_batch_sequences
    assert sequences is not None
    return smallest_change(loaded, sequences, lambda recipe: fits_memory(recipe, 256, resources))


def needed(loaded: LoadedRecipe, *settings: str) -> int:
    return step_memory(vary(loaded, settings).recipe, 256, CPU).total


def test_a_step_fits_up_to_the_last_byte() -> None:
    recipe = load_recipe("gpt").recipe
    total = step_memory(recipe, 256, CPU).total
    assert fits_memory(recipe, 256, replace(CPU, memory_bytes=total + PROGRAM_BYTES))
    assert fits_memory(recipe, 256, replace(CPU, memory_bytes=total + PROGRAM_BYTES - 1)) is False
    assert fits_memory(recipe, 256, replace(CPU, memory_bytes=None)) is None


def test_a_gpu_takes_the_batch_whole_and_holds_no_program() -> None:
    recipe = load_recipe("gpt", ["data.context=256", "train.batch_sequences=16"]).recipe
    assert batches(recipe, GPU).micro_batch_sequences == 16
    assert batches(recipe, CPU).micro_batch_sequences == 4
    assert batches(recipe, replace(CPU, cores=3)).micro_batch_sequences == 12
    total = step_memory(recipe, 256, GPU).total
    assert fits_memory(recipe, 256, replace(GPU, memory_bytes=total))


@pytest.mark.parametrize(
    "settings",
    [
        ["train.micro_batch_sequences=11"],
        ["train.recompute=blocks", "train.micro_batch_sequences=1"],
        ["train.recompute=blocks", "train.micro_batch_sequences=1", "model.n_layers=3"],
        ["train.recompute=blocks", "train.micro_batch_sequences=1", "model.d_model=24"],
    ],
)
def test_the_largest_value_that_fits_is_found(settings: list[str]) -> None:
    loaded = load_recipe("gpt", ["train.batch_sequences=16", "train.micro_batch_sequences=16"])
    assert change(loaded, needed(loaded, *settings)) == tuple(settings)


def test_blocks_are_not_recomputed_where_smaller_passes_do() -> None:
    loaded = load_recipe("gpt", ["train.micro_batch_sequences=1"])
    assert change(loaded, needed(loaded, "train.recompute=blocks")) == ("train.recompute=blocks",)
    again = load_recipe("gpt", ["train.recompute=blocks", "train.micro_batch_sequences=1"])
    assert change(again, needed(again, "model.n_layers=2")) == ("model.n_layers=2",)


def test_shared_blocks_are_taken_away_by_whole_units() -> None:
    loaded = load_recipe(
        "gpt",
        [
            "model.share=all",
            "model.share_inner=2",
            "train.micro_batch_sequences=1",
            "train.recompute=blocks",
        ],
    )
    assert change(loaded, needed(loaded, "model.n_layers=4")) == ("model.n_layers=4",)
    assert change(loaded, needed(loaded, "model.n_layers=4") - 1) == ("model.n_layers=2",)


def test_where_nothing_fits_nothing_is_said() -> None:
    assert change(load_recipe("gpt"), 1000) is None


@pytest.mark.parametrize(
    ("settings", "states"),
    [([], 2), (["optimizer.kind=sgd"], 1), (["optimizer.kind=sgd", "optimizer.momentum=0"], 0)],
)
def test_a_run_s_disk_is_that_of_the_checkpoints_that_it_keeps(
    settings: list[str], states: int
) -> None:
    recipe = load_recipe("gpt", [*settings, "train.keep_checkpoints=4"]).recipe
    assert run_disk(recipe, 256) == (4 + 3) * 4 * 2_743_296 * (1 + states)


def test_checkpoints_that_are_kept_by_their_steps_take_disk_also_once_a_run_is_scored() -> None:
    recipe = load_recipe("gpt", ["train.keep_steps=[10, 20]"]).recipe
    model, checkpoint = 4 * 2_743_296, 4 * 2_743_296 * 3
    assert run_disk(recipe, 256) == (2 + 2 + 3) * checkpoint
    assert scored_disk(recipe, 256) == model + 2 * checkpoint
    assert scored_disk(load_recipe("gpt").recipe, 256) == model


def test_the_largest_value_of_a_billion_is_found_in_few_trials() -> None:
    loaded = load_recipe(
        "gpt", ["train.batch_sequences=1000000000", "train.micro_batch_sequences=1000000000"]
    )
    limit = needed(loaded, "train.micro_batch_sequences=123456")
    tried = []

    def fits(recipe: Recipe) -> bool | None:
        tried.append(recipe.train.micro_batch_sequences)
        return fits_memory(recipe, 256, replace(CPU, memory_bytes=limit + PROGRAM_BYTES))

    assert smallest_change(loaded, 1_000_000_000, fits) == ("train.micro_batch_sequences=123456",)
    assert len(tried) < 50


def test_widths_that_other_settings_do_not_take_are_passed_over() -> None:
    loaded = load_recipe(
        "gpt", ["model.n_heads=3", "model.d_model=198", "model.positions=sinusoidal"]
    )
    found = change(
        loaded, needed(loaded, "train.recompute=blocks", "train.micro_batch_sequences=1") // 2
    )
    assert found is not None
    assert found[-1].startswith(("model.n_layers=", "model.d_model="))
