"""Which tasks a class of transformers can answer, beside whether it has the model's head."""

from collections.abc import Mapping

from sublayer.errors import ConfigError
from sublayer.interop.huggingface.family import Answers, Family
from sublayer.tasks.spec import TaskSpec


def check_task(spec: TaskSpec, families: Mapping[Answers, Family]) -> None:
    """Raise ConfigError where a class reads one row, and a task is answered from several.

    ``families`` are those that the model might be exported as, by what they answer.
    """
    task = spec.tasks[0]
    if spec.format != "traversal" or "labels" not in families:
        return
    if task.kind == "choice" and "choices" not in families:
        rows = "a row for each choice"
    elif task.is_symmetric:
        rows = "both orders of its texts, whose states are added"
    else:
        return
    raise ConfigError(
        f"{task.title} is answered from {rows}, and {families['labels'].title} reads one row: "
        "the model cannot be exported"
    )
