"""What may choose the checkpoint that becomes the model, and which direction is good."""

from sublayer.tasks.registry import TASKS

LAST = "last"
"""Nothing chooses: the last checkpoint becomes the model."""
LOWER_IS_BETTER = ("loss", "perplexity", "bits_per_byte")
"""Of all others more is better."""
_OF_TASKS = tuple(dict.fromkeys(name for task in TASKS.values() for name in task.metrics))
SELECTORS = (
    *LOWER_IS_BETTER,
    "bleu",
    "mlm_accuracy",
    "nsp_accuracy",
    "sop_accuracy",
    "score",
    *_OF_TASKS,
    LAST,
)
"""All choices of ``train.best_by``; an objective has some of them."""


def is_better(name: str, value: float, best: float) -> bool:
    """Return whether a value of a metric is strictly better than the best so far."""
    return value < best if name in LOWER_IS_BETTER else value > best
