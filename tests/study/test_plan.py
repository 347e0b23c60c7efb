"""Plans: what arms take, whether they fit, how long steps take, before any text is read."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer.cli import main
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
from sublayer.study.budget.match import Match, Rule
from sublayer.study.budget.measure import Stopwatch, train_step
from sublayer.study.budget.plan import ArmPlan, Plan, default_seeds, make_plan
from sublayer.study.budget.plan_json import plan_to_json
from sublayer.study.budget.resources import PROGRAM_BYTES, Resources, find_resources
from sublayer.study.budget.sized_arm import Sized, StepTime
from sublayer.study.budget.vocabulary import expected_vocabulary
from sublayer.study.definition import load_study

PLENTY = Resources("cpu", memory_bytes=1 << 50, disk_bytes=1 << 50, has_fast_bfloat16=True, cores=1)


def planned(
    *settings: str,
    vary: Sequence[str] = (),
    rule: Rule = "parameters",
    seconds: Sequence[float] = (),
) -> Plan:
    def clock(arms: Sequence[Sized]) -> list[StepTime]:
        return [StepTime(each, is_measured=True) for each, _ in zip(seconds, arms, strict=True)]

    study = load_study("gpt", settings, vary_texts=vary)
    return make_plan(study.arms, rule, PLENTY, clock if seconds else None)


def only(*settings: str, **options: Any) -> ArmPlan:
    (arm,) = planned(*settings, **options).arms
    return arm


def test_a_plan_knows_parameters_operations_and_memory_but_no_time() -> None:
    arm = only(
        "model.n_layers=12",
        "model.d_model=768",
        "model.n_heads=12",
        "model.vocab_size=50257",
        "data.context=1024",
    )
    assert arm.parameters.total == 124_439_808
    block = 12 * 768**2 + 1024 * 768
    assert arm.flops_per_token == 6 * (12 * block + 50257 * 768)
    assert arm.memory_bytes > 16 * arm.parameters.total
    assert arm.step_time is None
    assert (arm.steps, arm.tokens, arm.hours) == (None, None, 10 / 60)


@pytest.mark.parametrize(
    ("settings", "steps", "tokens"),
    [
        (["train.steps=7", "train.batch_sequences=3", "data.context=64"], 7, 7 * 3 * 64),
        (["train.tokens=1000", "train.batch_sequences=3", "data.context=64"], 6, 6 * 3 * 64),
        (["train.steps=7", "train.batch_tokens=100", "data.context=64"], 7, 7 * 2 * 64),
        (["train.epochs=2"], None, None),
    ],
)
def test_a_length_is_given_in_steps_and_tokens(
    settings: list[str], steps: int | None, tokens: int | None
) -> None:
    arm = only(*settings)
    assert (arm.steps, arm.tokens) == (steps, tokens)


def test_measured_seconds_turn_minutes_into_steps_and_steps_into_hours() -> None:
    # Of 180 s 1 % goes to checkpoints; ten times 32,768 tokens are scored at a third of what
    # training on them takes.
    scoring_s = 10 * 32_768 / (3 * 8 * 128) * 0.1
    assert only("train.minutes=3", seconds=[0.1]).steps == int((0.99 * 180 - scoring_s) / 0.1)
    assert only("train.steps=7200", seconds=[0.5]).hours == pytest.approx(
        (7200 * 0.5 + 5 * scoring_s) / 3600
    )


def test_arms_are_planned_with_their_matched_width() -> None:
    plan = planned("model.bias=false", vary=["model.ffn=relu,swiglu"])
    assert [arm.match for arm in plan.arms] == [Match((), 0.0), Match(("model.d_ff=512",), 0.0)]
    assert plan.arms[0].parameters == plan.arms[1].parameters
    assert plan.arms[0].flops_per_token == plan.arms[1].flops_per_token


def test_arms_of_other_batches_get_the_tokens_of_the_baseline_s_minutes() -> None:
    plan = planned(
        "train.minutes=10", vary=["train.batch_sequences=8,16"], rule="none", seconds=[0.5, 0.9]
    )
    first, second = (arm.steps for arm in plan.arms)
    assert first is not None
    assert second == round(first / 2)
    assert plan.arms[0].tokens == pytest.approx(plan.arms[1].tokens, rel=0.002)
    assert plan.arms[1].hours == pytest.approx(0.9 * plan.arms[0].hours, rel=0.01)


def test_sharing_arms_are_refused_by_parameters_and_planned_by_operations() -> None:
    with pytest.raises(ConfigError, match=r"which would take model\.d_ff = \d+"):
        planned(vary=["model.share=none,all"])
    plan = planned("train.steps=100", vary=["model.share=none,all"], rule="flops")
    assert plan.arms[1].steps == 100
    assert plan.arms[1].parameters.executed == plan.arms[0].parameters.total


def test_what_does_not_fit_is_said_with_the_smallest_change_that_would() -> None:
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


def test_the_json_has_the_promised_fields_and_totals_over_seeds() -> None:
    study = load_study("gpt", ["train.steps=7200"], vary_texts=["model.ffn=relu,swiglu"])
    assert default_seeds(study) == 5
    clock = lambda arms: [StepTime(0.5, is_measured=False)] * len(arms)  # noqa: E731
    plan = plan_to_json(make_plan(study.arms, "parameters", PLENTY, clock), PLENTY, 3)
    arm = plan["arms"][1]
    assert (arm["name"], arm["seconds_per_step"]) == ("ffn=swiglu", 0.5)
    assert arm["is_extrapolated"]
    assert plan["total"]["runs"] == 6
    assert [each["hours"] for each in plan["arms"]] == pytest.approx([1.0, 1.0], rel=0.02)
    assert plan["total"]["hours"] == pytest.approx(3 * sum(each["hours"] for each in plan["arms"]))
    # Each run keeps its model, and the one that is being trained has its checkpoints beside it.
    models = 3 * sum(4 * each["parameters"]["total"] for each in plan["arms"])
    assert plan["total"]["disk_bytes"] == models + max(each["disk_bytes"] for each in plan["arms"])
    assert json.loads(json.dumps(plan)) == plan


def test_runs_at_a_time_take_so_many_times_the_memory_and_a_part_of_the_time() -> None:
    study = load_study("gpt", ["train.steps=7200"], vary_texts=["model.d_ff=512,1024"])
    seconds = [0.5, 1.75]
    clock = lambda arms: [StepTime(each, is_measured=True) for each in seconds]  # noqa: E731
    plan = make_plan(study.arms, "none", PLENTY, clock)
    short, long = (arm.hours for arm in plan.arms)
    assert short is not None
    assert long is not None
    largest = plan.arms[1].memory_bytes + (400 << 20)
    in_turn = plan_to_json(plan, PLENTY, 3)["total"]
    assert (in_turn["jobs"], in_turn["memory_bytes"]) == (1, largest)
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
    assert plan_to_json(plan, PLENTY, 3, jobs=50)["total"]["jobs"] == 6
    assert plan_to_json(plan, PLENTY, 3, jobs=50)["total"]["hours"] == long


def test_a_plan_counts_the_trials_beside_the_runs_that_are_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tuned = ["plan", "gpt", "--vary", "model.ffn=relu,gelu", "--tune", "optimizer.lr=1e-3,2e-3"]
    assert main([*tuned, "--seeds", "3", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["total"]["runs"] == 2 * (2 + 3)
    assert any("2 trials, with other seeds than those" in note for note in plan["notes"])
    assert main([*tuned, "--seeds", "2"]) == 2
    assert "--seeds 2 says too little" in capsys.readouterr().err
    assert main(["plan", "gpt", "--seeds", "2"]) == 0  # of a single recipe nothing is compared


RESOURCES = replace(PLENTY, has_fast_bfloat16=False)
GPU = replace(PLENTY, device="cuda")


def change(loaded: LoadedRecipe, limit: int) -> tuple[str, ...] | None:
    resources = replace(RESOURCES, memory_bytes=limit + PROGRAM_BYTES)
    sequences = batches(loaded.recipe, resources).micro_batch_sequences
    assert sequences is not None
    return smallest_change(loaded, sequences, lambda recipe: fits_memory(recipe, 256, resources))


def needed(loaded: LoadedRecipe, *settings: str) -> int:
    return step_memory(vary(loaded, settings).recipe, 256, RESOURCES).total


def test_a_step_fits_up_to_the_last_byte() -> None:
    recipe = load_recipe("gpt").recipe
    total = step_memory(recipe, 256, RESOURCES).total
    assert fits_memory(recipe, 256, replace(RESOURCES, memory_bytes=total + PROGRAM_BYTES))
    less = replace(RESOURCES, memory_bytes=total + PROGRAM_BYTES - 1)
    assert fits_memory(recipe, 256, less) is False
    assert fits_memory(recipe, 256, replace(RESOURCES, memory_bytes=None)) is None


def test_a_gpu_takes_the_batch_whole_and_holds_no_program() -> None:
    recipe = load_recipe("gpt", ["data.context=256", "train.batch_sequences=16"]).recipe
    assert batches(recipe, GPU).micro_batch_sequences == 16
    assert batches(recipe, RESOURCES).micro_batch_sequences == 4
    assert batches(recipe, replace(RESOURCES, cores=3)).micro_batch_sequences == 12
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
def test_the_largest_value_that_fits_is_found(settings: list[str]) -> None:
    loaded = load_recipe("gpt", ["train.batch_sequences=16", "train.micro_batch_sequences=16"])
    assert change(loaded, needed(loaded, *settings)) == tuple(settings)


@pytest.mark.parametrize(
    ("settings", "states"),
    [([], 2), (["optimizer.kind=sgd"], 1), (["optimizer.kind=sgd", "optimizer.momentum=0"], 0)],
)
def test_a_run_s_disk_is_that_of_the_checkpoints_that_it_keeps(
    settings: list[str], states: int
) -> None:
    recipe = load_recipe("gpt", [*settings, "train.keep_checkpoints=4"]).recipe
    assert run_disk(recipe, 256) == (4 + 3) * 4 * 2_743_296 * (1 + states)


def test_checkpoints_that_are_kept_by_their_steps_take_disk_also_once_a_run_is_scored() -> None:
    recipe = load_recipe("gpt", ["train.keep_steps=[10, 20]"]).recipe
    model, checkpoint = 4 * 2_743_296, 4 * 2_743_296 * 3
    assert run_disk(recipe, 256) == (2 + 2 + 3) * checkpoint
    assert scored_disk(recipe, 256) == model + 2 * checkpoint
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


@pytest.mark.parametrize(("d_model", "slower"), [(32, 0.1), (256, 10.0), (1024, 100.0)])
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


def test_this_machine_has_memory_and_disk(tmp_path: Path) -> None:
    resources = find_resources("cpu", tmp_path)
    assert resources.device == "cpu"
    assert resources.memory_bytes is None or resources.memory_bytes > 1 << 20
    assert resources.disk_bytes is not None


@pytest.mark.parametrize(
    ("precision", "is_fast", "expected"),
    [
        ("auto", True, "bfloat16"),
        ("auto", False, "float32"),
        ("float32", True, "float32"),
        ("bfloat16", False, "bfloat16"),
    ],
)
def test_the_precision_is_the_recipe_s_or_what_the_machine_is_fast_at(
    precision: str, is_fast: bool, expected: str
) -> None:
    recipe = load_recipe("gpt", [f"train.precision={precision}"]).recipe
    assert (
        Resources("cpu", None, None, has_fast_bfloat16=is_fast, cores=1).precision(recipe)
        == expected
    )


@pytest.mark.parametrize(
    ("name", "limit", "expected"),
    [
        ("ONEDNN_MAX_CPU_ISA", None, True),
        ("ONEDNN_MAX_CPU_ISA", "AVX2", False),
        ("DNNL_MAX_CPU_ISA", "avx512_core", False),
        ("DNNL_MAX_CPU_ISA", "AVX512_CORE_AMX", True),
    ],
)
def test_a_limit_of_onednn_takes_bfloat16_away(
    name: str, limit: str | None, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text("flags : fpu avx2 avx512_bf16\n")
    monkeypatch.setattr("sublayer.study.budget.resources._CPUINFO", tmp_path / "cpuinfo")
    for each in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(each, raising=False)
    if limit is not None:
        monkeypatch.setenv(name, limit)
    assert find_resources("cpu").has_fast_bfloat16 == expected


@pytest.mark.parametrize(
    ("settings", "size", "assumed"),
    [
        ([], 256, ""),
        (["data.tokenizer=bpe", "data.vocab_size=500"], 500, ""),
        (["data.tokenizer=unigram"], 30_000, ""),
        (["data.tokenizer=unigram", "data.vocab_size=900", "data.sentinels=100"], 900, ""),
        (["data.tokenizer=characters"], 256, "counted as 256"),
        (["data.tokenizer=moses-bpe"], 32_768, "32640 merges are counted as 32768"),
        (["data.tokenizer=gpt1-bpe", "data.merges=8000"], 8478, "8000 merges are counted as 8478"),
    ],
)
def test_a_vocabulary_is_known_or_assumed_before_a_text_is_read(
    settings: list[str], size: int, assumed: str
) -> None:
    vocabulary = expected_vocabulary(load_recipe("gpt", settings).recipe)
    assert vocabulary.size == size
    assert bool(vocabulary.note) == bool(assumed) and assumed in vocabulary.note


def test_a_tokenizer_s_file_has_its_own_size(tmp_path: Path) -> None:
    CharacterTokenizer("abc").save(tmp_path / "tokenizer.json")
    recipe = load_recipe("gpt", [f"data.tokenizer={tmp_path / 'tokenizer.json'}"]).recipe
    assert expected_vocabulary(recipe).size == 4


@pytest.mark.parametrize("place", ["model", "checkpoints/step-00000007/model"])
def test_the_tokenizer_of_a_run_comes_with_it(tmp_path: Path, place: str) -> None:
    CharacterTokenizer("abcde").save(tmp_path / place / "tokenizer.json")
    assert expected_vocabulary(load_recipe("gpt", [f"init.run={tmp_path}"]).recipe).size == 6


def test_a_run_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json"):
        expected_vocabulary(load_recipe("gpt", [f"init.run={tmp_path}"]).recipe)
