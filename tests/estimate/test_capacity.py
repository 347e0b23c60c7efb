"""Refusals of what memory cannot hold; memory, traffic and seconds of several processes."""

from dataclasses import replace

import pytest
import torch

from sublayer.config.layering.layers import load_recipe
from sublayer.config.limits import WIDEST_FFN
from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.config.resolve_train import resolve_optimizer, resolve_train
from sublayer.config.resolved import resolved_recipe
from sublayer.errors import ConfigError
from sublayer.estimate import capacity
from sublayer.estimate.capacity import allocating, check_memory, format_bytes
from sublayer.estimate.cluster.devices import DEVICES, check_device
from sublayer.estimate.cluster.group import Group, Units, units_of
from sublayer.estimate.cluster.memory import process_memory, tree_sums
from sublayer.estimate.cluster.time import step_seconds
from sublayer.estimate.cluster.traffic import step_traffic
from sublayer.estimate.memory import training_memory, update_work
from sublayer.estimate.micro_batch import MicroBatch
from sublayer.estimate.optimizer_states import n_states
from sublayer.estimate.peaks import peaks_of_pass
from sublayer.estimate.saved_by_pass import saved_casts
from sublayer.estimate.training_capacity import check_training
from sublayer.model.build import build
from sublayer.model.context.cache import Cache
from tests.estimate.configurations import resolved


@pytest.fixture
def has_memory(monkeypatch):
    """Give the machine another size."""
    return lambda size: monkeypatch.setattr(capacity, "total_memory", lambda: size)


@pytest.mark.parametrize("size, text", [
    (0, "0 B"), (1023, "1.02e+03 B"), (1536, "1.5 KiB"), ((1 << 70) - 1, "1.02e+03 EiB"),
    (1 << 70, "1,024 EiB"),
])  # fmt: skip
def test_a_size_has_three_figures_and_the_unit_that_suits_it(size, text):
    assert format_bytes(size) == text


def test_more_than_the_machine_has_is_refused_with_both_sizes(has_memory):
    has_memory(23 << 30)
    check_memory(23 << 30, "a batch", "make it smaller")
    with pytest.raises(ConfigError, match="^a batch needs 14.6 TiB, 23 GiB here: make it smaller$"):
        check_memory(16_052_870_000_000, "a batch", "make it smaller")
    has_memory(None)
    check_memory(1 << 80, "a batch", "make it smaller")


@pytest.mark.parametrize("fails", [
    lambda: torch.empty(1 << 50), lambda: torch.empty(1 << 62, 32),
    lambda: torch.zeros(1).expand(1 << 40, -1).contiguous(), lambda: bytearray(1 << 60),
], ids=["too many bytes", "more than a size can say", "a copy", "Python's"])  # fmt: skip
def test_a_failure_to_allocate_is_a_line_and_others_stay(fails):
    with pytest.raises(ConfigError, match="^there is not enough memory for the model: take a"):
        with allocating("the model", "take a smaller one"):
            fails()
    for text in ("shapes", "could not create a primitive descriptor for the product"):
        with pytest.raises(RuntimeError, match=text), allocating("the model", "take a smaller one"):
            raise RuntimeError(text)


def test_a_model_and_a_cache_are_measured_before_they_are_made(has_memory):
    model = load_recipe("gpt", {"model.n_layers": 2, "model.d_model": 64}).recipe.model
    config = resolve_model(model, vocab_size=256, context=256)
    n_bytes = sum(parameter.nbytes for parameter in build(config, seed=0).parameters())
    has_memory(n_bytes)
    build(config, seed=0)
    Cache(config, 2, 16)
    with pytest.raises(ConfigError, match="^the cache of 9 rows of 999,999 tokens needs"):
        Cache(config, 9, 999_999)
    has_memory(n_bytes - 1)
    with pytest.raises(ConfigError, match="^the model needs .* here: make model.d_model"):
        build(config, seed=0)


def trained(**settings):
    given = {name.replace("__", "."): value for name, value in settings.items()}
    recipe = load_recipe("gpt", given | {"train.precision": "float32"}).recipe
    model = resolve_model(recipe.model, vocab_size=256, context=recipe.data.context)
    train = resolve_train(recipe, steps=1, valid_tokens=1, is_gpu=False, threads=1)
    return resolved_recipe(recipe, model, train, resolve_optimizer(recipe.optimizer, steps=1))


@pytest.mark.parametrize("settings, subject", [
    ({"model__d_ff": WIDEST_FFN}, "the model with its gradients and the optimizer's states"),
    ({"train__batch_sequences": 10**9}, "a batch"),
    ({"train__batch_sequences": 100_000, "train__micro_batch_sequences": 100_000},
     "a training step of 100,000 windows of 128 tokens at a time"),
])  # fmt: skip
def test_a_training_that_cannot_fit_is_refused_by_what_is_too_large(has_memory, settings, subject):
    has_memory(8 << 30)
    check_training(trained(train__batch_sequences=16, train__micro_batch_sequences=4))
    with pytest.raises(ConfigError, match=f"^{subject} needs"):
        check_training(trained(**settings))
    has_memory(None)
    check_training(trained(**settings))


def test_processes_that_divide_a_model_need_less_memory(has_memory):
    has_memory(8 << 30)
    # 1.2 billion parameters: 19 GB of weights, gradients and moments.
    large = {"model__d_model": 2048, "model__n_layers": 24, "train__batch_sequences": 8}
    with pytest.raises(ConfigError, match="^the model with its gradients"):
        check_training(trained(**large), n_processes=8)
    check_training(trained(**large, train__shard="full"), n_processes=8)
    with pytest.raises(ConfigError, match="^the model with this process's part"):
        check_training(trained(**large, train__shard="full"), n_processes=2)


D, V, T = 64, 1000, 16
BLOCK = 12 * D * D + 13 * D
ROOT = V * D + T * D + 2 * D
WEIGHTS = 4 * (3 * BLOCK + ROOT)


def micro_batch(**settings: object) -> MicroBatch:
    asked = {"n_layers": 3, "d_model": D, "n_heads": 2, "dropout": 0.0, **settings}
    config = resolved(vocab_size=V, context=T, **asked)
    return MicroBatch(config, sequences=2, context=T, precision="float32", device="cuda")


def memory(n, shard="none", *, n_passes=1, exact=False):
    group = Group(n, shard, exact)
    return process_memory(micro_batch(), AdamWConfig(), n_passes=n_passes, group=group)


def test_units_are_the_blocks_and_the_rest():
    step, shared = micro_batch(), micro_batch(share="all")
    assert units_of(step.config, step.objective) == Units((4 * BLOCK,) * 3, 4 * ROOT)
    # All blocks share one, which is gathered with the rest.
    assert units_of(shared.config, shared.objective) == Units((), 4 * (BLOCK + ROOT))


@pytest.mark.parametrize("optimizer", [LambConfig(), AdafactorConfig(min_factored=D)])
def test_updates_by_norms_of_whole_matrices_are_all_there_at_once(optimizer):
    step = micro_batch(n_layers=24)
    trained = units_of(step.config, step.objective).total
    states = 4 * n_states(step.config, step.objective, optimizer)
    two = process_memory(step, optimizer, n_passes=1, group=Group(2, "full"))
    # The process's part of weights and states, of gradients and of updates.
    assert (two.optimizer, two.step) == (states // 2, (trained + states) // 2 + trained)
    # Alone LAMB takes maps that are stored together in turn with others, Adafactor a few matrices.
    assert update_work(step, optimizer, trained) < trained


def test_gradients_stay_from_step_to_step_or_until_the_last_micro_batch():
    peaks = peaks_of_pass(micro_batch())
    assert memory(2).step == 4 * WEIGHTS + peaks.activations
    # Micro-batches before the last are summed beside the buckets.
    assert memory(2, n_passes=3).step == 5 * WEIGHTS + peaks.activations
    one, several = memory(4, "full"), memory(4, "full", n_passes=3)
    assert (one.gradients, several.gradients) == (WEIGHTS // 4, WEIGHTS)
    assert several.step == one.step + WEIGHTS


def test_the_loss_of_a_model_whose_weights_stay_gathered_is_its_peak():
    peaks = peaks_of_pass(micro_batch())
    # A block's gradients twice, those of the output matrix once; the pass has counted those of the
    # two matrices of a feed-forward network.
    in_blocks = 2 * 4 * BLOCK + peaks.in_blocks - 4 * 8 * D * D + 4 * V * D
    expected = 3 * WEIGHTS // 2 + WEIGHTS + max(peaks.in_loss, in_blocks)
    assert memory(2, "optimizer").step == expected


def test_full_divides_weights_and_states_and_gathers_two_blocks_and_the_rest():
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
def test_one_process_takes_what_it_takes_alone(n_passes):
    alone = training_memory(micro_batch(), AdamWConfig(), n_passes=n_passes)
    assert memory(1, "full", n_passes=n_passes).total == alone.total


def test_a_shared_matrix_is_cast_for_every_block_where_casts_are_not_kept():
    step = replace(micro_batch(share="all"), precision="bfloat16")
    # The output map of attention and both of the feed-forward network; stacked ones are cast for
    # each use anyway.
    assert saved_casts(step) == 2 * 9 * D * D
    assert saved_casts(replace(step, caches_casts=False)) == 3 * 2 * 9 * D * D


@pytest.mark.parametrize("group, trained, n_passes, sent", [
    (Group(4, "none"), 800, 3, (0, 2 * 600)), (Group(4, "optimizer"), 800, 3, (600, 600)),
    (Group(4, "full"), 800, 1, (600 + 450, 600)),
    (Group(4, "full"), 800, 3, (150 + 3 * 2 * 450, 600)), (Group(1, "full"), 800, 2, (0, 0)),
    (Group(2, "optimizer"), 400, 1, (400, 200)),  # half of it frozen
    (Group(2, exact=True), 800, 3, (0, 3 * 400)),  # two sums and the total
], ids=str)  # fmt: skip
def test_processes_send_their_share_of_what_goes_round(group, trained, n_passes, sent):
    units = Units(blocks=(300, 300), root=200)
    traffic = step_traffic(units, trained, n_passes=n_passes, group=group)
    assert (traffic.gathering, traffic.summing, traffic.total) == (*sent, sum(sent))


def test_exact_keeps_a_sum_for_each_level_of_its_tree():
    assert [tree_sums(n) for n in (1, 2, 3, 4, 7)] == [(1, 1), (2, 1), (2, 2), (3, 1), (3, 3)]
    assert memory(2, n_passes=4, exact=True).gradients == 3 * WEIGHTS
    assert memory(2, n_passes=1, exact=True).gradients == WEIGHTS


@pytest.mark.parametrize("rate, sending, in_turn", [
    (1e9, 1.0, 4.0), (2e8, 5.0, 8.0), (None, None, 3.0),
])  # fmt: skip
def test_sending_beside_computing_hides_the_shorter_of_both(rate, sending, in_turn):
    found = step_seconds(6e12, 10**9, operations_per_s=2e12, bytes_per_s=rate)
    expected = (3.0, sending, max(3.0, sending or 0.0), in_turn)
    assert (found.computing, found.sending, found.overlapped, found.in_turn) == expected


def test_devices_have_the_figures_of_their_datasheets():
    h100 = DEVICES["h100"]
    assert (h100.memory_bytes, h100.memory_bytes_per_s) == (80_000_000_000, 3.35e12)
    # 1,979 teraflops with sparsity: half of it for dense matrices. 900 GB/s in both directions.
    assert 2 * h100.peak("bfloat16") == pytest.approx(1979e12, rel=1e-3)
    assert h100.peak("float32") == pytest.approx(67e12, rel=2e-3)
    assert 2 * h100.link_bytes_per_s == 900e9
    for device in DEVICES.values():
        assert device.source and device.peak("bfloat16") > device.peak("float32")
        assert device.memory_bytes_per_s > device.link_bytes_per_s
    check_device("cpu")
    with pytest.raises(ConfigError, match="did you mean h200"):
        check_device("h20")
