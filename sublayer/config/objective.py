"""``[objective]``: what the model is trained to do; a union by ``kind``."""

from typing import Literal

from sublayer.config.table import Table, field


class CausalObjective(Table):
    """Predict the next token at every position."""

    kind: Literal["causal"] = field("causal", "causal: the next token at every position.", selects=True)
    positions: Literal["all", "last"] = field(
        "all", "Positions of a window that predict: all, or only the last, which sees the whole context."
    )
    targets: int = field(
        1,
        "Tokens ahead that each position predicts; those beyond the next by training-only classifiers.",
        unit="tokens",
        ge=1,
    )
    target_weight: float = field(0.5, "Weight of the loss of each token beyond the next.", gt=0.0)
    auxiliary: Literal["none", "layers"] = field(
        "none",
        "layers: every block below the last predicts too, by training-only classifiers of its own.",
        selects=True,
    )
    auxiliary_stop: float = field(
        0.5,
        "Share of the run over which the blocks' losses stop, the lowest first: block l of n's after l / n of it.",
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


ObjectiveConfig = CausalObjective
NEXT_TOKEN = CausalObjective()
OBJECTIVES: dict[str, type[Table]] = {"causal": CausalObjective}
