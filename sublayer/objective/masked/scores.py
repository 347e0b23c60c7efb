"""Scores of an encoder: masked tokens, text pairs, and items of both."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from sublayer.config.objective import MaskedObjective
from sublayer.data.batches import PackedBatch
from sublayer.data.masked import Example, PairBatches, PairSettings
from sublayer.data.sentence_pairs import PairRule, make_pairs
from sublayer.data.store import Split
from sublayer.errors import DataError
from sublayer.evaluation.items import Digest, ItemTable, Numbers, quotient_of
from sublayer.evaluation.split_work import (
    ALONE,
    Processes,
    Progress,
    add_up,
    compute_each,
    silent,
)
from sublayer.model.kernels.cross_entropy import nats_of_targets
from sublayer.model.transformer import Encoder, evaluating
from sublayer.objective.masked.loss import pair_settings, predicts_negative, states_at

_T = TypeVar("_T")
LOSS_OF_ITEMS = quotient_of(MaskedObjective.evaluated["loss"])
HIDDEN = LOSS_OF_ITEMS.table
"""The name of the table of masked tokens; pairs have ``nsp_pairs`` and ``sop_pairs``."""
SEED = 0
"""Of the pairs and masks that are scored: the same for every model."""


@dataclass(frozen=True)
class Scoring:
    """Scored amount of text, and batch size."""

    context: int
    """Tokens of a row, and of the longest example."""
    batch_sequences: int
    """Examples that are computed at a time, which changes speed and memory only."""
    n_examples: int | None = None
    """Examples of one pass over a text, or all of it where it has fewer; None: whole passes."""
    n_pairs: int = 1
    """Examples that whole passes give at least, where ``n_examples`` is None."""


class _ScoredBatches:
    """Scored batches of a text: ranges of the examples of its passes."""

    def __init__(self, split: Split, settings: PairSettings, scoring: Scoring) -> None:
        # The text may be a single document, unlike the training text.
        pairs = replace(settings.pairs, negatives="anywhere")
        # Scored tokens are masked, and differ between passes.
        masks = replace(settings.masks, predicts_first=False)
        settings = replace(settings, pairs=pairs, masks=masks, static_copies=None)
        size = scoring.batch_sequences
        self._batches = PairBatches(
            split, settings, context=scoring.context, batch_sequences=size, seed=SEED
        )
        n_examples = self._batches.n_in_passes(scoring.n_pairs)
        if scoring.n_examples is not None:
            n_examples = min(scoring.n_examples, self._batches.n_in_passes(1))
        self._ranges = [
            range(start, min(start + size, n_examples)) for start in range(0, n_examples, size)
        ]

    def rows(
        self,
        encoder: Encoder,
        work: Callable[[PackedBatch, Sequence[Example], NDArray[np.int64]], _T],
        progress: Progress,
        processes: Processes,
    ) -> list[_T]:
        """Compute ``work`` of each batch, in order, without dropout or gradients.

        Arguments of ``work``: batch, examples, and their indices in batch order, ``[N]``.
        ``progress`` receives the examples done and the total.
        """
        device = encoder.embedding.weight.device

        def score_one(index: int) -> _T:
            positions = self._ranges[index]
            made = self._batches.make(positions)
            batch = self._batches.packed(made)
            result = work(batch.to(device), made, np.array(batch.numbers, dtype=np.int64))
            progress(positions.stop, self._ranges[-1].stop)
            return result

        with evaluating(encoder), torch.inference_mode():
            return compute_each(score_one, len(self._ranges), processes)

    def table(self, name: str, unit: str, columns: Sequence[dict[str, Numbers]]) -> ItemTable:
        """Return the columns of all batches as a table, with the examples' digest."""
        split = self._batches.split
        digest = Digest(name, split.store.sha256)
        documents: list[int] = []
        for positions in self._ranges:
            documents += self._batches.documents(positions)
            for example in self._batches.make(positions):
                for ids in (example.ids, example.segments, example.positions, example.targets):
                    digest.add(ids)
                digest.add([example.label])
        joined = {key: np.concatenate([part[key] for part in columns]) for key in columns[0]}
        return ItemTable(unit, digest.hexdigest(), joined, np.array(documents))


Task = Literal["nsp", "sop"]
_NORMAL_QUANTILE = 1.959963984540054
"""Of 97.5 %."""


class PairScore(NamedTuple):
    """Counts of text pairs that an encoder classifies correctly."""

    n_pairs: int
    n_correct: int
    n_independent: int
    """Pairs of a single pass over the text: they share no sentence with each other."""

    @property
    def accuracy(self) -> float:
        """Share of correct pairs, from 0 to 1; NaN without pairs."""
        return self.n_correct / self.n_pairs if self.n_pairs else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95% CI of the accuracy (Wilson 1927); NaN without pairs.

        Pairs are assumed independent, so only one pass over the text counts: other pairs of the
        same sentences add little.
        """
        if not self.n_pairs:
            return math.nan, math.nan
        z = _NORMAL_QUANTILE
        n = min(self.n_pairs, self.n_independent)
        p = self.accuracy
        z_squared = z * z
        shrinkage = 1 + z_squared / n
        centre = (p + z_squared / (2 * n)) / shrinkage
        variance = p * (1 - p) / n + z_squared / (4 * n * n)
        half = z / shrinkage * math.sqrt(variance)
        return centre - half, centre + half


def score_pairs(
    encoder: Encoder,
    split: Split,
    settings: PairSettings,
    scoring: Scoring,
    task: Task,
    progress: Progress = silent,
    processes: Processes = ALONE,
    tables: dict[str, ItemTable] | None = None,
) -> PairScore:
    """Score an encoder on text pairs: next sentence (nsp) or sentence order (sop).

    The task may differ from the training's. Tokens are masked as in training. A sentence without a
    partner gives no pair; a text without pairs scores 0 of 0. In a single document, negatives come
    from elsewhere in it.

    ``progress`` receives the examples done and the total; ``tables`` gets the pairs' items. The
    work is divided among ``processes``, and all return the same.
    """
    rule = replace(settings.pairs, task=task, alone="drop", negatives="anywhere")
    n_independent = _count_pairs(split, rule) if has_pairs(split) else 0
    if not n_independent:
        return PairScore(0, 0, 0)

    def judge(
        batch: PackedBatch, made: Sequence[Example], order: NDArray[np.int64]
    ) -> dict[str, Numbers]:
        logits = encoder.sentence_logits(states_at(encoder, batch).cls)
        is_labelled = batch.labels >= 0
        is_correct = (predicts_negative(logits) == batch.labels.bool()) & is_labelled
        return {
            name: np.bincount(order[chosen.cpu().numpy()], minlength=len(made))
            for name, chosen in (("pairs", is_labelled), ("correct", is_correct))
        }

    batches = _ScoredBatches(split, replace(settings, pairs=rule, unit="chunks"), scoring)
    columns = batches.rows(encoder, judge, progress, processes)
    if tables is not None:
        name = f"{task}_pairs"
        tables[name] = batches.table(name, "a pair of texts that is judged", columns)
    n_pairs, n_correct = (int(sum(c[name].sum() for c in columns)) for name in ("pairs", "correct"))
    return PairScore(n_pairs, n_correct, n_independent)


def has_pairs(split: Split) -> bool:
    """Check whether a document has two sentences, as a pair requires."""
    assert split.sentence_starts is not None, "the text was stored as sentences"
    return len(split.sentence_starts) > len(split.document_starts)


def _count_pairs(split: Split, rule: PairRule) -> int:
    # Long sentences may fill an example, which leaves no pair.
    assert split.sentence_starts is not None, "the text was stored as sentences"
    kept = replace(rule, alone="keep")
    pairs = make_pairs(
        split.sentence_starts, split.document_starts, len(split.ids), kept, seed=SEED, epoch=0
    )
    return int((pairs.b_stop > pairs.b_start).sum())


_CHUNK = 4096


def score_masked(
    encoder: Encoder,
    split: Split,
    settings: PairSettings,
    scoring: Scoring,
    progress: Progress = silent,
    processes: Processes = ALONE,
    tables: dict[str, ItemTable] | None = None,
) -> dict[str, Any]:
    """Score an encoder on the masked tokens of a text: its loss and accuracy, and their counts.

    Masks and pairs are the same for all models of a tokenizer. ``progress`` receives the examples
    done and the total; ``tables`` gets the examples' items. The work is divided among
    ``processes``, and all return the same. Raises DataError where no token is masked.
    """

    def score_batch(
        batch: PackedBatch, made: Sequence[Example], order: NDArray[np.int64]
    ) -> tuple[float, list[int], dict[str, Numbers]]:
        hidden = encoder.to_embedding(states_at(encoder, batch).masked)
        matrix, bias = encoder.output_projection()
        targets = batch.predicted_ids
        nats = nats_of_targets(hidden, matrix, bias, targets)
        # Logits have the size of the vocabulary: a few tokens at a time.
        parts = [F.linear(part, matrix, bias).argmax(-1) for part in torch.split(hidden, _CHUNK)]
        is_correct = (torch.cat(parts) == targets).cpu().numpy()
        # Summed per example: items are examples, not tokens.
        owners, n = np.repeat(order, [len(made[index].positions) for index in order]), len(made)
        columns: dict[str, Numbers] = {
            "nats": np.bincount(owners, nats.each.double().cpu().numpy(), n),
            "tokens": np.bincount(owners, minlength=n),
            "correct": np.bincount(owners[is_correct], minlength=n),
        }
        return float(nats.total), targets.tolist(), columns

    batches = _ScoredBatches(split, settings, scoring)
    rows = batches.rows(encoder, score_batch, progress, processes)
    if tables is not None and rows:
        unit = "an example: the tokens that are hidden in it"
        tables[HIDDEN] = batches.table(HIDDEN, unit, [columns for _, _, columns in rows])
    frequencies = Counter(target for _, targets, _ in rows for target in targets)
    n_correct = int(sum(columns["correct"].sum() for _, _, columns in rows))
    n_tokens = frequencies.total()
    if not n_tokens:
        sources = " and ".join(split.sources)
        raise DataError(
            f"{sources} gives no token to hide: give a longer text, or fewer objective.spared_ids"
        )
    return {
        "loss": add_up(total for total, _, _ in rows) / n_tokens,
        "mlm_accuracy": n_correct / n_tokens,
        "majority_accuracy": max(frequencies.values()) / n_tokens,
        "mlm_tokens": n_tokens,
    }


def encoder_scores(
    encoder: Encoder,
    split: Split,
    objective: MaskedObjective,
    scoring: Scoring,
    progress: Callable[[str, int, int], None] = lambda what, n_done, n_all: None,
    processes: Processes = ALONE,
    tables: dict[str, ItemTable] | None = None,
) -> dict[str, Any]:
    """Score an encoder on a text by every measure with a head and enough pairs.

    ``loss`` is in nats per masked token; ``majority_accuracy`` is the baseline of ``mlm_accuracy``
    that always predicts the most frequent masked token; ``nsp_`` and ``sop_`` include the number of
    pairs and the 95% CI. Accuracies are shares, from 0 to 1. ``progress`` receives the measure
    before the amount; ``tables`` gets the items of a test.

    Raises ConfigError where the tokenizer lacks an id of the objective, DataError where the text
    has no maskable token.
    """
    settings = pair_settings(objective, split.tokenizer, context=scoring.context)
    judges = "sentence" in encoder.heads
    if not judges:
        # Later passes serve only pairs.
        scoring = replace(scoring, n_pairs=1)
    shown = partial(progress, "masked tokens")
    scores = score_masked(encoder, split, settings, scoring, shown, processes, tables)
    tasks: tuple[Task, ...] = ("nsp", "sop") if judges else ()
    for task in tasks:
        shown = partial(progress, f"{task} pairs")
        judged = score_pairs(encoder, split, settings, scoring, task, shown, processes, tables)
        if judged.n_pairs:
            scores[f"{task}_accuracy"] = judged.accuracy
            scores[f"{task}_pairs"] = judged.n_pairs
            scores[f"{task}_interval"] = list(judged.interval)
    return scores
