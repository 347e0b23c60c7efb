"""Runs that exist, as arms of a comparison: what a run's folder says, without its text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublayer.config.layering.layers import LoadedRecipe
from sublayer.config.layering.run_recipe import DERIVED, read_derived
from sublayer.config.layering.sources import RUN_RECIPE
from sublayer.config.recipe import Recipe
from sublayer.config.resolved import ResolvedRecipe
from sublayer.study.arms import Arm
from sublayer.study.budget.match import Measures


@dataclass(frozen=True)
class Recorded:
    """A run that has ended, as its folder has it."""

    path: Path
    recipe: ResolvedRecipe
    record: dict[str, Any]

    @property
    def checksums(self) -> dict[str, str]:
        """The checksums of its text's splits and of its tokenizer, by name."""
        return dict(self.record["data"]["checksums"])

    def arm(self, name: str) -> Arm:
        """Return the run's recipe as an arm; what was derived has that origin."""
        origins = dict.fromkeys(read_derived(self.path / RUN_RECIPE), DERIVED)
        return Arm(name, LoadedRecipe(self.recipe, origins, name, ()), {})


def recorded_measures() -> Measures:
    """Return measures that take all from resolved recipes, of which nothing is measured again."""

    def vocab_size(recipe: Recipe) -> int:
        assert recipe.model.vocab_size is not None, "the recipe of a run is resolved"
        return recipe.model.vocab_size

    def resolve(recipe: Recipe) -> ResolvedRecipe:
        assert isinstance(recipe, ResolvedRecipe), "the recipe of a run is resolved"
        return recipe

    def train_tokens(recipe: Recipe) -> int:
        return 0  # no run that has steps asks

    def step_s(loaded: LoadedRecipe) -> float:
        return 0.0  # nothing is matched by time

    return Measures(vocab_size, train_tokens, resolve, step_s)
