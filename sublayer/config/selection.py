"""What may choose the checkpoint that becomes the model, and which direction is good."""

from collections.abc import Mapping

from sublayer.tasks.own_table.task import METRICS
from sublayer.tasks.registry import TASKS

LAST = "last"
"""Nothing chooses: the last checkpoint becomes the model."""
LOWER_IS_BETTER = ("loss", "perplexity", "bits_per_byte")
"""Of all others more is better."""
_OF_TASKS = tuple(dict.fromkeys(name for task in TASKS.values() for name in task.metrics))
_OF_TEXTS = METRICS["text"]
SELECTORS = (
    *LOWER_IS_BETTER,
    "bleu",
    "mlm_accuracy",
    "nsp_accuracy",
    "sop_accuracy",
    "score",
    *_OF_TASKS,
    *_OF_TEXTS,
    LAST,
)
"""All choices of ``train.best_by``; an objective has some of them."""


def is_better(name: str, values: Mapping[str, float], best: Mapping[str, float]) -> bool:
    """Return whether an evaluation is better than the best so far, by a metric of both.

    Of two that are alike the one of lower loss is, where both have one: small tasks have few
    different scores, and the first model with the best of them is the least trained. Otherwise, as
    where the loss decides, the earlier one stays.
    """
    value, other = values[name], best[name]
    if value == other and {"loss"} <= values.keys() & best.keys():
        return values["loss"] < best["loss"]
    return value < other if name in LOWER_IS_BETTER else value > other
