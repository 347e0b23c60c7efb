"""An answer in the words of its task: its label, its choice, its number, its text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sublayer.tasks.example import Example
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.task import Task

_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class NamedPrediction:
    """What a model answers to a row."""

    label: str | float | None = None
    """The word of the class, the text of the choice, the number, the text that was written, or the
    part of the passage, empty where the answer is that there is none. None: what was written is no
    answer, or the row has a text that is empty, and was not answered."""
    probabilities: Mapping[str, float] = field(default_factory=dict)
    """By the words of the labels, or the names of the choices; empty where the model gives none."""
    probability: float | None = None
    """Of the answer; of a part of the passage among the best of them. None where the model gives
    none."""
    choice: int | None = None
    """Of a choice its number, from 0."""
    start: int | None = None
    """Of a part of the passage: where it begins, in characters."""
    no_answer: float | None = None
    """Of questions that may have no answer: the score of none, more the likelier."""
    written: str | None = None
    """Of a model that writes its answers: what it wrote."""
    is_answered: bool = True
    is_cut: bool = False
    """Whether the row is longer than the model reads, and was cut."""

    def to_json(self) -> dict[str, Any]:
        """Return what is known of it as JSON, ``prediction`` always."""
        label = _rounded(self.label)
        values: dict[str, Any] = {"prediction": label, "choice": self.choice, "start": self.start}
        values["probability"] = _rounded(self.probability)
        if self.probabilities:
            values["probabilities"] = {name: _rounded(p) for name, p in self.probabilities.items()}
        values["no_answer"] = _rounded(self.no_answer)
        values["written"] = self.written
        known = {name: value for name, value in values.items() if value is not None}
        return {"prediction": label, **known}


UNANSWERED = NamedPrediction(is_answered=False)


def name_prediction(
    task: Task,
    example: Example,
    prediction: Prediction,
    choice_names: Sequence[str] = (),
    *,
    is_written: bool = False,
) -> NamedPrediction:
    """Say a prediction in words; ``choice_names`` are what the choices are called."""
    written = prediction.text if is_written else None
    if task.kind == "span":
        own = prediction.probabilities if prediction.text else ()
        return NamedPrediction(
            label=prediction.text,
            probability=own[0] if own else None,
            start=prediction.start if prediction.text else None,
            no_answer=prediction.no_answer if task.has_unanswerable else None,
        )
    if task.kind == "text":
        return NamedPrediction(prediction.text)
    if task.kind == "number":
        return NamedPrediction(prediction.label, written=written)
    index = None if prediction.label is None else int(prediction.label)
    probability = None
    if index is not None and prediction.probabilities:
        probability = prediction.probabilities[index]
    if task.kind == "classes":
        word = None if index is None else task.labels[index]
        probabilities = dict(zip(task.labels, prediction.probabilities, strict=False))
        return NamedPrediction(word, probabilities, probability, written=written)
    names = choice_names or [f"choice{number}" for number, _ in enumerate(example.choices, 1)]
    # Of choices that the example does not have there are probabilities of 0 behind its own.
    return NamedPrediction(
        None if index is None else example.choices[index],
        dict(zip(names, prediction.probabilities, strict=False)),
        probability,
        choice=index,
        written=written,
    )


def _rounded(value: str | float | None) -> str | float | None:
    return round(value, _DECIMALS) if isinstance(value, float) else value
