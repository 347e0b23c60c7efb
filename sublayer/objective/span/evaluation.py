"""What ``sublayer evaluate`` does with a model of span corruption: score the pieces of a text."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sublayer.config.objectives.span import SpanObjective
from sublayer.counts import count
from sublayer.data.batches import Boundaries
from sublayer.data.span.batches import ScoredPieces
from sublayer.evaluation.split_work import ALONE
from sublayer.objective.evaluation import Evaluation, context_of, describe_sources
from sublayer.objective.span.items import LOSS_OF_ITEMS, piece_items
from sublayer.objective.span.scores import nats_of_pieces, scored_pieces
from sublayer.tables import table


def evaluate_spans(asked: Evaluation) -> dict[str, Any]:
    """Score every piece of a text, corrupted as in training; outside a run, as T5 was trained.

    Beside its loss stands that of a constant prediction, ``frequency_loss``.

    Raises ConfigError where the tokenizer has too few sentinels.
    """
    recipe = asked.recipe
    objective = SpanObjective()
    boundaries: Boundaries = "ignore"
    if recipe is not None:
        assert isinstance(recipe.objective, SpanObjective), "the row is of span corruption"
        objective = recipe.objective
        boundaries = recipe.data.boundaries
    context = context_of(asked.model, recipe)
    text = asked.read_text("none")
    pieces = scored_pieces(asked.model, text, objective, context=context, boundaries=boundaries)
    progress = asked.progress("scored", "batches")
    nats = nats_of_pieces(asked.model, pieces, ALONE, progress)
    return {
        "loss": LOSS_OF_ITEMS.of(piece_items(text, pieces, nats)),
        "frequency_loss": frequency_loss(pieces),
        "tokens": int(nats.tokens.sum()),
        "pieces": len(nats.tokens),
        "context": context,
        **asked.describe_text(text),
    }


def frequency_loss(pieces: ScoredPieces) -> float:
    """Compute the nats per target token of predicting each by its share of these very targets.

    No prediction that is the same everywhere costs less.
    """
    counts = np.zeros(0, dtype=np.int64)
    for number in range(pieces.n_batches):
        ids = pieces.batch(number).predicted_ids.numpy()
        found = np.bincount(ids, minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def render_spans(result: Mapping[str, Any]) -> str:
    """Format the scores for the terminal."""
    unit = "nats per target token, sentinels and ends included"
    rows = [
        ("loss", f"{result['loss']:.4f}", unit),
        ("by frequency", f"{result['frequency_loss']:.4f}", "the same, predicted by its share"),
    ]
    lines = [
        f"scored {count(result['tokens'], 'token')} cut out of {describe_sources(result)}",
        f"in {count(result['pieces'], 'piece')}, inputs of up to {result['context']} tokens",
        table(["measure", "value", "of"], rows, right=[1]),
    ]
    return "\n".join(lines)
