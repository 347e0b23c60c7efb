"""Tuning by seeds that are not compared: which, how many, and beyond the edge of a grid."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sublayer.config.layering.sources import read_toml
from sublayer.errors import ConfigError
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.objective.metric import Metric
from sublayer.study.execution.arm_runs import chosen_by, trial_loss
from sublayer.study.execution.one_run import Outcome
from sublayer.study.from_folder import results_of_folder
from sublayer.study.options import Options
from sublayer.study.results import Results
from sublayer.study.results_json import results_to_json
from sublayer.study.runner import run_study
from sublayer.study.tuning import Trial, beyond_edges
from tests.study.test_runner import FFN, Study, settings, study  # noqa: F401

LR = "optimizer.lr"
ACCURACY = Metric("accuracy", "accuracy", is_lower_better=False, from_items=None)


def trials(*values: float | int, field: str = LR) -> list[Trial]:
    return [Trial(f"lr={value:g}", {field: value}) for value in values]


def beyond(grid: list[Trial], *chosen: int) -> list[dict[str, Any]]:
    return [dict(each.settings) for each in beyond_edges([grid[n] for n in chosen], grid)]


def test_a_grid_goes_on_by_the_ratio_at_its_edge() -> None:
    grid = trials(1e-3, 2e-3, 6e-3)
    assert beyond(grid, 1, 1) == []
    assert beyond(grid, 2, 1) == [{LR: 0.018}]
    assert beyond(grid, 1, 0) == [{LR: 0.0005}]
    assert beyond(grid, 0, 2) == [{LR: 0.0005}, {LR: 0.018}]
    (trial,) = beyond_edges([grid[2]], grid)
    assert trial.name == "lr=0.018"


def test_whole_numbers_go_on_as_whole_numbers() -> None:
    steps = "optimizer.warmup_steps"
    assert beyond(trials(10, 20, field=steps), 1) == [{steps: 40}]
    assert isinstance(beyond(trials(10, 20, field=steps), 1)[0][steps], int)
    # Half a step is none, and what has been tried is not tried again.
    assert beyond(trials(1, 3, field=steps), 0) == []
    assert beyond(trials(1.0, 1.0001), 1) == []


@pytest.mark.parametrize(
    ("values", "better"),
    [(((1.0, 3.0), (1.8, 1.9)), 1), (((1.0, 2.0), (1.8, 1.9)), 0), (((1.0, None), (5.0, 6.0)), 1)],
)
def test_the_mean_over_seeds_chooses_and_a_seed_that_failed_fails_its_trial(
    values: tuple[tuple[float | None, ...], ...], better: int
) -> None:
    def run(value: float | None) -> Outcome:
        if value is None:
            return Outcome(Path(), failure="diverged")
        return Outcome(Path(), {"valid": {"loss": 9 - value, "bits_per_byte": value}})

    losses = [trial_loss([run(each) for each in own], BITS_PER_BYTE) for own in values]
    assert min((loss, n) for n, loss in enumerate(losses) if loss is not None)[1] == better
    assert (None in values[0]) == (losses[0] is None)


def test_what_validation_has_not_is_chosen_by_the_loss() -> None:
    run = Outcome(Path(), {"valid": {"loss": 2.0, "accuracy": 0.25}})
    assert chosen_by([run, Outcome(Path(), failure="diverged")], ACCURACY) == ACCURACY
    assert trial_loss([run], ACCURACY) == -0.25
    assert chosen_by([run], BITS_PER_BYTE) is None
    assert trial_loss([run], None) == 2.0


@pytest.mark.parametrize(
    "changes",
    [
        {"first_tuning_seed": 2},
        {"first_tuning_seed": 0},
        {"first_seed": 998},
        {"first_seed": 1001, "tuning_seeds": 2},
        {"first_tuning_seed": 4, "until": "decided", "seeds_at_most": 5, "seeds": None},
    ],
)
def test_a_seed_that_is_compared_does_not_tune(
    settings: list[str],  # noqa: F811
    changes: dict[str, Any],
) -> None:
    options: dict[str, Any] = {"vary": (FFN,), "tune": (f"{LR}=1e-3,1e-2",), "seeds": 3, **changes}
    with pytest.raises(ConfigError, match=r"seed \d+ would tune and be compared"):
        run_study(["gpt"], settings, Options(**options))
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "tune",
    [
        (f"{LR}=1e-3,1e-2", "optimizer.weight_decay=0,0.1"),
        ("optimizer.schedule=cosine,constant",),
        ("model.dropout=0,0.1",),
    ],
)
def test_a_grid_without_edges_is_not_extended(
    settings: list[str],  # noqa: F811
    tune: tuple[str, ...],
) -> None:
    with pytest.raises(ConfigError, match="--extend goes on with a grid of one positive number"):
        run_study(["gpt"], settings, Options(vary=(FFN,), tune=tune, seeds=3, extend=1))
    assert not Path("runs").exists()


def made(folder: Path) -> set[str]:
    return {f"{path.parent.parent.name}/{path.parent.name}" for path in folder.rglob("record.json")}


def same(results: Results, others: Results) -> bool:
    def told(one: Results) -> dict[str, Any]:
        content = json.loads(json.dumps(results_to_json(one, Path("report.html"))))
        # How long the runs took is another each time.
        notes = [note for note in content["notes"] if not note.startswith("One seed gives")]
        arms = [(arm["values"], arm["tuned"]) for arm in content["arms"]]
        return {"differences": content["differences"], "notes": notes, "arms": arms}

    return told(results) == told(others)


@pytest.mark.slow
def test_every_arm_tries_what_lies_beyond_the_edge_and_a_study_resumes_there(
    settings: list[str],  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = Options(vary=(FFN,), tune=(f"{LR}=1e-4,1e-3",), seeds=1, extend=2, out=Path("out"))
    results, _ = run_study(["gpt"], settings, asked)
    # Few steps are the better for every larger rate: 0.01, then 0.1.
    assert read_toml(Path("out/study.toml"))["extended"] == [0.01, 0.1]
    for arm in ("0-ffn=gelu", "1-ffn=swiglu"):
        tried = {path.name for path in Path("out/arms", arm).iterdir()}
        assert tried == {"lr=1e-4", "lr=1e-3", "lr=0.01", "lr=0.1"}
    assert {arm.tuned for arm in results.arms} == {("optimizer.lr=0.1",)}
    assert "every arm tries lr=0.01 too" in capsys.readouterr().err
    choices = [note for note in results.notes if "chose lr=0.1 by its validation bits" in note]
    assert len(choices) == 2
    for note in choices:
        assert "lr=0.01 " in note and "0.1 is the highest that was tried" in note
    assert same(results_of_folder(Path("out")), results)
    whole = made(Path("out"))
    # Broken off while the second arm made its first trial beyond the edge.
    for gone in ("0-ffn=gelu/lr=0.1", "1-ffn=swiglu/lr=0.1", "1-ffn=swiglu/lr=0.01"):
        shutil.rmtree(Path("out/arms", gone))
    plan = Path("out/study.toml")
    text = plan.read_text()
    assert "    0.01,\n    0.1,\n" in text
    plan.write_text(text.replace("    0.01,\n    0.1,\n", "    0.01,\n"))
    resumed, _ = run_study(["gpt"], settings, asked)
    assert made(Path("out")) == whole
    assert same(resumed, results)


@pytest.mark.slow
def test_what_fits_no_recipe_is_not_tried_beyond_the_edge(
    settings: list[str],  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    grid = ("optimizer.final_lr_share=0.1,0.9",)
    asked = Options(vary=(FFN,), tune=grid, seeds=1, extend=3, out=Path("out"))
    results, _ = run_study(["gpt"], [*settings, f"{LR}=1e-3"], asked)
    # The more is learned in few steps, the better; 0.9 * 9 is no share.
    assert {arm.tuned for arm in results.arms} == {("optimizer.final_lr_share=0.9",)}
    assert "final_lr_share=8.1 is not tried: " in capsys.readouterr().err
    assert "extended" not in read_toml(Path("out/study.toml"))


@pytest.mark.slow
def test_a_trial_is_run_with_each_tuning_seed_and_their_mean_decides(
    settings: list[str],  # noqa: F811
) -> None:
    asked = Options(
        vary=(FFN,), tune=(f"{LR}=1e-3,1e-2",), seeds=1, tuning_seeds=2, out=Path("out")
    )
    results, _ = run_study(["gpt"], settings, asked)
    assert {arm.tuned for arm in results.arms} == {("optimizer.lr=0.01",)}
    for arm in ("0-ffn=gelu", "1-ffn=swiglu"):
        assert made(Path("out/arms", arm)) == {
            *(f"lr={rate}/seed-{seed}" for rate in ("1e-3", "1e-2") for seed in (1000, 1001)),
            "lr=1e-2/seed-0",
        }
    assert all("the mean over 2 seeds: " in note for note in results.notes[1:3])
    # Of one arm the second seed of its choice was far worse than the first: then the other is.
    record = Path("out/arms/1-ffn=swiglu/lr=1e-2/seed-1001/record.json")
    content = json.loads(record.read_text())
    content["valid"]["bits_per_byte"] += 5.0
    record.write_text(json.dumps(content))
    gelu, swiglu = run_study(["gpt"], settings, asked)[0].arms
    assert (gelu.tuned, swiglu.tuned) == (("optimizer.lr=0.01",), ("optimizer.lr=0.001",))
    again = results_of_folder(Path("out"))
    assert [arm.tuned for arm in again.arms] == [gelu.tuned, swiglu.tuned]
    assert [arm.values for arm in again.arms] == [gelu.values, swiglu.values]
    # With other tuning seeds it is another study.
    with pytest.raises(ConfigError, match=r"with tuning seeds \[1000, 1001\], not \[1000\]"):
        run_study(["gpt"], settings, Options(**{**vars(asked), "tuning_seeds": None}))


@pytest.mark.slow
def test_the_compared_seeds_begin_where_they_are_asked_to(
    study: Study,  # noqa: F811
    settings: list[str],  # noqa: F811
) -> None:
    asked = Options(vary=(FFN,), seeds=1, first_seed=2, out=Path("out"))
    results, _ = run_study(["gpt"], settings, asked)
    assert [arm.seeds for arm in results.arms] == [(2,), (2,)]
    known = [arm["values"][2] for arm in study.result["arms"]]
    assert [arm.values[0] for arm in results.arms] == known
    assert same(results_of_folder(Path("out")), results)
    for first in (None, 1):
        with pytest.raises(ConfigError, match=f"with first seed 2, not {first or 0}"):
            run_study(["gpt"], settings, Options(**{**vars(asked), "first_seed": first}))


@pytest.mark.slow
def test_a_study_may_choose_by_the_loss_instead_of_its_metric(
    settings: list[str],  # noqa: F811
) -> None:
    content = """
tune = { optimizer.lr = [1e-3, 1e-2] }
tune_by = "loss"
[scale.cpu]
recipe = "gpt"
[[arms]]
name = "gelu"
[[arms]]
name = "swiglu"
set = { model.ffn = "swiglu" }
"""
    Path("own.toml").write_text(content)
    asked = Options(seeds=1, out=Path("out"))
    run_study(["own.toml"], settings, asked)
    # By the metric the other rate would be chosen now; by the loss it is not.
    record = Path("out/arms/1-swiglu/lr=0.01/seed-1000/record.json")
    changed = json.loads(record.read_text())
    changed["valid"]["bits_per_byte"] += 5.0
    record.write_text(json.dumps(changed))
    results, _ = run_study(["own.toml"], settings, asked)
    assert {arm.tuned for arm in results.arms} == {("optimizer.lr=0.01",)}
    assert all("by its validation loss: " in note for note in results.notes if " chose " in note)
    again = results_of_folder(Path("out"))
    assert [arm.tuned for arm in again.arms] == [arm.tuned for arm in results.arms]
    # By its metric it is another study.
    Path("own.toml").write_text(content.replace('tune_by = "loss"\n', ""))
    with pytest.raises(ConfigError, match="tuned by its loss, not its metric"):
        run_study(["own.toml"], settings, asked)
