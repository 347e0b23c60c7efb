"""What a model answers, and how, with the options of an evaluation."""

from dataclasses import replace

from sublayer.data.tasks.marks import find_marks
from sublayer.errors import CheckpointError, ConfigError
from sublayer.nearest import nearest_hint
from sublayer.objective.evaluation import Evaluation
from sublayer.objective.supervised.known_task import answer_known
from sublayer.tasks.formats.text import has_ranks
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec


def asked_spec(asked: Evaluation) -> TaskSpec:
    """Return what a model answers, and how, with the options of an evaluation.

    A model of a task with the same labels is made one of the task that was asked for, in place.
    Raises
    ConfigError for an option without a meaning, CheckpointError where there is no tokenizer.
    """
    model = asked.model
    if (name := asked.options.get("task")) is not None:
        if name not in TASKS:
            raise ConfigError(f"--task {name:.60} is no task{nearest_hint(name, TASKS)}")
        answer_known(model, TASKS[name])
    spec: TaskSpec = model.task
    answer = asked.options.get("answer")
    if answer is not None:
        if spec.format != "text":
            raise ConfigError(
                f"--answer is for models that read tasks as text to text, and this one reads them "
                f"in format {spec.format}: leave it out"
            )
        if answer == "rank" and not any(map(has_ranks, spec.tasks)):
            raise ConfigError(
                "--answer rank chooses among labels or choices, of which "
                f"{', '.join(task.title for task in spec.tasks)} has none: leave it out"
            )
        spec = replace(spec, answer=answer)
    if model.tokenizer is None:
        raise CheckpointError(f"{asked.run} has no tokenizer.json, without which it reads no text")
    # Without the marks of its format it reads none.
    find_marks(model.tokenizer, spec.format)
    return spec
