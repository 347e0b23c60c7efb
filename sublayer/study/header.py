"""The header of a comparison: what is common to its runs, before the first of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sublayer.config.layering.paths import absolute_paths
from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.runs.header import lay_out, text_rows
from sublayer.runs.pace import recall_run_pace
from sublayer.runs.session import Place
from sublayer.statistics.looks import Looks
from sublayer.study.budget.excess import plan_budgets
from sublayer.study.budget.expected import tokens_per_step
from sublayer.study.budget.match import MatchedArm, Measures, Rule, arm_model, arm_steps
from sublayer.study.cluster.computing import Computing
from sublayer.study.report.budget_words import describe_planned
from sublayer.study.report.number_format import format_share
from sublayer.system.machine import choose_device
from sublayer.system.stage_displays import format_seconds
from sublayer.training.processes.world import World

_MOST_ARMS = 6


def list_study_header(
    arms: Sequence[MatchedArm],
    data: Mapping[str, Data],
    measures: Measures,
    *,
    rule: Rule,
    looks: Looks,
    n_trials: int,
    n_runs: int,
    computing: Computing,
    folder: Path,
) -> list[str]:
    """Return the lines of a comparison's header; ``data`` is each arm's by name.

    ``n_trials`` are the runs of each arm that tune, ``n_runs`` all runs, at most.
    """
    baseline = arms[0]
    recipe = baseline.loaded.recipe
    steps = [arm_steps(arm.loaded, measures) for arm in arms]
    train = recipe.train
    on = [computing.runs_device, train.precision]
    if train.threads is not None:
        on.append(count(train.threads, "thread"))
    tuned = f", {count(n_trials, 'run')} of each arm to tune, with other seeds" if n_trials else ""
    rows = [
        ("arms", _arms([arm.arm.name for arm in arms])),
        ("runs", f"{_runs(looks, n_runs)}{tuned}{computing.where}"),
        ("matched by", "nothing" if rule == "none" else rule),
        *text_rows(recipe, data[baseline.arm.name]),
        ("device", ", ".join(on)),
        ("length", f"{_range(steps)} a run"),
        *budget_rows(arms, measures, rule, steps),
        ("folder", str(folder)),
        ("expected", _expected(arms, steps, measures, n_runs, computing)),
    ]
    return lay_out(rows)


def _runs(looks: Looks, n_runs: int) -> str:
    n_seeds = looks.planned[-1]
    if not looks.is_sequential:
        return f"{count(n_runs, 'run')} with {count(n_seeds, 'seed')} each"
    *earlier, _ = looks.planned
    at = ", ".join(map(str, earlier))
    return (
        f"{count(n_runs, 'run')} at most, with {n_seeds} seeds each; an arm stops once it is "
        f"decided, with {at} or {n_seeds} seeds"
    )


def budget_rows(
    arms: Sequence[MatchedArm], measures: Measures, rule: Rule, steps: Sequence[int | None]
) -> list[tuple[str, str]]:
    """Return what a header says of budgets: by how much each arm is planned to exceed another.

    ``steps`` are those of a run of each arm, None where it has none. Of many arms the largest
    differences are told.
    """
    recipes = [arm.loaded.recipe for arm in arms]
    tokens = [
        None if n is None else n * tokens_per_step(recipe)
        for n, recipe in zip(steps, recipes, strict=True)
    ]
    models = [arm_model(arm.loaded, measures) for arm in arms]
    budgets = plan_budgets([arm.arm for arm in arms], recipes, models, tokens, rule)
    compared = [budget for budget in budgets if budget.against is not None]
    if len(compared) > _MOST_ARMS:
        return [("budgets", f"{describe_planned(compared)}: sublayer plan shows each arm")]
    rows: list[tuple[str, str]] = []
    for budget in compared:
        shares = [f"{name} {format_share(each)}" for name, each in budget.planned.shares.items()]
        text = f"{budget.arm}: {', '.join(shares)} against {budget.against}"
        rows.append(("" if rows else "budgets", text))
    return rows


def _arms(names: Sequence[str]) -> str:
    named = ", ".join(names[:_MOST_ARMS])
    left = len(names) - _MOST_ARMS
    return f"{named} and {left} more" if left > 0 else named


def _range(steps: Sequence[int]) -> str:
    if min(steps) == max(steps):
        return count(steps[0], "step")
    return f"{min(steps):,} to {max(steps):,} steps"


def _expected(
    arms: Sequence[MatchedArm],
    steps: Sequence[int],
    measures: Measures,
    n_runs: int,
    computing: Computing,
) -> str:
    if computing.cluster is not None:
        return "known after the first run"  # what is known of this machine is not of its nodes
    place = Place(choose_device(computing.device), World(rank=0, size=1))
    seconds = []
    for arm, n_steps in zip(arms, steps, strict=True):
        resolved = measures.resolve(absolute_paths(arm.loaded.recipe))
        step_s = recall_run_pace(resolved, place)
        if step_s is None:
            return "known after the first run"
        seconds.append(n_steps * step_s)
    total_s = n_runs * sum(seconds) / len(seconds) / min(computing.jobs, n_runs)
    return f"about {format_seconds(total_s)} for all runs, scoring aside"
