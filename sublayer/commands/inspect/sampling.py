"""The sample of a text that ``sublayer inspect`` reads with each model."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sublayer.commands.shared.text_options import other_text, own_split
from sublayer.objective.evaluation import batch_sequences

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.data.split import Split
    from sublayer.model.transformer import Transformer


@dataclass(frozen=True)
class SampleOptions:
    """Which text is read, how many of its tokens at most, how many rows at a time, and where.

    None is each run's validation split, the number of rows that a device is quick with, and the
    device that there is.
    """

    path: str | None
    max_tokens: int
    batch: int | None
    device: str | None

    def read_text(self, run: Path, model: "Transformer", recipe: "Recipe | None") -> "Split":
        """Read the text: a run's own validation split, unless another was named."""
        if self.path is None:
            return own_split(run, recipe, model, "valid")
        return other_text(run, model, self.path, None, "valid")

    def rows(self, model: "Transformer", context: int) -> int:
        """Return how many rows of a context are computed at a time."""
        return self.batch or batch_sequences(model, context)
