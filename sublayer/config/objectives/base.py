"""The base of every kind of objective's table, without tensors."""

from typing import ClassVar, Literal, NamedTuple, Protocol, Self

from sublayer.config.data import DataConfig
from sublayer.config.model import ModelConfig
from sublayer.config.objectives.losses import Loss
from sublayer.config.table import Table
from sublayer.config.text.corpora import PARALLEL_CORPORA, source_names
from sublayer.config.train import InitConfig, TrainConfig
from sublayer.errors import ConfigError

ModelKind = Literal["decoder", "encoder", "encoder-decoder", "lstm"]
TextUse = Literal["windows", "sentences", "pairs", "tasks"]
"""What a row of a batch holds: a window of the text, its sentences, a text in two languages, or an
example of a task."""


class Lengths(NamedTuple):
    """Tokens of an example: of what an encoder reads for a decoder, and of what is predicted."""

    read: int
    written: int


class OtherTables(Protocol):
    """The tables of a recipe that an objective is checked against."""

    @property
    def model(self) -> ModelConfig:
        """Return what is computed."""

    @property
    def data(self) -> DataConfig:
        """Return what it is computed on."""

    @property
    def train(self) -> TrainConfig:
        """Return how long, in what batches, what is kept."""

    @property
    def init(self) -> InitConfig:
        """Return what training starts from."""


class ObjectiveTable(Table):
    """A table ``[objective]``: its fields, their checks, and what counts and estimates read."""

    kind: str
    model_kinds: ClassVar[tuple[ModelKind, ...]] = ("decoder", "lstm")
    text: ClassVar[TextUse] = "windows"
    gathers_positions: ClassVar[bool] = True
    """Whether states are read at positions that a batch lists, and not at all of them."""
    is_scored_in_windows: ClassVar[bool] = False
    """Whether a text is scored in windows, whose distance says how much context tokens have."""
    is_probed: ClassVar[bool] = False
    """Whether its models predict text, and so can be asked zero-shot probes."""
    evaluated: ClassVar[tuple[str, ...]] = ("loss",)
    """The metrics of an evaluation during training, where the objective alone tells."""
    scores_whole_split: ClassVar[bool] = False
    """Whether every evaluation scores all of a split, and not ``train.evaluate_tokens`` of it."""

    def evaluations(self, data: DataConfig) -> tuple[str, ...]:
        """Return the metrics of an evaluation during training; the loss is the first."""
        return self.evaluated

    def check(self, recipe: OtherTables) -> None:
        """Raise ConfigError, naming both fields, where the objective contradicts the recipe."""
        if recipe.model.kind not in self.model_kinds:
            kinds = " or ".join(self.model_kinds)
            raise ConfigError(
                f"objective.kind = {self.kind} trains a model.kind = {kinds}, not "
                f"{recipe.model.kind}: give another objective, or that kind of model"
            )
        if recipe.model.head == "none":
            head = "transform" if recipe.model.kind == "encoder" else "linear"
            raise ConfigError(
                f"objective.kind = {self.kind} predicts tokens, for which model.head = none has "
                f"no head: give model.head={head}"
            )
        if self.text != "pairs":
            self._check_is_text(recipe)

    def trains_kind(self, kind: str) -> bool:
        """Return whether models of a kind can be trained at all."""
        return kind in self.model_kinds

    def resolve(self, context: int) -> Self:
        """Return the table with what it derives from ``data.context`` filled in."""
        return self

    def lengths(self, context: int) -> Lengths:
        """Return the greatest lengths of an example where ``data.context`` is ``context``.

        Two differ where an encoder-decoder reads more, or less, than it writes; a model of one
        stack has both alike.
        """
        return Lengths(context, context)

    def n_sentinels(self, context: int) -> int:
        """Count the sentinels that a window takes, which stand for the gaps of a text."""
        return 0

    def n_predictions(self, context: int) -> int:
        """Count the positions of a window of ``context`` tokens that predict a token."""
        return context

    def reads_texts_alone(self) -> bool:
        """Return whether nothing but what stands for a text is read, where heads read no more."""
        return False

    def n_classifiers(self) -> tuple[int, int]:
        """Count the training-only classifiers of each block below the last, and of the last."""
        return 0, 0

    def mean_classifiers(self, n_layers: int) -> float:
        """Compute the mean number of training-only classifiers of a step, over the whole run.

        ``n_layers`` counts the blocks of the model.
        """
        return 0.0

    def n_ids(self, context: int) -> int:
        """Count the ids that a row of a batch is certain to have, its targets included."""
        return context

    def trains(self, head: str) -> bool:
        """Return whether a head that the model has, by its name in ``HEADS``, has a loss."""
        return True

    def reads(self) -> str:
        """Say what the first stack of a model reads."""
        return "tokens"

    def losses(self) -> tuple[Loss, ...]:
        """Return what is learned, a loss each; the first is of the model's own next output."""
        return (Loss(self.kind),)

    def _check_is_text(self, recipe: OtherTables) -> None:
        if recipe.data.tasks is not None:
            raise ConfigError(
                f"data.tasks = {', '.join(recipe.data.task_names)} is read by objective.kind = "
                f"supervised, not {self.kind}: leave it out"
            )
        if recipe.data.is_parallel:
            raise ConfigError(
                f"data.source_language = {recipe.data.source_language:.40} makes the text pairs, "
                f"which objective.kind = {self.kind} does not read: leave it out"
            )
        for name in source_names(recipe.data.corpus):
            if name in PARALLEL_CORPORA:
                raise ConfigError(
                    f"data.corpus = {name} is translations, which objective.kind = {self.kind} "
                    "does not read"
                )
