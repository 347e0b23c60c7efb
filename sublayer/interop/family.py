"""The base of families: a class of transformers, its representable models, its folders."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.interop.answers import Answers
from sublayer.interop.foreign_config import ClassConfig, ClassFields
from sublayer.interop.representable import Table
from sublayer.interop.tokenizers import read_tokenizer
from sublayer.interop.weight_map import Pair

Fields = dict[str, Any]
Tensors = Mapping[str, Tensor]
ENDINGS: Mapping[Answers, str] = {
    "labels": "ForSequenceClassification",
    "choices": "ForMultipleChoice",
    "spans": "ForQuestionAnswering",
}
"""Endings of the names of classes that answer tasks."""
OUTPUTS: Mapping[Answers, Mapping[str, str]] = {
    "labels": {"logits": "label_logits"},
    "choices": {"logits": "choice_logits"},
    "spans": {"start_logits": "start_logits", "end_logits": "end_logits"},
}
"""Outputs of those classes, and ours that they are compared with."""
NO_OTHER_HEAD: Fields = {
    "head": "none",
    "softmax": "tokens",
    "head_activation": "ffn",
    "head_bias": False,
    "output_scale": "none",
    "sentence_classes": 0,
}
"""Fields of a model without the heads that do not answer."""


@dataclass(frozen=True)
class Oracle:
    """A class of transformers, and which of our outputs each of its outputs should equal."""

    name: str
    outputs: Mapping[str, str]
    """Ours by the names of theirs."""


class Family(ABC):
    """A class of transformers, and how models of it are read and written.

    Names of tensors are without the prefix.
    """

    title: str
    table: Table
    """Models that the class can represent."""
    fields: ClassFields
    """Fields of its config.json."""
    prefix: str
    """Beginning of the names of tensors in a file, except those of heads."""
    heads: tuple[str, ...]
    """Beginnings of the names of heads; the first is the one that answers a task."""
    answers: Answers = "tokens"

    def is_ignored(self, name: str) -> bool:
        """Return whether a tensor holds no weights."""
        return False

    @abstractmethod
    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Settle alternatives of a file: ties, old names, copies."""

    @abstractmethod
    def read_config(self, content: ClassConfig, weights: Tensors) -> ResolvedModel:
        """Convert a config.json to a resolved config; ``weights`` are those of ``prepare``.

        Raises CheckpointError, naming the field, where a recipe cannot say the same.
        """

    @abstractmethod
    def required_fields(self, config: ResolvedModel) -> Fields:
        """Return the fields, with values, of all that the class always has (see ``expand``)."""

    @abstractmethod
    def write_config(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Convert an expanded config to a config.json, without what training alone sees.

        Raises ConfigError where the class cannot have the model's special ids.
        """

    @abstractmethod
    def pairs(self, config: ResolvedModel) -> Iterable[Pair]:
        """Pair the class's tensors with an expanded model's."""

    @abstractmethod
    def oracle(self, config: ResolvedModel) -> Oracle:
        """Return the class with which logits are compared."""

    def settle(self, config: ResolvedModel, weights: Tensors) -> dict[str, Tensor]:
        """Return an expanded model's weights that compute the same in the class."""
        return dict(weights)

    def copies(self, config: ResolvedModel) -> Mapping[str, str]:
        """Return the tensors that a file holds beside those of ``pairs``, as copies of others."""
        return {}

    @abstractmethod
    def tokenizer_files(self, tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
        """Return the files of a tokenizer, which reads texts up to ``max_len``."""

    def read_tokenizer(self, folder: Path, *, vocab_size: int) -> Tokenizer | None:
        """Read the tokenizer of a folder; None where there is none."""
        return read_tokenizer(folder, vocab_size=vocab_size)

    def describe_unread(self, folder: Path) -> str | None:
        """Return why the tokenizer of a folder is not read; None where it is, or there is none."""
        return None
