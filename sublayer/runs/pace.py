"""The pace of a recipe on this machine: what was measured and kept, or a measurement."""

import hashlib
import math
import time
from dataclasses import dataclass, replace

from sublayer.config.recipe import ResolvedRecipe
from sublayer.config.resolve_train import evaluation_effort
from sublayer.config.run_recipe import dump_recipe
from sublayer.data.prepare import Data
from sublayer.files.measurements import keep, recall
from sublayer.runs.session import Place, Session, assemble
from sublayer.system.stages import stage
from sublayer.training.step_time import Pace, median_step, timed
from sublayer.training.warm_start import Pretrained

PACE_LIVES_S = 7 * 86400.0
"""How long a pace is taken for that of today.

A run checks it with its first steps, a study does not.
"""
_PACE_SHARE = 0.03
"""Of a run's minutes, what may be spent on measuring, within the bounds below."""
_LEAST_PACE_S, _MOST_PACE_S = 2.0, 20.0


@dataclass(frozen=True)
class PaceRequest:
    """What it takes to measure the pace of a recipe, at a length that says nothing of its own."""

    recipe: ResolvedRecipe
    data: Data
    place: Place
    pretrained: Pretrained | None
    """The model that the recipe starts from, where it has been read; None: it is read if needed."""


def find_pace(asked: PaceRequest, oldest_s: float) -> Pace:
    """Return the kept pace of this recipe, whatever its seed and minutes, or measure it.

    A pace older than ``oldest_s`` is measured again; below 0, every pace is. All processes enter,
    and return the same.
    """
    recipe, world = asked.recipe, asked.place.world
    key = _key(asked)
    # The first process alone looks, so that all measure or none does.
    figures = [math.nan] * 3
    if world.is_main:
        kept = recall(key, 2)
        if kept is not None:
            figures = [*kept.values, time.time() - kept.at]
    pace = Pace(*world.share(figures))
    if 0 <= pace.age_s <= oldest_s and pace.step_s > 0:
        return pace
    with stage("measuring how long a step and an evaluation take"):
        session = assemble(recipe, asked.data, asked.place, asked.pretrained)
        measured = _measure_pace(session, minutes=recipe.train.minutes or 0.0)
    pace = Pace(*world.share([measured.step_s, measured.evaluation_s]))
    if world.is_main:
        keep(key, [pace.step_s, pace.evaluation_s])
    return pace


def keep_run_pace(recipe: ResolvedRecipe, place: Place, step_s: float) -> None:
    """Keep the seconds that a step of a finished run took, all that it did beside it included."""
    keep(_run_key(recipe, place), [step_s])


def recall_run_pace(recipe: ResolvedRecipe, place: Place) -> float | None:
    """Return the seconds of a step of the last run that computed as much here; None without one."""
    kept = recall(_run_key(recipe, place), 1)
    return None if kept is None else kept.values[0]


def _run_key(recipe: ResolvedRecipe, place: Place) -> str:
    """Return what a run's pace is kept under: the size of a step, not what is learned of what."""
    train = recipe.train
    sizes = [
        recipe.model.model_dump_json(),
        recipe.objective.model_dump_json(),
        recipe.optimizer.kind,
        str(recipe.data.context),
        str((train.batch_sequences, train.micro_batch_sequences, train.precision)),
        str((train.threads, train.recompute, train.compile)),
    ]
    digest = hashlib.sha256("\n".join(sizes).encode()).hexdigest()
    return f"run on {place.device}, {place.world.size} processes: {digest}"


def _key(asked: PaceRequest) -> str:
    """Return what a pace is kept under: the recipe, but for what changes no step's time."""
    recipe, place = asked.recipe, asked.place
    same_train = recipe.train.model_copy(update={"seed": 0, "minutes": 1.0})
    same = recipe.model_copy(update={"train": same_train})
    text = dump_recipe(same, ())
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"pace on {place.device}, {place.world.size} processes: {digest}"


def _measure_pace(session: Session, *, minutes: float) -> Pace:
    device, world = session.place.device, session.place.world
    share_s = _PACE_SHARE * 60.0 * minutes
    budget_s = min(_MOST_PACE_S, max(_LEAST_PACE_S, share_s))

    # All processes take as many steps as the first has time for.
    def agree(goes_on: bool) -> bool:
        (shared,) = world.share([float(goes_on)])
        return bool(shared)

    step_s = median_step(session.train_step, budget_s=budget_s, device=device, agree=agree)
    train = session.recipe.train
    scored = train.evaluate_tokens
    # Scoring takes about a third of what training on as many tokens does, in windows that do not
    # overlap; where that is long, fewer tokens will do.
    tokens_per_step = train.batch_sequences * session.recipe.data.context
    expected_s = step_s * scored * evaluation_effort(session.recipe) / (3 * tokens_per_step)
    share = min(1.0, budget_s / expected_s)
    fewer = max(1, int(scored * share))
    brief_train = train.model_copy(update={"evaluate_tokens": fewer})
    brief = session.recipe.model_copy(update={"train": brief_train})
    seconds = timed(replace(session, recipe=brief).evaluate, device=device)
    if session.recipe.objective.scores_whole_split:
        return Pace(step_s, seconds)
    return Pace(step_s, seconds * scored / fewer)
