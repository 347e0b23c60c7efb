"""Recipe: the settings of a run, also resolved; its tables and fields by name."""

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import getsource
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar, Union

from pydantic import Field, model_validator
from pydantic.fields import FieldInfo

from sublayer.config.data import DataConfig
from sublayer.config.model import ModelConfig, as_norm_parts
from sublayer.config.objective import (
    CausalObjective,
    MaskedObjective,
    ObjectiveTable,
    SpanObjective,
    SupervisedObjective,
    TranslationObjective,
)
from sublayer.config.optimizers import OPTIMIZERS, AdamWConfig, OptimizerConfig
from sublayer.config.table import Table
from sublayer.config.train import InitConfig, TrainConfig
from sublayer.errors import nearest

OBJECTIVES: dict[str, type[ObjectiveTable]] = {
    "causal": CausalObjective,
    "masked": MaskedObjective,
    "translation": TranslationObjective,
    "span": SpanObjective,
    "supervised": SupervisedObjective,
}
NEXT_TOKEN = CausalObjective()

if TYPE_CHECKING:
    # Code outside an objective's folder uses only methods that every objective has.
    ObjectiveConfig = ObjectiveTable
else:
    _AnyObjective = Union[tuple(OBJECTIVES.values())]  # noqa: UP007
    ObjectiveConfig = Annotated[_AnyObjective, Field(discriminator="kind")]


class Recipe(Table):
    """Recipe of a model, its data and its training: the tables of a recipe file."""

    title: str = Field("", description="Title, in a line.")
    source: str = Field("", description="Paper and section it follows.")
    cost: str = Field("", description="Cost of a run, in words.")
    model: ModelConfig = Field(default_factory=ModelConfig, description="The architecture.")
    data: DataConfig = Field(default_factory=DataConfig, description="Texts, tokens and batches.")
    objective: ObjectiveConfig = Field(
        default_factory=CausalObjective, description="The training objective."
    )
    optimizer: OptimizerConfig = Field(
        default_factory=AdamWConfig, description="Optimizer and learning rate."
    )
    train: TrainConfig = Field(
        default_factory=TrainConfig, description="Length, batches, evaluations and checkpoints."
    )
    init: InitConfig = Field(default_factory=InitConfig, description="Initial weights of training.")

    def resolved(
        self, model: "ResolvedModel", train: "ResolvedTrain", optimizer: OptimizerConfig
    ) -> "ResolvedRecipe":
        """Build a recipe from resolved tables, with the title and data of ``given``."""
        objective = self.objective.resolve(self.data.context)
        tables = {"model": model, "train": train, "optimizer": optimizer, "objective": objective}
        return ResolvedRecipe.model_validate({**dict(self), **tables})


AnyTable = TypeVar("AnyTable", bound=Table)


class ResolvedModel(ModelConfig):
    """Model whose derived fields have values; fields of a separate decoder are None without one."""

    if TYPE_CHECKING:
        d_head: int
        d_ff: int
        d_embed: int
        norm_eps: float
        final_norm: Literal["affine", "plain", "none"]
        dropout_attention: float
        dropout_ffn: float
        dropout_embedding: float
        vocab_size: int
        max_len: int

    @model_validator(mode="after")
    def _check_derived(self) -> Self:
        return _check(self, _DERIVED["model"])


class ResolvedTrain(TrainConfig):
    """Length and intervals of a run, in steps, sequences and tokens."""

    if TYPE_CHECKING:
        steps: int
        batch_sequences: int
        micro_batch_sequences: int
        evaluate_steps: int
        evaluate_tokens: int
        checkpoint_steps: int
        log_steps: int
        threads: int
        replicas: int

    @property
    def n_micro_batches(self) -> int:
        """Number of micro-batches into which ``exact`` divides every step."""
        return -(-self.batch_sequences // self.micro_batch_sequences)

    @model_validator(mode="after")
    def _check_derived(self) -> Self:
        return _check(self, _DERIVED["train"])


class ResolvedRecipe(Recipe):
    """Recipe without open fields: all settings of a run, as stored in its folder."""

    model: ResolvedModel
    train: ResolvedTrain

    @model_validator(mode="after")
    def _check_derived(self) -> Self:
        _check(self.optimizer, ("warmup_steps",))
        return self


def _derived(table: type[Table], without: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the fields that are derived if unset."""
    declared = {name: info.json_schema_extra for name, info in table.model_fields.items()}
    return tuple(
        name
        for name, extra in declared.items()
        if isinstance(extra, dict) and "derived" in extra and name not in without
    )


_DERIVED = {
    "model": _derived(ModelConfig, without=("n_decoder_layers", "decoder_block")),
    "train": _derived(TrainConfig),
}


def _check(table: AnyTable, names: tuple[str, ...]) -> AnyTable:
    unset = [name for name in names if getattr(table, name) is None]
    if unset:
        raise ValueError(f"{', '.join(unset)} have no value")
    return table


RENAMED: dict[str, str] = {
    "data.longest_words": "data.max_words",
    "data.words_ratio": "data.max_words_ratio",
    "objective.alone": "objective.single_sentence",
    "objective.mask_most": "objective.max_predictions",
    "objective.ngram_longest": "objective.max_ngram",
}
"""Renamed fields: the old ``table.field`` to the new one."""
CONVERTED: dict[str, Callable[[Any], Any]] = {"model.embedding_norm": as_norm_parts}
"""Functions of the values that earlier versions wrote, by the field's current name."""


def current_name(key: str) -> str:
    """Return a field's current name, given its old or its current one."""
    return RENAMED.get(key, key)


def with_current_names(values: Mapping[str, Any], *, table: str = "") -> dict[str, Any]:
    """Return the values, as of today, by the current names of their fields, in the same order.

    The keys are ``table.field``, or the fields of ``table`` if that is given. An old name is kept
    if the new one is present as well, since the program never wrote both.
    """
    prefix = f"{table}." if table else ""
    names = {key: current_name(f"{prefix}{key}").removeprefix(prefix) for key in values}
    renamed = {
        (key if names[key] in values else names[key]): value for key, value in values.items()
    }
    for key, convert in CONVERTED.items():
        name = key.removeprefix(prefix)
        if name in renamed:
            renamed[name] = convert(renamed[name])
    return renamed


ADDED: dict[str, Callable[[Any], Any]] = {
    "model.n_kv_heads": lambda model: model.n_heads,
    "train.replicas": lambda train: 1,
}
"""Each derived field of the model or of training that earlier versions lacked: ``table.field`` to
its value in a table that was resolved without it."""


def with_added(name: str, table: AnyTable) -> AnyTable:
    """Fill in the fields of ``ADDED`` that a resolved table lacks; ``name`` is the table's.

    A table with another unset field is no resolved one, and stays as it is.
    """
    unset = [field for field in _DERIVED[name] if getattr(table, field) is None]
    if not unset or not ADDED.keys() >= {f"{name}.{field}" for field in unset}:
        return table
    values = {field: ADDED[f"{name}.{field}"](table) for field in unset}
    return table.model_copy(update=values)


TABLES: dict[str, Mapping[str, type[Table]]] = {
    "model": {"": ModelConfig},
    "data": {"": DataConfig},
    "objective": OBJECTIVES,
    "optimizer": OPTIMIZERS,
    "train": {"": TrainConfig},
    "init": {"": InitConfig},
}
"""Tables by their names in a recipe, then by kind; the kind is empty if a table has no kinds."""
HEADINGS = tuple(name for name in Recipe.model_fields if name not in TABLES)
"""Keys outside the tables, such as ``title``."""


def is_union(table: str) -> bool:
    """Return whether a table's fields depend on its ``kind``."""
    return "" not in TABLES[table]


def default_kind(table: str) -> str:
    """Return a table's kind if no layer sets one; empty if the table has no kinds."""
    if not is_union(table):
        return ""
    default: Any = Recipe.model_fields[table].default_factory
    return str(default.model_fields["kind"].default)


def declarations(key: str) -> dict[str, FieldInfo]:
    """Return the declarations of a field by the kind of its table; empty for an unknown key."""
    table, _, name = key.rpartition(".")
    classes = TABLES.get(table, {}) if table else {"": Recipe} if name in HEADINGS else {}
    return {
        kind: cls.model_fields[name] for kind, cls in classes.items() if name in cls.model_fields
    }


def declaration(key: str, kind: str = "") -> FieldInfo:
    """Return the declaration of a known field, for ``kind`` if it differs by kind."""
    by_kind = declarations(key)
    return by_kind.get(kind) or next(iter(by_kind.values()))


@cache
def _docstrings(module: str) -> dict[str, str]:
    """Return the docstrings of the fields of a module's tables, by ``Table.field``."""
    texts: dict[str, str] = {}
    tables = ast.parse(getsource(sys.modules[module])).body
    for table in (node for node in tables if isinstance(node, ast.ClassDef)):
        for statement, text in pairwise(table.body):
            if isinstance(statement, ast.AnnAssign) and isinstance(text, ast.Expr):
                key = f"{table.name}.{ast.unparse(statement.target)}"
                texts[key] = " ".join(str(ast.literal_eval(text.value)).split())
    return texts


def description(key: str, kind: str = "") -> str:
    """Return the description of a known field, for ``kind`` if it differs by kind."""
    table, _, name = key.rpartition(".")
    info = declaration(key, kind)
    if info.description:
        return info.description
    kinds = TABLES[table]
    bases = kinds.get(kind, kinds[next(iter(declarations(key)))]).__mro__
    tables = (base for base in bases if issubclass(base, Table))
    texts = (_docstrings(base.__module__).get(f"{base.__name__}.{name}") for base in tables)
    return next(filter(None, texts), "")


def extra(info: FieldInfo) -> dict[str, Any]:
    """Return the declarations of ``field`` that pydantic does not have: unit, needs, derived."""
    declared = info.json_schema_extra
    return declared if isinstance(declared, dict) else {}


def keys(table: str | None = None) -> tuple[str, ...]:
    """Return every ``table.field``, in the order of declaration, of one table or of all."""
    if not table:
        return tuple(key for heading in TABLES for key in keys(heading))
    names = [
        name
        for cls in TABLES[table].values()
        for name in ("kind", *cls.model_fields)
        if name in cls.model_fields
    ]
    return tuple(f"{table}.{name}" for name in dict.fromkeys(names))


def nearest_key(key: str) -> str | None:
    """Return the field that is most similar to an unknown key.

    The error may be in the field, in the table, or in both.
    """
    table, _, name = key.rpartition(".")
    # The first of several fields with the same name counts.
    by_name = {full_key.partition(".")[2]: full_key for full_key in reversed(keys())}
    names = [full_key.partition(".")[2] for full_key in keys(table)] if table in TABLES else []
    if near_here := nearest(name, names):
        return f"{table}.{near_here}"
    elsewhere = f"{nearest(table, TABLES)}.{name}"
    if elsewhere in keys():
        return elsewhere
    near_name = nearest(name, by_name)
    return by_name[near_name] if near_name else nearest(key, HEADINGS)
