"""A model with the tokenizer of its text, the task that it answers, and a folder's settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sublayer.data.tokenizers.base import Tokenizer
    from sublayer.model.transformer import Transformer
    from sublayer.tasks.registry import TaskSpec


@dataclass(frozen=True)
class Generation:
    """Settings of generation of a published folder: kept by its import, written by an export."""

    stop_ids: tuple[int, ...] = ()
    """Ids that end a text besides the tokenizer's end."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its ``generation_config.json`` without ids; ``generate`` does not read them."""
    chat_templates: Mapping[str, str] = field(default_factory=dict)
    """Chat templates by name, ``default`` or another; they are never run."""


@dataclass(eq=False)
class TextModel:
    """A model, its tokenizer and its task: what a model folder holds."""

    model: "Transformer"
    tokenizer: "Tokenizer | None" = None
    """None where the folder has none."""
    task: "TaskSpec | None" = None
    """None where the model was not fine-tuned."""
    generation: Generation = field(default_factory=Generation, kw_only=True)
    """Empty for models trained here."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Ids that end a generated text."""
        ids = set(self.generation.stop_ids)
        if self.tokenizer is not None and self.tokenizer.end_id is not None:
            ids.add(self.tokenizer.end_id)
        return frozenset(ids)
