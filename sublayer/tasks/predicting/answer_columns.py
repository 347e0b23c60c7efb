"""The columns that answers stand in, beside those of the rows that they answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sublayer.tasks.predicting.named import NamedPrediction
from sublayer.tasks.task import Task


@dataclass(frozen=True)
class AnswerColumns:
    """What is added to a row: names of columns by those of ``NamedPrediction.to_json``.

    A probability of its own has each label, and each choice that all rows have.
    """

    names: Mapping[str, str]
    by_label: Mapping[str, str]

    @property
    def added(self) -> tuple[str, ...]:
        """The names, in order."""
        return (*self.names.values(), *self.by_label.values())

    def cells(self, named: NamedPrediction) -> dict[str, Any]:
        """Return the answer to a row by the names of the columns; None where there is nothing."""
        values = named.to_json()
        probabilities = values.get("probabilities", {})
        cells = {column: values.get(name) for name, column in self.names.items()}
        for label, column in self.by_label.items():
            cells[column] = probabilities.get(label)
        return cells


def answer_columns(
    task: Task,
    there: Sequence[str],
    choice_names: Sequence[str],
    *,
    is_written: bool,
    has_probabilities: bool,
) -> AnswerColumns:
    """Return the columns for the answers to a task's rows, none of which is ``there`` already.

    ``is_written``: the model writes its answers.
    """
    names = ["prediction"]
    labels: Sequence[str] = ()
    if task.kind == "choice":
        names.append("choice")
    if task.kind == "span":
        names += ["start", *(["no_answer"] if task.has_unanswerable else [])]
    if has_probabilities and task.kind != "number":
        labels = task.labels if task.kind == "classes" else choice_names
        if not labels:
            names.append("probability")
    if is_written and task.kind not in ("span", "text"):  # whose prediction is what was written
        names.append("written")
    taken = set(there)
    own = {name: _free(name, taken) for name in names}
    return AnswerColumns(own, {label: _free(f"p_{label}", taken) for label in labels})


def _free(name: str, taken: set[str]) -> str:
    free, number = name, 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    taken.add(free)
    return free
