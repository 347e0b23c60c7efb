"""What a model says of questions about passages, as an ensemble of it and others needs it."""

from collections.abc import Sequence

import numpy as np
import torch

from sublayer.data.packed_batch import PackedBatch
from sublayer.data.tasks.assembly import RowRule
from sublayer.data.tasks.span_examples import SpanExamples
from sublayer.data.tasks.spans import Span, rank_spans
from sublayer.data.tasks.task_split import TaskSplit
from sublayer.evaluation.split_work import ALONE, Row
from sublayer.model.transformer import Transformer
from sublayer.objective.evaluation import Progress
from sublayer.objective.supervised.ensemble.spans import N_LISTED, Listed
from sublayer.objective.supervised.predictions import each_batch
from sublayer.objective.supervised.readout import packed_hidden
from sublayer.objective.supervised.span_predictions import passages_of, window_scores
from sublayer.tasks.spec import TaskSpec

_N_FIRST, _N_EACH = 3, 3
"""Numbers of a question, and of each of its spans."""


@torch.inference_mode()
def list_spans(
    model: Transformer,
    split: TaskSplit,
    rule: RowRule,
    spec: TaskSpec,
    progress: Progress = lambda n_done, n_all: None,
) -> list[Listed]:
    """List the best spans of every question, in the split's order; ``progress`` hears of batches.

    They are those of which ``answer_questions`` answers with the first.
    """
    (part,) = split.parts
    encoded = split.encoded
    assert isinstance(encoded, SpanExamples), "a passage is read in windows"
    passages = passages_of(part)

    def listed(batch: PackedBatch) -> list[float]:
        scores = window_scores(model, batch, packed_hidden(model, batch).final)
        owners = batch.owners.tolist()
        values: list[float] = []
        for place, number in enumerate(batch.numbers):
            own = [each for each, owner in zip(scores, owners, strict=True) if owner == place]
            spans = rank_spans(
                encoded.windows(number),
                [each.candidates for each in own],
                offset=encoded.offset(number),
                placed=encoded.placed(number),
                passage=passages[number],
                most_tokens=spec.max_answer,
                n_best=N_LISTED,
            )
            values += [float(number), min(each.no_answer for each in own), float(len(spans))]
            for span in spans:
                values += [float(span.start), float(len(span.text)), span.score]
        return values

    return _read(each_batch(model, split, rule, listed, ALONE, progress), passages)


def _read(rows: Sequence[Row], passages: Sequence[str]) -> list[Listed]:
    found = [Listed((), 0.0)] * len(passages)
    for row in rows:
        place = 0
        while place < len(row):
            number, no_answer, n_spans = row[place : place + _N_FIRST].tolist()
            place += _N_FIRST
            stop = place + _N_EACH * int(n_spans)
            passage = passages[int(number)]
            spans = [_span(passage, each) for each in row[place:stop].reshape(-1, _N_EACH)]
            found[int(number)] = Listed(spans, no_answer)
            place = stop
    return found


def _span(passage: str, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Span:
    start, length, score = values.tolist()
    first = int(start)
    # How likely it is among the listed is said of those that are averaged.
    return Span(passage[first : first + int(length)], first, score, 0.0)
