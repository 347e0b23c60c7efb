"""A family of models of HuggingFace folders: how its folders are read, written and checked."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from sublayer.config.resolved import ResolvedModel
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.interop.config_reader import Content
from sublayer.interop.huggingface.class_fields import ClassConfig, ClassFields
from sublayer.interop.huggingface.folder_tokenizer import read_tokenizer
from sublayer.interop.huggingface.representable import Table
from sublayer.interop.weight_map import Pair

Tensors = Mapping[str, Tensor]
Answers = Literal["tokens", "labels", "choices", "spans"]
"""What a model's outputs are of: tokens, or a task's labels (or a number), choices or spans."""
ANSWERS: tuple[Answers, ...] = ("labels", "choices", "spans")
"""Those of tasks."""


@dataclass(frozen=True)
class Oracle:
    """A class of transformers, and which of our outputs each of its outputs should equal."""

    name: str
    outputs: Mapping[str, str]
    """Ours by the names of theirs."""


@dataclass(frozen=True)
class Family:
    """One family: a class of transformers, what it can represent, and how it is read and written.

    Names of tensors that its functions take and return are without the prefix.
    """

    title: str
    table: Table
    """What a model may be to be written as it."""
    fields: ClassFields
    """What its config.json may say."""
    prefix: str
    """What names of tensors begin with in a file, except those of heads."""
    heads: tuple[str, ...]
    """What names of heads begin with; the first is the one that answers a task, where one does."""
    is_ignored: Callable[[str], bool]
    """Tells the tensors that hold no weights."""
    prepare: Callable[[Content, Tensors], dict[str, Tensor]]
    """Settles what a file may say in several ways: ties, old names, copies."""
    read_config: Callable[[ClassConfig, Tensors], ResolvedModel]
    """Takes the tensors that ``prepare`` left, which say what a config does not."""
    required_fields: Callable[[ResolvedModel], dict[str, Any]]
    """What the class always has; ``write_config`` and ``pairs`` take a config with all of it."""
    write_config: Callable[[ResolvedModel, Tokenizer | None], dict[str, Any]]
    tokenizer_files: Callable[..., dict[str, bytes]]
    """Takes a tokenizer and ``max_len``."""
    pairs: Callable[[ResolvedModel], Iterable[Pair]]
    oracle: Callable[[ResolvedModel], Oracle]
    """The class with which logits are compared."""
    answers: Answers = "tokens"
    settle: Callable[[ResolvedModel, Tensors], dict[str, Tensor]] = lambda config, weights: dict(
        weights
    )
    """Has an expanded model's weights compute the same without what the class has not."""
    copies: Callable[[ResolvedModel], Mapping[str, str]] = lambda config: {}
    """Tensors that a file holds beside those of ``pairs``, and what each is a copy of."""
    read_tokenizer: Callable[..., Tokenizer | None] = read_tokenizer
    """Takes a folder and the model's ``vocab_size``."""
    describe_unread: Callable[[Path], str | None] = lambda folder: None
    """Tells why the tokenizer of a folder is not read."""
