"""The row of causal objectives."""

from sublayer.config.objectives.causal import CausalObjective
from sublayer.model.transformer import Transformer
from sublayer.objective.causal.batches import causal_batches, check_windows, synthetic_windows
from sublayer.objective.causal.evaluation import describe_decoder, evaluate_decoder, render_decoder
from sublayer.objective.causal.items import BITS_PER_BYTE_OF_ITEMS
from sublayer.objective.causal.loss import Causal
from sublayer.objective.causal.scores import causal_scores, score_at_stride
from sublayer.objective.family import TEXT_OPTIONS, Family, stored_tokens
from sublayer.objective.metric import Metric

BITS_PER_BYTE = Metric(
    "bits_per_byte",
    "bits per byte",
    is_lower_better=True,
    from_items=BITS_PER_BYTE_OF_ITEMS,
    basis="bytes",
)


def _build(model: Transformer, config: CausalObjective, seed: int) -> Causal:
    return Causal(model, config, seed=seed)


CAUSAL = Family(
    build=_build,
    batches=causal_batches,
    synthetic=synthetic_windows,
    epoch_tokens=stored_tokens,
    check_text=check_windows,
    score=causal_scores,
    score_at_stride=score_at_stride,
    metrics=(BITS_PER_BYTE,),
    options=(*TEXT_OPTIONS, "stride"),
    evaluation=evaluate_decoder,
    render=render_decoder,
    description=describe_decoder,
)
"""Predicts the tokens that follow, and is scored in bits per byte."""
