"""Answers to examples that were not prepared: those of users, and of published test sets."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sublayer.data.arrays import Bools
from sublayer.data.tasks.assembly import Assembler, RowRule
from sublayer.data.tasks.encoding import encode_examples
from sublayer.data.tasks.marks import find_marks
from sublayer.data.tasks.prepare import SAMPLED_ROWS, note_marks, task_split, texts_of
from sublayer.data.tasks.span_encoding import WindowRule
from sublayer.data.tasks.span_examples import SpanExamples
from sublayer.data.tasks.task_split import TaskPart, TaskSplit
from sublayer.data.training_text import note_losses
from sublayer.errors import CheckpointError, ConfigError
from sublayer.evaluation.split_work import ALONE, Processes
from sublayer.model.transformer import Transformer
from sublayer.nearest import nearest_hint
from sublayer.objective.evaluation import Progress
from sublayer.objective.supervised.batches import row_rule
from sublayer.objective.supervised.objective_of import objective_of
from sublayer.objective.supervised.scores import answer_split
from sublayer.objective.supervised.text import GREEDILY, WRITING_OPTIONS, Writing
from sublayer.tasks.example import Example
from sublayer.tasks.formats.text import has_ranks
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Task


class Answerer:
    """Answers examples of one task by a model.

    ``name`` is that of the task: one that the model was trained on, or one that is answered like
    it; None: the only one. ``writing`` is how answers are decoded that are written.

    Raises ConfigError where the model answers no task, several and none is named, or another, or
    ``writing`` has no effect; and CheckpointError where it has no tokenizer.
    """

    def __init__(
        self,
        model: Transformer,
        name: str | None = None,
        *,
        batch: int | None = None,
        writing: Writing | None = None,
    ) -> None:
        spec: TaskSpec | None = model.task
        if spec is None:
            raise ConfigError(
                "the model answers no task: fine-tune it first (`sublayer finetune RUN TASK`)"
            )
        if model.tokenizer is None:
            raise CheckpointError("the model has no tokenizer.json, without which it reads no text")
        if batch is not None and batch < 1:
            raise ConfigError(f"a batch of {batch} rows computes nothing: give 1 or more")
        find_marks(model.tokenizer, spec.format)
        self.task = chosen_task(spec, name)
        self.spec = replace(spec, tasks=(self.task,))
        self._models: Sequence[Transformer] = [model]
        self._batch = batch
        self.processes: Processes = ALONE
        """Those that divide the examples, of which all return all answers."""
        self._writing = writing or GREEDILY
        if writing is not None and not self.is_written:
            raise ConfigError(
                f"{self.task.title} is answered with probabilities, and nothing is written: leave "
                f"out {WRITING_OPTIONS}"
            )
        self._n_blocks = 0
        self._has_marks = False

    @property
    def is_written(self) -> bool:
        """Whether the model writes its answers as text."""
        return self.spec.format == "text" and not self._ranks

    @property
    def has_probabilities(self) -> bool:
        """Whether answers have probabilities."""
        return self.spec.format != "text" or self._ranks

    @property
    def _ranks(self) -> bool:
        return self.spec.answer == "rank" and has_ranks(self.task)

    def answer(
        self,
        examples: Sequence[Example],
        progress: Progress = lambda n_done, n_all: None,
    ) -> list[Prediction]:
        """Answer examples, in their order; ``progress`` hears of batches."""
        if not examples:
            return []
        # Of processes that answer together the first says it.
        models = self._models if self.processes.own(1) else ()
        tokenizers = {each.tokenizer.fingerprint: each.tokenizer for each in models}
        if not self._n_blocks:
            some = examples[:: max(1, len(examples) // SAMPLED_ROWS)]
            for tokenizer in tokenizers.values():
                note_losses("the rows", texts_of(some), tokenizer, trains=False)
        if not self._has_marks:
            texts = texts_of(examples)
            noted = [note_marks("the input", texts, x, trains=False) for x in tokenizers.values()]
            self._has_marks = any(noted)
        self._n_blocks += 1
        return self._answered(examples, progress)

    def _answered(self, examples: Sequence[Example], progress: Progress) -> list[Prediction]:
        [model] = self._models
        part = unprepared_part(model, self.task, examples, "test")
        split = task_split("test", [part], model.tokenizer, objective_of(self.spec))
        rule = replace(model_rule(model, split), n_rows=self._batch)
        writing = replace(self._writing, block=self._n_blocks)
        answers, _ = answer_split(model, split, rule, self.spec, self.processes, progress, writing)
        return mark_cut(answers, cut_examples(split, rule))


def cut_examples(split: TaskSplit, rule: RowRule) -> Bools:
    """Return which examples of a split are cut to what a model reads: ``[N]``."""
    encoded = split.encoded
    if isinstance(encoded, SpanExamples):
        return np.zeros(split.n_examples, dtype=np.bool_)
    return Assembler(encoded, rule).cut_examples()


def mark_cut(predictions: Sequence[Prediction], is_cut: Bools) -> list[Prediction]:
    """Return predictions that say which examples were cut."""
    pairs = zip(predictions, is_cut.tolist(), strict=True)
    return [replace(each, is_cut=True) if cut else each for each, cut in pairs]


def unprepared_part(
    model: Transformer, task: Task, examples: Sequence[Example], published: str
) -> TaskPart:
    """Encode examples as a model reads them that are not of its run's data."""
    spec: TaskSpec = model.task
    windows = None
    if task.kind == "span" and spec.format == "pair":
        windows = WindowRule(spec.context, spec.doc_stride)
    encoded = encode_examples(
        task, examples, model.tokenizer, spec.format, trains=False, windows=windows
    )
    return TaskPart(task, published, encoded, lambda: examples)


def model_rule(model: Transformer, split: TaskSplit) -> RowRule:
    """Return how a split's texts become what a model reads, by what it says of its tasks."""
    spec: TaskSpec = model.task
    return row_rule(
        objective_of(spec),
        split,
        context=spec.context,
        kind=model.config.kind,
        starts_with_pad=model.config.decoder_start == "pad",
    )


def chosen_task(spec: TaskSpec, name: str | None, called: str = "the model") -> Task:
    """Return a task that a model answers, by its name; without one the only one.

    Raises ConfigError where there is none of that name, or several and none is named; ``called`` is
    what the message calls the model.
    """
    tasks = {task.name: task for task in spec.tasks}
    listed = ", ".join(tasks)
    if name is None:
        if len(tasks) > 1:
            raise ConfigError(f"{called} answers several tasks, {listed}: name one (--task)")
        return spec.tasks[0]
    if name in tasks:
        return tasks[name]
    known = TASKS.get(name)
    if known is not None and known.trained_as in tasks:
        return known
    raise ConfigError(
        f"{called} does not answer {name:.60}, but {listed}{nearest_hint(name, tuple(tasks))}"
    )
