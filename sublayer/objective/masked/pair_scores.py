"""Scores of an encoder's judgement of pairs of texts: next sentence, or sentence order."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch

from sublayer.data.masked.examples import PairSettings
from sublayer.data.masked.segment_pairs import make_pairs
from sublayer.data.masked.segments import PairRule
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.split import Split
from sublayer.evaluation.split_work import ALONE, Processes
from sublayer.model.encoder import Encoder
from sublayer.objective.masked.items import ExampleItems
from sublayer.objective.masked.loss import predicts_negative, states_at
from sublayer.objective.masked.scored_batches import SEED, ScoredBatches, Scoring

Task = Literal["nsp", "sop"]
_NORMAL_QUANTILE = 1.959963984540054
"""Of 97.5 %."""


@dataclass(frozen=True)
class PairScore:
    """How many pairs of texts an encoder judges rightly."""

    n_pairs: int
    n_correct: int
    n_independent: int
    """Pairs of a single pass over the text: they share no sentence with each other."""

    @property
    def accuracy(self) -> float:
        """Share of pairs that are judged rightly, from 0 to 1; NaN where there is none."""
        if not self.n_pairs:
            return math.nan
        return self.n_correct / self.n_pairs

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% CI of the accuracy over such pairs (Wilson 1927); NaN without pairs.

        It takes pairs as independent, so only those of one pass over the text count: other cuts of
        the same sentences add little.
        """
        if not self.n_pairs:
            return math.nan, math.nan
        z = _NORMAL_QUANTILE
        n = min(self.n_pairs, self.n_independent)
        p = self.accuracy
        z_squared = z * z
        shrinkage = 1 + z_squared / n
        shifted = p + z_squared / (2 * n)
        centre = shifted / shrinkage
        of_sample = p * (1 - p) / n
        variance = of_sample + z_squared / (4 * n * n)
        half = z / shrinkage * math.sqrt(variance)
        return centre - half, centre + half


@torch.inference_mode()
def score_pairs(
    encoder: Encoder,
    split: Split,
    settings: PairSettings,
    scoring: Scoring,
    task: Task,
    progress: Callable[[int, int], None] | None = None,
    processes: Processes = ALONE,
    items: ExampleItems | None = None,
) -> PairScore:
    """Score an encoder's judgement of pairs: next sentence (nsp) or sentence order (sop).

    The task need not be the one that it was trained on. Tokens are hidden as in training. A
    sentence without another to pair with gives no pair; a text that gives none scores 0 of 0.
    Where the text is a single document, a next sentence's negatives come from elsewhere in it.

    ``progress`` is called with the examples done and the examples in all; ``items`` are told how
    each pair was judged. The work is divided among ``processes``, and all return the same.
    """
    rule = replace(settings.pairs, task=task, alone="drop", negatives="anywhere")
    if not has_pairs(split):
        return PairScore(0, 0, 0)
    n_independent = _count_pairs(split, rule)
    if not n_independent:
        return PairScore(0, 0, 0)

    def judge_batch(batch: PackedBatch) -> list[float]:
        logits = encoder.sentence_logits(states_at(encoder, batch).cls)
        is_labelled = batch.labels >= 0
        is_right = predicts_negative(logits) == batch.labels.bool()
        is_correct = is_right & is_labelled
        return [*is_labelled.double().tolist(), *is_correct.double().tolist()]

    batches = ScoredBatches(split, replace(settings, pairs=rule, unit="chunks"), scoring)
    rows = batches.rows(encoder, judge_batch, progress, processes)
    n_pairs = 0
    n_correct = 0
    for index, row in enumerate(rows):
        is_labelled, is_correct = row.reshape(2, -1).astype(bool)
        n_pairs += int(is_labelled.sum())
        n_correct += int(is_correct.sum())
        if items is not None:
            items.add_pairs(batches.examples(index), is_labelled, is_correct)
    return PairScore(n_pairs, n_correct, n_independent)


def has_pairs(split: Split) -> bool:
    """Return whether a document of a text has two sentences, which a pair needs."""
    assert split.sentence_starts is not None, "the text was stored as sentences"
    return len(split.sentence_starts) > len(split.document_starts)


def _count_pairs(split: Split, rule: PairRule) -> int:
    # Sentences may be so long that each fills an example, which leaves no pair.
    assert split.sentence_starts is not None, "the text was stored as sentences"
    kept = replace(rule, alone="keep")
    pairs = make_pairs(
        split.sentence_starts, split.document_starts, len(split.ids), kept, seed=SEED, epoch=0
    )
    return int((pairs.b_stop > pairs.b_start).sum())
