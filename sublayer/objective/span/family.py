"""The row of span corruption."""

from sublayer.config.objectives.span import SpanObjective
from sublayer.model.transformer import Transformer
from sublayer.objective.family import Family, Scores
from sublayer.objective.metric import Metric
from sublayer.objective.span.batches import (
    check_pieces,
    span_batches,
    span_epoch,
    synthetic_spans,
)
from sublayer.objective.span.evaluation import evaluate_spans, render_spans
from sublayer.objective.span.items import LOSS_OF_ITEMS
from sublayer.objective.span.loss import SpanCorruption
from sublayer.objective.span.scores import span_scores


def _build(model: Transformer, config: SpanObjective, seed: int) -> SpanCorruption:
    return SpanCorruption(model, config)


def _describe(scores: Scores) -> str:
    return f"loss {scores['loss']:.4f} nats per target token"


def _has_sentinels(model: Transformer) -> bool:
    return model.tokenizer is not None and len(model.tokenizer.sentinel_ids) > 0


SPAN = Family(
    build=_build,
    batches=span_batches,
    synthetic=synthetic_spans,
    epoch_tokens=span_epoch,
    check_text=check_pieces,
    score=span_scores,
    metrics=(
        Metric(
            "loss",
            "nats per target token",
            is_lower_better=True,
            from_items=LOSS_OF_ITEMS,
            basis="items",
        ),
    ),
    claims=_has_sentinels,
    evaluation=evaluate_spans,
    render=render_spans,
    description=_describe,
)
"""Predicts what was cut out of a text, and is scored in nats per token of that."""
