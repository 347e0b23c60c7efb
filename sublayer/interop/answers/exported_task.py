"""Which tasks a class of transformers can answer, beside whether it has the model's head."""

from sublayer.errors import ConfigError
from sublayer.tasks.spec import TaskSpec


def check_task(spec: TaskSpec, n_outputs: int) -> None:
    """Raise ConfigError where no class answers a task as a model with ``n_outputs`` does.

    That is where a class reads one row, and a task is answered from several, or where one output
    answers for two labels.
    """
    task = spec.tasks[0]
    if task.kind == "classes" and n_outputs == 1 and spec.format != "text":
        raise ConfigError(
            f"one output of the model answers for both labels of {task.title} "
            "(objective.logistic), and the classes of transformers have one for each: the model "
            "cannot be exported"
        )
    if spec.format != "traversal":
        return
    if task.kind == "choice":
        rows = "a row for each choice"
    elif task.is_symmetric:
        rows = "both orders of its texts, whose states are added"
    else:
        return
    raise ConfigError(
        f"{task.title} is answered from {rows}, and GPT2ForSequenceClassification reads one row: "
        "the model cannot be exported"
    )
