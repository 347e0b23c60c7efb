"""Plans: what arms take, whether they fit, how long steps take, before any text is read."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from sublayer.config.layering.layers import LoadedRecipe, load_recipe, vary
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_model import resolve_model
from sublayer.config.resolve_train import batch_sequences
from sublayer.data.tokenizers.characters import CharacterTokenizer
from sublayer.errors import ConfigError
from sublayer.estimate.cost import flops_per_token
from sublayer.study.arms import expand
from sublayer.study.budget.capacity import (
    batches,
    fits_memory,
    run_disk,
    scored_disk,
    smallest_change,
    step_memory,
)
from sublayer.study.budget.measure import Stopwatch, train_step
from sublayer.study.budget.plan import make_plan
from sublayer.study.budget.plan_json import plan_to_json
from sublayer.study.budget.resources import PROGRAM_BYTES, Resources, find_resources
from sublayer.study.budget.sized_arm import Sized, StepTime
from sublayer.study.budget.vocabulary import expected_vocabulary
from sublayer.study.definition import load_study

PLENTY = Resources("cpu", memory_bytes=1 << 50, disk_bytes=1 << 50, has_fast_bfloat16=True, cores=1)


def planned(*settings, vary=(), rule="parameters", seconds=()):
    def clock(arms: Sequence[Sized]) -> list[StepTime]:
        return [StepTime(each, is_measured=True) for each, _ in zip(seconds, arms, strict=True)]

    study = load_study("gpt", settings, vary_texts=vary)
    return make_plan(study.arms, rule, PLENTY, clock if seconds else None)


@pytest.mark.parametrize(
    ("length", "steps"), [("train.steps=7", 7), ("train.tokens=1000", 6), ("train.epochs=2", None)]
)
def test_a_length_is_given_in_steps_and_tokens(length, steps):
    (arm,) = planned(length, "train.batch_sequences=3", "data.context=64").arms
    assert (arm.steps, arm.tokens) == (steps, steps and steps * 3 * 64)


def test_measured_seconds_turn_minutes_into_steps_and_steps_into_hours():
    # Of 180 s 1 % goes to checkpoints; ten times 32,768 tokens are scored at a third of what
    # training on them takes.
    scoring_s = 10 * 32_768 / (3 * 8 * 128) * 0.1
    (short,) = planned("train.minutes=3", seconds=[0.1]).arms
    assert short.steps == int((0.99 * 180 - scoring_s) / 0.1)
    (long,) = planned("train.steps=7200", seconds=[0.5]).arms
    assert long.hours == pytest.approx((7200 * 0.5 + 5 * scoring_s) / 3600)
    # Arms of other batches get the tokens of the baseline's minutes.
    batches = ["train.batch_sequences=8,16"]
    plan = planned("train.minutes=10", vary=batches, rule="none", seconds=[0.5, 0.9])
    first, second = plan.arms
    assert first.steps is not None and second.steps == round(first.steps / 2)
    assert second.hours == pytest.approx(0.9 * first.hours, rel=0.01)


def test_what_does_not_fit_is_said_with_the_smallest_change_that_would():
    batch = "train.batch_sequences=32"
    waits = "train.save_in_background=false"
    beside = load_study("gpt", [batch, "train.micro_batch_sequences=16"])
    copied = make_plan(beside.arms, "none", PLENTY).arms[0]
    tight = replace(PLENTY, memory_bytes=copied.memory_bytes + (400 << 20) - 1)
    (arm,) = make_plan(beside.arms, "none", tight).arms
    assert (arm.fits_memory, arm.fits_disk, arm.change) == (False, True, (waits,))
    study = load_study("gpt", [batch, waits, "train.micro_batch_sequences=16"])
    needed = make_plan(study.arms, "none", PLENTY).arms[0].memory_bytes
    # Weights and two moments of each parameter are copied.
    assert copied.memory_bytes - needed == 3 * 4 * copied.parameters.training
    tight = replace(PLENTY, memory_bytes=needed + (400 << 20) - 1)
    (arm,) = make_plan(study.arms, "none", tight).arms
    assert not arm.fits_memory
    assert arm.fits_disk and arm.change == ("train.micro_batch_sequences=15",)
    smaller = load_study("gpt", [batch, waits, *(arm.change or ())])
    (fitting,) = make_plan(smaller.arms, "none", tight).arms
    assert fitting.fits_memory
    plenty = make_plan(study.arms, "none", PLENTY).arms[0]
    assert plenty.change is None
    full = replace(PLENTY, disk_bytes=plenty.disk_bytes - 1)
    (arm,) = make_plan(study.arms, "none", full).arms
    assert (arm.fits_memory, arm.fits_disk, arm.change) == (True, False, ("model.n_layers=5",))


def test_runs_at_a_time_take_so_many_times_the_memory_and_a_part_of_the_time():
    study = load_study("gpt", ["train.steps=7200"], vary_texts=["model.d_ff=512,1024"])
    seconds = [0.5, 1.75]
    clock = lambda arms: [StepTime(each, is_measured=True) for each in seconds]  # noqa: E731
    plan = make_plan(study.arms, "none", PLENTY, clock)
    short, long = (arm.hours for arm in plan.arms)
    assert short is not None and long is not None
    largest = plan.arms[1].memory_bytes + (400 << 20)
    in_turn = plan_to_json(plan, PLENTY, 3)["total"]
    assert (in_turn["jobs"], in_turn["memory_bytes"]) == (1, largest)
    assert in_turn["hours"] == pytest.approx(3 * (short + long))
    # Each run keeps its model, and the one that is being trained has its checkpoints beside it.
    models = 3 * sum(4 * arm.parameters.total for arm in plan.arms)
    assert in_turn["disk_bytes"] == models + plan.arms[1].disk_bytes
    total = plan_to_json(plan, PLENTY, 3, jobs=2)["total"]
    assert (total["runs"], total["jobs"], total["memory_bytes"]) == (6, 2, 2 * largest)
    assert total["fits_memory"]
    # Whoever is free takes the next: one has short, short, long, the other long, short, long.
    assert total["hours"] == pytest.approx(2 * long + short, rel=1e-9)
    tight = replace(PLENTY, memory_bytes=2 * largest - 1)
    assert plan_to_json(plan, tight, 3, jobs=2)["total"]["fits_memory"] is False
    checkpoints = plan_to_json(plan, PLENTY, 3, jobs=2)["total"]["disk_bytes"]
    assert checkpoints - in_turn["disk_bytes"] == plan.arms[1].disk_bytes
    # There are six runs to make at a time.
    at_once = plan_to_json(plan, PLENTY, 3, jobs=50)["total"]
    assert (at_once["jobs"], at_once["hours"]) == (6, long)


RESOURCES = replace(PLENTY, has_fast_bfloat16=False)
GPU = replace(PLENTY, device="cuda")


def change(loaded: LoadedRecipe, limit: int) -> tuple[str, ...] | None:
    resources = replace(RESOURCES, memory_bytes=limit + PROGRAM_BYTES)
    sequences = batches(loaded.recipe, resources).micro_batch_sequences
    return smallest_change(loaded, sequences, lambda recipe: fits_memory(recipe, 256, resources))


def needed(loaded: LoadedRecipe, *settings: str) -> int:
    return step_memory(vary(loaded, settings).recipe, 256, RESOURCES).total


def test_a_step_fits_up_to_the_last_byte():
    recipe = load_recipe("gpt").recipe
    total = step_memory(recipe, 256, RESOURCES).total + PROGRAM_BYTES
    fits = [
        fits_memory(recipe, 256, replace(RESOURCES, memory_bytes=size))
        for size in (total, total - 1, None)
    ]
    assert fits == [True, False, None]


def test_a_gpu_takes_the_batch_whole_and_holds_no_program():
    recipe = load_recipe("gpt", ["data.context=256", "train.batch_sequences=16"]).recipe
    machines = (GPU, RESOURCES, replace(RESOURCES, cores=3))
    assert [batches(recipe, each).micro_batch_sequences for each in machines] == [16, 4, 12]
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
def test_the_largest_value_that_fits_is_found(settings):
    loaded = load_recipe("gpt", ["train.batch_sequences=16", "train.micro_batch_sequences=16"])
    assert change(loaded, needed(loaded, *settings)) == tuple(settings)


def test_a_runs_disk_is_of_the_checkpoints_that_it_keeps():
    model = 4 * 2_743_296
    for settings, states in (([], 2), (["optimizer.kind=sgd"], 1)):
        recipe = load_recipe("gpt", [*settings, "train.keep_checkpoints=4"]).recipe
        assert run_disk(recipe, 256) == (4 + 3) * model * (1 + states)
    # Those that are kept by their steps take disk also once a run is scored.
    recipe = load_recipe("gpt", ["train.keep_steps=[10, 20]"]).recipe
    assert run_disk(recipe, 256) == (2 + 2 + 3) * 3 * model
    assert scored_disk(recipe, 256) == model + 2 * 3 * model
    assert scored_disk(load_recipe("gpt").recipe, 256) == model


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

    def clock(self) -> float:
        return self.now

    def probe(self, device: torch.device, precision: str, threads: int) -> float:
        return self.product_speed

    def step_s(self, recipe: Recipe, vocab_size: int) -> float:
        context = recipe.data.context
        model = resolve_model(recipe.model, vocab_size=vocab_size, context=context)
        n_tokens = batch_sequences(recipe) * context
        return flops_per_token(model, context, recipe.objective) * n_tokens / self.speed

    def build(self, recipe: Recipe, vocab_size: int, device: torch.device) -> Callable[[int], None]:
        def take_step(step: int) -> None:
            self.steps.append(recipe)
            self.now += self.step_s(recipe, vocab_size)

        return take_step


def measured(machine, *settings, shape=SHAPE, vary=(), resources=PLENTY, budget_s=55.0):
    arms = expand(load_recipe("gpt", [*shape, *FIXED, *settings]), list(vary))
    shown: list[str] = []
    parts = {"clock": machine.clock, "build": machine.build, "speed": machine.probe}
    clock = Stopwatch(resources, shown.append, budget_s, **parts)
    plans = make_plan(arms, "none", resources, clock).arms
    assert shown == [
        f"measuring {arm.name} ({n + 1} of {len(arms)})" for n, arm in enumerate(plans)
    ]
    return plans


@pytest.mark.parametrize("name", ["gpt", "albert-base"])
def test_a_real_step_is_taken(name):
    small = ["train.batch_sequences=4", "model.vocab_size=100", "model.n_heads=4"]
    small = [*small, "data.vocab_size=100"] if name == "albert-base" else []
    arms = expand(load_recipe(name, [*SHAPE, *FIXED, *small]), [])
    steps = []

    def build(recipe: Recipe, vocab_size: int, device: torch.device) -> Callable[[int], None]:
        take_step = train_step(recipe, vocab_size, device)
        return lambda step: steps.append(take_step(step))

    # A clock that stands still measures no time, so that the budget holds every step.
    clock = Stopwatch(PLENTY, lambda text: None, clock=lambda: float(len(steps)), build=build)
    (arm,) = make_plan(arms, "none", PLENTY, clock).arms
    assert arm.step_time == StepTime(1.0, is_measured=True)
    assert all(torch.isfinite(step.loss) for step in steps)


def test_a_step_that_does_not_fit_is_extrapolated_from_one_that_does():
    (whole,) = measured(Machine(1e10), "train.micro_batch_sequences=16")
    tight = replace(PLENTY, memory_bytes=(400 << 20) + whole.memory_bytes // 2)
    machine = Machine(1e10)
    (arm,) = measured(machine, "train.micro_batch_sequences=16", resources=tight)
    assert arm.step_time is not None and whole.step_time is not None
    assert not arm.step_time.is_measured
    assert machine.steps and max(map(batch_sequences, machine.steps)) < 8
    assert whole.step_time.is_measured
    assert arm.step_time.seconds == pytest.approx(whole.step_time.seconds)


def test_a_model_far_too_large_is_estimated_at_once():
    machine = Machine(1e9, product_speed=4e9)
    (arm,) = measured(machine, shape=["model.d_model=16384", "model.n_layers=64"], budget_s=1.0)
    assert (machine.steps, machine.now) == ([], 0.0)
    assert not arm.step_time.is_measured
    assert arm.step_time.seconds > 60


@pytest.mark.parametrize(("d_model", "slower"), [(32, 0.1), (1024, 100.0)])
def test_the_budget_is_kept_however_much_slower_steps_are_than_expected(d_model, slower):
    # A quarter of the product's speed is expected.
    machine = Machine(2e10 / slower, product_speed=8e10)
    shape = [f"model.d_model={d_model}", "model.n_layers=8", "data.context=128"]
    plans = measured(machine, *shape, shape=(), vary=["model.ffn=gelu,swiglu,relu"])
    assert machine.now <= 55.0
    for arm in plans:
        recipe = load_recipe("gpt", [*shape, f"model.ffn={arm.name.removeprefix('ffn=')}"]).recipe
        assert arm.step_time.seconds == pytest.approx(machine.step_s(recipe, 256), rel=1e-6)


def test_the_precision_is_the_recipes_or_the_fastest_of_the_machine():
    chosen = [
        replace(PLENTY, has_fast_bfloat16=is_fast).precision(
            load_recipe("gpt", [f"train.precision={precision}"]).recipe
        )
        for precision in ("auto", "float32", "bfloat16")
        for is_fast in (True, False)
    ]
    assert chosen == ["bfloat16", "float32", "float32", "float32", "bfloat16", "bfloat16"]


def test_a_limit_of_onednn_takes_bfloat16_away(tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text("flags : fpu avx2 avx512_bf16\n")
    monkeypatch.setattr("sublayer.study.budget.resources._CPUINFO", tmp_path / "cpuinfo")
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    assert find_resources("cpu").has_fast_bfloat16
    for name, limit, expected in (
        ("DNNL_MAX_CPU_ISA", "avx512_core", False),
        ("DNNL_MAX_CPU_ISA", "AVX512_CORE_AMX", True),
        ("ONEDNN_MAX_CPU_ISA", "AVX2", False),
    ):
        monkeypatch.setenv(name, limit)
        assert find_resources("cpu").has_fast_bfloat16 == expected


@pytest.mark.parametrize(
    ("settings", "size", "assumed"),
    [
        (["data.tokenizer=bpe", "data.vocab_size=500"], 500, ""),
        (["data.tokenizer=unigram", "data.vocab_size=900", "data.sentinels=100"], 900, ""),
        (["data.tokenizer=characters"], 256, "counted as 256"),
        (["data.tokenizer=moses-bpe"], 32_768, "32640 merges are counted as 32768"),
        (["data.tokenizer=gpt1-bpe", "data.merges=8000"], 8478, "8000 merges are counted as 8478"),
    ],
)
def test_a_vocabulary_is_known_or_assumed_before_a_text_is_read(settings, size, assumed):
    vocabulary = expected_vocabulary(load_recipe("gpt", settings).recipe)
    assert vocabulary.size == size
    assert bool(vocabulary.note) == bool(assumed) and assumed in vocabulary.note


@pytest.mark.parametrize("place", ["model", "checkpoints/step-00000007/model"])
def test_the_vocabulary_is_of_a_tokenizers_file_or_of_a_run(tmp_path, place):
    (tmp_path / "run").mkdir()
    of_run = load_recipe("gpt", [f"init.run={tmp_path / 'run'}"]).recipe
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json"):
        expected_vocabulary(of_run)
    path = tmp_path / "run" / place / "tokenizer.json"
    CharacterTokenizer("abcde").save(path)
    of_file = load_recipe("gpt", [f"data.tokenizer={path}"]).recipe
    assert expected_vocabulary(of_run).size == expected_vocabulary(of_file).size == 6
