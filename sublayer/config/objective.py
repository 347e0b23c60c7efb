"""``[objective]``: what the model is trained to do; a union by ``kind``."""

from typing import Literal

from sublayer.config.table import Table, field


class CausalObjective(Table):
    """Predict the next token at every position."""

    kind: Literal["causal"] = field("causal", "causal: the next token at every position.", selects=True)


ObjectiveConfig = CausalObjective
OBJECTIVES: dict[str, type[Table]] = {"causal": CausalObjective}
