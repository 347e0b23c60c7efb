"""Several models that are loaded, and answer a split or rows together."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sublayer.data.arrays import Bools
from sublayer.data.tasks.marks import find_marks
from sublayer.data.tasks.prepare import task_split
from sublayer.data.tasks.task_split import TaskPart
from sublayer.errors import CheckpointError
from sublayer.evaluation.split_work import ALONE, Processes
from sublayer.model.transformer import Transformer
from sublayer.objective.evaluation import Progress
from sublayer.objective.supervised.answering import (
    Answerer,
    chosen_task,
    cut_examples,
    mark_cut,
    model_rule,
    unprepared_part,
)
from sublayer.objective.supervised.ensemble.answers import (
    MemberAnswers,
    answers_of,
    combine,
    mean_threshold,
)
from sublayer.objective.supervised.ensemble.heads import check_heads
from sublayer.objective.supervised.ensemble.members import (
    check_averaged,
    check_same_task,
)
from sublayer.objective.supervised.objective_of import objective_of
from sublayer.tasks.example import Example
from sublayer.tasks.prediction import Prediction


def answer_together(
    models: Sequence[Transformer],
    parts: Sequence[TaskPart],
    *,
    names: Sequence[str] = (),
    batch: int | None = None,
    progress: Progress = lambda n_done, n_all: None,
    processes: Processes = ALONE,
) -> list[Prediction]:
    """Answer all examples of a split's parts by the average of several fine-tuned models, in order.

    However the parts are encoded, each model reads their examples in its own format, by its own
    tokenizer. ``names`` are what messages call the models; ``progress`` hears of the batches of
    each. Raises ConfigError where models do not answer the same.
    """
    called = names or [f"model {number}" for number, _ in enumerate(models, 1)]
    for part in parts:
        _check_same(models, called, part.task.name)
    found = [_answers(model, parts, batch, progress, processes) for model in models]
    answers = [each for each, _ in found]
    is_cut = np.logical_or.reduce([cut for _, cut in found])
    return mark_cut(combine(parts, answers, mean_threshold(answers)), is_cut)


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
        self._names = names
        _check_same(models, names, name)

    def _answered(self, examples: Sequence[Example], progress: Progress) -> list[Prediction]:
        part = unprepared_part(self._models[0], self.task, examples, "test")
        return answer_together(
            self._models,
            [part],
            names=self._names,
            batch=self._batch,
            progress=progress,
            processes=self.processes,
        )


def _check_same(models: Sequence[Transformer], names: Sequence[str], name: str | None) -> None:
    """Raise ConfigError where models do not answer a task the same; None: the only one of each."""
    first = chosen_task(models[0].task, name, names[0])
    for model, called in zip(models, names, strict=True):
        if model.tokenizer is None:
            raise CheckpointError(f"{called} has no tokenizer.json, without which it reads no text")
        find_marks(model.tokenizer, model.task.format)
        own = chosen_task(model.task, name, called)
        check_same_task(names[0], first, called, own)
        check_averaged(called, model.task, own)
    check_heads(names, models)


def _answers(
    model: Transformer,
    parts: Sequence[TaskPart],
    batch: int | None,
    progress: Progress,
    processes: Processes,
) -> tuple[MemberAnswers, Bools]:
    """Return the answers of a model, and which examples were cut to what it reads."""
    own = [unprepared_part(model, part.task, part.examples, part.published) for part in parts]
    spec = replace(model.task, tasks=tuple(dict.fromkeys(part.task for part in parts)))
    split = task_split("test", own, model.tokenizer, objective_of(spec))
    rule = replace(model_rule(model, split), n_rows=batch)
    return answers_of(model, split, rule, spec, progress, processes), cut_examples(split, rule)
