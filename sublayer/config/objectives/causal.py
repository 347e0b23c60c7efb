"""The table of causal language modelling: predict the next token at every position."""

from typing import ClassVar, Literal

from sublayer.config.limits import LARGEST_FACTOR
from sublayer.config.objectives.base import ObjectiveTable, OtherTables
from sublayer.config.objectives.losses import Loss
from sublayer.config.table import field
from sublayer.counts import count
from sublayer.errors import ConfigError


class CausalObjective(ObjectiveTable):
    """Predict the next token at every position."""

    gathers_positions: ClassVar[bool] = False
    evaluated: ClassVar[tuple[str, ...]] = ("loss", "bits_per_byte")
    is_scored_in_windows: ClassVar[bool] = True
    is_probed: ClassVar[bool] = True

    kind: Literal["causal"] = field("causal", "Predict the next token at every position.")
    positions: Literal["all", "last"] = field(
        "all",
        "Positions of a window that predict: all, or only the last, which sees the whole context.",
    )
    position_reduction: Literal["mean", "sum"] = field(
        "mean",
        "How the losses of a window's positions make the one that is trained: their mean, or their "
        "sum, averaged over the windows of a batch. Losses are logged as means.",
        needs={"positions": ("all",)},
    )
    targets: int = field(
        1,
        "Tokens ahead that each position predicts; those beyond the next by training-only "
        "classifiers.",
        unit="tokens",
        ge=1,
        le=1000,
    )
    target_weight: float = field(
        0.5, "Weight of the loss of each token beyond the next.", gt=0.0, le=LARGEST_FACTOR
    )
    z_loss: float = field(
        0.0,
        "Weight, in training alone, of (log Z)^2 of each prediction by the model's own head: Z is "
        "the denominator of its softmax (T5: 1e-4).",
        ge=0.0,
        le=LARGEST_FACTOR,
    )
    auxiliary: Literal["none", "layers"] = field(
        "none",
        "layers: every block below the last predicts too, by training-only classifiers of its own.",
    )
    auxiliary_stop: float = field(
        0.5,
        "Share of the run over which the blocks' losses stop, the lowest first: block l of n's "
        "after l / n of it.",
        unit="share",
        needs={"auxiliary": ("layers",)},
        gt=0.0,
        le=1.0,
    )
    auxiliary_reduction: Literal["sum", "mean"] = field(
        "sum",
        "How the losses of the blocks that still have one and of the model's end add up.",
        needs={"auxiliary": ("layers",)},
    )

    def check(self, recipe: OtherTables) -> None:
        """Raise ConfigError, naming both fields, where the objective contradicts the recipe."""
        super().check(recipe)
        context = recipe.data.context
        if self.targets > context:
            raise ConfigError(
                f"objective.targets = {self.targets} is more than data.context = {context}: "
                "give fewer targets or a longer context"
            )
        stride = recipe.train.evaluate_stride
        if stride is not None and stride > context:
            raise ConfigError(
                f"train.evaluate_stride = {stride} is more than data.context = {context}, which "
                "would leave tokens out: give a smaller stride"
            )
        if recipe.data.sentences != "none":
            raise ConfigError(
                f"data.sentences = {recipe.data.sentences} contradicts objective.kind = causal, "
                "which reads the text as it is: leave it out"
            )

    def n_predictions(self, context: int) -> int:
        """Count the positions of a window of ``context`` tokens that predict a token."""
        return context if self.positions == "all" else 1

    def n_classifiers(self) -> tuple[int, int]:
        """Count the training-only classifiers of each block below the last, and of the last."""
        below = self.targets if self.auxiliary == "layers" else 0
        # The first target of the last block is the model's own head.
        return below, self.targets - 1

    def mean_classifiers(self, n_layers: int) -> float:
        """Compute the mean number of training-only classifiers of a step, over the whole run.

        ``n_layers`` counts the blocks of the model.
        """
        below, last = self.n_classifiers()
        # That of block l of n counts for a share l / n of the run up to the stop: over the blocks
        # below the last, these shares add up to (n - 1) / 2.
        return last + below * self.auxiliary_stop * (n_layers - 1) / 2

    def n_ids(self, context: int) -> int:
        """Count the ids that a row of a batch is certain to have, its targets included."""
        return context + self.targets

    def losses(self) -> tuple[Loss, ...]:
        """Return what is learned: next tokens, by the last block and by those below it."""
        notes = [] if self.positions == "all" else ["at the last position"]
        if self.z_loss:
            notes.append(f"and z-loss × {self.z_loss:g}")
        found = [Loss("next token", notes=tuple(notes))]
        further = _ahead(self.targets)
        weight = f"weight {self.target_weight:g}"
        if further:
            each = f"{weight} each" if self.targets > 2 else weight
            found.append(Loss(further, None, (each,)))
        if self.auxiliary == "layers":
            said = [f"and {further} × {self.target_weight:g}"] if further else []
            said += [
                "by classifiers of its own",
                "layer l of n has one",
                f"for the first {self.auxiliary_stop:g} l/n of the run",
            ]
            if self.auxiliary_reduction == "mean":
                said.append("the mean of the layers counts")
            found.append(Loss("next token", None, tuple(said), is_of_each_layer=True))
        return tuple(found)


def _ahead(targets: int) -> str:
    if targets == 1:
        return ""
    if targets == 2:
        return "the token after it"
    return f"the {count(targets - 1, 'token')} after it"
