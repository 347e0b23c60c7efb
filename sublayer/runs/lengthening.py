"""A longer length for a run that exists: which steps it has then, and the record of the change.

A run continues from its newest checkpoint. Settings derived from its first length stay as they
were: the warm-up, and how often it logs, evaluates and saves.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sublayer.config.load import load_recipe
from sublayer.config.messages import show
from sublayer.config.recipe import Recipe, ResolvedRecipe
from sublayer.config.resolve_train import run_steps
from sublayer.config.run_recipe import read_derived
from sublayer.config.sources import read_toml
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
from sublayer.training.schedule import FALLS, learning_rate
from sublayer.training.step_time import Replanned

_STEPS, _PACE = "train.steps", "pace"


@dataclass(frozen=True)
class Lengthening:
    """A run was given more steps."""

    at_step: int
    """Its newest checkpoint then: the step that it continued from."""
    from_steps: int
    """Its length before."""
    to_steps: int


class _Entry(Typed):
    at_step: Count
    from_steps: Count
    to_steps: Count
    by: str = ""
    """``_PACE``: the run's minutes were planned anew; else it was lengthened by a command."""


class _Listed(Typed):
    lengthened: list[_Entry] = []


def read_lengthenings(recipe: Path) -> tuple[Lengthening, ...]:
    """Read from a run's ``recipe.toml`` how it was lengthened, the first time first.

    Raises ConfigError where that is damaged.
    """
    return tuple(
        Lengthening(**each.model_dump(exclude={"by"}))
        for each in _listed(recipe)
        if each.by != _PACE
    )


def _listed(recipe: Path) -> list[_Entry]:
    return check_typed(read_toml(recipe), _Listed, str(recipe), ConfigError).lengthened


def read_replanned(recipe: Path) -> tuple[Replanned, ...]:
    """Read from a run's ``recipe.toml`` where its minutes were planned anew, the first time first.

    A run that is made longer begins without. Raises ConfigError where that is damaged.
    """
    return tuple(
        Replanned(**each.model_dump(exclude={"by"})) for each in _listed(recipe) if each.by == _PACE
    )


def add_replanned(folder: RunFolder, change: Replanned) -> None:
    """Write into a run's recipe that its minutes were planned anew, and its length since."""
    path = folder.path / RECIPE
    recipe = folder.recipe()
    listed = [each.model_dump(exclude_defaults=True) for each in _listed(path)]
    train = recipe.train.model_copy(update={"steps": change.to_steps})
    changed = recipe.model_copy(update={"train": train})
    entry = {**asdict(change), "by": _PACE}
    folder.write_recipe(changed, read_derived(path), [*listed, entry])


def has_other_length(before: Recipe, given: Recipe) -> bool:
    """Return whether two recipes, as they were given, say their length otherwise."""
    return any(getattr(before.train, name) != getattr(given.train, name) for name in LENGTHS)


def lengthen(folder: RunFolder, given: Recipe, data: Data, say: Say) -> None:
    """Give a run the length of ``given``, in its recipe, and say how the rest is trained.

    Nothing is said where it has that length. Remains of a kill during this are removed: the record
    and the model of the shorter run. Raises ConfigError as ``plan_lengthening`` does.
    """
    path = folder.path / RECIPE
    before = load_recipe(folder.path).recipe
    if has_other_length(before, given):
        change, recipe = plan_lengthening(folder.path, folder.recipe(), given, data)
        lengthenings = (*read_lengthenings(path), change)
        folder.write_recipe(recipe, _derived(path, given), [asdict(each) for each in lengthenings])
        say(describe(change, recipe))
    if read_lengthenings(path):
        folder.reopen()


def is_cut_off(folder: RunFolder, given: Recipe, record: Mapping[str, Any]) -> bool:
    """Return whether a run that has a record is to be trained on: it is given a longer length.

    Raises ConfigError where it is, and no checkpoint is left to continue from.
    """
    before = load_recipe(folder.path).recipe
    if record.get("stopped_early"):
        if has_other_length(before, given):
            raise ConfigError(
                f"{folder.path} ended early, at step {record['step']}, as train.patience = "
                f"{before.train.patience} says, and no length changes that: start a new run from "
                f"its weights with init.run={folder.path}"
            )
        return False
    is_longer = record["step"] < folder.recipe().train.steps
    if not is_longer and not has_other_length(before, given):
        return False
    run = folder.path
    if not saved_steps(run / CHECKPOINTS):
        raise ConfigError(
            f"{run} has no checkpoint to continue from: start a new run from its weights with "
            f"init.run={run}"
        )
    return True


def earlier_ends(recipe: Path) -> tuple[int, ...]:
    """Return the steps at which a run had ended before it was given more."""
    listed = read_lengthenings(recipe)
    return tuple(each.at_step for each in listed if each.at_step == each.from_steps)


def _derived(path: Path, given: Recipe) -> list[str]:
    """Return the fields that a run's recipe lists as derived; its steps too unless given now."""
    others = [key for key in read_derived(path) if key != _STEPS]
    return others if given.train.steps is not None else [*others, _STEPS]


def plan_lengthening(
    run: Path, recipe: ResolvedRecipe, given: Recipe, data: Data
) -> tuple[Lengthening, ResolvedRecipe]:
    """Return how a run becomes as long as ``given`` says, and its recipe then.

    ``recipe`` is the run's as it ran. Minutes are those of the whole run, turned into steps by the
    time that its steps took; ``train.keep_steps`` may name more of those to come. Raises
    ConfigError for a length that is not longer.
    """
    steps = _steps(run, given, data)
    before = recipe.train.steps
    if steps <= before:
        lengths = ((name, getattr(given.train, name)) for name in LENGTHS)
        named = [f"train.{name} = {show(value)}" for name, value in lengths if value is not None]
        asked = named[0] if named else "a recipe without a length"
        compared = "as long" if steps == before else "shorter"
        raise ConfigError(
            f"{run} has {count(before, 'step')}, and {asked} is {compared}: give more, or leave it "
            "out"
        )
    saved = saved_steps(run / CHECKPOINTS)
    change = Lengthening(saved[-1] if saved else 0, before, steps)
    _check_kept(run, change, recipe, given)
    told = {name: getattr(given.train, name) for name in (*LENGTHS, "keep_steps")}
    train = recipe.train.model_copy(update={**told, "steps": steps})
    return change, recipe.model_copy(update={"train": train})


def _check_kept(run: Path, change: Lengthening, recipe: Recipe, given: Recipe) -> None:
    """Raise ConfigError where steps that a run keeps are left out, or those named are over."""
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


def describe(change: Lengthening, recipe: ResolvedRecipe) -> str:
    """Say from where a lengthened run continues, and the learning rates of the rest of it."""
    begun = f"continues from step {change.at_step:,} to {change.to_steps:,}"
    optimizer = recipe.optimizer
    depending = _length_dependent(recipe)
    if not depending:
        return f"{begun} instead of {change.from_steps:,}"
    next_rate = learning_rate(optimizer, change.at_step, change.to_steps)
    was = learning_rate(optimizer, max(0, change.at_step - 1), change.from_steps)
    return (
        f"{begun} instead of {change.from_steps:,}: {' and '.join(depending)} "
        f"{'follows' if len(depending) == 1 else 'follow'} the longer length from there on; the "
        f"learning rate is {next_rate:.3g} after {was:.3g}"
    )


def _length_dependent(recipe: ResolvedRecipe) -> list[str]:
    """Return the settings of a recipe that are functions of the run's length."""
    optimizer = recipe.optimizer
    # A constant warm-up is T5's schedule, whatever the other field says.
    falls = optimizer.schedule in FALLS and optimizer.warmup != "constant"
    auxiliary = getattr(recipe.objective, "auxiliary", "none")
    depends = {
        f"optimizer.schedule = {optimizer.schedule}": falls,
        "optimizer.cooldown_share": optimizer.cooldown_share > 0,
        f"objective.auxiliary = {auxiliary}": auxiliary != "none",
    }
    return [name for name, is_so in depends.items() if is_so]


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
