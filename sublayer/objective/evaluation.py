"""Evaluation requests, and helpers shared by all kinds of objective."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sublayer.config.data import INTRINSIC, SentenceRule
from sublayer.evaluation.split_work import Progress, silent
from sublayer.files.storage import as_typed

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.data.store import Split
    from sublayer.model.transformer import Transformer
    from sublayer.text_model import TextModel

Table = TypeVar("Table")
_CPU_BATCH_TOKENS = 4096
_GPU_BATCH_TOKENS = 32768
"""Tokens of a batch that is scored: enough to fill the device, and little of its memory."""


def _no_text(*rule: object) -> Any:
    raise AssertionError("tasks are no text")


@dataclass(frozen=True)
class Evaluation:
    """An evaluation request: a model, its run's recipe, a text, and options."""

    run: Path
    """The folder of the run, of a checkpoint or of a model."""
    text_model: "TextModel"
    recipe: "Recipe | None"
    """The recipe of the run that the model belongs to; None outside a run."""
    options: Mapping[str, Any]
    """The options that were given, by their names; the others are not there."""
    split: Literal["valid", "test"] = "test"
    batch: int | None = None
    """Rows that are computed at a time; None: what the device is quick with."""
    average: int | None = None
    """Number of checkpoints whose mean the model is."""
    read_text: Callable[[SentenceRule], "Split"] = _no_text
    """Reads the text that was asked for, cut into sentences by a rule."""
    own_text: Callable[[], "Split"] = _no_text
    """Reads the split of the run's own text that is named ``split``."""
    progress: Callable[[str, str], Progress] = lambda done, unit: silent
    """Makes a display from the verb of the work, such as ``scored``, and its unit."""

    @property
    def model(self) -> "Transformer":
        """The model, without tokenizer and task."""
        return self.text_model.model

    def describe_text(self, text: "Split") -> dict[str, Any]:
        """Return the fields of a result that identify the scored text."""
        return {
            "split": None if "path" in self.options else text.name,
            "sources": list(text.sources),
            "sha256": text.store.sha256,
            "run": str(self.run),
        }

    def sentence_rule(self) -> SentenceRule:
        """Return the sentence rule for another text: the training's, by default prose."""
        if self.recipe is None:
            return "prose"
        rule = self.recipe.data.sentences
        is_passages = self.options.get("corpus") == INTRINSIC
        if is_passages and rule == "lines":
            # Passages are prose, whose lines are no sentences.
            return "prose"
        return rule


def own_objective(recipe: "Recipe", table: type[Table]) -> Table:
    """Return the objective of a recipe of a known kind."""
    assert isinstance(recipe.objective, table), "the kind of objective is asked for its own"
    return recipe.objective


def context_of(model: "Transformer", recipe: "Recipe | None") -> int:
    """Return the window size in tokens: the training context, or else the maximum input."""
    if recipe is None:
        return model.config.max_len
    return recipe.data.context


def batch_sequences(model: "Transformer", context: int) -> int:
    """Choose the number of windows per batch, for speed on the device."""
    is_cpu = model.embedding.weight.device.type == "cpu"
    n_tokens = _CPU_BATCH_TOKENS if is_cpu else _GPU_BATCH_TOKENS
    return max(1, n_tokens // context)


def describe_sources(result: Mapping[str, Any]) -> str:
    """Format the sources and the split of a result's text.

    The result has the fields of ``Evaluation.describe_text``.
    """
    sources = ", ".join(map(as_typed, result["sources"]))
    split = result["split"]
    if split is None:
        return sources
    return f"the {split} split of {sources}"
