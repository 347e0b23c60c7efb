"""What a model answers to every example of a split."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from sublayer.data.packed_batch import PackedBatch
from sublayer.data.tasks.assembly import Assembler, RowRule
from sublayer.data.tasks.task_split import TaskSplit
from sublayer.evaluation.split_work import Processes, Row, compute_each
from sublayer.model.eval_mode import evaluating
from sublayer.model.transformer import Transformer
from sublayer.objective.evaluation import Progress, batch_sequences
from sublayer.objective.supervised.loss import answer_losses, unscaled
from sublayer.objective.supervised.readout import answer_logits, text_states
from sublayer.objective.supervised.similar import similar_batches
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.task import Task


@torch.inference_mode()
def answer_examples(
    model: Transformer,
    split: TaskSplit,
    rule: RowRule,
    task: Task,
    processes: Processes,
    progress: Progress = lambda n_done, n_all: None,
) -> tuple[list[Prediction], list[float]]:
    """Answer every example by the model's head; return the answers, and the loss of each.

    Both are in the split's order. The loss of an example without a label means nothing. The work is
    divided among ``processes``, and all return the same; ``progress`` hears of batches.
    """

    def answered(batch: PackedBatch) -> list[float]:
        return _answered(model, batch, task)

    rows = each_batch(model, split, rule, answered, processes, progress)
    return _predictions(task, rows, split.n_examples)


def each_batch(
    model: Transformer,
    split: TaskSplit,
    rule: RowRule,
    answered: Callable[[PackedBatch], Sequence[float]],
    processes: Processes,
    progress: Progress,
) -> list[Row]:
    """Answer the examples of a split in batches of similar lengths; return what each batch gave.

    The work is divided among ``processes``, and all return the same; ``progress`` hears of batches.
    """
    assembler = Assembler(split.encoded, rule)
    numbers = np.arange(split.n_examples)
    most_tokens = (rule.n_rows or batch_sequences(model, rule.context)) * rule.context
    batches = similar_batches(assembler.tokens(numbers), most_tokens)
    device = model.embedding.weight.device
    done = 0

    def work(index: int) -> Sequence[float]:
        nonlocal done
        batch = assembler.pack(batches[index]).to(device)
        row = answered(batch)
        done += 1
        progress(done, len(batches))
        return row

    with evaluating(model):
        return compute_each(work, len(batches), processes)


def _answered(model: Transformer, batch: PackedBatch, task: Task) -> list[float]:
    """Return for each example its number, its loss, how many outputs it has, and these."""
    logits = answer_logits(model, batch, text_states(model, batch), 0.0, task.kind)
    losses = answer_losses(task, logits, batch.labels)
    outputs = _outputs(task, logits)
    values: list[float] = []
    rows = zip(batch.numbers, losses.tolist(), outputs.tolist(), strict=True)
    for number, loss, own in rows:
        values += [float(number), loss, float(len(own)), *own]
    return values


def _outputs(task: Task, logits: Tensor) -> Tensor:
    if task.kind == "number":
        return unscaled(task, logits)
    return logits.double().softmax(-1)


def _predictions(
    task: Task, rows: Sequence[Row], n_examples: int
) -> tuple[list[Prediction], list[float]]:
    predictions = [Prediction()] * n_examples
    losses = [0.0] * n_examples
    for row in rows:
        place = 0
        while place < len(row):
            number, n_outputs = int(row[place]), int(row[place + 2])
            outputs = row[place + 3 : place + 3 + n_outputs]
            losses[number] = float(row[place + 1])
            predictions[number] = _prediction(task, outputs)
            place += 3 + n_outputs
    return predictions, losses


def _prediction(task: Task, outputs: Row) -> Prediction:
    if task.kind == "number":
        low, high = task.numbers if task.is_bounded else (-np.inf, np.inf)
        return Prediction(label=float(np.clip(outputs[0], low, high)))
    # Of choices that an example does not have the probability is 0.
    return Prediction(label=int(outputs.argmax()), probabilities=tuple(outputs.tolist()))
