"""Tuning trials of settings, the same for every arm, and the choice by the validation split."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sublayer.config.layering.layers import LoadedRecipe, vary
from sublayer.errors import ConfigError
from sublayer.study.arms import Arm, expand
from sublayer.study.chain.stages import FINETUNE
from sublayer.study.names import folder_part

TuneBy = Literal["metric", "loss"]
"""What the validation split chooses by: the study's metric, or the loss, which all arms learn."""
_TUNABLE = ("optimizer.", "model.dropout", "model.init", "model.embedding_scale")
_TUNABLE_ON_TASKS = (
    "optimizer.",
    "model.dropout",
    "objective.dropout",
    "objective.language_weight",
    "train.batch_",
    "train.epochs",
    "train.steps",
    "init.layers",
)
"""As many passes as each arm likes are no advantage where the examples are the same."""


@dataclass(frozen=True)
class Trial:
    """Settings to try, under a name; the one trial of a study that tunes nothing has neither."""

    name: str
    settings: Mapping[str, Any]

    @property
    def folder(self) -> str:
        """What the folder of its runs is called."""
        return folder_part(self.name)

    def of(self, loaded: LoadedRecipe) -> LoadedRecipe:
        """Apply the settings to an arm's recipe; raise ConfigError where they do not fit it."""
        if not self.settings:
            return loaded
        return vary(loaded, self.settings, origin="tune")


NO_TRIAL = Trial("", {})
"""That of what tunes nothing."""


def make_trials(arms: Sequence[Arm], tune: Sequence[str]) -> list[Trial]:
    """Build a trial of every combination of ``field=a,b,c`` texts; an empty one without any.

    Raises ConfigError for a field that would change an arm's budget or that the arms differ in, and
    as ``expand`` does.
    """
    if not tune:
        return [NO_TRIAL]
    # Which combinations there are does not depend on the arm: the first will do.
    tuned = expand(arms[0].loaded, tune, option="--tune")
    trials = [Trial(arm.name, arm.settings) for arm in tuned]
    for key in trials[0].settings:
        if not key.startswith(_TUNABLE):
            raise ConfigError(
                f"--tune {key} is not a setting of training: "
                "tune fields of [optimizer] such as optimizer.lr"
            )
        if any(key in arm.settings for arm in arms):
            raise ConfigError(f"{key} is both compared and tuned: leave out one of them")
    return trials


def make_stage_trials(
    stage: str,
    planned: Mapping[str, LoadedRecipe],
    own_settings: Mapping[str, Mapping[str, Any]],
    tune: Sequence[str],
) -> list[Trial]:
    """Build the trials of a stage of tasks, the same for every arm; an empty one without any.

    ``planned`` is the stage's recipe by arm, ``own_settings`` what an arm has there otherwise than
    the others. Raises ConfigError for a field that is none of fine-tuning, that an arm does not
    have, or that the arms differ in, and as ``expand`` does.
    """
    if not tune:
        return [NO_TRIAL]
    loaded = next(iter(planned.values()))
    trials = [Trial(arm.name, arm.settings) for arm in expand(loaded, tune, option="--tune")]
    for key in trials[0].settings:
        if not key.startswith(_TUNABLE_ON_TASKS):
            raise ConfigError(
                f"--tune {FINETUNE}.{key} is not a setting of fine-tuning: tune such as "
                f"{FINETUNE}.optimizer.lr, {FINETUNE}.train.batch_sequences, "
                f"{FINETUNE}.train.epochs or {FINETUNE}.model.dropout"
            )
        compared = [arm for arm, settings in own_settings.items() if key in settings]
        if compared:
            raise ConfigError(
                f"{key} of stage {stage} is what arm {compared[0]} has its own of, and is tuned: "
                "leave out one of them"
            )
    for arm, own in planned.items():
        for trial in trials:
            try:
                trial.of(own)
            except ConfigError as error:
                raise ConfigError(f"--tune, arm {arm}, stage {stage}: {error}") from None
    return trials


def beyond_edges(chosen: Sequence[Trial], trials: Sequence[Trial]) -> Iterator[Trial]:
    """Yield the next trial beyond each edge of the grid that an arm has chosen.

    The grid is of one positive number. It goes on by the ratio of the two values at that edge.
    """
    (field,) = trials[0].settings
    values = [trial.settings[field] for trial in trials]
    is_whole = all(isinstance(each, int) for each in values)
    tried = sorted(set(map(float, values)))
    beside = {tried[0]: tried[1], tried[-1]: tried[-2]}
    for value in dict.fromkeys(float(trial.settings[field]) for trial in chosen):
        if value not in beside:
            continue
        beyond = float(f"{value * value / beside[value]:.3g}")
        if is_whole:
            beyond = round(beyond)
        if beyond > 0 and beyond not in tried:
            yield trial_at(trials, beyond)


def trial_at(trials: Sequence[Trial], value: float) -> Trial:
    """Return the trial of a further value of the one field that is tried."""
    (field,) = trials[0].settings
    label, _, _ = trials[0].name.partition("=")
    return Trial(f"{label}={value:g}", {field: value})


def check_extensible(trials: Sequence[Trial]) -> None:
    """Raise ConfigError where a grid has no edge to be extended at."""
    fields = list(trials[0].settings)
    values = [trial.settings[fields[0]] for trial in trials] if len(fields) == 1 else []
    if not values or not all(isinstance(each, int | float) and each > 0 for each in values):
        raise ConfigError(
            "--extend goes on with a grid of one positive number, such as "
            "--tune optimizer.lr=1e-3,2e-3: leave it out"
        )


def choose_trial(
    trials: Sequence[Trial],
    losses: Mapping[str, float | None],
    *,
    ties: Mapping[str, float | None] | None = None,
    compared: Collection[str] = (),
) -> Trial:
    """Choose the trial with the lowest validation loss; the first where none finished.

    ``losses`` are by trial's name, None for one that failed, or what stands for a loss, lower the
    better. Of equal ones that is chosen of which there are runs already, ``compared`` by name, then
    the lowest of ``ties``, then the earliest.
    """

    def rank(trial: Trial) -> tuple[float, bool, float]:
        loss = losses.get(trial.name)
        tie = (ties or {}).get(trial.name)
        return (
            math.inf if loss is None else loss,
            trial.name not in compared,
            math.inf if tie is None else tie,
        )

    finished = [trial for trial in trials if losses.get(trial.name) is not None]
    return min(finished or trials[:1], key=rank)
