"""What each of several processes holds, against sums that a reader can check."""

from dataclasses import replace

import pytest

from sublayer.config.model import ModelConfig
from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.estimate.cluster.group import Group, Shard, units_of
from sublayer.estimate.cluster.memory import ProcessMemory, process_memory
from sublayer.estimate.memory import training_memory, update_work
from sublayer.estimate.micro_batch import MicroBatch
from sublayer.estimate.optimizer_states import n_states
from sublayer.estimate.peaks import peaks_of_pass
from sublayer.estimate.saved_by_pass import saved_casts

D, V, T = 64, 1000, 16
BLOCK = 12 * D * D + 13 * D
ROOT = V * D + T * D + 2 * D
WEIGHTS = 4 * (3 * BLOCK + ROOT)


def micro_batch(**settings: object) -> MicroBatch:
    asked = {"n_layers": 3, "d_model": D, "n_heads": 2, "dropout": 0.0, **settings}
    config = resolve_model(ModelConfig.model_validate(asked), vocab_size=V, context=T)
    return MicroBatch(config, sequences=2, context=T, precision="float32", device="cuda")


def memory(
    n: int, shard: Shard = "none", *, n_passes: int = 1, exact: bool = False
) -> ProcessMemory:
    group = Group(n, shard, exact)
    return process_memory(micro_batch(), AdamWConfig(), n_passes=n_passes, group=group)


def test_units_are_the_blocks_and_what_is_around_them() -> None:
    step = micro_batch()
    units = units_of(step.config, step.objective)
    assert units.blocks == (4 * BLOCK,) * 3
    assert units.root == 4 * ROOT
    assert units.total == WEIGHTS


def test_what_all_blocks_share_is_gathered_with_the_rest() -> None:
    step = micro_batch(share="all")
    units = units_of(step.config, step.objective)
    assert units.blocks == ()
    assert units.root == 4 * (BLOCK + ROOT)


@pytest.mark.parametrize("shard", ["optimizer", "full"])
def test_weights_and_states_are_divided(shard: Shard) -> None:
    four = memory(4, shard)
    assert (four.weights, four.optimizer) == (WEIGHTS // 4, 2 * WEIGHTS // 4)


@pytest.mark.parametrize("optimizer", [LambConfig(), AdafactorConfig(min_factored=D)])
def test_updates_by_norms_of_whole_matrices_are_all_there_at_once(
    optimizer: LambConfig | AdafactorConfig,
) -> None:
    step = micro_batch(n_layers=24)
    trained = units_of(step.config, step.objective).total
    states = 4 * n_states(step.config, step.objective, optimizer)
    two = process_memory(step, optimizer, n_passes=1, group=Group(2, "full"))
    assert two.optimizer == states // 2
    # The process's part of weights and states, of gradients and of updates.
    assert two.step == (trained + states) // 2 + trained
    # Alone LAMB takes maps that are stored together in turn with others, Adafactor a few matrices.
    assert update_work(step, optimizer, trained) < trained


def test_a_whole_copy_keeps_gradients_from_step_to_step() -> None:
    peaks = peaks_of_pass(micro_batch())
    assert memory(2).step == 4 * WEIGHTS + peaks.activations
    # Micro-batches before the last are summed beside the buckets.
    assert memory(2, n_passes=3).step == 5 * WEIGHTS + peaks.activations


def test_several_micro_batches_keep_whole_gradients_until_the_last() -> None:
    one, several = memory(4, "full"), memory(4, "full", n_passes=3)
    assert one.gradients == WEIGHTS // 4
    assert several.gradients == WEIGHTS
    assert several.step == one.step + WEIGHTS


def test_the_loss_of_a_model_whose_weights_stay_gathered_is_its_peak() -> None:
    peaks = peaks_of_pass(micro_batch())
    two = memory(2, "optimizer")
    assert two.step == 3 * WEIGHTS // 2 + max(
        WEIGHTS + peaks.in_loss,
        # A block's gradients twice, those of the output matrix once; the pass has counted those of
        # the two matrices of a feed-forward network.
        WEIGHTS + 2 * 4 * BLOCK + peaks.in_blocks - 4 * 8 * D * D + 4 * V * D,
    )


def test_full_gathers_two_blocks_and_what_is_around_them() -> None:
    assert memory(2, "full").gathered == 4 * (ROOT + 2 * BLOCK) + 2 * 4 * BLOCK
    assert memory(2, "full").step < memory(2, "optimizer").step


def test_a_model_is_drawn_in_parts_and_gathered_to_be_evaluated() -> None:
    eight = memory(8, "full")
    assert eight.building == WEIGHTS // 8 + 4 * ROOT
    assert eight.evaluating == WEIGHTS + 3 * WEIGHTS // 8
    assert eight.total >= max(eight.building, eight.evaluating, eight.step)


def test_what_starts_from_another_model_has_all_of_it_first() -> None:
    group = Group(8, "full", begins_whole=True)
    found = process_memory(micro_batch(), AdamWConfig(), n_passes=1, group=group)
    assert found.building == WEIGHTS + 4 * ROOT // 8


def test_exact_keeps_a_sum_for_each_level_of_its_tree() -> None:
    assert memory(2, n_passes=4, exact=True).gradients == 3 * WEIGHTS
    assert memory(2, n_passes=1, exact=True).gradients == WEIGHTS


@pytest.mark.parametrize("n_passes", [1, 3])
def test_one_process_takes_what_it_takes_alone(n_passes: int) -> None:
    step = micro_batch()
    alone = training_memory(step, AdamWConfig(), n_passes=n_passes)
    assert memory(1, "full", n_passes=n_passes).total == alone.total


def test_a_shared_matrix_is_cast_for_every_block_where_casts_are_not_kept() -> None:
    step = replace(micro_batch(share="all"), precision="bfloat16")
    # The output map of attention and both of the feed-forward network; stacked ones are cast for
    # each use anyway.
    assert saved_casts(step) == 2 * 9 * D * D
    assert saved_casts(replace(step, caches_casts=False)) == 3 * 2 * 9 * D * D
