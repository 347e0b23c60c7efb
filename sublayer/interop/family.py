"""The base of families: classes of transformers, their answers to tasks, their folders."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.config.table import MOST_LABELS
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError
from sublayer.interop.foreign_config import (
    ANY,
    COMMON,
    ClassConfig,
    ClassFields,
    Field,
    Table,
    Unsayable,
    one_of,
    optional,
    rows_of,
    training_only,
    whole,
)
from sublayer.interop.tokenizers import read_tokenizer
from sublayer.interop.weight_map import BlockNames, Pair, pair_blocks, pair_linear
from sublayer.tasks.own_table import METRICS
from sublayer.tasks.own_table import NAME as TABLE
from sublayer.tasks.registry import TaskSpec
from sublayer.tasks.task import Kind, Task

Answers = Literal["tokens", "labels", "choices", "spans"]
"""Outputs of a model: of tokens, or a task's labels (or a number), choices or spans."""
ANSWERS: tuple[Answers, ...] = ("labels", "choices", "spans")
"""Those of tasks."""
REGRESSION, CLASSIFICATION = "regression", "single_label_classification"
_INDEPENDENT = "multi_label_classification"


IMPORTED = "imported"
"""Of a task that no folder names."""
_FIELDS: dict[Kind, tuple[str, ...]] = {
    "classes": ("text",),
    "number": ("text",),
    "choice": ("text",),
    "span": ("context", "question"),
}
_FORMATS: dict[str, Any] = {"encoder": "pair", "decoder": "traversal"}


def _words(value: Any) -> Any:
    """Return a table of labels: their words by their numbers, which are texts."""
    words = list(value.values()) if type(value) is dict else []
    are_words = all(type(word) is str and word.strip() and word.isprintable() for word in words)
    numbers = {str(index) for index in range(len(words))}
    if not words or len(words) > MOST_LABELS or set(value) != numbers or not are_words:
        raise ValueError(
            f"is no table of labels: a word for each number from 0, of up to {MOST_LABELS:,}"
        )
    if len(set(words)) < len(words):
        raise Unsayable("two labels have one name")
    return value


def _problem(value: Any) -> Any:
    if one_of((REGRESSION, CLASSIFICATION, _INDEPENDENT))(value) == _INDEPENDENT:
        raise Unsayable("labels that exclude each other, or a number")
    return value


LABELS = {
    "id2label": Field(None, optional(_words)),
    "num_labels": Field(2, whole(MOST_LABELS)),
}
"""Fields of a config.json with the words of outputs."""
TYPED_LABELS = {**LABELS, "problem_type": training_only(None, optional(_problem))}
"""The same with the kind of problem."""


def label_words(content: ClassConfig) -> tuple[str, ...]:
    """Return the labels of a head's outputs, in order.

    Unnamed ones have transformers' default names. Raises CheckpointError where the numbers of
    labels and names differ.
    """
    words = content.fields["id2label"]
    if words is None:
        return default_words(content.fields["num_labels"])
    n_labels = content.computed.get("num_labels", len(words))
    if n_labels != len(words):
        raise CheckpointError(
            f"{content.file}: num_labels = {n_labels}, and id2label has {len(words)}: leave "
            "num_labels out"
        )
    return tuple(words[str(index)] for index in range(len(words)))


def default_words(n_labels: int) -> tuple[str, ...]:
    """Return transformers' default names of labels."""
    return tuple(f"LABEL_{index}" for index in range(n_labels))


def task_of(
    kind: Kind,
    labels: tuple[str, ...],
    config: ResolvedModel,
    *,
    numbers: tuple[float, float] = (-1.0, 1.0),
) -> TaskSpec:
    """Return a task that nothing names, of a model with this config; a number has no bounds.

    ``numbers`` are those at which a head of a number gives -1 and 1.
    """
    task = Task(
        IMPORTED,
        IMPORTED,
        TABLE,
        kind,
        _FIELDS[kind],
        METRICS[kind],
        labels=labels,
        numbers=numbers,
        is_bounded=kind != "number",
    )
    return TaskSpec((task,), _FORMATS[config.kind], config.max_len)


Fields = dict[str, Any]
Tensors = Mapping[str, Tensor]
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
    """A class of transformers, with the mapping of its outputs to ours."""

    name: str
    outputs: Mapping[str, str]
    """Ours by the names of theirs."""
    has_choices: bool = False
    """True where its rows are the choices of an example."""


@dataclass(frozen=True)
class Answering:
    """A class of transformers that answers a kind of task."""

    ending: str
    """Of its name."""
    heads: tuple[str, ...]
    outputs: Mapping[str, str]
    """As an oracle's."""
    always: Fields
    """Fields of every model of the class."""
    left_out: Fields = field(default_factory=lambda: NO_OTHER_HEAD)
    """Fields of a model without the heads that the class has not."""
    fields: Mapping[str, Field] = field(default_factory=dict)
    """Fields of its config.json that others of the family do not read."""


class Family:
    """Classes of transformers for a model, one per kind of answers.

    Names of tensors are without the prefix.
    """

    model_type: str
    name: str
    """Beginning of the names of classes."""
    title: str
    """The model's name, in errors; the class's where it answers a task."""
    predicts = "ForConditionalGeneration"
    """Ending of the name of the class that predicts tokens."""
    fields: ClassFields
    """Fields of config.json."""
    constants: Fields = {}
    """Fields of config.json that are written with one value."""
    always: Fields
    """Fields of every model of the class, which config.json does not say."""
    exceptions: Table = {}
    """Values that the class has an equal for, of fields for which that does not follow from
    ``fields`` and ``always``. Any other field of a model must have its default."""
    answering: Mapping[Answers, Answering] = {}
    prefix: str
    """Beginning of the names of tensors in a file, except those of heads."""
    heads: tuple[str, ...]
    """Beginnings of the names of heads; the first is the one that answers a task."""
    ties: Mapping[str, str] = {}
    """Tensors that are others, by name, where config.json ties them."""
    parts: tuple[tuple[str, str], ...]
    """Names of our maps, norms and tensors outside blocks, and theirs; a model may lack some."""
    unit: str
    """Beginning of the names of a sub-layer."""
    block: Mapping[str, BlockNames]
    """Names of its norm and maps, by the kind of sub-layer."""
    is_transposed = False
    """True where the maps of blocks are ``[d_in, d_out]``."""

    def __init__(self, answers: Answers = "tokens") -> None:
        self.answers = answers
        self.known_as = self.title
        table = {**COMMON, **self.fields.rows(), **rows_of(self.always), **self.exceptions}
        if answers != "tokens":
            row = self.answering[answers]
            self.title, self.heads = self.name + row.ending, row.heads
            self.always = {**self.always, **row.left_out, **row.always}
            self.fields = self.fields.extended(row.fields)
            table |= {**dict.fromkeys(row.left_out, ANY), **rows_of(row.always)}
        if answers == "labels":
            table["label_outputs"] = ANY
        self.table: Table = table
        """Models that the class can represent."""

    def is_ignored(self, name: str) -> bool:
        """Return whether a tensor holds no weights."""
        return False

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Settle alternatives of a file: ties, old names, copies.

        Raises CheckpointError where config.json ties tensors that differ.
        """
        weights = dict(tensors)
        if content.fields["tie_word_embeddings"]:
            for copy, source in self.ties.items():
                if copy not in weights:
                    continue
                tensor = weights.pop(copy)
                # Equal is equal in every number.
                original = weights.setdefault(source, tensor)
                if original is not tensor and not torch.equal(original, tensor):
                    raise CheckpointError(
                        f"the weights hold {copy} that differs from {source}, but config.json ties "
                        "them: set tie_word_embeddings to false there"
                    )
        return weights

    def read_config(self, content: ClassConfig, weights: Tensors) -> ResolvedModel:
        """Convert a config.json to a resolved config; ``weights`` come from ``prepare``.

        Raises CheckpointError, naming the field, where a recipe cannot express it.
        """
        fields = {**self.always, **content.ours, **self.particular(content, weights)}
        if self.answers == "labels":
            fields["label_outputs"] = len(label_words(content))
        return content.resolve(fields)

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Convert fields that depend on several of config.json, or on the tensors.

        Raises CheckpointError where they contradict each other.
        """
        return {}

    def required_fields(self, config: ResolvedModel) -> Fields:
        """Return the fields required by the class, with values (see ``expand``)."""
        required = dict(self.always)
        if "embedding_scale" in required:
            # Scaled embeddings become a plain table, separate from the output matrix.
            required["tie_embeddings"] = config.tie_embeddings and config.embedding_scale == "none"
        if required.get("share") == "none":
            required |= {"share_groups": 1, "share_inner": 1}
        return required

    def write_config(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Convert an expanded config to a config.json, without training-only fields.

        Raises ConfigError where the class cannot have the model's special ids.
        """
        return {
            "architectures": [self.oracle(config).name],
            "model_type": self.model_type,
            **self.fields.write(config),
            **self.constants,
            **self.written(config, tokenizer),
            "dtype": "float32",
        }

    def written(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Return the special ids, and derived fields."""
        return {}

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the class's tensors with an expanded model's, optional ones included."""
        for ours, theirs in self.parts:
            is_tensor = ours.endswith((".weight", ".bias"))
            yield from [Pair((theirs,), ours)] if is_tensor else pair_linear(theirs, ours)
        names = self.block_names(config)
        yield from pair_blocks(config, self.unit, names, is_transposed=self.is_transposed)

    def block_names(self, config: ResolvedModel) -> Mapping[str, BlockNames]:
        """Return the names of a block's parts, by the kind of sub-layer."""
        return self.block

    def oracle(self, config: ResolvedModel) -> Oracle:
        """Return the class with which logits are compared."""
        if self.answers in self.answering:
            outputs = self.answering[self.answers].outputs
            return Oracle(self.title, outputs, has_choices=self.answers == "choices")
        return Oracle(self.name + self.predicts, {"logits": "logits"})

    def describe_unanswered(self, task: Task) -> str | None:
        """Describe the inputs of a task where they exceed the classes'."""
        return None

    def settle(self, config: ResolvedModel, weights: Tensors) -> dict[str, Tensor]:
        """Return an expanded model's weights for an equivalent model of the class."""
        return dict(weights)

    def copies(self, config: ResolvedModel) -> Mapping[str, str]:
        """Return the tensors in a file besides those of ``pairs``, copies of others."""
        return {}

    def tokenizer_files(self, tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
        """Return the files of a tokenizer, which reads texts up to ``max_len``."""
        return {}

    def read_tokenizer(self, folder: Path, *, vocab_size: int) -> Tokenizer | None:
        """Read the tokenizer of a folder; None where there is none."""
        return read_tokenizer(folder, vocab_size=vocab_size)

    def describe_unread(self, folder: Path) -> str | None:
        """Return why a folder's tokenizer is not read; None where it is, or is missing."""
        return None
