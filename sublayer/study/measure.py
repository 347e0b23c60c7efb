"""Seconds of an optimizer step: measured on random tokens where it fits, else extrapolated from a smaller one."""

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
from sublayer.model.cost import count_parameters, flops_per_token
from sublayer.objective.batching import make_batches
from sublayer.objective.build import build_objective
from sublayer.study.fitting import fits_memory
from sublayer.study.plan import Sized, StepTime
from sublayer.study.random_pairs import RandomPairs, RandomTranslations
from sublayer.study.resources import Resources
from sublayer.train.allocator import allocate_for
from sublayer.train.distributed import World
from sublayer.train.pace import median_step
from sublayer.train.precision import fastest_precision, product_speed
from sublayer.train.step import TrainStep

BUDGET_S = 55.0
"""Wall clock of all measurements of a plan together, building the models included."""

_LONGEST_S = 8.0
_MOST_STEPS = 23
_FEWEST_STEPS = 4
_STEPS = 1000
_UTILISATION = 0.25
"""Share of the speed of a matrix product that a whole step reaches, for what has not been measured yet."""
_BUILD_S = 1e-7
"""Seconds that a parameter takes to be drawn, and to be given its gradient and the optimizer's states."""
_SURE = 20
"""A step that would be late if it took so many times as long as expected waits until a smaller one has been timed."""
_PILOT_STEPS = 4

Clock = Callable[[], float]
Builder = Callable[[Recipe, int, torch.device], Callable[[int], object]]


class Stopwatch:
    """Times the steps of several arms within a budget for all of them; ``report`` hears what is being timed."""

    def __init__(
        self,
        resources: Resources,
        report: Callable[[str], None],
        budget_s: float = BUDGET_S,
        *,
        clock: Clock = time.perf_counter,
        build: Builder | None = None,
        speed: Callable[[torch.device, str, int], float] = product_speed,
    ) -> None:
        self._ends = clock() + budget_s
        self._resources = resources
        self._report = report
        self._clock = clock
        self._build = build or train_step
        self._speed = speed
        self._device = torch.device(resources.device)
        self._operations_per_s: dict[str, float] = {}

    def __call__(self, arms: Sequence[Sized]) -> list[StepTime]:
        """Time an optimizer step of each arm, in the precision that a run would have here.

        Where a step does not fit into memory or time, a smaller one does: fewer windows, then fewer blocks; its speed
        is taken for that of the whole. What has no relative that fits is estimated from the speed of matrix products.
        """
        times = []
        for position, arm in enumerate(arms):
            self._report(f"measuring {arm.arm.name} ({position + 1} of {len(arms)})")
            share_s = (self._ends - self._clock()) / (len(arms) - position)
            times.append(self._time(self._precise(arm.recipe, arm.model.d_model), arm.vocab_size, share_s))
        return times

    def _precise(self, recipe: Recipe, d_model: int) -> Recipe:
        train = recipe.train
        if train.precision != "auto":
            return recipe
        precision = fastest_precision(self._device, d_model)
        return recipe.model_copy(update={"train": train.model_copy(update={"precision": precision})})

    def _time(self, recipe: Recipe, vocab_size: int, share_s: float) -> StepTime:
        ends = self._clock() + share_s
        whole = _operations(recipe, vocab_size)
        speed = self._expected_speed(recipe)
        fitting = [each for each in _smaller(recipe) if fits_memory(each, vocab_size, self._resources) is not False]
        operations = [_operations(each, vocab_size) for each in fitting]
        builds_s = [_BUILD_S * _n_parameters(each, vocab_size) for each in fitting]
        # The largest first. Each that is measured says more surely which larger one there is time for.
        measured, is_sure = len(fitting), False
        while (
            n := _first_within(operations[:measured], builds_s, speed / _FEWEST_STEPS, ends - self._clock())
        ) is not None:
            left_s = ends - self._clock()
            most, limit_s = _MOST_STEPS, min(_LONGEST_S, left_s)
            if not is_sure and (sure := _first_within(operations, builds_s, speed / _SURE, left_s)) != n:
                n = len(fitting) - 1 if sure is None else sure
                most, limit_s = _PILOT_STEPS, left_s / 4
            seconds = self._measure(fitting[n], vocab_size, limit_s, most)
            speed, measured, is_sure = operations[n] / seconds, n, True
        if measured == len(fitting):
            return StepTime(whole / speed, is_measured=False)
        self._operations_per_s[recipe.train.precision] = speed
        return StepTime(whole / speed, is_measured=fitting[measured] is recipe)

    def _expected_speed(self, recipe: Recipe) -> float:
        precision = recipe.train.precision
        if precision not in self._operations_per_s:
            threads = recipe.train.threads or self._resources.cores
            self._operations_per_s[precision] = _UTILISATION * self._speed(self._device, precision, threads)
        return self._operations_per_s[precision]

    def _measure(self, recipe: Recipe, vocab_size: int, limit_s: float, most: int) -> float:
        ends = self._clock() + limit_s
        take_step = self._build(recipe, vocab_size, self._device)
        budget_s = ends - self._clock()
        return median_step(take_step, budget_s=budget_s, device=self._device, clock=self._clock, most=most)


def _first_within(operations: Sequence[float], builds_s: Sequence[float], speed: float, limit_s: float) -> int | None:
    """Return which is the first, the largest, to be built and done within a limit at a speed."""
    pairs = zip(operations, builds_s, strict=False)
    return next((n for n, (work, build_s) in enumerate(pairs) if build_s + work / speed <= limit_s), None)


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


def _n_parameters(recipe: Recipe, vocab_size: int) -> int:
    model = resolve_model(recipe.model, vocab_size=vocab_size, context=recipe.data.context)
    return count_parameters(model, recipe.objective).training


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
