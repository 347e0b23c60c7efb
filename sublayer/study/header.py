"""The header of a comparison: arms, runs, budgets and folder, before the first run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sublayer.config.run_recipe import absolute_paths
from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.numbers import format_share
from sublayer.runs.record import lay_out, text_rows
from sublayer.runs.resolution import recall_run_pace
from sublayer.runs.session import Place
from sublayer.study.arms import Arm
from sublayer.study.budget.match import Measures, Rule, plan_budgets
from sublayer.study.chain_file import Kept
from sublayer.study.jobs.computing import Computing
from sublayer.study.notes import describe_planned
from sublayer.study.options import OptionedStudy
from sublayer.study.stages import PRETRAINING, explain_nesting
from sublayer.system.machine import choose_device
from sublayer.system.stages import format_seconds
from sublayer.training.world import World

_MOST_ARMS = 6
Rows = list[tuple[str, str]]
"""Row labels and texts of a header."""


def list_header(
    asked: OptionedStudy,
    arms: Sequence[Arm],
    data: Mapping[str, Data],
    measures: Measures,
    computing: Computing,
    folder: Path,
    *,
    n_runs: int,
) -> list[str]:
    """Return the lines of the header of a plain study.

    ``arms`` are settled, ``data`` is each arm's by name, ``n_runs`` is the most of all runs.
    """
    rule, looks, n_tuning = asked.study.match, asked.looks, asked.n_tuning
    baseline = arms[0]
    train = baseline.loaded.recipe.train
    steps = list(map(measures.steps, arms))
    names = ", ".join(arm.name for arm in arms[:_MOST_ARMS])
    if len(arms) > _MOST_ARMS:
        names += f" and {len(arms) - _MOST_ARMS} more"
    *earlier, n_seeds = looks.planned
    n_arms = count(len(arms), "arm")
    runs = f"{count(n_runs, 'run')}: {n_arms} with {count(n_seeds, 'seed')} each"
    if looks.is_sequential:
        runs = (
            f"{count(n_runs, 'run')} at most: {n_arms} with {n_seeds} seeds each; an arm stops "
            f"once it is decided, with {', '.join(map(str, earlier))} or {n_seeds} seeds"
        )
    if n_tuning:
        runs += f", {count(n_tuning, 'run')} of each arm to tune, with other seeds"
    device = f"{computing.runs_device}, {train.precision}"
    if train.threads is not None:
        device += f", {count(train.threads, 'thread')}"
    length = count(steps[0], "step")
    if min(steps) < max(steps):
        length = f"{min(steps):,} to {max(steps):,} steps"
    rows = [
        ("arms", names),
        ("runs", f"{runs}{computing.where}"),
        ("matched by", "nothing" if rule == "none" else rule),
        *text_rows(baseline.loaded.recipe, data[baseline.name]),
        ("device", device),
        ("length", f"{length} a run"),
        *_budgets(arms, measures, rule, steps),
        ("folder", str(folder)),
        ("expected", _expected(arms, steps, measures, n_runs, computing)),
    ]
    return lay_out(rows)


def list_stages_header(
    arms: Sequence[Arm],
    measures: Measures,
    rule: Rule,
    kept: Kept,
    computing: Computing,
    folder: Path,
) -> list[str]:
    """Return the lines of the header of a study with stages."""
    chain = kept.chain
    rows = [("arms", ", ".join(arm.name for arm in arms))]
    for name, n_runs in kept.n_runs.items():
        n_distinct, text = kept.n_distinct(name), count(n_runs, "run")
        if n_distinct < len(arms):
            text += f", {n_distinct} for {count(len(arms), 'arm')}"
        if name != PRETRAINING:
            stage = chain.stage(name)
            text += f"{', averages of' if stage.ensemble else ' after'} {stage.start}"
        if n_runs:
            rows.append((name, text))
    rows.append(("runs", f"{sum(kept.n_runs.values()):,} in all{computing.where}"))
    budgets = _budgets(arms, measures, rule, [arm.steps or None for arm in kept.arms])
    rows += [(label, f"{text} (pre-training)") for label, text in budgets]
    rows.append(("seeds", explain_nesting(chain, kept.n_seeds)))
    starts = [f"{name} from {arm.start}" for name, arm in chain.arms.items() if arm.start]
    if starts:
        rows.append(("starts", f"each pre-training from another of its seed: {', '.join(starts)}"))
    return [f"{label:<11} {text}" for label, text in (*rows, ("folder", str(folder)))]


def _budgets(
    arms: Sequence[Arm], measures: Measures, rule: Rule, steps: Sequence[int | None]
) -> Rows:
    """Return the budget rows of a header: the planned excess of each arm over another.

    ``steps`` are per run of each arm, None without any. For many arms, the largest differences.
    """
    budgets = plan_budgets(arms, list(map(measures.model, arms)), steps, rule)
    compared = [budget for budget in budgets if budget.against is not None]
    if len(compared) > _MOST_ARMS:
        return [("budgets", f"{describe_planned(compared)}: sublayer plan shows each arm")]
    rows: Rows = []
    for budget in compared:
        shares = [f"{name} {format_share(share)}" for name, share in budget.planned.shares.items()]
        text = f"{budget.arm}: {', '.join(shares)} against {budget.against}"
        rows.append(("" if rows else "budgets", text))
    return rows


def _expected(
    arms: Sequence[Arm],
    steps: Sequence[int],
    measures: Measures,
    n_runs: int,
    computing: Computing,
) -> str:
    placement = Place(choose_device(computing.device), World(rank=0, size=1))
    total_s = 0.0
    for arm, n_steps in zip(arms, steps, strict=True):
        resolved = measures.resolve(absolute_paths(arm.loaded.recipe))
        step_s = recall_run_pace(resolved, placement)
        # This machine's pace differs from a cluster node's.
        if step_s is None or computing.cluster is not None:
            return "known after the first run"
        total_s += n_runs * n_steps * step_s / len(arms) / min(computing.jobs, n_runs)
    return f"about {format_seconds(total_s)} for all runs, scoring aside"
