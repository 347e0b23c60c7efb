"""What words alone can do: a linear model of them, or their overlap."""

from collections.abc import Sequence

from sublayer.tasks.baselines.linear import BALANCED, compares, predict_classes, predict_numbers
from sublayer.tasks.baselines.phrases import predict_spans
from sublayer.tasks.baselines.training import labelled_rows
from sublayer.tasks.baselines.window import predict_choices
from sublayer.tasks.example import Example
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.task import Task


def describe_words(task: Task) -> str:
    """Return in a few words what is computed for a task."""
    if task.kind == "choice":
        return "the choice whose words stand closest together in the passage; nothing trained"
    if task.kind == "span":
        learned = (
            "its threshold of no answer trained" if task.has_unanswerable else "nothing trained"
        )
        return f"a phrase of the sentence that has most of the question's words; {learned}"
    model = "logistic regression" if task.kind == "classes" else "ridge regression"
    is_balanced = task.kind == "classes" and not set(BALANCED).isdisjoint(task.metrics)
    classes = ", classes balanced" if is_balanced else ""
    if compares(task):
        return f"{model} on the TF-IDF of each text's words and what they share{classes}"
    return f"{model} on the TF-IDF of words, pairs and triples of words{classes}"


def words(task: Task, train: Sequence[Example], scored: Sequence[Example]) -> list[Prediction]:
    """Predict by words alone, from the same training rows: see ``describe_words``.

    Raises DataError where it has to learn and no training row has a label.
    """
    if task.kind == "choice":
        return predict_choices(task, scored)
    if task.kind == "span":
        rows = labelled_rows(task, train) if task.has_unanswerable else []
        return predict_spans(task, rows, scored)
    rows = labelled_rows(task, train)
    if not scored:
        return []
    if task.kind == "number":
        return predict_numbers(task, rows, scored)
    return predict_classes(task, rows, scored)
