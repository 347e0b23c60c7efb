"""Scores of an encoder: the prediction of masked tokens, and all of its measures together."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from sublayer.config.objectives.masked import MaskedObjective
from sublayer.data.masked.examples import PairSettings
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.split import Split
from sublayer.errors import DataError
from sublayer.evaluation.split_work import ALONE, Processes, add_up
from sublayer.model.encoder import Encoder
from sublayer.model.kernels.cross_entropy import nats_of_targets
from sublayer.objective.masked.batches import pair_settings
from sublayer.objective.masked.items import EncoderItems, ExampleItems
from sublayer.objective.masked.loss import states_at
from sublayer.objective.masked.pair_scores import Task, score_pairs
from sublayer.objective.masked.scored_batches import ScoredBatches, Scoring

_CHUNK = 4096


@dataclass(frozen=True)
class MaskedScore:
    """Negative log-likelihood of masked tokens, and how many a model predicts rightly.

    Ratios are NaN where no token was hidden.
    """

    nats: float
    n_tokens: int
    n_correct: int
    n_majority: int
    """What always naming the token that is most often right among them would get right."""

    @property
    def loss(self) -> float:
        """Nats per masked token."""
        return self._per_token(self.nats)

    @property
    def accuracy(self) -> float:
        """Share of masked tokens that are most probable under the model, from 0 to 1."""
        return self._per_token(self.n_correct)

    @property
    def majority(self) -> float:
        """Share that always naming the most frequent masked token gets right, from 0 to 1."""
        return self._per_token(self.n_majority)

    def _per_token(self, total: float) -> float:
        if not self.n_tokens:
            return math.nan
        return total / self.n_tokens


@torch.inference_mode()
def score_masked(
    encoder: Encoder,
    split: Split,
    settings: PairSettings,
    scoring: Scoring,
    progress: Callable[[int, int], None] | None = None,
    processes: Processes = ALONE,
    items: ExampleItems | None = None,
) -> MaskedScore:
    """Score an encoder on the masked tokens of a text.

    Masks and pairs are the same for every model of a tokenizer. ``progress`` is called with the
    examples done and the examples in all; ``items`` are told what each example scored. The work is
    divided among ``processes``, and all return the same.
    """

    def score_batch(batch: PackedBatch) -> list[float]:
        hidden = encoder.to_embedding(states_at(encoder, batch).masked)
        matrix, bias = encoder.output_projection()
        targets = batch.predicted_ids
        nats = nats_of_targets(hidden, matrix, bias, targets)
        is_correct = torch.empty_like(targets, dtype=torch.bool)
        # Logits are as many as the vocabulary has ids, for each token: a few tokens at a time.
        for start in range(0, hidden.shape[0], _CHUNK):
            chunk = slice(start, start + _CHUNK)
            logits = F.linear(hidden[chunk], matrix, bias)
            is_correct[chunk] = logits.argmax(-1) == targets[chunk]
        row = [float(nats.total)]
        for by_token in (targets, nats.each, is_correct):
            row += by_token.double().tolist()
        return row

    batches = ScoredBatches(split, settings, scoring)
    rows = batches.rows(encoder, score_batch, progress, processes)
    n_correct = 0
    frequencies = Counter[float]()
    for index, row in enumerate(rows):
        targets, nats, is_correct = row[1:].reshape(3, -1)
        n_correct += int(is_correct.sum())
        frequencies.update(targets.tolist())
        if items is not None:
            items.add_hidden(batches.examples(index), nats, is_correct.astype(bool))
    n_majority = max(frequencies.values(), default=0)
    return MaskedScore(add_up(rows), frequencies.total(), n_correct, n_majority)


def encoder_scores(
    encoder: Encoder,
    split: Split,
    objective: MaskedObjective,
    scoring: Scoring,
    progress: Callable[[str, int, int], None] | None = None,
    processes: Processes = ALONE,
    items: EncoderItems | None = None,
) -> dict[str, Any]:
    """Score an encoder on a text by every measure that it has a head and the text enough pairs for.

    ``loss`` is in nats per masked token, ``mlm_accuracy`` stands beside ``majority_accuracy``, that
    of always naming the most frequent masked token; ``nsp_`` and ``sop_`` come with the number of
    pairs and the 95% CI. Accuracies are shares, from 0 to 1. ``progress`` hears what is
    scored before how much; ``items`` are told what each example scored.

    Raises ConfigError where the tokenizer lacks what the objective needs, DataError where the text
    gives no token to hide.
    """
    settings = pair_settings(objective, split.tokenizer, context=scoring.context)
    judges = "sentence" in encoder.heads
    if not judges:
        # Later passes over a text are for its pairs.
        scoring = replace(scoring, n_pairs=1)

    def progress_of(what: str) -> Callable[[int, int], None] | None:
        return None if progress is None else partial(progress, what)

    hidden = None if items is None else items.hidden
    hidden_progress = progress_of("masked tokens")
    masked = score_masked(encoder, split, settings, scoring, hidden_progress, processes, hidden)
    if not masked.n_tokens:
        sources = " and ".join(split.sources)
        raise DataError(
            f"{sources} gives no token to hide: give a longer text, or fewer objective.spared_ids"
        )
    scores: dict[str, Any] = {
        "loss": masked.loss,
        "mlm_accuracy": masked.accuracy,
        "majority_accuracy": masked.majority,
        "mlm_tokens": masked.n_tokens,
    }
    if not judges:
        return scores
    tasks: tuple[Task, ...] = ("nsp", "sop")
    for task in tasks:
        pair_progress = progress_of(f"{task} pairs")
        pair_items = None if items is None else items.pairs(task)
        judged = score_pairs(
            encoder, split, settings, scoring, task, pair_progress, processes, pair_items
        )
        if judged.n_pairs:
            scores[f"{task}_accuracy"] = judged.accuracy
            scores[f"{task}_pairs"] = judged.n_pairs
            scores[f"{task}_interval"] = list(judged.interval)
    return scores
