"""Examples and predictions for tests, from labels alone."""

from collections.abc import Sequence

from sublayer.tasks.example import Answer, Example
from sublayer.tasks.prediction import Prediction


def labelled(labels: Sequence[int | float], groups: Sequence[str] = ()) -> list[Example]:
    groups = groups or [""] * len(labels)
    return [
        Example(id=str(index), fields={}, label=label, group=group)
        for index, (label, group) in enumerate(zip(labels, groups, strict=True))
    ]


def said(labels: Sequence[int | float | None]) -> list[Prediction]:
    return [Prediction(label=label) for label in labels]


def asked(golds: Sequence[Sequence[str]]) -> list[Example]:
    """Questions with their gold answers."""
    return [
        Example(id=str(index), fields={}, answers=tuple(Answer(text) for text in texts))
        for index, texts in enumerate(golds)
    ]


def written(texts: Sequence[str]) -> list[Prediction]:
    return [Prediction(text=text) for text in texts]
