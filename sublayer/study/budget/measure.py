"""Seconds per optimizer step: measured on random tokens, or extrapolated from smaller batches."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import torch

from sublayer.config.recipe import Recipe, resolved_recipe
from sublayer.config.resolve_train import (
    batch_sequences,
    resolve_optimizer,
    resolve_train,
    run_threads,
)
from sublayer.config.task_heads import expected_model
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.model.build import build, compose
from sublayer.objective.families import family_of
from sublayer.study.budget.expected import Resources, Sized, StepTime, fits_memory
from sublayer.system.memory import allocate_for_training, cores
from sublayer.training.precision import fastest_precision, product_speed
from sublayer.training.processes.world import World
from sublayer.training.step import TrainStep, begins_divided
from sublayer.training.step_time import median_step

BUDGET_S = 55.0
"""Wall clock of all measurements of a plan together, building the models included."""

_LONGEST_S = 8.0
_MOST_STEPS = 23
_FEWEST_STEPS = 4
_STEPS = 1000
_UTILISATION = 0.25
"""Share of a matrix product's speed that a whole step reaches, until it is measured."""
_BUILD_S = 1e-7
"""Seconds per parameter to initialize it and to allocate its gradient and optimizer states."""
_SURE = 20
"""A step expected to exceed its time by so many times waits until a smaller one is timed."""
_PILOT_STEPS = 4
_ALONE = World(rank=0, size=1)

Clock = Callable[[], float]
"""Seconds since any fixed moment."""
Builder = Callable[[Recipe, int, torch.device], Callable[[int], object]]
"""Builds, of a recipe, its vocabulary's size and a device, what takes the step of that number."""


class Stopwatch:
    """Times the steps of several arms within one budget; ``report`` gets a line on each arm."""

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

        Where a step does not fit into memory or time, a smaller one does: fewer windows, then fewer
        blocks; its speed is taken for that of the whole. A step of which no smaller one fits is
        estimated from the speed of matrix products.
        """
        times = []
        for position, arm in enumerate(arms):
            self._report(f"measuring {arm.arm.name} ({position + 1} of {len(arms)})")
            # What one arm leaves of its share goes to those after it.
            left_s = self._ends - self._clock()
            share_s = left_s / (len(arms) - position)
            recipe = with_precision(arm.recipe, self._device, arm.model.d_model)
            times.append(self._time(recipe, arm.vocab_size, share_s))
        return times

    def _time(self, recipe: Recipe, vocab_size: int, share_s: float) -> StepTime:
        ends = self._clock() + share_s
        whole = _operations(recipe, vocab_size)
        speed = self._expected_speed(recipe)
        fitting = []
        operations = []
        builds_s = []
        for smaller in _smaller(recipe):
            if fits_memory(smaller, vocab_size, self._resources) is not False:
                fitting.append(smaller)
                operations.append(_operations(smaller, vocab_size))
                model = expected_model(smaller, vocab_size)
                n_parameters = count_parameters(model, smaller.objective).training
                builds_s.append(_BUILD_S * n_parameters)
        # The largest first. Each that is measured says more surely which larger one there is time
        # for.
        measured = len(fitting)
        is_sure = False
        while True:
            larger = operations[:measured]
            n = _first_within(larger, builds_s, speed / _FEWEST_STEPS, ends - self._clock())
            if n is None:
                break
            left_s = ends - self._clock()
            most = _MOST_STEPS
            limit_s = min(_LONGEST_S, left_s)
            if not is_sure:
                sure = _first_within(operations, builds_s, speed / _SURE, left_s)
                if sure != n:
                    # A pilot: a few steps of a recipe that is small enough whatever the speed is.
                    n = len(fitting) - 1 if sure is None else sure
                    most = _PILOT_STEPS
                    limit_s = left_s / 4
            seconds = self._measure(fitting[n], vocab_size, limit_s, most)
            speed = operations[n] / seconds
            measured = n
            is_sure = True
        if measured == len(fitting):
            return StepTime(whole / speed, is_measured=False)
        self._operations_per_s[recipe.train.precision] = speed
        return StepTime(whole / speed, is_measured=fitting[measured] is recipe)

    def _expected_speed(self, recipe: Recipe) -> float:
        precision = recipe.train.precision
        if precision not in self._operations_per_s:
            threads = run_threads(recipe.train, self._resources.cores)
            product = self._speed(self._device, precision, threads)
            self._operations_per_s[precision] = _UTILISATION * product
        return self._operations_per_s[precision]

    def _measure(self, recipe: Recipe, vocab_size: int, limit_s: float, most: int) -> float:
        ends = self._clock() + limit_s
        take_step = self._build(recipe, vocab_size, self._device)
        budget_s = ends - self._clock()
        return median_step(
            take_step, budget_s=budget_s, device=self._device, clock=self._clock, most=most
        )


def with_precision(recipe: Recipe, device: torch.device, d_model: int) -> Recipe:
    """Return a recipe with the precision that a run of it would have on a device."""
    train = recipe.train
    if train.precision != "auto":
        return recipe
    precision = fastest_precision(device, d_model)
    precise = train.model_copy(update={"precision": precision})
    return recipe.model_copy(update={"train": precise})


def _first_within(
    operations: Sequence[float], builds_s: Sequence[float], speed: float, limit_s: float
) -> int | None:
    """Return which is the first, the largest, to be built and done within a limit at a speed."""
    pairs = zip(operations, builds_s, strict=False)
    for n, (work, build_s) in enumerate(pairs):
        if build_s + work / speed <= limit_s:
            return n
    return None


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
    fewest = recipe.model.share_inner * recipe.model.share_groups
    n_layers = recipe.model.n_layers
    while n_layers > fewest:
        n_groups = n_layers // 2 // recipe.model.share_inner
        n_layers = max(fewest, n_groups * recipe.model.share_inner)
        fewer = {"n_layers": n_layers}
        if recipe.model.n_decoder_layers is not None:
            fewer["n_decoder_layers"] = n_layers
        model = recipe.model.model_copy(update=fewer)
        recipe = recipe.model_copy(update={"model": model})
        yield recipe


def _operations(recipe: Recipe, vocab_size: int) -> float:
    context = recipe.data.context
    model = expected_model(recipe, vocab_size)
    per_token = flops_per_token(model, context, recipe.objective)
    return float(per_token * batch_sequences(recipe) * context)


def train_step(
    recipe: Recipe, vocab_size: int, device: torch.device, world: World = _ALONE
) -> TrainStep:
    """Build the training step of a recipe, on random tokens; no text is read.

    All processes of ``world`` enter. Its weights, and what its schedule says, are as good as any:
    only its time counts. Sets the number of PyTorch's threads for the whole process.
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
    # Any warm-up fits the made-up number of steps.
    warmed_up = recipe.optimizer.model_copy(update={"warmup_steps": 1})
    optimizer = resolve_optimizer(warmed_up, steps=_STEPS)
    resolved = resolved_recipe(recipe, config, train, optimizer)
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
