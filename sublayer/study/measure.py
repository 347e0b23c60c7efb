"""Seconds of an optimizer step: measured on random tokens where it fits, else extrapolated from a smaller one."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from sublayer.config.cores import cores
from sublayer.config.length import batch_sequences, resolve_optimizer, resolve_train
from sublayer.config.objective import MaskedObjective, TranslationObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import resolve_model
from sublayer.data.batches import Batches
from sublayer.data.characters import ByteTokenizer
from sublayer.data.split import Split
from sublayer.data.store import TokenStore
from sublayer.model.build import build
from sublayer.model.cost import flops_per_token
from sublayer.objective.batching import make_batches
from sublayer.objective.build import build_objective
from sublayer.study.fitting import fits_memory
from sublayer.study.plan import Sized, StepTime
from sublayer.study.random_pairs import RandomPairs, RandomTranslations
from sublayer.study.resources import Resources
from sublayer.train.allocator import allocate_for
from sublayer.train.distributed import World
from sublayer.train.machine import fastest_precision
from sublayer.train.step import TrainStep

BUDGET_S = 55.0
"""Wall clock of all measurements of a plan together, building the models included."""

_LONGEST_S = 8.0
_MOST_STEPS = 20
_FEWEST_STEPS = 3
_STEPS = 1000
_UTILISATION = 0.25
"""Share of the speed of a matrix product that a whole step reaches, for what cannot be measured at all."""
_PROBE_WIDTH = 1024


class Stopwatch:
    """Times the steps of several arms within a budget for all of them; ``report`` hears what is being timed."""

    def __init__(self, resources: Resources, report: Callable[[str], None], budget_s: float = BUDGET_S) -> None:
        self._ends = time.perf_counter() + budget_s
        self._resources = resources
        self._report = report
        self._device = torch.device(resources.device)
        self._operations_per_s = _UTILISATION * _product_speed(self._device)

    def __call__(self, arms: Sequence[Sized]) -> list[StepTime]:
        """Time an optimizer step of each arm, in the precision that a run would have here.

        Where a step does not fit into memory or time, a smaller one does: fewer windows, then fewer blocks; its speed
        is taken for that of the whole. What has no relative that fits is estimated from the speed of matrix products.
        """
        times = []
        for position, arm in enumerate(arms):
            self._report(f"measuring {arm.arm.name} ({position + 1} of {len(arms)})")
            share_s = (self._ends - time.perf_counter()) / (len(arms) - position)
            times.append(self._time(self._precise(arm.recipe, arm.model.d_model), arm.vocab_size, share_s))
        return times

    def _precise(self, recipe: Recipe, d_model: int) -> Recipe:
        train = recipe.train
        if train.precision != "auto":
            return recipe
        precision = fastest_precision(self._device, d_model, train.threads or cores())
        return recipe.model_copy(update={"train": train.model_copy(update={"precision": precision})})

    def _time(self, recipe: Recipe, vocab_size: int, share_s: float) -> StepTime:
        whole = _operations(recipe, vocab_size)
        for smaller in _smaller(recipe):
            operations = _operations(smaller, vocab_size)
            needed_s = (1 + _FEWEST_STEPS) * operations / self._operations_per_s
            if needed_s <= share_s and fits_memory(smaller, vocab_size, self._resources) is not False:
                seconds = self._measure(smaller, vocab_size, min(_LONGEST_S, share_s))
                self._operations_per_s = operations / seconds
                return StepTime(seconds * whole / operations, is_measured=smaller is recipe)
        return StepTime(whole / self._operations_per_s, is_measured=False)

    def _measure(self, recipe: Recipe, vocab_size: int, limit_s: float) -> float:
        ends = time.perf_counter() + limit_s
        take_step = train_step(recipe, vocab_size, self._device)
        taken = [_timed(take_step, 0, self._device)]
        # The first step allocates what the others reuse, so it counts only where it must.
        while time.perf_counter() + taken[-1] < ends and len(taken) <= _MOST_STEPS:
            taken.append(_timed(take_step, len(taken), self._device))
        return statistics.median(taken[1:] or taken)


def _smaller(recipe: Recipe) -> Iterator[Recipe]:
    yield recipe
    n_sequences = batch_sequences(recipe)
    while n_sequences > 1:
        n_sequences = (n_sequences + 1) // 2
        train = {"batch_sequences": n_sequences, "batch_tokens": None, "micro_batch_sequences": None}
        recipe = recipe.model_copy(update={"train": recipe.train.model_copy(update=train)})
        yield recipe
    fewest = recipe.model.share_inner * recipe.model.share_groups
    n_layers = recipe.model.n_layers
    while n_layers > fewest:
        n_layers = max(fewest, n_layers // 2 // recipe.model.share_inner * recipe.model.share_inner)
        fewer = {"n_layers": n_layers}
        if recipe.model.n_decoder_layers is not None:
            fewer["n_decoder_layers"] = n_layers
        recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update=fewer)})
        yield recipe


def _operations(recipe: Recipe, vocab_size: int) -> float:
    context = recipe.data.context
    model = resolve_model(recipe.model, vocab_size=vocab_size, context=context)
    return float(flops_per_token(model, context, recipe.objective) * batch_sequences(recipe) * context)


def train_step(recipe: Recipe, vocab_size: int, device: torch.device) -> TrainStep:
    """Build the training step of a recipe, on random tokens."""
    context = recipe.data.context
    config = resolve_model(recipe.model, vocab_size=vocab_size, context=context)
    threads = recipe.train.threads or cores()
    torch.set_num_threads(threads)
    if device.type == "cpu":
        allocate_for(recipe.train)
    train = resolve_train(recipe, steps=_STEPS, valid_tokens=context, is_gpu=device.type == "cuda", threads=threads)
    optimizer = resolve_optimizer(recipe.optimizer.model_copy(update={"warmup_steps": 1}), steps=_STEPS)
    resolved = recipe.model_copy(update={"model": config, "train": train, "optimizer": optimizer})
    objective = build_objective(build(config, seed=0), recipe.objective).to(device)
    batches = _random_batches(resolved, vocab_size)
    return TrainStep(resolved, objective, batches, device=device, world=World(rank=0, size=1))


def _random_batches(recipe: Recipe, vocab_size: int) -> Batches:
    context, n_sequences = recipe.data.context, batch_sequences(recipe)
    if isinstance(recipe.objective, MaskedObjective):
        return RandomPairs(recipe.objective, vocab_size, context, n_sequences)
    if isinstance(recipe.objective, TranslationObjective):
        return RandomTranslations(vocab_size, context, n_sequences)
    ids = np.random.Generator(np.random.Philox(0)).integers(vocab_size, size=64 * (context + 1))
    starts = np.zeros(1, dtype=np.int64)
    split = Split("train", TokenStore(ids, starts, starts, len(ids), "", is_lossless=True), ByteTokenizer(), ("",))
    return make_batches(recipe, split)


def _timed(take_step: Callable[[int], object], step: int, device: torch.device) -> float:
    begun = time.perf_counter()
    take_step(step)
    _wait(device)
    return time.perf_counter() - begun


def _product_speed(device: torch.device) -> float:
    a, b = (torch.randn(_PROBE_WIDTH, _PROBE_WIDTH, device=device) for _ in range(2))
    with torch.autocast(device.type, dtype=torch.bfloat16):
        seconds = [_timed(lambda _: a @ b, 0, device) for _ in range(5)]
    return 2 * _PROBE_WIDTH**3 / min(seconds)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
