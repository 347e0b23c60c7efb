"""Trials of settings, the same for every arm, and the choice between them on the validation split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sublayer.config.layers import LoadedRecipe, vary
from sublayer.errors import ConfigError
from sublayer.study.arms import Arm, expand

_TUNABLE = ("optimizer.", "model.dropout", "model.init", "model.embedding_scale")


@dataclass(frozen=True)
class Trial:
    """Settings to try, under a name; the one trial of a study that tunes nothing has neither."""

    name: str
    settings: Mapping[str, Any]

    def of(self, loaded: LoadedRecipe) -> LoadedRecipe:
        """Lay the settings over an arm's recipe."""
        return vary(loaded, self.settings, origin="tune") if self.settings else loaded


def make_trials(arms: Sequence[Arm], tune: Sequence[str]) -> list[Trial]:
    """Make a trial of every combination of ``field=a,b,c`` texts; a single empty one where there are none.

    Raises ConfigError for a field that would change an arm's budget or that the arms differ in, and as ``expand``
    does.
    """
    if not tune:
        return [Trial("", {})]
    trials = [Trial(arm.name, arm.settings) for arm in expand(arms[0].loaded, tune, option="--tune")]
    for key in trials[0].settings:
        if not key.startswith(_TUNABLE):
            raise ConfigError(
                f"--tune {key} is not a setting of training: tune fields of [optimizer] such as optimizer.lr"
            )
        if any(key in arm.settings for arm in arms):
            raise ConfigError(f"{key} is both compared and tuned: leave out one of them")
    return trials


def choose_trial(trials: Sequence[Trial], losses: Mapping[str, float | None]) -> Trial:
    """Choose the trial with the lowest validation loss; the first where none finished."""
    finished = [trial for trial in trials if losses.get(trial.name) is not None]
    return min(finished, key=lambda trial: losses[trial.name] or 0.0) if finished else trials[0]
