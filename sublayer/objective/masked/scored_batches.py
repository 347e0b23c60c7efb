"""The examples of a text that an encoder is scored on, in batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sublayer.data.masked.batches import PairBatches
from sublayer.data.masked.examples import PairSettings
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.split import Split
from sublayer.evaluation.split_work import Processes, Row, compute_each
from sublayer.model.encoder import Encoder
from sublayer.model.eval_mode import evaluating
from sublayer.objective.masked.items import ScoredExamples, examples_at

SEED = 0
"""Of the pairs and masks that are scored: the same for every model."""


@dataclass(frozen=True)
class Scoring:
    """How much is scored, and how much at a time."""

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
        # What is scored is hidden, and differs in each pass.
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
        """Build the examples of a batch again, for items: rows hold what they scored alone."""
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
