"""What a config.json says of labels: their words, and whether they are classes or a number."""

from collections.abc import Mapping
from typing import Any

from sublayer.config.limits import MOST_LABELS
from sublayer.errors import CheckpointError
from sublayer.interop.huggingface.class_fields import ClassConfig, ClassFields, Field, training_only
from sublayer.interop.values import Rule, Unsayable, format_value, one_of, optional, whole
from sublayer.tasks.task import Task

REGRESSION, CLASSIFICATION = "regression", "single_label_classification"
_INDEPENDENT = "multi_label_classification"


def with_labels(fields: ClassFields, *, is_typed: bool) -> ClassFields:
    """Return a class's fields with those of labels; ``is_typed``: with what they are, too."""
    own = {
        "id2label": Field(None, optional(_words)),
        "num_labels": Field(2, whole(MOST_LABELS)),
    }
    if is_typed:
        own["problem_type"] = training_only(None, optional(_problem))
    return with_fields(fields, own)


def with_fields(fields: ClassFields, own: Mapping[str, Field]) -> ClassFields:
    """Return a class's fields with others, which are not ignored then."""
    return ClassFields(
        title=fields.title,
        fields={**fields.fields, **own},
        aliases=fields.aliases,
        ignored=fields.ignored - own.keys(),
        ids=fields.ids,
    )


def label_words(content: ClassConfig) -> tuple[str, ...]:
    """Return the words of a head's outputs, in their order.

    Those that a file does not name are called as transformers calls them. Raises CheckpointError
    where the file has another number of labels than it names.
    """
    words = content.fields["id2label"]
    if words is None:
        return default_words(content.fields["num_labels"])
    n_labels = content.given.get("num_labels", len(words))
    if n_labels != len(words):
        raise CheckpointError(
            f"{content.file}: num_labels = {n_labels}, and id2label has {len(words)}: leave "
            "num_labels out"
        )
    return tuple(words[str(index)] for index in range(len(words)))


def is_number(content: ClassConfig, words: tuple[str, ...]) -> bool:
    """Return whether a head's only output is a number, as it is unless a file says otherwise.

    Raises CheckpointError where it has several numbers, or one class.
    """
    problem = content.fields["problem_type"]
    said = f"{content.file}: problem_type = {format_value(problem)}"
    if problem == REGRESSION and len(words) > 1:
        raise CheckpointError(f"{said} of {len(words)} outputs: a recipe can say one number")
    if problem == CLASSIFICATION and len(words) == 1:
        raise CheckpointError(f"{said} of one output: it has nothing to choose")
    return len(words) == 1


def describe_labels(task: Task | None, n_outputs: int) -> dict[str, Any]:
    """Return the fields of a head's outputs; without a task they are called by numbers."""
    words = default_words(n_outputs)
    problem = None if n_outputs == 1 else CLASSIFICATION
    if task is not None:
        words = task.labels or words
        problem = REGRESSION if task.kind == "number" else CLASSIFICATION
    return {
        "id2label": {str(index): word for index, word in enumerate(words)},
        "label2id": {word: index for index, word in enumerate(words)},
        "problem_type": problem,
    }


def default_words(n_labels: int) -> tuple[str, ...]:
    """Return what transformers calls labels without words."""
    return tuple(f"LABEL_{index}" for index in range(n_labels))


def _words(value: Any) -> Any:
    """Return a table of labels: their words by their numbers, which are texts."""
    if type(value) is not dict or not value:
        raise ValueError("is no table of labels")
    if len(value) > MOST_LABELS:
        raise ValueError(f"has more than {MOST_LABELS:,} labels")
    for index in range(len(value)):
        if str(index) not in value:
            raise ValueError(f"has {len(value)} labels, and none of number {index}")
    for word in value.values():
        if type(word) is not str or not word.strip() or not word.isprintable():
            raise ValueError(f"has a label that is no word: {format_value(word)}")
    if len(set(value.values())) < len(value):
        raise Unsayable("two labels have one name")
    return value


_known_problem: Rule = one_of((REGRESSION, CLASSIFICATION, _INDEPENDENT))


def _problem(value: Any) -> Any:
    if _known_problem(value) == _INDEPENDENT:
        raise Unsayable("labels that exclude each other, or a number")
    return value
