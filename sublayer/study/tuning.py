"""Tuning trials of settings, the same for every arm, and the choice by the validation split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sublayer.config.layering.layers import LoadedRecipe, vary
from sublayer.errors import ConfigError
from sublayer.study.arms import Arm, expand

_TUNABLE = ("optimizer.", "model.dropout", "model.init", "model.embedding_scale")


@dataclass(frozen=True)
class Trial:
    """Settings to try, under a name; the one trial of a study that tunes nothing has neither."""

    name: str
    settings: Mapping[str, Any]

    def of(self, loaded: LoadedRecipe) -> LoadedRecipe:
        """Apply the settings to an arm's recipe; raise ConfigError where they do not fit it."""
        if not self.settings:
            return loaded
        return vary(loaded, self.settings, origin="tune")


def make_trials(arms: Sequence[Arm], tune: Sequence[str]) -> list[Trial]:
    """Build a trial of every combination of ``field=a,b,c`` texts; an empty one without any.

    Raises ConfigError for a field that would change an arm's budget or that the arms differ in, and
    as ``expand`` does.
    """
    if not tune:
        return [Trial("", {})]
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


def choose_trial(trials: Sequence[Trial], losses: Mapping[str, float | None]) -> Trial:
    """Choose the trial with the lowest validation loss; the first where none finished.

    ``losses`` are by trial's name, None for one that failed. Of equal ones the earlier is chosen.
    """
    best = trials[0]
    lowest = None
    for trial in trials:
        loss = losses.get(trial.name)
        if loss is None:
            continue
        if lowest is None or loss < lowest:
            best = trial
            lowest = loss
    return best
