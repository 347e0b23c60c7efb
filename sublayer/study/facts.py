"""The facts of a study's arms: texts, vocabularies, lengths and seconds, each taken once."""

import math

from sublayer.config.layering.layers import LoadedRecipe
from sublayer.config.recipe import Recipe
from sublayer.config.resolved import ResolvedRecipe
from sublayer.data.prepare import Data
from sublayer.objective.families import family_of
from sublayer.runs.resolution import resolve_run
from sublayer.runs.run import measure_step
from sublayer.runs.session import Place
from sublayer.study.budget.match import Measures
from sublayer.study.jobs.run import SharedData
from sublayer.system.machine import choose_device
from sublayer.system.stages import note, stage
from sublayer.training.processes.world import World

_MEASURE_SECONDS = 30.0
"""For the steps of all arms together, each timed twice, where they are matched by time."""
_OLDEST_PACE_S = 600.0
"""Of an earlier pace that a new study takes over."""


class StudyFacts:
    """The texts and measurements of a study, each read or taken once."""

    def __init__(self, device: str | None, *, is_elsewhere: bool = False) -> None:
        """Measure on a device of this machine; runs may be made ``is_elsewhere``."""
        self._device = device
        self._is_elsewhere = is_elsewhere
        self._data = SharedData(most=None)
        self._resolved: dict[str, ResolvedRecipe] = {}

    def data(self, recipe: Recipe) -> Data:
        """Prepare the data of a recipe, or return those that were prepared before.

        Raises ConfigError and DataError as ``prepare_data`` does.
        """
        return self._data.of(recipe)

    def measures(self, n_arms: int, *, is_new: bool = False) -> Measures:
        """Return how the budgets of ``n_arms`` arms are measured.

        A study that ``is_new`` takes over no pace of more than ten minutes ago. Nothing is measured
        before it is asked for. Raises ConfigError for an unknown device.
        """
        chosen = choose_device(self._device)
        place = Place(chosen, World(rank=0, size=1), trains=not self._is_elsewhere)

        def step_s(loaded: LoadedRecipe) -> float:
            data = self.data(loaded.recipe)
            budget_s = _MEASURE_SECONDS / (2 * n_arms)
            with stage(f"measuring a step of {loaded.name}"):
                return measure_step(loaded, data, budget_s, self._device)

        def vocab_size(recipe: Recipe) -> int:
            return self.data(recipe).tokenizer.vocab_size

        def train_tokens(recipe: Recipe) -> int:
            family = family_of(recipe.objective)
            return family.epoch_tokens(recipe, self.data(recipe).train)

        def resolve_once(recipe: Recipe) -> ResolvedRecipe:
            key = recipe.model_dump_json()
            if key in self._resolved:
                return self._resolved[key]
            # Nothing checks a study's length later, so no pace of another day will do.
            oldest_s = _OLDEST_PACE_S if is_new else math.inf
            data = self.data(recipe)
            resolved = resolve_run(recipe, data, place, oldest_s=oldest_s, say=note)
            self._resolved[key] = resolved.recipe
            return resolved.recipe

        return Measures(vocab_size, train_tokens, resolve_once, step_s)
