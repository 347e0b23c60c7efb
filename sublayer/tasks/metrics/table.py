"""The metrics of tasks, by name."""

from collections.abc import Sequence

from sublayer.tasks.metrics.classes import accuracy, accuracy_of, f1, macro_f1, matthews
from sublayer.tasks.metrics.groups import gender_parity, group_exact_match
from sublayer.tasks.metrics.metric import Metric
from sublayer.tasks.metrics.numbers import pearson, spearman
from sublayer.tasks.metrics.spans import (
    chrf,
    exact_match,
    exact_match_v2,
    exact_text,
    rouge1,
    rouge2,
    rouge_l,
    token_f1,
    token_f1_v2,
)

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "accuracy", accuracy),
        Metric("f1", "F1", f1),
        Metric("macro_f1", "macro-F1", macro_f1),
        Metric("matthews", "Matthews", matthews),
        Metric("pearson", "Pearson", pearson),
        Metric("spearman", "Spearman", spearman),
        Metric("exact_match", "EM", exact_match),
        Metric("token_f1", "F1", token_f1),
        Metric("exact_match_v2", "EM", exact_match_v2),
        Metric("token_f1_v2", "F1", token_f1_v2),
        Metric("f1a", "F1a", f1),
        Metric("group_exact_match", "EM", group_exact_match),
        Metric("gender_parity", "parity", gender_parity),
        Metric("middle", "middle", accuracy_of("middle"), is_beside=True),
        Metric("high", "high", accuracy_of("high"), is_beside=True),
        Metric("chrf", "chrF", chrf),
        Metric("rouge1", "ROUGE-1", rouge1, is_beside=True),
        Metric("rouge2", "ROUGE-2", rouge2, is_beside=True),
        Metric("rougeL", "ROUGE-L", rouge_l, is_beside=True),
        Metric("exact_text", "exact", exact_text, is_beside=True),
    )
}
"""In the order in which the documentation lists them."""


def parts_of_score(metrics: Sequence[str]) -> tuple[str, ...]:
    """Return those of a task's metrics whose mean is its score."""
    return tuple(name for name in metrics if not METRICS[name].is_beside)
