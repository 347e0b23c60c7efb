"""What a run scores on its way: part of the validation split, the same at every evaluation."""

import math
from collections.abc import Mapping
from typing import Any

from sublayer.config.objective import MaskedObjective, TranslationObjective
from sublayer.config.recipe import Recipe
from sublayer.data.split import Split
from sublayer.evaluate.likelihood import score
from sublayer.evaluate.masked import Scoring, encoder_scores
from sublayer.evaluate.translation import translation_nats
from sublayer.model.encoder import Encoder
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.transformer import Transformer
from sublayer.objective.batching import translation_batches

Scores = Mapping[str, Any]

METRICS: dict[str, tuple[str, ...]] = {
    "causal": ("loss", "bits_per_byte"),
    "masked": ("loss", "mlm_accuracy", "nsp_accuracy", "sop_accuracy"),
    "translation": ("loss", "perplexity"),
}
"""What is scored under each kind of objective. The loss, nats of the reported term, chooses the best checkpoint."""

_BATCH_TOKENS = 4096


def evaluate_along(model: Transformer, split: Split, recipe: Recipe) -> Scores:
    """Score about ``train.evaluate_tokens`` tokens of a split by the measures of the recipe's objective."""
    context = recipe.data.context
    n_at_a_time = max(1, _BATCH_TOKENS // context)
    if isinstance(recipe.objective, MaskedObjective):
        assert isinstance(model, Encoder), "masked objectives train encoders"
        assert recipe.train.evaluate_tokens is not None, "the recipe is resolved"
        scoring = Scoring(context, n_at_a_time, max(1, recipe.train.evaluate_tokens // context))
        return encoder_scores(model, split, recipe.objective, scoring)
    if isinstance(recipe.objective, TranslationObjective):
        assert isinstance(model, EncoderDecoder), "translation trains encoder-decoders"
        nats = translation_nats(model, translation_batches(recipe, split))
        return {"loss": nats, "perplexity": math.exp(min(nats, 700.0))}
    likelihood = score(
        model,
        split,
        context=context,
        stride=context,
        batch_sequences=n_at_a_time,
        max_tokens=recipe.train.evaluate_tokens,
        respect_boundaries=recipe.data.boundaries == "respect",
    )
    return {"loss": likelihood.loss, "bits_per_byte": likelihood.bits_per_byte}
