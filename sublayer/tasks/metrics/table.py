"""The metrics of tasks, by name."""

from sublayer.tasks.metrics.classes import accuracy, f1, macro_f1, matthews
from sublayer.tasks.metrics.metric import Metric
from sublayer.tasks.metrics.numbers import pearson, spearman

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "accuracy", accuracy),
        Metric("f1", "F1", f1),
        Metric("macro_f1", "macro-F1", macro_f1),
        Metric("matthews", "Matthews", matthews),
        Metric("pearson", "Pearson", pearson),
        Metric("spearman", "Spearman", spearman),
    )
}
"""In the order in which the documentation lists them."""
