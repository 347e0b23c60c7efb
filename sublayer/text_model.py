"""A model with the tokenizer of its text and the task that it answers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sublayer.data.tokenizers.base import Tokenizer
    from sublayer.model.transformer import Transformer
    from sublayer.tasks.registry import TaskSpec


@dataclass(eq=False)
class TextModel:
    """A model, its tokenizer and its task: what a model folder holds."""

    model: "Transformer"
    tokenizer: "Tokenizer | None" = None
    """None where the folder has none."""
    task: "TaskSpec | None" = None
    """None where the model was not fine-tuned."""
