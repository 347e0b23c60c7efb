"""The header of a comparison: what is common to its runs, before the first of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sublayer.config.layering.paths import absolute_paths
from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.runs.header import lay_out, text_rows
from sublayer.runs.pace import recall_run_pace
from sublayer.runs.session import Place
from sublayer.study.budget.budget import MatchedArm, Measures, arm_steps
from sublayer.study.judgement.looks import Looks
from sublayer.system.machine import choose_device
from sublayer.system.stage_displays import format_seconds
from sublayer.training.parallel import World

_MOST_ARMS = 6


def list_study_header(
    arms: Sequence[MatchedArm],
    data: Mapping[str, Data],
    measures: Measures,
    *,
    rule: str,
    looks: Looks,
    n_trials: int,
    n_runs: int,
    jobs: int,
    device: str | None,
    folder: Path,
) -> list[str]:
    """Return the lines of a comparison's header; ``data`` is each arm's by name.

    ``n_trials`` are the runs of each arm that tune, ``n_runs`` all runs, at most.
    """
    baseline = arms[0]
    recipe = baseline.loaded.recipe
    steps = [arm_steps(arm.loaded, measures) for arm in arms]
    train = recipe.train
    on = [str(choose_device(device)), train.precision]
    if train.threads is not None:
        on.append(count(train.threads, "thread"))
    tuned = f", {count(n_trials, 'run')} of each arm to tune, with other seeds" if n_trials else ""
    at_once = f", {jobs} at a time" if jobs > 1 else ""
    rows = [
        ("arms", _arms([arm.arm.name for arm in arms])),
        ("runs", f"{_runs(looks, n_runs)}{tuned}{at_once}"),
        ("matched by", "nothing" if rule == "none" else rule),
        *text_rows(recipe, data[baseline.arm.name]),
        ("device", ", ".join(on)),
        ("length", f"{_range(steps)} a run"),
        ("folder", str(folder)),
        ("expected", _expected(arms, steps, measures, n_runs, jobs, device)),
    ]
    return lay_out(rows)


def _runs(looks: Looks, n_runs: int) -> str:
    n_seeds = looks.planned[-1]
    if not looks.is_sequential:
        return f"{count(n_runs, 'run')} with {count(n_seeds, 'seed')} each"
    *earlier, _ = looks.planned
    at = ", ".join(map(str, earlier))
    return (
        f"{count(n_runs, 'run')} at most, with {n_seeds} seeds each; an arm stops where it is "
        f"decided, with {at} or {n_seeds}"
    )


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
    jobs: int,
    device: str | None,
) -> str:
    place = Place(choose_device(device), World(rank=0, size=1))
    seconds = []
    for arm, n_steps in zip(arms, steps, strict=True):
        resolved = measures.resolve(absolute_paths(arm.loaded.recipe))
        step_s = recall_run_pace(resolved, place)
        if step_s is None:
            return "said after the first run"
        seconds.append(n_steps * step_s)
    total_s = n_runs * sum(seconds) / len(seconds) / min(jobs, n_runs)
    return f"about {format_seconds(total_s)} for all runs, scoring aside"
