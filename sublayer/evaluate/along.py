"""What a run scores on its way: part of the validation split, the same at every evaluation."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from sublayer.config.objective import MaskedObjective, TranslationObjective
from sublayer.config.recipe import Recipe
from sublayer.data.pair_texts import read_split
from sublayer.data.split import Split
from sublayer.decode.beam import BeamSettings
from sublayer.evaluate.bleu import metric, reference_words, scored_words, tokenized_bleu
from sublayer.evaluate.likelihood import score
from sublayer.evaluate.masked import Scoring, encoder_scores
from sublayer.evaluate.translation import translate_pairs, translation_nats
from sublayer.model.encoder import Encoder
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.mode import evaluating
from sublayer.model.transformer import Transformer
from sublayer.objective.batching import translation_batches

Scores = Mapping[str, Any]

METRICS: dict[str, tuple[str, ...]] = {
    "causal": ("loss", "bits_per_byte"),
    "masked": ("loss", "mlm_accuracy", "nsp_accuracy", "sop_accuracy"),
    "translation": ("loss", "perplexity", "bleu"),
}
"""What is scored under each kind of objective: first the loss, nats of the reported term; bleu where it decides."""

GREEDY = BeamSettings(beam=1, longest_share=2.0, longest_more=10.0)
"""How translations are found on the way: what is not yet learned does not end by itself."""

_BATCH_TOKENS = 4096


def check_scoring(recipe: Recipe) -> None:
    """Raise ConfigError where what a recipe is scored by on its way is not installed."""
    if recipe.train.best_by == "bleu":
        metric("bleu", lowercase=False)


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
        scores = {"loss": nats, "perplexity": math.exp(min(nats, 700.0))}
        return scores | {"bleu": _greedy_bleu(model, split, recipe)} if recipe.train.best_by == "bleu" else scores
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


def _greedy_bleu(model: EncoderDecoder, split: Split, recipe: Recipe) -> float:
    assert split.name == "valid", "runs are scored on their validation split on the way"
    pairs = read_split(recipe.data, "valid")
    # In the precision of the weights, as translations are made after training.
    with evaluating(model), torch.autocast(model.embedding.weight.device.type, enabled=False):
        found = translate_pairs(model, pairs, GREEDY)
    words = scored_words([each.ids for each in found], model.tokenizer)
    return tokenized_bleu(words, reference_words(pairs, model.tokenizer)).value
