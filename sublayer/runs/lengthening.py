"""Lengthening of an existing run: its new steps, and the record of the change.

A run continues from its newest checkpoint. Settings derived from its first length stay: the
warm-up, and the intervals of logging, evaluation and saving.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sublayer.config.layers import read_toml
from sublayer.config.load import load_recipe, read_derived
from sublayer.config.messages import show
from sublayer.config.recipe import Recipe, ResolvedRecipe
from sublayer.config.resolve import run_steps
from sublayer.config.train import LENGTHS
from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.checkpoints import checkpoint_path, read_state, saved_steps
from sublayer.files.parsing import Count, Typed, check_typed
from sublayer.objective.families import family_of
from sublayer.runs.folder import RECIPE, RunFolder
from sublayer.system.stages import Say
from sublayer.training.checkpoints import CHECKPOINTS
from sublayer.training.loop import Replanned
from sublayer.training.step import FALLS, learning_rate

_STEPS, _PACE = "train.steps", "pace"


class _Entry(Typed):
    at_step: Count
    """Its newest checkpoint then: the step of continuation."""
    from_steps: Count
    to_steps: Count
    by: str = ""
    """``_PACE``: steps re-planned from the run's minutes; else lengthened by a command."""


class _Listed(Typed):
    lengthened: list[_Entry] = []


def read_lengthenings(recipe: Path, by: str = "") -> tuple[Replanned, ...]:
    """Read lengthenings by commands from a run's ``recipe.toml``, the first one first.

    Raises ConfigError if it is damaged.
    """
    listed = check_typed(read_toml(recipe), _Listed, str(recipe), ConfigError).lengthened
    return tuple(Replanned(**row.model_dump(exclude={"by"})) for row in listed if row.by == by)


def read_replanned(recipe: Path) -> tuple[Replanned, ...]:
    """Read re-plannings of minutes from a run's ``recipe.toml``, the first one first.

    A lengthened run begins without. Raises ConfigError if it is damaged.
    """
    return read_lengthenings(recipe, _PACE)


def add_replanned(folder: RunFolder, change: Replanned) -> None:
    """Record in a run's recipe that its minutes were re-planned, and its new length."""
    path, recipe = folder.path / RECIPE, folder.recipe()
    train = recipe.train.model_copy(update={"steps": change.to_steps})
    changed = recipe.model_copy(update={"train": train})
    listed = [asdict(plan) for plan in read_lengthenings(path)]
    listed += [{**asdict(plan), "by": _PACE} for plan in (*read_replanned(path), change)]
    folder.write_recipe(changed, read_derived(path), listed)


def has_other_length(before: Recipe, given: Recipe) -> bool:
    """Return whether two recipes, as given, differ in length."""
    return any(getattr(before.train, name) != getattr(given.train, name) for name in LENGTHS)


def lengthen(folder: RunFolder, given: Recipe, data: Data, say: Say) -> None:
    """Give a run the length of ``given``, in its recipe, and describe the rest of training.

    Silent if it has that length. Remains of a kill meanwhile are removed: the record and the model
    of the shorter run. Raises ConfigError as ``plan_lengthening`` does.
    """
    path = folder.path / RECIPE
    if has_other_length(load_recipe(folder.path).recipe, given):
        change, recipe = plan_lengthening(folder.path, folder.recipe(), given, data)
        listed = [asdict(plan) for plan in (*read_lengthenings(path), change)]
        # Steps are derived unless given now.
        derived = [key for key in read_derived(path) if key != _STEPS]
        if given.train.steps is None:
            derived.append(_STEPS)
        folder.write_recipe(recipe, derived, listed)
        say(describe(change, recipe))
    if read_lengthenings(path):
        folder.reopen()


def is_cut_off(folder: RunFolder, given: Recipe, record: Mapping[str, Any]) -> bool:
    """Return whether a finished run is to be lengthened.

    Raises ConfigError if it cannot be.
    """
    run, before = folder.path, load_recipe(folder.path).recipe
    is_other = has_other_length(before, given)
    has_stopped = bool(record.get("stopped_early"))
    if not is_other and (has_stopped or record["step"] >= folder.recipe().train.steps):
        return False
    from_weights = f"start a new run from its weights with init.run={run}"
    if has_stopped:
        raise ConfigError(
            f"{run} ended early, at step {record['step']}, as train.patience = "
            f"{before.train.patience} says, and no length changes that: {from_weights}"
        )
    if not saved_steps(run / CHECKPOINTS):
        raise ConfigError(f"{run} has no checkpoint to continue from: {from_weights}")
    return True


def earlier_ends(recipe: Path) -> tuple[int, ...]:
    """Return the steps of a run's ends before its extensions."""
    listed = read_lengthenings(recipe)
    return tuple(plan.at_step for plan in listed if plan.at_step == plan.from_steps)


def plan_lengthening(
    run: Path, recipe: ResolvedRecipe, given: Recipe, data: Data
) -> tuple[Replanned, ResolvedRecipe]:
    """Return the extension of a run to the length of ``given``, and its recipe then.

    ``recipe`` is the run's as it ran. Minutes are for the complete run, converted by its measured
    step time; ``train.keep_steps`` may name further future steps. Raises ConfigError for a length
    that is not longer.
    """
    steps = _steps(run, given, data)
    before = recipe.train.steps
    if steps <= before:
        lengths = ((name, getattr(given.train, name)) for name in LENGTHS)
        named = [f"train.{name} = {show(value)}" for name, value in lengths if value is not None]
        asked = named[0] if named else "a recipe without a length"
        raise ConfigError(
            f"{run} has {count(before, 'step')}, and {asked} is no more: give more, or leave it out"
        )
    saved = saved_steps(run / CHECKPOINTS)
    change = Replanned(saved[-1] if saved else 0, before, steps)
    _check_kept(run, change, recipe, given)
    fields = {name: getattr(given.train, name) for name in (*LENGTHS, "keep_steps")}
    train = recipe.train.model_copy(update={**fields, "steps": steps})
    return change, recipe.model_copy(update={"train": train})


def _check_kept(run: Path, change: Replanned, recipe: Recipe, given: Recipe) -> None:
    """Raise ConfigError if kept steps are left out, or named ones are over."""
    before, now = recipe.train.keep_steps, given.train.keep_steps
    given.train.check_keep_steps(change.to_steps)
    if not set(before) <= set(now):
        raise ConfigError(
            f"{run} was started with train.keep_steps = {show(before)}, not {show(now)}: a longer "
            "run may keep more steps, and keeps those"
        )
    over = [step for step in now if step not in before and step <= change.at_step]
    if over:
        raise ConfigError(
            f"train.keep_steps names step {over[0]}, which {run} has passed, and it continues from "
            f"step {change.at_step}: leave it out"
        )


def describe(change: Replanned, recipe: ResolvedRecipe) -> str:
    """Describe the start of a lengthened run's continuation, and its learning rates."""
    optimizer = recipe.optimizer
    auxiliary = getattr(recipe.objective, "auxiliary", "none")
    depends = {
        # A constant warm-up is T5's schedule, whatever the other field.
        f"optimizer.schedule = {optimizer.schedule}": optimizer.schedule in FALLS
        and optimizer.warmup != "constant",
        "optimizer.cooldown_share": optimizer.cooldown_share > 0,
        f"objective.auxiliary = {auxiliary}": auxiliary != "none",
    }
    depending = [name for name, is_so in depends.items() if is_so]
    text = f"continues from step {change.at_step:,} to {change.to_steps:,} instead of "
    text += f"{change.from_steps:,}"
    if not depending:
        return text
    next_rate = learning_rate(optimizer, change.at_step, change.to_steps)
    was = learning_rate(optimizer, max(0, change.at_step - 1), change.from_steps)
    return (
        f"{text}: {' and '.join(depending)} {'follows' if len(depending) == 1 else 'follow'} the "
        f"longer length from there on; the learning rate is {next_rate:.3g} after {was:.3g}"
    )


def _steps(run: Path, given: Recipe, data: Data) -> int:
    steps = run_steps(
        given, train_tokens=family_of(given.objective).epoch_tokens(given, data.train)
    )
    if steps is not None:
        return steps
    assert given.train.minutes is not None, "only minutes leave the steps to a measurement"
    saved = saved_steps(run / CHECKPOINTS)
    if not saved:
        raise ConfigError(
            f"{run} has no checkpoint that says how long its steps take: give train.steps"
        )
    try:
        state = read_state(checkpoint_path(run / CHECKPOINTS, saved[-1]))
    except CheckpointError as error:
        raise ConfigError(f"{error}: give train.steps instead of train.minutes") from None
    step_s = max(state.seconds, state.step_seconds) / max(1, state.step)
    return int(60.0 * given.train.minutes / step_s)
