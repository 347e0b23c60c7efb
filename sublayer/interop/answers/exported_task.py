"""Which tasks a class of transformers can answer, beside whether it has the model's head."""

from sublayer.errors import ConfigError
from sublayer.tasks.spec import TaskSpec


def check_task(spec: TaskSpec) -> None:
    """Raise ConfigError where a class reads one row, and a task is answered from several."""
    task = spec.tasks[0]
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
