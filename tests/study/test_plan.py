"""A plan says what arms take, and fits or says what would."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sublayer.cli import main
from sublayer.config.layering.sources import shipped_recipes
from sublayer.errors import ConfigError
from sublayer.study.budget.match import Match, Rule
from sublayer.study.budget.plan import ArmPlan, Plan, default_seeds, make_plan
from sublayer.study.budget.plan_json import plan_to_json
from sublayer.study.budget.resources import Resources
from sublayer.study.budget.sized_arm import Sized, StepTime
from sublayer.study.definition import load_study
from tests.wrapping import unwrapped

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


def test_steps_to_be_kept_are_refused_beyond_a_length_that_follows_from_tokens() -> None:
    told = ("train.tokens=163840", "train.batch_tokens=16384")
    assert only(*told, "train.keep_steps=[10]").steps == 10
    with pytest.raises(ConfigError, match="names step 11, and the run has 10 steps"):
        planned(*told, "train.keep_steps=[11]")


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


def test_unmatched_arms_are_planned_as_they_are() -> None:
    plan = planned(vary=["model.ffn=relu,swiglu"], rule="none")
    assert plan.arms[1].parameters.total > 1.2 * plan.arms[0].parameters.total
    assert plan.arms[1].match is not None
    assert plan.arms[1].match.is_unequal


def test_arms_matched_by_time_run_as_long() -> None:
    plan = planned(
        "train.minutes=10", vary=["model.ffn=relu,swiglu"], rule="time", seconds=[0.5, 0.6]
    )
    first, second = (arm.steps for arm in plan.arms)
    assert first is not None
    assert second == round(first * 0.5 / 0.6)
    # But for a hundredth that goes to checkpoints.
    assert [arm.hours for arm in plan.arms] == pytest.approx([0.99 / 6, 0.99 / 6], rel=0.03)


def test_arms_of_other_batches_get_the_tokens_of_the_baseline_s_minutes() -> None:
    plan = planned(
        "train.minutes=10", vary=["train.batch_sequences=8,16"], rule="none", seconds=[0.5, 0.9]
    )
    first, second = (arm.steps for arm in plan.arms)
    assert first is not None
    assert second == round(first / 2)
    assert plan.arms[0].tokens == pytest.approx(plan.arms[1].tokens, rel=0.002)
    assert plan.arms[1].hours == pytest.approx(0.9 * plan.arms[0].hours, rel=0.01)


@pytest.mark.parametrize(("rule", "what"), [("flops", "--measure"), ("time", "--measure")])
def test_what_cannot_be_matched_yet_is_said(rule: Rule, what: str) -> None:
    plan = planned("train.minutes=10", vary=["model.ffn=relu,swiglu"], rule=rule)
    assert [arm.match for arm in plan.arms] == [None, None]
    assert any(f"matching by {rule}" in note and what in note for note in plan.notes)


def test_an_assumed_vocabulary_is_said_once() -> None:
    plan = planned("data.tokenizer=characters", vary=["model.ffn=relu,gelu"])
    assert [note for note in plan.notes if "counted as 256" in note] == [plan.notes[0]]


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
    assert (arm.fits_memory, arm.fits_disk, arm.change) == (
        False,
        True,
        ("train.micro_batch_sequences=15",),
    )
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
    counts = {
        "total",
        "training",
        "non_embedding",
        "executed",
        "encoder",
        "with_pooler",
        "with_heads",
    }
    assert set(arm["parameters"]) == counts
    assert {"name", "flops_per_token", "memory_bytes", "seconds_per_step"} < set(arm)
    assert (arm["name"], arm["seconds_per_step"], arm["is_extrapolated"]) == (
        "ffn=swiglu",
        0.5,
        True,
    )
    assert plan["total"]["runs"] == 6
    assert [each["hours"] for each in plan["arms"]] == pytest.approx([1.0, 1.0], rel=0.02)
    assert plan["total"]["hours"] == pytest.approx(3 * sum(each["hours"] for each in plan["arms"]))
    # Each run keeps its model, and the one that is being trained has its checkpoints beside it.
    models = 3 * sum(4 * each["parameters"]["total"] for each in plan["arms"])
    assert plan["total"]["disk_bytes"] == models + max(each["disk_bytes"] for each in plan["arms"])
    assert json.loads(json.dumps(plan)) == plan


def test_a_comparison_keeps_of_each_run_the_checkpoints_that_are_named() -> None:
    def disk(*settings: str) -> tuple[int, int]:
        plan = planned(*settings, vary=["model.dropout=0,0.1"], rule="none")
        total = plan_to_json(plan, PLENTY, 3)["total"]["disk_bytes"]
        model = 4 * plan.arms[0].parameters.total
        return total, model

    without, model = disk("train.steps=9")
    with_two, _ = disk("train.steps=9", "train.keep_steps=[3, 6]")
    # Six runs, and the one that is being trained; AdamW keeps two numbers of each weight.
    assert with_two - without == (6 + 1) * 2 * 3 * model


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


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_is_planned_without_data(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", name, "data.path=no/such/file", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out.splitlines()[-1])
    (arm,) = plan["arms"]
    assert arm["seconds_per_step"] is None
    assert arm["parameters"]["total"] > 0


def test_a_plan_is_made_without_torch() -> None:
    code = (
        "import sys; from sublayer.cli import main; main(['plan', 'gpt']); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2,743,296" in done.stdout


def test_the_table_names_arms_and_what_matching_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["plan", "gpt", "model.bias=false", "--vary", "model.ffn=relu,swiglu", "--seeds", "3"])
        == 0
    )
    out = capsys.readouterr().out
    assert "ffn=swiglu" in out
    assert " d_ff=512 " in out
    # Of what compare shows of memory it says the same.
    assert "on a CPU train and compare show more, also what the program loads" in unwrapped(out)
    assert "6 runs" in out


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


def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "gpt", "--vary", "model.share=none,all"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
