"""How well an encoder predicts hidden tokens, and how well it tells which texts belong together."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F

from sublayer.config.objective import MaskedObjective
from sublayer.data.packed import PairBatch
from sublayer.data.pair_batches import PairBatches, PairSettings
from sublayer.data.pairs import make_pairs
from sublayer.data.segments import PairRule
from sublayer.data.split import Split
from sublayer.errors import DataError
from sublayer.model.encoder import Encoder
from sublayer.model.loss import linear_cross_entropy
from sublayer.model.mode import evaluating
from sublayer.objective.batching import pair_settings
from sublayer.objective.masked import says_apart, states_at

Task = Literal["nsp", "sop"]
SEED = 0
"""Of the pairs and masks that are scored: the same for every model."""
_CHUNK = 4096


@dataclass(frozen=True)
class MaskedScore:
    """What hidden tokens cost a model, and how many it gets right.

    ``n_majority`` counts what always naming the token that is most often right among them would get right.
    """

    nats: float
    n_tokens: int
    n_correct: int
    n_majority: int

    @property
    def loss(self) -> float:
        """Nats per hidden token."""
        return self.nats / self.n_tokens if self.n_tokens else math.nan

    @property
    def accuracy(self) -> float:
        """Share of hidden tokens that are most probable under the model."""
        return self.n_correct / self.n_tokens if self.n_tokens else math.nan

    @property
    def majority(self) -> float:
        """Share that always naming the most frequent hidden token gets right."""
        return self.n_majority / self.n_tokens if self.n_tokens else math.nan


@dataclass(frozen=True)
class Judgement:
    """How many pairs of texts an encoder judges rightly; ``n_apart`` of them share no sentence with each other."""

    n_pairs: int
    n_correct: int
    n_apart: int

    @property
    def accuracy(self) -> float:
        """Share of pairs that are judged rightly."""
        return self.n_correct / self.n_pairs if self.n_pairs else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy over such pairs (Wilson 1927).

        It takes pairs as independent, so only those of one pass over the text count: other cuts of the same sentences
        add little.
        """
        if not self.n_pairs:
            return math.nan, math.nan
        z, n, p = 1.959963984540054, min(self.n_pairs, self.n_apart), self.accuracy
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return centre - half, centre + half


@dataclass(frozen=True)
class Scoring:
    """How much is scored, and how much at a time.

    ``n_examples`` of one pass over a text, or all of it where it has fewer; None: whole passes, one or what ``n_pairs``
    examples take. ``batch_sequences`` are computed at a time, which changes speed and memory only.
    """

    context: int
    batch_sequences: int
    n_examples: int | None = None
    n_pairs: int = 1


@torch.inference_mode()
def score_masked(
    encoder: Encoder,
    split: Split,
    settings: PairSettings,
    scoring: Scoring,
    progress: Callable[[int, int], None] | None = None,
) -> MaskedScore:
    """Score an encoder on the hidden tokens of a text; masks and pairs are the same for every model of a tokenizer."""
    nats, n_correct, seen = 0.0, 0, Counter[int]()
    for batch in _batches(encoder, split, settings, scoring, progress):
        hidden = encoder.to_embedding(states_at(encoder, batch).masked)
        matrix, bias = encoder.output_projection()
        nats += float(linear_cross_entropy(hidden, matrix, bias, batch.targets))
        for start in range(0, hidden.shape[0], _CHUNK):
            logits = F.linear(hidden[start : start + _CHUNK], matrix, bias)
            n_correct += int((logits.argmax(-1) == batch.targets[start : start + _CHUNK]).sum())
        seen.update(batch.targets.tolist())
    return MaskedScore(nats, seen.total(), n_correct, max(seen.values(), default=0))


@torch.inference_mode()
def judge_pairs(
    encoder: Encoder,
    split: Split,
    settings: PairSettings,
    scoring: Scoring,
    task: Task,
    progress: Callable[[int, int], None] | None = None,
) -> Judgement:
    """Let an encoder judge pairs, whichever task it was trained on: next sentence (nsp) or sentence order (sop).

    Tokens are hidden as in training. Where the text is a single document, a next sentence's negatives come from
    elsewhere in it.
    """
    rule = replace(settings.pairs, task=task, alone="drop", negatives="anywhere")
    n_pairs = n_correct = 0
    if not has_pairs(split):
        return Judgement(0, 0, 0)
    n_apart = _count_pairs(split, rule)
    if not n_apart:
        return Judgement(0, 0, 0)
    for batch in _batches(encoder, split, replace(settings, pairs=rule, unit="chunks"), scoring, progress):
        found = says_apart(encoder.sentence_logits(states_at(encoder, batch).firsts))
        is_counted = batch.labels >= 0
        n_pairs += int(is_counted.sum())
        n_correct += int((found == batch.labels.bool())[is_counted].sum())
    return Judgement(n_pairs, n_correct, n_apart)


def has_pairs(split: Split) -> bool:
    """Whether a document of a text has two sentences."""
    assert split.sentence_starts is not None, "the text was stored as sentences"
    return len(split.sentence_starts) > len(split.document_starts)


def encoder_scores(
    encoder: Encoder,
    split: Split,
    objective: MaskedObjective,
    scoring: Scoring,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Score an encoder on a text by every measure that it has a head for; what the text is too short for is left out.

    ``loss`` is in nats per hidden token, ``mlm_accuracy`` stands beside ``majority_accuracy``, that of always naming
    the most frequent hidden token; ``nsp_`` and ``sop_`` come with the number of pairs and the 95 % interval.
    """
    settings = pair_settings(objective, split.tokenizer, context=scoring.context)

    def told(what: str) -> Callable[[int, int], None] | None:
        return None if progress is None else partial(progress, what)

    masked = score_masked(encoder, split, settings, scoring, told("hidden tokens"))
    if not masked.n_tokens:
        raise DataError(
            f"{' and '.join(split.sources)} gives no token to hide: give a longer text, or fewer objective.spared_ids"
        )
    scores: dict[str, Any] = {
        "loss": masked.loss,
        "mlm_accuracy": masked.accuracy,
        "majority_accuracy": masked.majority,
        "mlm_tokens": masked.n_tokens,
    }
    tasks: tuple[Task, ...] = () if encoder.sentence_head is None else ("nsp", "sop")
    for task in tasks:
        judged = judge_pairs(encoder, split, settings, scoring, task, told(f"{task} pairs"))
        if judged.n_pairs:
            scores[f"{task}_accuracy"], scores[f"{task}_pairs"] = judged.accuracy, judged.n_pairs
            scores[f"{task}_interval"] = list(judged.interval)
    return scores


def _count_pairs(split: Split, rule: PairRule) -> int:
    # Sentences may be so long that each fills an example, which leaves no pair.
    assert split.sentence_starts is not None, "the text was stored as sentences"
    kept = replace(rule, alone="keep")
    pairs = make_pairs(split.sentence_starts, split.document_starts, len(split.ids), kept, seed=SEED, epoch=0)
    return int((pairs.b_stop > pairs.b_start).sum())


def _batches(
    encoder: Encoder,
    split: Split,
    settings: PairSettings,
    scoring: Scoring,
    progress: Callable[[int, int], None] | None,
) -> Iterator[PairBatch]:
    device = encoder.embedding.weight.device
    # A text may be a single document where that of training is not; what is scored is hidden, and differs in each pass.
    settings = replace(
        settings,
        pairs=replace(settings.pairs, negatives="anywhere"),
        masks=replace(settings.masks, predicts_first=False),
        static_copies=None,
    )
    batches = PairBatches(split, settings, context=scoring.context, batch_sequences=scoring.batch_sequences, seed=SEED)
    n_examples = batches.n_in_passes(scoring.n_pairs)
    if scoring.n_examples is not None:
        n_examples = min(scoring.n_examples, batches.n_in_passes(1))
    with evaluating(encoder):
        for start in range(0, n_examples, scoring.batch_sequences):
            stop = min(start + scoring.batch_sequences, n_examples)
            yield batches.examples(range(start, stop)).to(device)
            if progress is not None:
                progress(stop, n_examples)
