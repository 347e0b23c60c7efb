"""Several models that are loaded, and answer a split or rows together."""

from collections.abc import Sequence
from dataclasses import replace

from sublayer.data.tasks.prepare import task_split
from sublayer.data.tasks.task_split import TaskPart, TaskSplit
from sublayer.errors import ConfigError
from sublayer.model.transformer import Transformer
from sublayer.objective.evaluation import Progress
from sublayer.objective.supervised.answering import Answerer, model_rule, unprepared_part
from sublayer.objective.supervised.ensemble.answers import (
    MemberAnswers,
    answers_of,
    combine,
    mean_threshold,
)
from sublayer.objective.supervised.ensemble.heads import check_heads
from sublayer.objective.supervised.ensemble.members import (
    check_averaged,
    check_members,
    check_same_task,
)
from sublayer.objective.supervised.objective_of import objective_of
from sublayer.tasks.example import Example
from sublayer.tasks.prediction import Prediction


def answer_together(
    models: Sequence[Transformer],
    split: TaskSplit,
    *,
    names: Sequence[str] = (),
    batch: int | None = None,
    progress: Progress = lambda n_done, n_all: None,
) -> list[Prediction]:
    """Answer all examples of a split by the average of several fine-tuned models, in its order.

    The split may be encoded for any of them: each reads the examples in its own format, by its own
    tokenizer. ``names`` are what messages call the models. Raises ConfigError where they do not
    answer the same.
    """
    called = names or [f"model {number}" for number, _ in enumerate(models, 1)]
    check_members(called, [model.task for model in models])
    check_heads(called, models)
    own = {task.name for task in models[0].task.tasks}
    for part in split.parts:
        if part.task.name not in own and part.task.trained_as not in own:
            raise ConfigError(f"the models do not answer {part.task.title}: name a split of theirs")
    answers = [_answers(model, split.parts, batch, progress) for model in models]
    return combine(split.parts, answers, mean_threshold(answers))


class TogetherAnswerer(Answerer):
    """Answers examples of one task by the average of several models.

    ``name`` is that of the task, as ``Answerer`` has it. Raises as that does, and ConfigError where
    models do not answer the same.
    """

    def __init__(
        self,
        models: Sequence[Transformer],
        names: Sequence[str],
        name: str | None = None,
        *,
        batch: int | None = None,
    ) -> None:
        super().__init__(models[0], name, batch=batch)
        self._models = models
        for model, called in zip(models, names, strict=True):
            own = Answerer(model, name, batch=batch)
            check_same_task(names[0], self.task, called, own.task)
            check_averaged(called, own.spec, own.task)
        check_heads(names, models)

    def answer(
        self,
        examples: Sequence[Example],
        progress: Progress = lambda n_done, n_all: None,
    ) -> list[Prediction]:
        """Answer examples, in their order; ``progress`` hears of the batches of each model."""
        if not examples:
            return []
        parts = [unprepared_part(self._models[0], self.task, examples, "test")]
        answers = [_answers(model, parts, self._batch, progress) for model in self._models]
        return combine(parts, answers, mean_threshold(answers))


def _answers(
    model: Transformer, parts: Sequence[TaskPart], batch: int | None, progress: Progress
) -> MemberAnswers:
    own = [unprepared_part(model, part.task, part.examples, part.published) for part in parts]
    spec = replace(model.task, tasks=tuple(dict.fromkeys(part.task for part in parts)))
    split = task_split("test", own, model.tokenizer, objective_of(spec))
    rule = replace(model_rule(model, split), n_rows=batch)
    return answers_of(model, split, rule, spec, progress)
