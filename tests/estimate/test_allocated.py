"""The memory that a step and a process are estimated to need is what they take."""

import json
import math
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from statistics import median

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from sublayer.config import optimizers
from sublayer.config.load import load_recipe
from sublayer.config.objective import CausalObjective
from sublayer.config.optimizers import AdafactorConfig, AdamWConfig, SgdConfig
from sublayer.config.resolve import batch_sequences, resolve_optimizer, resolve_train
from sublayer.config.stacks import stacks
from sublayer.estimate import memory
from sublayer.estimate.memory import saved_activations, saved_casts, score_bias
from sublayer.model.estimates import flops_per_token
from sublayer.model.parameters import named_parameters, parameter_roles
from sublayer.model.positions import build_positions
from sublayer.training.checkpoints import optimizer_tensors
from sublayer.training.optimizers import build_optimizer, head_axes
from sublayer.training.speed import bfloat16_gain, own_clocks
from sublayer.training.step import TrainStep
from sublayer.training.world import World
from tests.breadth import rows
from tests.estimate import configurations as given
from tests.estimate.configurations import MODELS, build_objective, make_batches, make_pass

ADAMW = load_recipe("gpt").recipe.optimizer
SGD = SgdConfig(lr=1e-2, momentum=0.9)
OBJECTIVES = [CausalObjective(auxiliary="layers", targets=2), CausalObjective(positions="last")]
UPDATES = {
    **{kind: table() for kind, table in optimizers.OPTIMIZERS.items()},
    "decayed": SgdConfig(lr=1e-2, momentum=0.9, weight_decay=0.1),
    "uncorrected": AdamWConfig(bias_correction=False), "gpt1": AdamWConfig(form="gpt1"),
    "published": optimizers.LambConfig(form="published"),
    "factored": AdafactorConfig(min_factored=32), "scaled": AdamWConfig(parameter_scale=True),
    "scaled, uncorrected": AdamWConfig(parameter_scale=True, bias_correction=False),
    "in float32": optimizers.MuonConfig(newton_schulz_dtype="float32"),
}  # fmt: skip
HEADS = {"n_layers": 2, "n_heads": 16}
KINDS = ({}, given.ENCODER, {"kind": "encoder-decoder"})
BIASED = [{**kind, **HEADS, "positions": by} for by in ("alibi", "relative") for kind in KINDS]
FACTORED = AdafactorConfig(min_factored=32)
ALL = [{}, *MODELS, *given.ENCODERS, *given.TRANSLATORS]
EXACT = [MODELS[6], given.TRANSLATORS[0], given.TRANSLATORS[2]]
WHOLE = """
import json, sys, torch
from sublayer.study.step_time import train_step
from sublayer.config.load import load_recipe
from sublayer.study.budget import find_resources
from sublayer.system.machine import PeakMemory

def prepare(smaller):
    recipe = load_recipe(sys.argv[1], sys.argv[2:]).vary(smaller).recipe
    return recipe, train_step(recipe, 256, torch.device("cpu"))

small = ["model.n_layers=2", "model.d_model=32", "data.context=32"]
small += ["train.batch_sequences=1", "train.micro_batch_sequences=1"]
_, warm = prepare(small)
warm(0)  # what the program itself needs
del warm
recipe, take_step = prepare([])
with PeakMemory(torch.device("cpu")) as measured:
    for step in range(2):
        take_step(step)
estimated = find_resources("cpu").step_memory(recipe, 256)
print(json.dumps([estimated.total - estimated.weights, measured.bytes]))
"""
F32, BF16 = "train.precision=float32", "train.precision=bfloat16"
GPT, WIDE = "gpt data.context=256", "model.d_model=384"
ALBERT = (
    "albert-base model.n_layers=8 model.d_model=256 model.n_heads=4 data.context=256 train.steps=9"
    " train.batch_sequences=8 train.micro_batch_sequences=4 optimizer.warmup_steps=1"
)
CHARACTERS = (
    "char-t64 model.n_layers=24 model.d_model=256 model.d_ff=1024 train.batch_sequences=4"
    " train.micro_batch_sequences=2 train.recompute"
)
LSTM = "gpt model.kind=lstm data.context=128 train.batch_sequences=16 train.micro_batch_sequences=8"
MODERN = "llama-2023 data.context=256 train.batch_sequences=8 train.micro_batch_sequences=4"
# First the one whose peak depends least on holes: at batches of 4 they are 8 % of the whole.
PROCESSES = [
    *(f"{GPT} {WIDE} train.batch_sequences={n} {F32}" for n in (16, 4)),
    f"{GPT} model.d_model=320 train.batch_sequences=16 {BF16}",
    f"gpt model.d_model=256 model.dropout=0.1 model.n_layers=16 {BF16}",
    f"gpt model.n_layers=24 model.d_model=256 train.recompute=blocks {F32}",
    f"{MODERN} {F32} model.d_model=512",
    f"gpt {WIDE} optimizer.kind=lamb train.batch_sequences=1 {F32}",
    f"{LSTM} {F32} model.n_layers=3 model.d_model=256",
    *(f"{ALBERT} {F32} train.recompute={blocks}" for blocks in ("none", "blocks")),
    f"{CHARACTERS}=blocks {BF16}", f"{CHARACTERS}=none {F32}",
]  # fmt: skip
STEPS = product(given.PASSES, [1, 2], given.PRECISIONS, [False, True])


@contextmanager
def saved_storages(sizes):
    """Collect the storages that autograd saves while entered, by address; views count once."""

    def pack(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield


def check_saved(step, rel=0.03):
    estimated = saved_activations(step) + saved_casts(step)
    assert estimated == pytest.approx(saved_bytes(step), rel=rel)


def saved_bytes(step):
    """Measure what autograd saves of a micro-batch beside the parameters."""
    objective, batch = build_objective(step).train(), make_batches(step, given.SEQUENCES).batch(0)
    sizes, is_narrow = {}, step.precision == "bfloat16"
    with saved_storages(sizes), torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_narrow):
        total = sum(objective(batch).values(), torch.zeros(()))
    for parameter in objective.parameters():
        sizes.pop(parameter.untyped_storage().data_ptr(), None)
    assert total.requires_grad
    return sum(sizes.values())


def check_allocated(step, optimizer, n_passes=1, *, with_onednn=False):
    """Assert that an optimizer step allocates as much as is estimated; return the estimate."""
    take_step = make_step(step, optimizer, n_passes)
    take_step(0)  # makes the optimizer's state
    estimated = memory.training_memory(step, optimizer, n_passes=n_passes)
    moving = estimated.step - estimated.weights - estimated.optimizer
    assert moving == pytest.approx(allocated_peak(take_step, with_onednn=with_onednn), rel=0.1)
    return estimated


def make_step(step, optimizer, n_passes):
    batch = step.sequences * n_passes
    settings = {"data.context": step.context, "train.batch_sequences": batch, "train.threads": 1}
    settings |= {"train.micro_batch_sequences": step.sequences, "train.precision": step.precision}
    settings |= {"train.recompute": "blocks" if step.recomputes else "none"}
    recipe = load_recipe("gpt", settings).recipe
    train = resolve_train(recipe, steps=9, valid_tokens=step.context, is_gpu=False, threads=1)
    filled = {"train": train, "optimizer": resolve_optimizer(optimizer, steps=9)}
    resolved = recipe.model_copy(update={"model": step.config, **filled})
    objective, device, world = build_objective(step), torch.device("cpu"), World(rank=0, size=1)
    return TrainStep(resolved, objective, make_batches(step, batch), device=device, world=world)


def allocated_peak(take_step, *, with_onednn=False):
    """Measure the most bytes that a step holds beyond those before it.

    Without what oneDNN copies for its products, which differs from processor to processor and which
    no estimate of tensors counts; what it keeps of an LSTM is a tensor.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.backends.mkldnn, "enabled", with_onednn)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            take_step(1)
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return int(np.cumsum([event.nbytes() for event in events]).max())


@pytest.mark.parametrize(("name", "precision"), rows(product(given.PASSES, given.PRECISIONS), 18))
def test_autograd_keeps_what_is_estimated(name, precision):
    check_saved(given.PASSES[name](precision))


@pytest.mark.parametrize(("name", "n_passes", "precision", "recomputes"), rows(STEPS, 18))
def test_a_step_allocates_what_is_estimated(name, n_passes, precision, recomputes):
    check_allocated(replace(given.PASSES[name](precision), recomputes=recomputes), ADAMW, n_passes)


@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=["auxiliary", "last"])
def test_other_losses_keep_and_allocate_what_is_estimated(objective, recomputes):
    step = replace(make_pass({}, "float32" if recomputes else "bfloat16"), objective=objective)
    check_allocated(replace(step, recomputes=recomputes), SGD, 2)
    check_saved(step)


@pytest.mark.parametrize("name, fields", rows(product(UPDATES, [MODELS[6], MODELS[2]]), 8), ids=str)
def test_an_update_that_outweighs_the_activations_allocates_what_is_estimated(name, fields):
    step = replace(make_pass({**fields, "share": "none"}, "float32"), sequences=1, context=8)
    estimated = check_allocated(step, UPDATES[name])
    assert estimated.activations < estimated.weights


@pytest.mark.parametrize("optimizer, states", [
    (SgdConfig(lr=1e-2, momentum=0.0), 0), (SGD, 1), (ADAMW, 2), (UPDATES["lamb"], 2),
], ids=["sgd", "momentum", "adamw", "lamb"])  # fmt: skip
def test_an_optimizer_keeps_the_numbers_that_are_estimated(optimizer, states):
    step = make_pass({}, "float32")
    estimated = memory.training_memory(step, optimizer, n_passes=1)
    n_bytes = 4 * kept_numbers({}, optimizer)
    assert estimated.optimizer == n_bytes == states * estimated.weights


def test_muon_keeps_one_number_of_each_map_and_two_of_others():
    step, muon = make_pass({}, "float32"), UPDATES["muon"]
    estimated = memory.training_memory(step, muon, n_passes=1)
    assert estimated.optimizer == 4 * kept_numbers({}, muon) < 2 * estimated.weights


def test_a_loss_of_traversals_and_their_texts_keeps_what_both_keep():
    step = given.make_task_pass("traversals and their texts", "float32")
    # Of a token and of a text its index and its state; of a token a gradient, beside the matrix's.
    of_text = 8 + 4 * 96
    of_tokens = given.CONTEXT * (of_text + 4 * 32)
    assert memory.loss_activations(step) == given.SEQUENCES * (of_tokens + of_text) + 4 * 384 * 32


@pytest.mark.parametrize("softmax, dropped, precision, recomputes", [
    ("all", "sum", "float32", False), ("tokens", "matrix", "bfloat16", False),
    ("all", "matrix", "float32", True), ("all", "matrix", "bfloat16", False),
])  # fmt: skip
def test_a_large_embedding_matrix_is_counted(softmax, dropped, precision, recomputes):
    # As many positions as make a matrix of half the model.
    fields = {"softmax": softmax, "dropout_embedding_of": dropped, "dropout": 0.1}
    step = make_pass({**fields, "n_layers": 1, "max_len": 2000}, precision)
    check_allocated(replace(step, recomputes=recomputes), SGD)


@pytest.mark.parametrize(("recomputes", "fields"), rows(product([False, True], BIASED), 4), ids=str)
def test_a_bias_of_scores_is_counted(fields, recomputes):
    check_saved(make_pass(fields, "float32"))
    # So few and so long that the bias is as large as what a block keeps.
    step = replace(make_pass(fields, "float32"), sequences=1, context=640, recomputes=recomputes)
    check_allocated(step, SGD)


@pytest.mark.parametrize("fields", [
    {"n_layers": 3, "dropout": 0.1}, {"n_layers": 2, "bias": False, "d_embed": 32},
], ids=str)  # fmt: skip
def test_an_lstm_keeps_and_allocates_what_is_estimated(fields):
    for precision, recomputes, n_passes in (("float32", True, 1), ("bfloat16", False, 2)):
        step = make_pass({"kind": "lstm", **fields}, precision)
        check_saved(step, rel=0.1)
        step = replace(step, recomputes=recomputes)
        check_allocated(step, ADAMW, n_passes, with_onednn=True)


def test_a_bias_of_rows_is_counted_for_each_of_them():
    step = make_pass({"positions": "alibi", "n_heads": 3}, "float32")
    (stack,) = stacks(step.config)
    shared = 4 * 3 * given.CONTEXT**2
    assert score_bias(step, stack)[0] == shared
    apart, _, _ = score_bias(replace(step, keeps_documents_apart=True), stack)
    assert apart == given.SEQUENCES * shared
    # A learned one keeps where it was looked up.
    step = make_pass({**given.ENCODER, "positions": "relative", "n_heads": 3}, "float32")
    (stack,) = stacks(step.config)
    places, sizes = torch.arange(given.CONTEXT).expand(given.SEQUENCES, -1), {}
    with saved_storages(sizes):
        bias = build_positions(step.config, stack).score_bias(places, places, torch.float32)
    held, _, index = score_bias(step, stack)
    assert bias is not None and bias.nbytes == held
    assert sum(sizes.values()) == index == 4 * bias[:, 0].numel()
    # Where all rows have the same positions it keeps no more than the offsets.
    decoder = make_pass({"positions": "relative"}, "float32")
    assert score_bias(decoder, stacks(decoder.config)[0])[2] == 0


def kept_numbers(fields, optimizer=FACTORED):
    objective = build_objective(make_pass(fields, "float32"))
    parameters = dict(objective.named_parameters())
    built = build_optimizer(optimizer, parameters, parameter_roles(objective))
    for parameter in parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    built.step()
    tensors = optimizer_tensors(built, parameters)
    return sum(each.numel() for name, each in tensors.items() if not name.startswith("step/"))


@pytest.mark.parametrize("fields", [*rows(ALL, 6), *EXACT], ids=str)
def test_matrices_that_are_counted_exist_and_what_is_kept_is_no_more(fields):
    step = make_pass(fields, "float32")
    objective = build_objective(step)
    roles = parameter_roles(objective)
    built = Counter((roles[k], tuple(each.shape)) for k, each in objective.named_parameters())
    counted = memory.matrix_shapes(step.config, step.objective)
    assert counted <= built
    sizes = [[n * math.prod(s) for (_, s), n in each.items()] for each in (built, counted)]
    every, sized = map(sum, sizes)
    estimated, kept = memory.n_states(step.config, step.objective, FACTORED), kept_numbers(fields)
    assert kept <= estimated < 0.05 * sized + every - sized
    if fields in EXACT:
        assert estimated == kept
    if not fields:  # A table of positions is counted as if it were not factored.
        height, width = step.config.max_len, step.config.d_model
        assert estimated == kept + height * width - (height + width)


@pytest.mark.parametrize("fields, unit", [
    (MODELS[4], "map"), (MODELS[16], "head"), (given.ENCODERS[1], "map"),
    (given.TRANSLATORS[6], "head"), ({"kind": "lstm", "d_embed": 32}, "map"),
], ids=str)  # fmt: skip
def test_an_update_by_muon_takes_the_operations_that_are_counted(fields, unit):
    step, muon = make_pass(fields, "float32"), optimizers.MuonConfig(muon_unit=unit)
    objective = build_objective(step)
    parameters, heads = dict(named_parameters(objective)), head_axes(objective)
    built = build_optimizer(muon, parameters, parameter_roles(objective), heads=heads)
    for parameter in parameters.values():
        parameter.grad = torch.ones_like(parameter)
    with FlopCounterMode(display=False) as counter:
        built.step()
    counted = memory.update_flops(step.config, step.objective, muon)
    assert counter.get_total_flops() == counted > 0
    recipe = load_recipe("gpt", {"optimizer.kind": "muon"}).recipe
    recipe = recipe.model_copy(update={"optimizer": muon, "objective": step.objective})
    per_token = flops_per_token(step.config, recipe.data.context, step.objective)
    n_tokens = batch_sequences(recipe) * recipe.data.context
    planned = memory.training_flops(recipe, step.config)
    assert planned == per_token + round(counted / n_tokens)


@pytest.mark.parametrize("n_together", [1, 2])
def test_matrices_of_one_shape_that_are_updated_together_take_copies(monkeypatch, n_together):
    step = make_pass(MODELS[6], "float32")
    size = step.config.d_ff * step.config.d_model
    monkeypatch.setitem(memory._UPDATE_PART, "cpu", n_together * 2 * size)
    # One stack of gate and value, or as many smaller maps as are no larger, with their squares.
    for table, n_arrays in ((FACTORED, 2), (AdafactorConfig(min_factored=97), 3)):
        assert memory.update_work(step, table, 0) == 4 * 2 * n_together * n_arrays * size


def measure_process(settings):
    """Train in another process; return what it is estimated to take and what it took."""
    # No checkpoint is written meanwhile.
    fixed = ("train.threads=1", "train.save_in_background=false")
    command = [sys.executable, "-c", WHOLE, *settings.split(), *fixed]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's peak memory")
@pytest.mark.parametrize("settings", rows(PROCESSES, 1))
def test_a_process_takes_what_is_estimated(settings):
    if BF16 in settings and bfloat16_gain(256, own_clocks()) == 0.0:
        pytest.skip("bfloat16 is emulated here, with copies in float32; no run chooses it")
    estimated, measured = measure_process(settings)
    if estimated != pytest.approx(measured, rel=0.1):
        # Where the allocator's holes fall differs from process to process: by 12 % of the whole
        # for one of these. So a process outside the limit is one of five, whose median counts.
        others = [measure_process(settings)[1] for _ in range(4)]
        assert estimated == pytest.approx(median([measured, *others]), rel=0.1)
