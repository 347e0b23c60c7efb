"""Seconds per optimizer step: measured on random tokens, or extrapolated from smaller batches."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import torch

from sublayer.config.recipe import Recipe
from sublayer.config.resolve import (
    batch_sequences,
    expected_model,
    resolve_optimizer,
    resolve_train,
    run_threads,
)
from sublayer.estimate.memory import training_flops
from sublayer.model.estimates import count_parameters
from sublayer.model.transformer import build, compose
from sublayer.objective.base import family_of
from sublayer.study.budget import (
    Resources,
    Sized,
    StepTime,
    tokens_per_step,
)
from sublayer.system.machine import allocate_for_training, cores
from sublayer.training.speed import fastest_precision, median_step, product_speed
from sublayer.training.step import TrainStep, begins_divided
from sublayer.training.world import World

BUDGET_S = 55.0
"""Wall clock of all measurements of a plan, building the models included."""

_LONGEST_S = 8.0
_MOST_STEPS = 23
_FEWEST_STEPS = 4
_STEPS = 1000
_UTILISATION = 0.25
"""Assumed speed of a step, as a share of a matrix product's, until measured."""
_BUILD_S = 1e-7
"""Seconds per parameter to initialize it and to allocate its gradient and optimizer states."""
_SURE = 20
"""Maximum overestimate of the assumed speed, as a factor, until a step is timed."""
_PILOT_STEPS = 4
_ALONE = World(rank=0, size=1)

Clock = Callable[[], float]
"""Seconds since any fixed moment."""
Builder = Callable[[Recipe, int, torch.device], Callable[[int], object]]
"""Builds, from a recipe, its vocabulary size and a device, the function that takes step ``n``."""


class Stopwatch:
    """Timer of the steps of several arms within one budget; ``report`` gets a line on each arm."""

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
        """Time an optimizer step of each arm, in the precision of a run here.

        If a step does not fit into memory or time, a smaller one is timed: fewer windows, then
        fewer blocks; the full step is assumed to take proportionally longer. If none fits, it is
        estimated from the speed of matrix products.
        """
        times = []
        for position, arm in enumerate(arms):
            self._report(f"measuring {arm.arm.name} ({position + 1} of {len(arms)})")
            # Later arms get the unused part of an arm's share.
            left_s = self._ends - self._clock()
            share_s = left_s / (len(arms) - position)
            recipe = with_precision(arm.recipe, self._device, arm.model.d_model)
            times.append(self._time(recipe, arm.vocab_size, share_s))
        return times

    def _time(self, recipe: Recipe, vocab_size: int, share_s: float) -> StepTime:
        ends = self._clock() + share_s
        precision = recipe.train.precision
        if precision not in self._operations_per_s:
            threads = run_threads(recipe.train, self._resources.cores)
            product = self._speed(self._device, precision, threads)
            self._operations_per_s[precision] = _UTILISATION * product
        speed = self._operations_per_s[precision]
        fitting = [
            (smaller, *_work(smaller, vocab_size))
            for smaller in _smaller(recipe)
            if self._resources.fits_memory(smaller, vocab_size) is not False
        ]

        def first(speed: float, limit_s: float, n_larger: int = len(fitting)) -> int | None:
            """Return the index of the largest candidate within a limit at a speed; None if none."""
            for n, (_, operations, build_s) in enumerate(fitting[:n_larger]):
                if build_s + operations / speed <= limit_s:
                    return n
            return None

        # The largest first. Each measurement predicts better which larger one fits the time.
        measured = len(fitting)
        while True:
            n = first(speed / _FEWEST_STEPS, ends - self._clock(), measured)
            if n is None:
                break
            left_s = ends - self._clock()
            most, limit_s = _MOST_STEPS, min(_LONGEST_S, left_s)
            if measured == len(fitting):
                sure = first(speed / _SURE, left_s)
                if sure != n:
                    # A pilot: a few steps of a recipe that is small enough at any speed.
                    n = len(fitting) - 1 if sure is None else sure
                    most, limit_s = _PILOT_STEPS, left_s / 4
            until = self._clock() + limit_s
            measured_recipe, operations, _ = fitting[n]
            take_step = self._build(measured_recipe, vocab_size, self._device)
            budget_s = until - self._clock()
            seconds = median_step(
                take_step, budget_s=budget_s, device=self._device, clock=self._clock, most=most
            )
            speed = operations / seconds
            self._operations_per_s[precision] = speed
            measured = n
        is_measured = measured < len(fitting) and fitting[measured][0] is recipe
        operations, _ = _work(recipe, vocab_size)
        return StepTime(operations / speed, is_measured)


def with_precision(recipe: Recipe, device: torch.device, d_model: int) -> Recipe:
    """Return a recipe with the precision of its run on a device."""
    train = recipe.train
    if train.precision != "auto":
        return recipe
    precise = train.model_copy(update={"precision": fastest_precision(device, d_model)})
    return recipe.model_copy(update={"train": precise})


def _work(recipe: Recipe, vocab_size: int) -> tuple[float, float]:
    """Return the operations of a recipe's step, and the seconds to build its model."""
    model, objective = expected_model(recipe, vocab_size), recipe.objective
    per_token = training_flops(recipe, model)
    build_s = _BUILD_S * count_parameters(model, objective).training
    return float(per_token * tokens_per_step(recipe)), build_s


def _smaller(recipe: Recipe) -> Iterator[Recipe]:
    """Generate a recipe and smaller ones: half the windows down to one, then half the blocks."""
    yield recipe
    n_sequences = batch_sequences(recipe)
    while n_sequences > 1:
        n_sequences = (n_sequences + 1) // 2
        changes = {
            "batch_sequences": n_sequences,
            "batch_tokens": None,
            "micro_batch_sequences": None,
        }
        train = recipe.train.model_copy(update=changes)
        recipe = recipe.model_copy(update={"train": train})
        yield recipe
    inner = recipe.model.share_inner
    # As many as there are groups, and letters of a pattern.
    n_letters = max(len(recipe.model.window_pattern), len(recipe.model.position_pattern))
    fewest = inner * max(recipe.model.share_groups, -(-n_letters // inner))
    while (n_layers := recipe.model.n_layers) > fewest:
        fewer = {"n_layers": max(fewest, n_layers // 2 // inner * inner)}
        if recipe.model.n_decoder_layers is not None:
            fewer["n_decoder_layers"] = fewer["n_layers"]
        recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update=fewer)})
        yield recipe


def train_step(
    recipe: Recipe, vocab_size: int, device: torch.device, world: World = _ALONE
) -> TrainStep:
    """Build the training step of a recipe, on random tokens; no text is read.

    All processes of ``world`` enter. Weights and learning rates are arbitrary: only time counts.
    Sets the number of PyTorch's threads for the process.
    """
    context = recipe.data.context
    config = expected_model(recipe, vocab_size)
    threads = run_threads(recipe.train, cores())
    torch.set_num_threads(threads)
    if device.type == "cpu":
        allocate_for_training(
            recomputes=recipe.train.recompute != "none",
            is_divided=recipe.train.shard != "none" and world.size > 1,
        )
    train = resolve_train(
        recipe, steps=_STEPS, valid_tokens=context, is_gpu=device.type == "cuda", threads=threads
    )
    # Any warm-up fits the placeholder number of steps.
    warmed_up = recipe.optimizer.model_copy(update={"warmup_steps": 1})
    optimizer = resolve_optimizer(warmed_up, steps=_STEPS)
    resolved = recipe.resolved(config, train, optimizer)
    family = family_of(recipe.objective)
    is_divided = begins_divided(world, train, recipe.init)
    with torch.device("meta") if is_divided else nullcontext():
        model = compose(config) if is_divided else build(config, seed=0)
        task = family.describe_task(recipe, None)
        objective = family.build(model, recipe.objective, 0, task)
    if not is_divided:
        objective = objective.to(device)
    batches = family.synthetic(resolved, vocab_size)
    return TrainStep(resolved, objective, batches, device=device, world=world)
