"""The objective by which a fine-tuned model reads examples, without the recipe of its run."""

from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.tasks.spec import TaskSpec


def objective_of(spec: TaskSpec) -> SupervisedObjective:
    """Return an objective that writes examples as a model reads them."""
    return SupervisedObjective(
        format=spec.format,
        answer=spec.answer,
        target_length=spec.target_length or 64,
        doc_stride=spec.doc_stride,
        max_answer=spec.max_answer,
    )
