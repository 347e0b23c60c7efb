"""Scores of an encoder: masked tokens, pairs of texts, and the items of both."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from sublayer.config.objective import MaskedObjective
from sublayer.data.masked.batches import PairBatches, PairSettings
from sublayer.data.masked.masking import Example, packed_order
from sublayer.data.masked.pairs import PairRule, make_pairs
from sublayer.data.packing import PackedBatch
from sublayer.data.store import Split
from sublayer.errors import DataError
from sublayer.evaluation.items import Digest, FromItems, Items, ItemTable, Numbers, Sums
from sublayer.evaluation.split_work import ALONE, Processes, Row, add_up, compute_each
from sublayer.model.build import Encoder
from sublayer.model.eval_mode import evaluating
from sublayer.model.kernels.cross_entropy import nats_of_targets
from sublayer.objective.masked.loss import pair_settings, predicts_negative, states_at

HIDDEN = "examples"
_HIDDEN_UNIT = "an example: the tokens that are hidden in it"
_PAIR_UNIT = "a pair of texts that is judged"


def _loss(sums: Sums) -> float:
    nats = float(sums["nats"])
    n_tokens = float(sums["tokens"])
    return nats / n_tokens


def _accuracy(sums: Sums) -> float:
    n_correct = float(sums["correct"])
    n_tokens = float(sums["tokens"])
    return n_correct / n_tokens


def _judged(sums: Sums) -> float:
    n_correct = float(sums["correct"])
    n_pairs = float(sums["pairs"])
    if not n_pairs:
        return math.nan
    return n_correct / n_pairs


LOSS_OF_ITEMS = FromItems(HIDDEN, _loss)
ACCURACY_OF_ITEMS = FromItems(HIDDEN, _accuracy)


def judged_of_items(task: str) -> FromItems:
    """Return how the share of pairs that are judged rightly follows from them; NaN of no pair."""
    return FromItems(f"{task}_pairs", _judged)


@dataclass(frozen=True)
class ScoredExamples:
    """Examples that are scored together, in the order of their pass."""

    made: list[Example]
    documents: list[int]
    """The documents of the split that they begin in."""
    order: NDArray[np.int64]
    """The indices of the examples in the order of their batch: [N]."""

    @property
    def owners(self) -> NDArray[np.int64]:
        """The index of the example of each masked token of the batch: [P]."""
        n_hidden = [len(self.made[index].positions) for index in self.order]
        return np.repeat(self.order, n_hidden)


def examples_at(batches: PairBatches, positions: range) -> ScoredExamples:
    """Build the examples at positions of the endless row of passes."""
    made = batches.make(positions)
    order = np.array(packed_order(made, width=batches.context), dtype=np.int64)
    return ScoredExamples(made, batches.documents(positions), order)


class ExampleItems:
    """Scores of examples, gathered batch by batch.

    ``name`` is that of the table, ``unit`` describes an item.
    """

    def __init__(self, name: str, unit: str, split: Split) -> None:
        self._unit = unit
        self._digest = Digest(name, split.store.sha256)
        self._documents: list[int] = []
        self._parts: list[Mapping[str, Numbers]] = []

    def add_hidden(
        self, examples: ScoredExamples, nats: Row, is_correct: NDArray[np.bool_]
    ) -> None:
        """Add the nats of masked tokens, in the order of their batch, and which are correct."""
        n = len(examples.made)
        owners = examples.owners
        # Added up per example: items are examples, and not their tokens.
        correct = owners[is_correct]
        columns = {
            "nats": np.bincount(owners, nats, n),
            "tokens": np.bincount(owners, minlength=n),
            "correct": np.bincount(correct, minlength=n),
        }
        self._add(examples, columns)

    def add_pairs(
        self, examples: ScoredExamples, is_counted: NDArray[np.bool_], is_correct: NDArray[np.bool_]
    ) -> None:
        """Add which examples, in their batch's order, are labelled pairs and judged rightly."""
        n = len(examples.made)
        counted = examples.order[is_counted]
        correct = examples.order[is_correct]
        columns = {
            "pairs": np.bincount(counted, minlength=n),
            "correct": np.bincount(correct, minlength=n),
        }
        self._add(examples, columns)

    def table(self) -> ItemTable | None:
        """Return the gathered table; None where nothing was gathered."""
        if not self._parts:
            return None
        columns: dict[str, Numbers] = {}
        for name in self._parts[0]:
            columns[name] = np.concatenate([part[name] for part in self._parts])
        return ItemTable(
            unit=self._unit,
            digest=self._digest.hexdigest(),
            columns=columns,
            documents=np.array(self._documents),
        )

    def _add(self, examples: ScoredExamples, columns: Mapping[str, Numbers]) -> None:
        self._parts.append(columns)
        self._documents.extend(examples.documents)
        for example in examples.made:
            for ids in (example.ids, example.segments, example.positions, example.targets):
                self._digest.add(ids)
            self._digest.add([example.label])


@dataclass
class EncoderItems:
    """Scores of the examples of a text: masked tokens, and pairs by their task."""

    split: Split
    hidden: ExampleItems = field(init=False)
    _judged: dict[str, ExampleItems] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.hidden = ExampleItems(HIDDEN, _HIDDEN_UNIT, self.split)

    def pairs(self, task: str) -> ExampleItems:
        """Begin the table of a task; one that was begun before is replaced."""
        pairs = ExampleItems(f"{task}_pairs", _PAIR_UNIT, self.split)
        self._judged[task] = pairs
        return pairs

    def items(self) -> Items:
        """Return the tables of scores, without empty ones."""
        by_name = {HIDDEN: self.hidden}
        for task, judged in self._judged.items():
            by_name[f"{task}_pairs"] = judged
        tables = {}
        for name, gathered in by_name.items():
            table = gathered.table()
            if table is not None:
                tables[name] = table
        return Items(self.split.name, self.split.store.sha256, tables)


SEED = 0
"""Of the pairs and masks that are scored: the same for every model."""


@dataclass(frozen=True)
class Scoring:
    """Amount of text that is scored, and the batch."""

    context: int
    """Tokens of a row, and of the longest example."""
    batch_sequences: int
    """Examples that are computed at a time, which changes speed and memory only."""
    n_examples: int | None = None
    """Examples of one pass over a text, or all of it where it has fewer; None: whole passes."""
    n_pairs: int = 1
    """Examples that whole passes give at least, where ``n_examples`` is None."""


class ScoredBatches:
    """The batches of a text that are scored, each a range of the examples of its passes."""

    def __init__(self, split: Split, settings: PairSettings, scoring: Scoring) -> None:
        # A text may be a single document where that of training is not.
        pairs = replace(settings.pairs, negatives="anywhere")
        # The scored tokens are hidden, and differ from pass to pass.
        masks = replace(settings.masks, predicts_first=False)
        settings = replace(settings, pairs=pairs, masks=masks, static_copies=None)
        size = scoring.batch_sequences
        self._batches = PairBatches(
            split, settings, context=scoring.context, batch_sequences=size, seed=SEED
        )
        n_examples = self._batches.n_in_passes(scoring.n_pairs)
        if scoring.n_examples is not None:
            n_in_one_pass = self._batches.n_in_passes(1)
            n_examples = min(scoring.n_examples, n_in_one_pass)
        self._n_examples = n_examples
        self._ranges = []
        for start in range(0, n_examples, size):
            stop = min(start + size, n_examples)
            self._ranges.append(range(start, stop))

    def examples(self, index: int) -> ScoredExamples:
        """Build the examples of a batch again, for items: rows hold scores alone."""
        return examples_at(self._batches, self._ranges[index])

    def rows(
        self,
        encoder: Encoder,
        work: Callable[[PackedBatch], Sequence[float]],
        progress: Callable[[int, int], None] | None,
        processes: Processes,
    ) -> list[Row]:
        """Compute a row of numbers for each batch, in order; dropout is off meanwhile.

        ``progress`` is called with the examples done and the examples in all.
        """
        device = encoder.embedding.weight.device

        def score_one(index: int) -> Sequence[float]:
            positions = self._ranges[index]
            batch = self._batches.examples(positions).to(device)
            row = work(batch)
            if progress is not None:
                progress(positions.stop, self._n_examples)
            return row

        with evaluating(encoder):
            return compute_each(score_one, len(self._ranges), processes)


Task = Literal["nsp", "sop"]
_NORMAL_QUANTILE = 1.959963984540054
"""Of 97.5 %."""


@dataclass(frozen=True)
class PairScore:
    """Counts of pairs of texts that an encoder judges rightly."""

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
    """Number of right answers from always naming the token that is most often right among them."""

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
    examples done and the examples in all; ``items`` hear of the scores of examples. The work is
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
    pairs and the 95% CI. Accuracies are shares, from 0 to 1. ``progress`` hears the measure
    before the amount; ``items`` hear of the scores of examples.

    Raises ConfigError where the tokenizer lacks an id of the objective, DataError where the text
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
