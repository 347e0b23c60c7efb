"""An arm as it would run, and the seconds that a step of it takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sublayer.config.layering.layers import LoadedRecipe
from sublayer.config.recipe import Recipe
from sublayer.config.resolved import ResolvedModel
from sublayer.config.task_heads import expected_model
from sublayer.study.arms import Arm


@dataclass(frozen=True)
class Sized:
    """An arm as it would run: its matched recipe, and its model with the expected vocabulary."""

    arm: Arm
    """As the study defines it."""
    loaded: LoadedRecipe
    model: ResolvedModel
    vocab_size: int
    """Expected, where the tokenizer is not trained yet."""

    @property
    def recipe(self) -> Recipe:
        """The matched recipe, without where its values come from."""
        return self.loaded.recipe


@dataclass(frozen=True)
class StepTime:
    """Seconds of an optimizer step: taken, or extrapolated from a smaller one."""

    seconds: float
    is_measured: bool


Clock = Callable[[Sequence[Sized]], Sequence[StepTime]]
"""Returns the time of each arm's optimizer step, in the arms' order."""


def size_arm(arm: Arm, loaded: LoadedRecipe, vocab_size: int) -> Sized:
    """Resolve the model of an arm's recipe, whose text may not have been read yet.

    Raises ConfigError as ``resolve_model`` does.
    """
    recipe = loaded.recipe
    model = expected_model(recipe, vocab_size)
    return Sized(arm, loaded, model, vocab_size)
