"""The base of families: classes of transformers, their answers to tasks, their folders."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from sublayer.config.recipe import ResolvedModel
from sublayer.config.table import MOST_LABELS
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.settings import CONFIG_NAME
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
from sublayer.interop.generation import generation_file, template_settings
from sublayer.interop.tokenizers import read_tokenizer, settings_file
from sublayer.interop.weight_map import BlockNames, Pair, pair_blocks, pair_linear
from sublayer.model.model_folder import spec_files
from sublayer.objective.supervised.heads import BIAS, WEIGHT, to_numbers
from sublayer.tasks.own_table import METRICS
from sublayer.tasks.own_table import NAME as TABLE
from sublayer.tasks.registry import TaskSpec
from sublayer.tasks.task import Kind, Task
from sublayer.text_model import TextModel

Answers = Literal["tokens", "labels", "choices", "spans"]
"""The outputs of a model: tokens, or a task's labels (or a number), choices or spans."""
REGRESSION, CLASSIFICATION = "regression", "single_label_classification"
_INDEPENDENT = "multi_label_classification"
IMPORTED = "imported"
"""The name of a task that its folder does not name."""
_FIELDS: dict[Kind, tuple[str, ...]] = {"span": ("context", "question")}
_FORMATS: dict[str, Any] = {"encoder": "pair", "decoder": "traversal"}


def _words(value: Any) -> Any:
    """Check a table of labels: words by their numbers, which JSON holds as strings."""
    words = list(value.values()) if type(value) is dict else []
    are_words = all(type(word) is str and word.strip() and word.isprintable() for word in words)
    numbers = {str(index) for index in range(len(words))}
    if not words or len(words) > MOST_LABELS or set(value) != numbers or not are_words:
        raise ValueError(
            f"is not a table of labels: a word for each number from 0, up to {MOST_LABELS:,} labels"
        )
    if len(set(words)) < len(words):
        raise Unsayable("two labels have the same name")
    return value


def _problem(value: Any) -> Any:
    if one_of((REGRESSION, CLASSIFICATION, _INDEPENDENT))(value) == _INDEPENDENT:
        raise Unsayable("only mutually exclusive labels, or a number")
    return value


LABELS = {"id2label": Field(None, optional(_words)), "num_labels": Field(2, whole(MOST_LABELS))}
"""Fields of config.json that name a head's outputs."""
TYPED_LABELS = {**LABELS, "problem_type": training_only(None, optional(_problem))}
"""The fields of ``LABELS`` and the kind of problem."""


def default_words(n_labels: int) -> tuple[str, ...]:
    """Return transformers' default names of labels."""
    return tuple(f"LABEL_{index}" for index in range(n_labels))


def label_words(content: ClassConfig) -> tuple[str, ...]:
    """Return the labels of a head's outputs; raise CheckpointError for two numbers of them."""
    words = content.fields["id2label"]
    if words is None:
        return default_words(content.fields["num_labels"])
    n_labels = content.computed.get("num_labels", len(words))
    if n_labels != len(words):
        raise content.error(f"num_labels = {n_labels} contradicts id2label: leave it out")
    return tuple(words[str(index)] for index in range(len(words)))


def task_of(
    kind: Kind,
    labels: tuple[str, ...],
    config: ResolvedModel,
    *,
    numbers: tuple[float, float] = (-1.0, 1.0),
) -> TaskSpec:
    """Build an unnamed task; ``numbers`` are the scores at which a head gives -1 and 1."""
    names, metrics = _FIELDS.get(kind, ("text",)), METRICS[kind]
    more: Any = {"labels": labels, "numbers": numbers, "is_bounded": kind != "number"}
    task = Task(IMPORTED, IMPORTED, TABLE, kind, names, metrics, **more)
    return TaskSpec((task,), _FORMATS[config.kind], config.max_len)


Fields = dict[str, Any]
Tensors = Mapping[str, Tensor]
NO_OTHER_HEAD: Fields = {
    "head": "none", "softmax": "tokens", "head_activation": "ffn", "head_bias": False,
    "output_scale": "none", "logit_cap": "none", "sentence_classes": 0,
}  # fmt: skip
"""Fields of a model that has only the head of its task."""


def as_labels(
    config: ResolvedModel, weights: Tensors, task: Task | None
) -> tuple[ResolvedModel, dict[str, Tensor]]:
    """Return a config and weights with a row for each of two labels, and a number on its scale."""
    scaled = to_numbers(weights, task)
    if task is not None and task.kind == "classes" and config.label_outputs == 1:
        config = config.model_copy(update={"label_outputs": 2})
        for name in (WEIGHT, BIAS):
            scaled[name] = torch.cat([torch.zeros_like(scaled[name]), scaled[name]])
    return config, scaled


def label_fields(config: ResolvedModel, task: Task | None) -> Fields:
    """Return the fields of config.json that name a classifier's labels."""
    words = (task.labels if task else ()) or default_words(config.label_outputs)
    problem = None if config.label_outputs == 1 and task is None else CLASSIFICATION
    if task is not None and task.kind == "number":
        problem = REGRESSION
    return {
        "id2label": {str(index): word for index, word in enumerate(words)},
        "label2id": {word: index for index, word in enumerate(words)},
        "problem_type": problem,
    }


@dataclass(frozen=True)
class Oracle:
    """A class of transformers, with the mapping of its outputs to ours."""

    name: str
    outputs: Mapping[str, str]
    """Our names of outputs, by theirs."""
    has_choices: bool = False
    """True where the rows of its input are the choices of one example."""
    skips_padding: bool = False
    """True where a token of the padding id has no position, whatever the mask says."""


Named = tuple[str, Mapping[str, str]]
"""Ending of a class's name, and our names of its outputs, by theirs."""
NAMED: Mapping[Answers, Named] = {
    "labels": ("ForSequenceClassification", {"logits": "label_logits"}),
    "choices": ("ForMultipleChoice", {"logits": "choice_logits"}),
    "spans": ("ForQuestionAnswering", {each: each for each in ("start_logits", "end_logits")}),
}
"""Those of most classes that answer tasks."""


@dataclass(frozen=True)
class Answering:
    """A class of transformers that answers a kind of task."""

    always: Fields
    """Fields of every model of the class."""
    named: Named | None = None
    """Its names, where they are not those of most classes."""
    heads: tuple[str, ...] = ()
    """Prefixes of the names of heads; by default those of ``parts``."""
    left_out: Fields = field(default_factory=lambda: NO_OTHER_HEAD)
    """Fields that switch off the heads that the class lacks."""
    fields: Mapping[str, Field] = field(default_factory=dict)
    """Fields of its config.json that the family's other classes do not read."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Names of maps and norms that differ from the family's ``parts``, by ours."""


class Family:
    """Classes of transformers, one per kind of output; names of tensors omit the prefix."""

    model_type: str
    name: str
    """Prefix of the names of classes."""
    title: str
    """The model's name in errors; for a class that answers a task, the class's name."""
    predicts = "ForConditionalGeneration"
    """Ending of the name of the class that predicts tokens."""
    fields: ClassFields
    constants: Fields = {}
    """Fields of config.json that are always written with the same value."""
    always: Fields
    """Fields of every model of the class that config.json leaves out."""
    exceptions: Table = {}
    """Values that the class supports beyond those given by ``fields`` and ``always``. Any other
    field of a model must have its default."""
    answering: Mapping[Answers, Answering] = {}
    prefix: str
    """Prefix of tensor names in a file, except of heads."""
    heads: tuple[str, ...]
    """Prefixes of the names of heads; the first head answers a task."""
    unread: Mapping[str, str] = {}
    """Beginnings of the names of heads that an import leaves out, and what these heads do."""
    roles: Mapping[str, str] = {
        "bos_token_id": "cls_id", "eos_token_id": "sep_id", "pad_token_id": "pad_id",
    }  # fmt: skip
    """Fields of special ids, and the attributes of a tokenizer that they hold."""
    ties: Mapping[str, str] = {}
    """Copies, by name, and the tensors that they equal where config.json ties them."""
    parts: tuple[tuple[str, str], ...]
    """Names of our maps, norms and tensors outside blocks, and theirs; a model may lack some. An
    empty name is of one that is zeros."""
    unit: str
    """Prefix of a sub-layer's names."""
    block: Mapping[str, BlockNames]
    """Names of a sub-layer's norm and maps, by its kind."""

    def __init__(self, answers: Answers = "tokens") -> None:
        self.answers = answers
        table = {**COMMON, **self.fields.rows(), **rows_of(self.always), **self.exceptions}
        if answers != "tokens":
            row = self.answering[answers]
            ending, self.outputs = row.named or NAMED[answers]
            self.title = self.name + ending
            self.heads = row.heads or tuple(f"{name}." for name in row.parts.values())
            self.parts = tuple((dict(self.parts) | dict(row.parts)).items())
            self.always = {**self.always, **row.left_out, **row.always}
            self.fields = replace(self.fields, fields={**self.fields.fields, **row.fields})
            table |= {**dict.fromkeys(row.left_out, ANY), **rows_of(row.always)}
        if answers == "labels":
            table["label_outputs"] = ANY
        self.table: Table = table
        """Models that the class can represent."""

    def is_ignored(self, name: str) -> bool:
        """Return whether a tensor holds no weights, or those of a head that is left out."""
        return name.startswith((*self.unread,))

    def prepare(self, content: ClassConfig, tensors: Tensors) -> dict[str, Tensor]:
        """Settle ties, old names and copies; raise CheckpointError where tied tensors differ."""
        weights = dict(tensors)
        ties = self.ties if content.fields["tie_word_embeddings"] else {}
        for copy, source in ties.items():
            if copy not in weights:
                continue
            tensor = weights.pop(copy)
            original = weights.setdefault(source, tensor)
            if original is not tensor and not torch.equal(original, tensor):
                how = "config.json ties them: set tie_word_embeddings to false there"
                raise CheckpointError(f"{copy} and {source} differ in the weights, but {how}")
        return weights

    def read_config(self, content: ClassConfig, weights: Tensors) -> ResolvedModel:
        """Convert a config.json; raise CheckpointError, with the field, where no recipe can."""
        fields = {**self.always, **content.ours, **self.particular(content, weights)}
        if self.answers == "labels":
            fields["label_outputs"] = len(label_words(content))
        return content.resolve(fields)

    def particular(self, content: ClassConfig, weights: Tensors) -> Fields:
        """Convert fields that depend on several, or on tensors; raise CheckpointError."""
        return {}

    def required_fields(self, config: ResolvedModel) -> Fields:
        """Return the fields required by the class, with values (see ``expand``)."""
        required = dict(self.always)
        if required.get("embedding_scale") == "none":
            # Scaled embeddings become a plain table, separate from the output matrix.
            required["tie_embeddings"] = config.tie_embeddings and config.embedding_scale == "none"
        if required.get("share") == "none":
            required |= {"share_groups": 1, "share_inner": 1}
        return required

    def write_config(self, config: ResolvedModel, tokenizer: Tokenizer | None) -> Fields:
        """Convert an expanded config to a config.json; raise ConfigError for ids it cannot have."""
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
        return {name: getattr(tokenizer, role, None) for name, role in self.roles.items()}

    def pairs(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the class's tensors with an expanded model's, optional ones included."""
        for ours, theirs in self.parts:
            is_tensor, names = ours.endswith((".weight", ".bias")), (theirs,) if theirs else ()
            yield from [Pair(names, ours)] if is_tensor else pair_linear(names, ours)
        yield from self.pairs_of_blocks(config)

    def pairs_of_blocks(self, config: ResolvedModel) -> Iterator[Pair]:
        """Pair the tensors of blocks."""
        return pair_blocks(config, self.unit, self.block_names(config))

    def block_names(self, config: ResolvedModel) -> Mapping[str, BlockNames]:
        """Return the names of a block's parts, by the kind of sub-layer."""
        return self.block

    def oracle(self, config: ResolvedModel) -> Oracle:
        """Return the transformers class to compare logits with."""
        if self.answers != "tokens":
            return Oracle(self.title, self.outputs, has_choices=self.answers == "choices")
        return Oracle(self.name + self.predicts, {"logits": "logits"})

    def describe_unanswered(self, task: Task) -> str | None:
        """Describe the inputs of a task where the class cannot read them; None where it can."""
        return None

    def settle(
        self, config: ResolvedModel, weights: Tensors, tokenizer: Tokenizer | None = None
    ) -> dict[str, Tensor]:
        """Return an expanded model's weights for an equivalent model of the class."""
        return dict(weights)

    def copies(self, config: ResolvedModel) -> Mapping[str, str]:
        """Return the copies that a file holds besides the tensors of ``pairs``."""
        return {}

    def tokenizer_files(self, tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
        """Return the files of a tokenizer for texts of up to ``max_len`` tokens."""
        return {}

    def folder_files(
        self, text_model: TextModel, described: Fields, config: ResolvedModel
    ) -> dict[str, bytes]:
        """Return all files but weights; ``described`` is the config.json of the full ``config``."""
        tokenizer, spec = text_model.tokenizer, text_model.task
        context = config.max_len if spec is None else spec.context
        files = spec_files(spec) | self.tokenizer_files(tokenizer, max_len=context or int(1e30))
        if self.answers == "tokens" and config.kind in ("decoder", "encoder-decoder"):
            files |= generation_file(described, text_model.generation, max_len=config.max_len)
        if CONFIG_NAME in files:
            settings = json.loads(files[CONFIG_NAME]) | template_settings(text_model.generation)
            is_padded = tokenizer is not None and tokenizer.pad_id is not None
            if spec is not None and spec.pad_id is not None and not is_padded:
                # This padding only substitutes for the config's own.
                settings.pop("pad_token", None)
            files[CONFIG_NAME] = settings_file(settings)
        return files

    def read_tokenizer(self, folder: Path, *, vocab_size: int) -> Tokenizer | None:
        """Read a folder's tokenizer; None without one."""
        return read_tokenizer(folder, vocab_size=vocab_size)

    def describe_unread(self, folder: Path) -> str | None:
        """Return why a folder's tokenizer cannot be read; None where it can, or is missing."""
        return None
