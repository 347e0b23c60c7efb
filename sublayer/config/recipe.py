"""A recipe: everything that a run is made of; the same with every derived field resolved."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeVar, Union

from pydantic import Field, model_validator

from sublayer.config.data import DataConfig
from sublayer.config.model import ModelConfig
from sublayer.config.objective import CausalObjective, MaskedObjective, ObjectiveTable
from sublayer.config.optimizers import AdamWConfig, OptimizerConfig
from sublayer.config.span import SpanObjective
from sublayer.config.supervised import SupervisedObjective
from sublayer.config.table import Table, field
from sublayer.config.train import InitConfig, TrainConfig
from sublayer.config.translation import TranslationObjective

OBJECTIVES: dict[str, type[ObjectiveTable]] = {
    "causal": CausalObjective,
    "masked": MaskedObjective,
    "translation": TranslationObjective,
    "span": SpanObjective,
    "supervised": SupervisedObjective,
}
NEXT_TOKEN = CausalObjective()

if TYPE_CHECKING:
    # Code outside an objective's own folder asks of it only methods that every objective has.
    ObjectiveConfig = ObjectiveTable
else:
    _AnyObjective = Union[tuple(OBJECTIVES.values())]  # noqa: UP007
    ObjectiveConfig = Annotated[_AnyObjective, Field(discriminator="kind")]


class Recipe(Table):
    """A model, its data and its training: the tables of a recipe file."""

    title: str = field("", "Title, in a line.")
    source: str = field("", "Paper and section it follows.")
    cost: str = field("", "Cost of a run, in words.")
    model: ModelConfig = Field(default_factory=ModelConfig, description="The architecture.")
    data: DataConfig = Field(default_factory=DataConfig, description="Texts, tokens and batches.")
    objective: ObjectiveConfig = Field(
        default_factory=CausalObjective, description="The training objective."
    )
    optimizer: OptimizerConfig = Field(
        default_factory=AdamWConfig, description="How weights change."
    )
    train: TrainConfig = Field(
        default_factory=TrainConfig, description="Length, batches, evaluations and checkpoints."
    )
    init: InitConfig = Field(default_factory=InitConfig, description="What training starts from.")


AnyTable = TypeVar("AnyTable", bound=Table)


class ResolvedModel(ModelConfig):
    """A model whose derived fields have values; the decoder's own are None where there is none."""

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
        return _check(self, _MODEL_FIELDS)


class ResolvedTrain(TrainConfig):
    """Length of a run and its intervals, in steps, sequences and tokens."""

    if TYPE_CHECKING:
        steps: int
        batch_sequences: int
        micro_batch_sequences: int
        evaluate_steps: int
        evaluate_tokens: int
        checkpoint_steps: int
        log_steps: int
        threads: int

    @property
    def n_micro_batches(self) -> int:
        """Into how many micro-batches ``exact`` divides every step."""
        return -(-self.batch_sequences // self.micro_batch_sequences)

    @model_validator(mode="after")
    def _check_derived(self) -> Self:
        return _check(self, _TRAIN_FIELDS)


class ResolvedRecipe(Recipe):
    """A recipe that leaves nothing open: all settings of a run, as its folder keeps them."""

    model: ResolvedModel
    train: ResolvedTrain

    @model_validator(mode="after")
    def _check_derived(self) -> Self:
        _check(self.optimizer, ("warmup_steps",))
        return self


def resolved_recipe(
    given: Recipe, model: ResolvedModel, train: ResolvedTrain, optimizer: OptimizerConfig
) -> ResolvedRecipe:
    """Build a recipe with its tables resolved; title and text are as given."""
    objective = given.objective.resolve(given.data.context)
    tables = {"model": model, "train": train, "optimizer": optimizer, "objective": objective}
    return ResolvedRecipe.model_validate({**dict(given), **tables})


def as_resolved(recipe: Recipe) -> ResolvedRecipe:
    """Return a recipe as one that leaves nothing open.

    Raises pydantic's ValidationError where a derived field has no value.
    """
    model = ResolvedModel.model_validate(dict(recipe.model))
    train = ResolvedTrain.model_validate(dict(recipe.train))
    return resolved_recipe(recipe, model, train, recipe.optimizer)


def _derived(table: type[Table], without: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the fields that are derived where they are unset."""
    declared = {name: info.json_schema_extra for name, info in table.model_fields.items()}
    return tuple(
        name
        for name, extra in declared.items()
        if isinstance(extra, dict) and "derived" in extra and name not in without
    )


_MODEL_FIELDS = _derived(ModelConfig, without=("n_decoder_layers", "decoder_block"))
_TRAIN_FIELDS = _derived(TrainConfig)


def _check(table: AnyTable, names: tuple[str, ...]) -> AnyTable:
    unset = [name for name in names if getattr(table, name) is None]
    if unset:
        raise ValueError(f"{', '.join(unset)} have no value")
    return table
