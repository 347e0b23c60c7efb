"""Steps are timed where they fit, and extrapolated where they do not, within a budget."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from sublayer.config.layering.layers import load_recipe
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_model import resolve_model
from sublayer.config.resolve_train import batch_sequences
from sublayer.estimate.cost import flops_per_token
from sublayer.study.arms import expand
from sublayer.study.budget.measure import Stopwatch, train_step
from sublayer.study.budget.plan import ArmPlan, make_plan
from sublayer.study.budget.resources import Resources

PLENTY = Resources("cpu", memory_bytes=1 << 50, disk_bytes=1 << 50, has_fast_bfloat16=True, cores=1)
SHAPE = ("model.n_layers=4", "model.d_model=32", "data.context=32")
FIXED = ("train.threads=1", "train.precision=float32")
CPU = torch.device("cpu")


class Machine:
    """A machine on a clock of its own: steps take what their operations take at its speed."""

    def __init__(self, speed: float, *, product_speed: float | None = None) -> None:
        self.speed = speed
        self.product_speed = product_speed or 4 * speed
        self.now = 0.0
        self.steps: list[Recipe] = []
        self.precisions: list[str] = []

    def clock(self) -> float:
        return self.now

    def probe(self, device: torch.device, precision: str, threads: int) -> float:
        self.precisions.append(precision)
        return self.product_speed

    def step_s(self, recipe: Recipe, vocab_size: int) -> float:
        context = recipe.data.context
        model = resolve_model(recipe.model, vocab_size=vocab_size, context=context)
        return (
            flops_per_token(model, context, recipe.objective)
            * batch_sequences(recipe)
            * context
            / self.speed
        )

    def build(self, recipe: Recipe, vocab_size: int, device: torch.device) -> Callable[[int], None]:
        def take_step(step: int) -> None:
            self.steps.append(recipe)
            self.now += self.step_s(recipe, vocab_size)

        return take_step


def measured(
    machine: Machine,
    *settings: str,
    shape: Sequence[str] = SHAPE,
    vary: Sequence[str] = (),
    resources: Resources = PLENTY,
    budget_s: float = 55.0,
    precision: str = "float32",
) -> tuple[ArmPlan, ...]:
    fixed = ("train.threads=1", f"train.precision={precision}")
    arms = expand(load_recipe("gpt", [*shape, *fixed, *settings]), list(vary))
    said: list[str] = []
    clock = Stopwatch(
        resources,
        said.append,
        budget_s,
        clock=machine.clock,
        build=machine.build,
        speed=machine.probe,
    )
    plans = make_plan(arms, "none", resources, clock).arms
    assert said == [f"measuring {arm.name} ({n + 1} of {len(arms)})" for n, arm in enumerate(plans)]
    return plans


def test_a_small_step_is_measured() -> None:
    machine = Machine(1e10)
    (arm,) = measured(machine)
    assert arm.step_time is not None
    assert arm.step_time.is_measured
    assert arm.step_time.seconds == pytest.approx(
        machine.step_s(load_recipe("gpt", [*SHAPE, *FIXED]).recipe, 256)
    )


@pytest.mark.parametrize("name", ["gpt", "albert-base"])
def test_a_real_step_is_taken(name: str) -> None:
    settings = (
        "train.batch_sequences=4",
        "model.vocab_size=100",
        "model.n_heads=4",
        "data.vocab_size=100",
    )
    extra = settings if name == "albert-base" else ()
    arms = expand(load_recipe(name, [*SHAPE, *FIXED, *extra]), [])
    steps = []

    def build(recipe: Recipe, vocab_size: int, device: torch.device) -> Callable[[int], None]:
        take_step = train_step(recipe, vocab_size, device)
        return lambda step: steps.append(take_step(step))

    # A clock that stands still measures no time, so that the budget holds every step.
    clock = Stopwatch(PLENTY, lambda text: None, clock=lambda: float(len(steps)), build=build)
    (arm,) = make_plan(arms, "none", PLENTY, clock).arms
    assert arm.step_time is not None
    assert arm.step_time.is_measured
    assert arm.step_time.seconds == 1.0
    assert all(torch.isfinite(step.loss) for step in steps)


def test_a_step_that_does_not_fit_is_extrapolated_from_one_that_does() -> None:
    (whole,) = measured(Machine(1e10), "train.micro_batch_sequences=16")
    tight = replace(PLENTY, memory_bytes=(400 << 20) + whole.memory_bytes // 2)
    machine = Machine(1e10)
    (arm,) = measured(machine, "train.micro_batch_sequences=16", resources=tight)
    assert arm.step_time is not None and whole.step_time is not None
    assert not arm.step_time.is_measured
    assert machine.steps
    assert all(batch_sequences(recipe) < 8 for recipe in machine.steps)
    assert arm.step_time.seconds == pytest.approx(whole.step_time.seconds)


def test_a_model_far_too_large_is_estimated_at_once() -> None:
    machine = Machine(1e9, product_speed=4e9)
    (arm,) = measured(machine, shape=["model.d_model=16384", "model.n_layers=64"], budget_s=1.0)
    assert (machine.steps, machine.now) == ([], 0.0)
    assert arm.step_time is not None
    assert not arm.step_time.is_measured
    assert arm.step_time.seconds > 60


@pytest.mark.parametrize("slower", [0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("d_model", [32, 256, 1024])
def test_the_budget_is_kept_however_much_slower_steps_are_than_expected(
    d_model: int, slower: float
) -> None:
    # A quarter of the product's speed is expected.
    machine = Machine(2e10 / slower, product_speed=8e10)
    shape = [f"model.d_model={d_model}", "model.n_layers=8", "data.context=128"]
    plans = measured(machine, *shape, shape=(), vary=["model.ffn=gelu,swiglu,relu"])
    assert machine.now <= 55.0
    for arm in plans:
        assert arm.step_time is not None
        recipe = load_recipe("gpt", [*shape, f"model.ffn={arm.name.removeprefix('ffn=')}"]).recipe
        assert arm.step_time.seconds == pytest.approx(machine.step_s(recipe, 256), rel=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_products_are_tried_in_the_precision_of_the_run(precision: str) -> None:
    machine = Machine(1e10)
    measured(machine, precision=precision)
    assert machine.precisions == [precision]


def test_a_step_longer_than_the_minutes_is_not_shown_beside_them() -> None:
    machine = Machine(1e6)
    arms = expand(load_recipe("gpt", ["train.minutes=1", *FIXED]), [])
    clock = Stopwatch(
        PLENTY, lambda text: None, clock=machine.clock, build=machine.build, speed=machine.probe
    )
    plan = make_plan(arms, "none", PLENTY, clock)
    (arm,) = plan.arms
    assert arm.step_time is not None
    assert arm.step_time.seconds > 60
    assert (arm.steps, arm.hours) == (None, None)
    assert [
        note
        for note in plan.notes
        if note.startswith("gpt: train.minutes = 1 is too short: a step takes")
    ]
