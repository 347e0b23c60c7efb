"""Budgets and plans of arms: matched, given to all, their excess, and whether and when they fit."""

import json
from dataclasses import replace

import pytest
import torch

from sublayer.config.load import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.resolve import batch_sequences, resolve_model
from sublayer.data.tokenizers.base import CharacterTokenizer
from sublayer.errors import ConfigError
from sublayer.model.estimates import count_parameters, flops_per_token
from sublayer.reporting.terminal import plan_lines
from sublayer.study import budget as budgeting
from sublayer.study.arms import Arm, expand
from sublayer.study.budget import (
    PROGRAM_BYTES,
    ArmBudget,
    Budget,
    Excess,
    Match,
    Measures,
    Resources,
    StepTime,
)
from sublayer.study.cost_plan import BudgetPlan, make_plan
from sublayer.study.definition import load_study
from sublayer.study.step_time import Stopwatch, train_step
from tests.study.studies import FFN

PLENTY = Resources("cpu", memory_bytes=1 << 50, disk_bytes=1 << 50, has_fast_bfloat16=True, cores=1)
RESOURCES = replace(PLENTY, has_fast_bfloat16=False)
GPU = replace(PLENTY, device="cuda")
SHAPE = ("model.n_layers=4", "model.d_model=32", "data.context=32")
FIXED = ("train.threads=1", "train.precision=float32")
BLOCK = 12 * 64**2
"""Weights of a block of width 64 in products: four of attention, and a network of four times it."""
SIZES = ("model.d_model=64", "model.n_heads=2", "data.context=128", "model.vocab_size=256")


def planned(*settings: str, vary=(), rule="parameters", seconds=(), resources=PLENTY) -> BudgetPlan:
    def clock(arms) -> list[StepTime]:
        return [StepTime(each, is_measured=True) for each, _ in zip(seconds, arms, strict=True)]

    study = load_study("gpt", settings, vary_texts=vary)
    return make_plan(study.arms, rule, resources, clock if seconds else None)


@pytest.mark.parametrize("length, steps", [
    ("train.steps=7", 7), ("train.tokens=1000", 6), ("train.epochs=2", None),
])  # fmt: skip
def test_a_length_is_given_in_steps_and_tokens(length, steps):
    (arm,) = planned(length, "train.batch_sequences=3", "data.context=64").arms
    assert (arm.steps, arm.tokens) == (steps, steps and steps * 3 * 64)


def test_hours_follow_from_measured_seconds_and_the_runs_at_a_time():
    # Of 180 s 1 % goes to checkpoints; ten times 32,768 tokens are scored at a third of what
    # training on them takes.
    scoring_s = 10 * 32_768 / (3 * 8 * 128) * 0.1
    (short,) = planned("train.minutes=3", seconds=[0.1]).arms
    assert short.steps == int((0.99 * 180 - scoring_s) / 0.1)
    (long,) = planned("train.steps=7200", seconds=[0.5]).arms
    assert long.hours == pytest.approx((7200 * 0.5 + 5 * scoring_s) / 3600)
    # Arms of other batches get the tokens of the baseline's minutes.
    asked = {"vary": ["train.batch_sequences=8,16"], "rule": "none", "seconds": [0.5, 0.9]}
    first, second = planned("train.minutes=10", **asked).arms
    assert second.steps == round(first.steps / 2)
    assert second.hours == pytest.approx(0.9 * first.hours, rel=0.01)
    asked = {"vary": ["model.d_ff=512,1024"], "rule": "none", "seconds": [0.5, 1.75]}
    plan = planned("train.steps=7200", **asked)
    short, long = (arm.hours for arm in plan.arms)
    largest = plan.arms[1].memory_bytes + PROGRAM_BYTES
    in_turn, two, fifty = (plan.to_json(PLENTY, 3, jobs=jobs)["total"] for jobs in (1, 2, 50))
    assert (in_turn["jobs"], in_turn["memory_bytes"]) == (1, largest)
    assert in_turn["hours"] == pytest.approx(3 * (short + long))
    # Each run keeps its model, and the one that is being trained has its checkpoints beside it.
    models = 3 * sum(4 * arm.parameters.total for arm in plan.arms)
    assert in_turn["disk_bytes"] == models + plan.arms[1].disk_bytes
    assert two["disk_bytes"] == models + 2 * plan.arms[1].disk_bytes
    assert (two["runs"], two["jobs"], two["memory_bytes"]) == (6, 2, 2 * largest)
    # Whoever is free takes the next: one has short, short, long, the other long, short, long.
    assert two["hours"] == pytest.approx(2 * long + short, rel=1e-9)
    tight = replace(PLENTY, memory_bytes=2 * largest - 1)
    assert two["fits_memory"] and not plan.to_json(tight, 3, jobs=2)["total"]["fits_memory"]
    assert (fifty["jobs"], fifty["hours"]) == (6, long)


def test_what_does_not_fit_is_said_with_what_it_takes_and_what_is_free():
    (arm,) = planned("train.batch_sequences=32").arms

    def shown(**resources: int) -> list[str]:
        tight = replace(PLENTY, **resources)
        plan = planned("train.batch_sequences=32", resources=tight)
        return plan_lines(plan.to_json(tight, 1))[2:]

    (waits,) = planned("train.batch_sequences=32", "train.save_in_background=false").arms
    assert arm.memory_bytes - waits.memory_bytes == 3 * 4 * arm.parameters.training
    needed = arm.memory_bytes + PROGRAM_BYTES
    assert shown(memory_bytes=needed, disk_bytes=arm.disk_bytes) == []
    (memory,) = shown(memory_bytes=needed - 1)
    assert memory.startswith("gpt does not fit into memory: a training step takes")
    memory, disk = shown(memory_bytes=10**6, disk_bytes=10**7)
    assert "is free; make train.micro_batch_sequences, data.context or the model" in memory
    assert "is free; make train.keep_checkpoints or the model smaller" in disk


def test_memory_and_disk_hold_a_step_and_checkpoints_up_to_the_last_byte():
    recipe = load_recipe("gpt").recipe
    total = RESOURCES.step_memory(recipe, 256).total + PROGRAM_BYTES
    machines = [replace(RESOURCES, memory_bytes=size) for size in (total, total - 1, None)]
    assert [each.fits_memory(recipe, 256) for each in machines] == [True, False, None]
    recipe = load_recipe("gpt", ["data.context=256", "train.batch_sequences=16"]).recipe
    machines = (GPU, RESOURCES, replace(RESOURCES, cores=3))
    assert [each.batches(recipe).micro_batch_sequences for each in machines] == [16, 4, 12]
    total = GPU.step_memory(recipe, 256).total
    assert replace(GPU, memory_bytes=total).fits_memory(recipe, 256)
    model = 4 * 2_743_296
    for settings, states in (([], 2), (["optimizer.kind=sgd"], 1)):
        recipe = load_recipe("gpt", [*settings, "train.keep_checkpoints=4"]).recipe
        assert budgeting.run_disk(recipe, 256) == ((4 + 3) * model * (1 + states), model)
    recipe = load_recipe("gpt", ["train.keep_steps=[10, 20]"]).recipe
    assert budgeting.run_disk(recipe, 256) == ((2 + 2 + 3) * 3 * model, model + 2 * 3 * model)


class Machine:
    """A machine on a clock of its own: steps take what their operations take at its speed."""

    def __init__(self, speed: float, *, product_speed: float | None = None) -> None:
        self.speed = speed
        self.product_speed = product_speed or 4 * speed
        self.now = 0.0
        self.steps = []

    def step_s(self, recipe, vocab_size: int) -> float:
        context = recipe.data.context
        model = resolve_model(recipe.model, vocab_size=vocab_size, context=context)
        n_tokens = batch_sequences(recipe) * context
        return flops_per_token(model, context, recipe.objective) * n_tokens / self.speed

    def build(self, recipe, vocab_size: int, device: torch.device):
        def take_step(step: int) -> None:
            self.steps.append(recipe)
            self.now += self.step_s(recipe, vocab_size)

        return take_step


def measured(machine, *settings, shape=SHAPE, vary=(), resources=PLENTY, budget_s=55.0):
    arms = expand(load_recipe("gpt", [*shape, *FIXED, *settings]), list(vary))
    parts = {"clock": lambda: machine.now, "speed": lambda *given: machine.product_speed}
    clock = Stopwatch(resources, lambda text: None, budget_s, build=machine.build, **parts)
    return make_plan(arms, "none", resources, clock).arms


@pytest.mark.parametrize("name", ["gpt", "albert-base"])
def test_a_real_step_is_taken(name):
    small = ["train.batch_sequences=4", "model.vocab_size=100", "model.n_heads=4"]
    small = [*small, "data.vocab_size=100"] if name == "albert-base" else []
    arms = expand(load_recipe(name, [*SHAPE, *FIXED, *small]), [])
    steps = []

    def build(*given):
        take_step = train_step(*given)
        return lambda step: steps.append(take_step(step))

    # A clock that stands still measures no time, so that the budget holds every step.
    clock = Stopwatch(PLENTY, lambda text: None, clock=lambda: float(len(steps)), build=build)
    (arm,) = make_plan(arms, "none", PLENTY, clock).arms
    assert (arm.seconds_per_step, arm.is_extrapolated) == (1.0, False)
    assert all(torch.isfinite(step.loss) for step in steps)


def test_a_step_that_does_not_fit_is_extrapolated_from_one_that_does():
    (whole,) = measured(Machine(1e10), "train.micro_batch_sequences=8")
    tight = replace(PLENTY, memory_bytes=PROGRAM_BYTES + whole.memory_bytes // 2)
    machine = Machine(1e10)
    (arm,) = measured(machine, "train.micro_batch_sequences=8", resources=tight)
    assert (whole.is_extrapolated, arm.is_extrapolated) == (False, True)
    assert machine.steps and max(map(batch_sequences, machine.steps)) < 8
    assert arm.seconds_per_step == pytest.approx(whole.seconds_per_step)
    machine = Machine(1e9)
    (arm,) = measured(machine, shape=["model.d_model=16384", "model.n_layers=64"], budget_s=1.0)
    assert (machine.steps, machine.now, arm.is_extrapolated) == ([], 0.0, True)
    assert arm.seconds_per_step > 60


@pytest.mark.parametrize(("d_model", "slower"), [(32, 0.1), (1024, 100.0)])
def test_the_budget_is_kept_however_much_slower_steps_are_than_expected(d_model, slower):
    # A quarter of the product's speed is expected.
    machine = Machine(2e10 / slower, product_speed=8e10)
    shape = [f"model.d_model={d_model}", "model.n_layers=8", "data.context=128"]
    plans = measured(machine, *shape, shape=(), vary=["model.ffn=gelu,swiglu,relu"])
    assert machine.now <= 55.0
    for arm in plans:
        recipe = load_recipe("gpt", [*shape, f"model.ffn={arm.name.removeprefix('ffn=')}"]).recipe
        assert arm.seconds_per_step == pytest.approx(machine.step_s(recipe, 256), rel=1e-6)


def test_the_precision_is_the_recipes_or_the_fastest_of_the_machine(tmp_path, monkeypatch):
    settings = [f"train.precision={each}" for each in ("auto", "bfloat16", "float32")]
    recipes = [load_recipe("gpt", [each]).recipe for each in settings]
    assert [PLENTY.precision(each) for each in recipes] == ["bfloat16", "bfloat16", "float32"]
    assert [RESOURCES.precision(each) for each in recipes] == ["float32", "bfloat16", "float32"]
    (tmp_path / "cpuinfo").write_text("flags : fpu avx2 avx512_bf16\n")
    monkeypatch.setattr("sublayer.study.budget._CPUINFO", tmp_path / "cpuinfo")
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    assert budgeting.find_resources("cpu").has_fast_bfloat16
    for name, limit, expected in (
        ("DNNL_MAX_CPU_ISA", "avx512_core", False), ("DNNL_MAX_CPU_ISA", "AVX512_CORE_AMX", True),
        ("ONEDNN_MAX_CPU_ISA", "AVX2", False),
    ):  # fmt: skip
        monkeypatch.setenv(name, limit)
        assert budgeting.find_resources("cpu").has_fast_bfloat16 == expected


@pytest.mark.parametrize("settings, size, assumed", [
    (["data.tokenizer=bpe", "data.vocab_size=500"], 500, ""),
    (["data.tokenizer=unigram", "data.vocab_size=900", "data.sentinels=100"], 900, ""),
    (["data.tokenizer=characters"], 256, "counted as 256"),
    (["data.tokenizer=moses-bpe"], 32_768, "32640 merges are counted as 32768"),
    (["data.tokenizer=gpt1-bpe", "data.merges=8000"], 8478, "8000 merges are counted as 8478"),
])  # fmt: skip
def test_a_vocabulary_is_known_or_assumed_before_a_text_is_read(settings, size, assumed):
    vocabulary = budgeting.expected_vocabulary(load_recipe("gpt", settings).recipe)
    assert vocabulary.size == size
    assert bool(vocabulary.note) == bool(assumed) and assumed in vocabulary.note


@pytest.mark.parametrize("place", ["model", "checkpoints/step-00000007/model"])
def test_the_vocabulary_is_of_a_tokenizers_file_or_of_a_run(tmp_path, place):
    of_run = load_recipe("gpt", [f"init.run={tmp_path}"]).recipe
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json"):
        budgeting.expected_vocabulary(of_run)
    path = tmp_path / place / "tokenizer.json"
    CharacterTokenizer("abcde").save(path)
    of_file = load_recipe("gpt", [f"data.tokenizer={path}"]).recipe
    assert [budgeting.expected_vocabulary(each).size for each in (of_run, of_file)] == [6, 6]


def resolved(**fields) -> ModelConfig:
    return resolve_model(ModelConfig(**fields), vocab_size=101, context=31)


def arms_of(*vary: str) -> tuple[list[Arm], list[ModelConfig]]:
    arms = expand(load_recipe("gpt", ["model.bias=false"]), vary)
    recipes = [arm.loaded.recipe for arm in arms]
    size = {"vocab_size": 256}
    return arms, [resolve_model(each.model, context=each.data.context, **size) for each in recipes]


def test_matching_finds_the_width_of_the_nearest_number_of_parameters_or_names_it():
    sizes = {"d_model": 768, "n_heads": 12, "d_ff": 3072, "bias": False}
    relu, swiglu = (resolved(**sizes, ffn=ffn) for ffn in ("relu", "swiglu"))
    assert budgeting.match_parameters("swiglu", swiglu, relu) == Match(("model.d_ff=2048",), 0.0)
    transformer = resolved(d_model=512, n_heads=8, d_ff=2048)
    macaron = transformer.model_copy(update={"block": "macaron"})
    match = budgeting.match_parameters("macaron", macaron, transformer)
    # Three vectors more at half the width; one unit of both networks holds 4 * 512 + 2.
    left = 6 * (3 * 512 - (4 * 512 + 2))
    share = pytest.approx(left / count_parameters(transformer).total, rel=1e-12)
    assert match == Match(("model.d_ff=1023",), share) and abs(match.mismatch) < budgeting.TOLERANCE
    for multiple, width in ((8, 1024), (100, 1000), (5000, 5000)):
        match = budgeting.match_parameters("macaron", macaron, transformer, multiple)
        wide = count_parameters(macaron.model_copy(update={"d_ff": width})).total
        share = pytest.approx(wide / count_parameters(transformer).total - 1, rel=1e-12)
        assert match == Match((f"model.d_ff={width}",), share)
    assert budgeting.match_parameters("relu", relu, relu, 5000) == Match((), 0.0)
    shared = [resolved(ffn=ffn, share="all") for ffn in ("relu", "gelu")]
    assert budgeting.match_parameters("gelu", shared[1], shared[0]) == Match((), 0.0)
    small = {"d_model": 8, "n_heads": 2}
    baseline = resolved(n_layers=1, d_ff=1, **small)
    coarse = resolved(n_layers=30, block=("ffn",), norm="none", positions="none", **small)
    assert (
        abs(budgeting.match_parameters("coarse", coarse, baseline).mismatch) > budgeting.TOLERANCE
    )
    baseline = resolved(n_layers=6, d_model=32, n_heads=2, d_ff=128)
    arm = baseline.model_copy(update={"share": "all"})
    with pytest.raises(ConfigError, match=r"model\.d_ff = \d+ instead of 128") as error:
        budgeting.match_parameters("share=all", arm, baseline)
    width = int(str(error.value).split("d_ff = ")[1].split(" ")[0])
    matched = count_parameters(arm.model_copy(update={"d_ff": width})).total
    assert matched == pytest.approx(count_parameters(baseline).total, rel=0.005)


@pytest.mark.parametrize("arm, baseline, message", [
    ({"share": "none"}, {"share": "attention"}, r"model\.share = attention"),
    ({"block": ("attention",)}, {}, r"model\.block"),
    ({"n_layers": 60}, {"n_layers": 6}, r"model\.d_ff = 1"),
])  # fmt: skip
def test_arms_that_no_width_makes_equal_are_refused(arm, baseline, message):
    with pytest.raises(ConfigError, match=message):
        budgeting.match_parameters("arm", resolved(**arm), resolved(**baseline))


def test_arms_are_matched_by_parameters_operations_or_time_to_their_controls():
    arms, models = arms_of("model.ffn=relu,swiglu", "model.n_layers=2,3")
    matches = budgeting.match_arms(arms, models, "parameters")
    assert (matches[0], matches[2]) == (Match((), 0.0), Match(("model.d_ff=512",), 0.0))
    assert budgeting.apply_match(arms[0], matches[0]) is arms[0].loaded
    matched = budgeting.apply_match(arms[2], matches[2])
    assert (matched.recipe.model.d_ff, matched.origins["model.d_ff"]) == (512, "match")
    arms, models = arms_of("model.d_model=64,128", "train.batch_sequences=4,8")
    first, second, third, _ = budgeting.match_arms(arms, models, "flops", steps=1000)
    assert (first, second) == (Match((), 0.0), Match(("train.steps=500",), 0.0))
    per_token = [flops_per_token(model, 128) for model in models]
    steps = round(1000 * per_token[0] / per_token[2])
    assert third.overrides == (f"train.steps={steps}",)
    assert budgeting.apply_match(arms[1], second).recipe.train.minutes is None
    arms, models = arms_of("model.ffn=relu,swiglu")
    timed = budgeting.match_arms(arms, models, "time", steps=1000, step_seconds=[0.2, 0.25])
    assert timed == [Match((), 0.0), Match(("train.steps=800",), 0.0)]
    assert budgeting.match_arms(arms, models, "flops") == [None, None]
    assert budgeting.match_arms(arms, models, "time", steps=9) == [None, None]
    assert budgeting.apply_match(arms[1], None) is arms[1].loaded
    _, match = budgeting.match_arms(arms, models, "time", steps=10, step_seconds=[2.0, 3.0])
    assert match == Match(("train.steps=7",), pytest.approx(1 / 20))
    _, match = budgeting.match_arms(arms, models, "time", steps=900, step_seconds=[2.0, 2.0])
    assert match == Match(("train.steps=900",), 0.0)
    study = load_study("macaron-translation", scale="paper")
    recipes = [arm.loaded.recipe.model for arm in study.arms]
    models = [resolve_model(each, vocab_size=9000, context=64) for each in recipes]
    sizes = [count_parameters(model).total for model in models]
    matches = budgeting.match_arms(study.arms, models, "none")
    for place in (0, 2, 4):
        # 3 d_model more in each of 12 layers.
        more = 36 * models[place].d_model
        assert sizes[place + 1] - sizes[place] == more
        found = [match.mismatch for match in matches[place : place + 2]]
        assert found == [0.0, pytest.approx(more / sizes[place])]


@pytest.mark.parametrize("rule, vary, message", [
    ("parameters", "model.d_ff=100,200", r"arm d_ff=200 .*--match parameters"),
    ("flops", "train.steps=100,200", r"arm steps=200 .*--match flops"),
])  # fmt: skip
def test_an_arm_that_sets_what_matching_solves_is_refused(rule, vary, message):
    arms, models = arms_of(vary)
    with pytest.raises(ConfigError, match=message):
        budgeting.match_arms(arms, models, rule, steps=100)
    assert budgeting.match_arms(arms, models, "none")[0] == Match((), 0.0)


class Known(Measures):
    """Measurements that are known: settled fields, and the seconds of each step in turn."""

    def __init__(self, step_s=(), **settled: int):
        self.settled, self.seconds, self.timed = settled, iter(step_s), []

    def vocab_size(self, recipe):
        return 257

    def train_tokens(self, recipe):
        return 70_000

    def resolve(self, recipe, *, is_new=False):
        settled = {"steps": 301, "evaluate_steps": 31, "precision": "bfloat16", "threads": 2}
        train = recipe.train.model_copy(update={**settled, **self.settled})
        return recipe.model_copy(update={"train": train})

    def step_s(self, loaded, n_arms):
        block = loaded.recipe.model.block
        self.timed.append(block)
        return next(self.seconds, 0.25 if block == "macaron" else 0.2)


MEASURES = Known()


def settled_arms(*texts: str, vary: str = "model.block=transformer,macaron") -> list[Arm]:
    return expand(load_recipe("gpt", list(texts)), [vary])


def test_arms_have_the_baselines_steps_precision_threads_and_tokens():
    for each in budgeting.match_budgets(settled_arms("train.minutes=3"), "parameters", MEASURES):
        train = each.loaded.recipe.train
        assert (train.steps, train.minutes) == (301, None)
        assert (each.settled["train.precision"], each.settled["train.threads"]) == ("bfloat16", 2)
    fixed = settled_arms("train.steps=300", "train.precision=float32", "train.threads=1")
    baseline, macaron = budgeting.match_budgets(fixed, "parameters", MEASURES)
    assert (baseline.matched, baseline.settled) == ((), {})
    width = macaron.loaded.recipe.model.d_ff
    assert (macaron.matched, macaron.settled) == ((f"model.d_ff={width}",), {"model.d_ff": width})
    _, rounded = budgeting.match_budgets(fixed, "parameters", MEASURES, multiple=8)
    assert width % 8 and rounded.matched == (f"model.d_ff={8 * round(width / 8)}",)
    _, longer = budgeting.match_budgets(settled_arms(vary="train.steps=11,13"), "none", MEASURES)
    assert longer.loaded.recipe.train.steps == 13
    briefly = Known(evaluate_steps=151, evaluate_tokens=999)
    arms = settled_arms("train.minutes=3", vary="train.batch_sequences=16,7")
    longer = round(301 * 16 / 7)
    for measures, expected in (
        (MEASURES, [(301, None, None), (longer, None, None)]),
        (briefly, [(301, 151, 999), (longer, longer // 2, 999)]),
    ):
        budgets = budgeting.match_budgets(arms, "none", measures)
        trains = [each.loaded.recipe.train for each in budgets]
        found = [(each.steps, each.evaluate_steps, each.evaluate_tokens) for each in trains]
        assert found == expected


def test_matching_by_time_starts_from_the_steps_of_minutes_or_epochs():
    def steps_of(length: str, measures: Measures) -> int:
        _, macaron = budgeting.match_budgets(settled_arms(length), "time", measures)
        return macaron.loaded.recipe.train.steps

    assert steps_of("train.minutes=3", MEASURES) == round(301 * 0.2 / 0.25)
    assert steps_of("train.epochs=2", Known([1.0] * 4)) == pytest.approx(
        2 * 70_000 / (8 * 128), abs=1
    )
    drifting = Known([0.2, 0.25, 0.3, 0.35])
    assert steps_of("train.steps=300", drifting) == 300
    assert drifting.timed == ["transformer", "macaron", "macaron", "transformer"]


def planned_budgets(*settings: str, vary: str, **options) -> tuple[ArmBudget, ...]:
    plan = planned(*SIZES, *settings, vary=[vary], **{"rule": "none", **options})
    return tuple(arm.excess for arm in plan.arms)


def test_an_excess_is_a_share_of_what_the_other_takes_worked_out_by_hand_or_unknown():
    excess = Budget(103, 50.0, 9.8).excess_over(Budget(100, 200.0, 10.0))
    shares = (excess.parameters, excess.operations, excess.time)
    assert shares == pytest.approx((0.03, -0.75, -0.02))
    # 2 % of time is the clock's, 3 % of parameters are not the width's.
    assert set(excess.beyond) == {"parameters", "operations"}
    assert Budget(1005).excess_over(Budget(1000)).beyond == {}
    assert set(Budget(1006).excess_over(Budget(1000)).beyond) == {"parameters"}
    assert set(Budget(1, None, 10.4).excess_over(Budget(1, None, 10.0)).beyond) == {"time"}
    for one, other in ((None, 5.0), (5.0, None), (5.0, 0.0)):
        assert Budget(10, one).excess_over(Budget(10, other)) == Excess(0.0, None, None)
    budget = ArmBudget("b", "a", Excess(0.1, None), Excess(0.1, -0.2, 0.3))
    kept = json.dumps(budget.to_json())
    assert budgeting.read_budget("b", json.loads(kept)) == budget
    first, second = planned_budgets(vary="train.steps=100,200")
    assert first == ArmBudget("steps=100", None)
    assert second == ArmBudget("steps=200", "steps=100", Excess(0.0, 1.0))
    _, deeper = planned_budgets("train.steps=100", vary="model.n_layers=2,3")
    # Each block also mixes 128 keys, of which a query sees half, twice.
    products, head = BLOCK + 128 * 64, 256 * 64
    assert deeper.planned.operations == pytest.approx(products / (2 * products + head), rel=1e-6)
    weights = BLOCK + 13 * 64  # with biases, and two norms
    total = 2 * weights + (256 + 128 + 2) * 64
    assert deeper.planned.parameters == pytest.approx(weights / total, rel=1e-12)
    for length in ("train.minutes=3", "train.epochs=2"):
        _, known = planned_budgets("train.steps=70", vary="model.d_ff=100,300")
        _, later = planned_budgets(length, vary="model.d_ff=100,300")
        assert later.planned == known.planned
    for settings, varied, rule in (
        ([], "train.epochs=1,2", "none"),
        (["train.epochs=1"], "data.split=90/5/5,80/10/10", "none"),
        (["train.minutes=3"], FFN, "flops"),
    ):
        _, other = planned_budgets(*settings, vary=varied, rule=rule)
        assert other.planned.operations is None
    timed = {"rule": "time", "seconds": [0.3, 0.7]}
    _, other = planned_budgets("train.steps=10", vary=FFN, **timed)
    assert other.planned.time == pytest.approx(4 * 0.7 / (10 * 0.3) - 1)
    assert "time" in other.planned.beyond
