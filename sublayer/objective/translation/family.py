"""The row of translation."""

import math
from dataclasses import replace

import torch

from sublayer.config.objectives.translation import (
    BleuTokenizer,
    TranslationObjective,
    bleu_tokenizer_of,
)
from sublayer.config.recipe import Recipe
from sublayer.data.split import Split
from sublayer.decode.beam_settings import BeamSettings
from sublayer.evaluation.bleu import (
    COMPOUNDS,
    check_bleu_tokenizer,
    count_translations,
    reference_lines,
    reference_words,
    scored_words,
    tokenized_bleu,
    translated_lines,
    word_rule_of,
)
from sublayer.evaluation.split_work import Processes
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.eval_mode import evaluating
from sublayer.model.transformer import Transformer
from sublayer.objective.family import Effort, Family, Scored, Scores
from sublayer.objective.metric import Metric
from sublayer.objective.translation.batches import (
    scoring_batches,
    synthetic_translations,
    translation_batches,
    translation_epoch,
)
from sublayer.objective.translation.evaluation import (
    BEAM_OPTIONS,
    describe_translator,
    evaluate_translator,
    render_translator,
)
from sublayer.objective.translation.items import LOSS_OF_ITEMS, score_of_items, translation_items
from sublayer.objective.translation.loss import Translation
from sublayer.objective.translation.scores import (
    nats_of_pairs,
    translate_ids,
    translate_ids_exactly,
    translation_nats,
)
from sublayer.system.stages import note

GREEDY = BeamSettings(beam=1, max_length_ratio=2.0, max_length_offset=10.0)
"""The search while training continues: a translation not yet learned does not end by itself."""
_LARGEST_EXPONENT = 700.0


def _build(model: Transformer, config: TranslationObjective, seed: int) -> Translation:
    return Translation(model, config)


def _check_scoring(recipe: Recipe) -> None:
    chooses = recipe.train.best_by == "bleu"
    asked = _bleu_tokenizer(recipe)
    tokens = asked or bleu_tokenizer_of(recipe.data.target_language or "")
    if chooses or asked:
        check_bleu_tokenizer(tokens)
    if chooses:
        signature = tokenized_bleu(["-"], ["-"]).signature
        rule = word_rule_of(recipe.data.moses, tokens)
        note(f"evaluations score BLEU of words: {signature}|words:{rule}")


def _bleu_tokenizer(recipe: Recipe) -> BleuTokenizer | None:
    assert isinstance(recipe.objective, TranslationObjective), "the row is of translation"
    return recipe.objective.bleu_tokenizer


def _score(
    model: Transformer, split: Split, recipe: Recipe, effort: Effort, processes: Processes
) -> Scored:
    assert isinstance(model, EncoderDecoder), "translation trains encoder-decoders"
    if effort == "training":
        return Scored(_score_training(model, split, recipe, processes), items=None)
    return _score_test(model, split, recipe, processes)


def _score_training(
    model: EncoderDecoder, split: Split, recipe: Recipe, processes: Processes
) -> Scores:
    nats = translation_nats(model, scoring_batches(recipe, split), processes)
    scores = {"loss": nats, "perplexity": math.exp(min(nats, _LARGEST_EXPONENT))}
    if recipe.train.best_by == "bleu":
        scores["bleu"] = _greedy_bleu(model, split, recipe, processes)
    return scores


def _score_test(
    model: EncoderDecoder, split: Split, recipe: Recipe, processes: Processes
) -> Scored:
    assert isinstance(recipe.objective, TranslationObjective), "the row is of translation"
    translations = translate_ids(model, split.pairs, BeamSettings.of(recipe.objective), processes)
    tokens = _bleu_tokenizer(recipe)
    counted = count_translations(
        translated_lines(translations, model.tokenizer, tokens),
        reference_lines(split.pairs, model.tokenizer, tokens),
        lowercase=bool(recipe.data.lowercase),
        compounds=recipe.data.moses_hyphens,
    )
    nats = nats_of_pairs(model, scoring_batches(recipe, split), processes)
    items = translation_items(split, nats, counted)
    values = {name: lines.value for name, lines in counted.items()}
    signatures = {name: lines.signature for name, lines in counted.items()}
    scores = {"loss": LOSS_OF_ITEMS.of(items), **values, "signature": signatures}
    return Scored(scores, items)


def _greedy_bleu(
    model: EncoderDecoder, split: Split, recipe: Recipe, processes: Processes
) -> float:
    translate = translate_ids_exactly if recipe.train.exact else translate_ids
    # In the precision of the weights, as translations are made after training.
    device = model.embedding.weight.device.type
    with evaluating(model), torch.autocast(device, enabled=False):
        translations = translate(model, split.pairs, GREEDY, processes)
    tokens = _bleu_tokenizer(recipe)
    words = scored_words(translations, model.tokenizer, tokens)
    return tokenized_bleu(words, reference_words(split.pairs, model.tokenizer, tokens)).value


def _bleu(name: str, label: str, unit: str) -> Metric:
    return Metric(
        name,
        label,
        is_lower_better=False,
        from_items=score_of_items(name),
        unit=unit,
        decimals=2,
    )


TRANSLATION = Family(
    build=_build,
    batches=translation_batches,
    synthetic=synthetic_translations,
    epoch_tokens=translation_epoch,
    score=_score,
    metrics=(
        _bleu("bleu", "BLEU of words", "BLEU"),
        _bleu("sacrebleu", "BLEU of text", "BLEU"),
        _bleu("chrf", "chrF", "chrF"),
        replace(
            _bleu(COMPOUNDS, "BLEU, compounds split", "BLEU"),
            has_head=lambda recipe: recipe.data.moses_hyphens,
            asks="words that are divided at hyphens",
            head="data.moses_hyphens = false",
        ),
        Metric("loss", "nats per token", is_lower_better=True, from_items=LOSS_OF_ITEMS),
    ),
    options=(*BEAM_OPTIONS, "lowercase", "compounds", "bleu_tokenizer", "references", "against"),
    evaluation=evaluate_translator,
    render=render_translator,
    description=describe_translator,
    check_scoring=_check_scoring,
)
"""Predicts translations, and is scored by BLEU and chrF of its own."""
