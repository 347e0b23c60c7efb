"""Memory, traffic and seconds of several processes, against sums that a reader can check."""

from dataclasses import replace

import pytest

from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.errors import ConfigError
from sublayer.estimate.cluster.devices import DEVICES, check_device
from sublayer.estimate.cluster.group import Group, Shard, Units, units_of
from sublayer.estimate.cluster.memory import ProcessMemory, process_memory, tree_sums
from sublayer.estimate.cluster.time import step_seconds
from sublayer.estimate.cluster.traffic import step_traffic
from sublayer.estimate.memory import training_memory, update_work
from sublayer.estimate.micro_batch import MicroBatch
from sublayer.estimate.optimizer_states import n_states
from sublayer.estimate.peaks import peaks_of_pass
from sublayer.estimate.saved_by_pass import saved_casts

from .configurations import resolved

D, V, T = 64, 1000, 16
BLOCK = 12 * D * D + 13 * D
ROOT = V * D + T * D + 2 * D
WEIGHTS = 4 * (3 * BLOCK + ROOT)


def micro_batch(**settings: object) -> MicroBatch:
    asked = {"n_layers": 3, "d_model": D, "n_heads": 2, "dropout": 0.0, **settings}
    config = resolved(vocab_size=V, context=T, **asked)
    return MicroBatch(config, sequences=2, context=T, precision="float32", device="cuda")


def memory(
    n: int, shard: Shard = "none", *, n_passes: int = 1, exact: bool = False
) -> ProcessMemory:
    group = Group(n, shard, exact)
    return process_memory(micro_batch(), AdamWConfig(), n_passes=n_passes, group=group)


def test_units_are_the_blocks_and_the_rest() -> None:
    step, shared = micro_batch(), micro_batch(share="all")
    assert units_of(step.config, step.objective) == Units((4 * BLOCK,) * 3, 4 * ROOT)
    # All blocks share one, which is gathered with the rest.
    assert units_of(shared.config, shared.objective) == Units((), 4 * (BLOCK + ROOT))


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


def test_gradients_stay_from_step_to_step_or_until_the_last_micro_batch() -> None:
    peaks = peaks_of_pass(micro_batch())
    assert memory(2).step == 4 * WEIGHTS + peaks.activations
    # Micro-batches before the last are summed beside the buckets.
    assert memory(2, n_passes=3).step == 5 * WEIGHTS + peaks.activations
    one, several = memory(4, "full"), memory(4, "full", n_passes=3)
    assert (one.gradients, several.gradients) == (WEIGHTS // 4, WEIGHTS)
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


def test_full_divides_weights_and_states_and_gathers_two_blocks_and_the_rest() -> None:
    eight = memory(8, "full")
    assert (eight.weights, eight.optimizer) == (WEIGHTS // 8, 2 * WEIGHTS // 8)
    assert eight.gathered == 4 * (ROOT + 2 * BLOCK) + 2 * 4 * BLOCK
    assert memory(2, "full").step < memory(2, "optimizer").step
    # It is drawn in parts, and gathered to be evaluated.
    assert eight.building == WEIGHTS // 8 + 4 * ROOT
    assert eight.evaluating == WEIGHTS + 3 * WEIGHTS // 8
    assert eight.total >= max(eight.building, eight.evaluating, eight.step)
    # One that starts from another model has all of it first.
    group = Group(8, "full", begins_whole=True)
    started = process_memory(micro_batch(), AdamWConfig(), n_passes=1, group=group)
    assert started.building == WEIGHTS + 4 * ROOT // 8


@pytest.mark.parametrize("n_passes", [1, 3])
def test_one_process_takes_what_it_takes_alone(n_passes: int) -> None:
    alone = training_memory(micro_batch(), AdamWConfig(), n_passes=n_passes)
    assert memory(1, "full", n_passes=n_passes).total == alone.total


def test_a_shared_matrix_is_cast_for_every_block_where_casts_are_not_kept() -> None:
    step = replace(micro_batch(share="all"), precision="bfloat16")
    # The output map of attention and both of the feed-forward network; stacked ones are cast for
    # each use anyway.
    assert saved_casts(step) == 2 * 9 * D * D
    assert saved_casts(replace(step, caches_casts=False)) == 3 * 2 * 9 * D * D


UNITS = Units(blocks=(300, 300), root=200)


@pytest.mark.parametrize(
    ("group", "trained", "n_passes", "sent"),
    [
        (Group(4, "none"), 800, 3, (0, 2 * 600)),
        (Group(4, "optimizer"), 800, 3, (600, 600)),
        (Group(4, "full"), 800, 1, (600 + 450, 600)),
        (Group(4, "full"), 800, 3, (150 + 3 * 2 * 450, 600)),
        (Group(1, "full"), 800, 2, (0, 0)),
        (Group(2, "optimizer"), 400, 1, (400, 200)),  # half of it frozen
        (Group(2, exact=True), 800, 3, (0, 3 * 400)),  # two sums and the total
    ],
    ids=str,
)
def test_processes_send_their_share_of_what_goes_round(
    group: Group, trained: int, n_passes: int, sent: tuple[int, int]
) -> None:
    traffic = step_traffic(UNITS, trained, n_passes=n_passes, group=group)
    assert (traffic.gathering, traffic.summing, traffic.total) == (*sent, sum(sent))


def test_exact_keeps_a_sum_for_each_level_of_its_tree() -> None:
    assert [tree_sums(n) for n in (1, 2, 3, 4, 7)] == [(1, 1), (2, 1), (2, 2), (3, 1), (3, 3)]
    assert memory(2, n_passes=4, exact=True).gradients == 3 * WEIGHTS
    assert memory(2, n_passes=1, exact=True).gradients == WEIGHTS


@pytest.mark.parametrize(
    ("rate", "sending", "in_turn"), [(1e9, 1.0, 4.0), (2e8, 5.0, 8.0), (None, None, 3.0)]
)
def test_sending_beside_computing_hides_the_shorter_of_both(
    rate: float | None, sending: float | None, in_turn: float
) -> None:
    seconds = step_seconds(6e12, 10**9, operations_per_s=2e12, bytes_per_s=rate)
    assert (seconds.computing, seconds.sending) == (3.0, sending)
    assert (seconds.overlapped, seconds.in_turn) == (max(3.0, sending or 0.0), in_turn)


def test_devices_have_the_figures_of_their_datasheets() -> None:
    h100 = DEVICES["h100"]
    assert (h100.memory_bytes, h100.memory_bytes_per_s) == (80_000_000_000, 3.35e12)
    # 1,979 teraflops with sparsity: half of it for dense matrices.
    assert 2 * h100.peak("bfloat16") == pytest.approx(1979e12, rel=1e-3)
    assert h100.peak("float32") == pytest.approx(67e12, rel=2e-3)
    # 900 GB/s in both directions.
    assert 2 * h100.link_bytes_per_s == 900e9
    for device in DEVICES.values():
        assert device.source and device.peak("bfloat16") > device.peak("float32")
        assert device.memory_bytes_per_s > device.link_bytes_per_s
    check_device("cpu")
    with pytest.raises(ConfigError, match="did you mean h200"):
        check_device("h20")
