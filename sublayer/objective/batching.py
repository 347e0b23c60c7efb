"""The batches that a recipe trains on, and how it makes examples of sentences."""

import numpy as np

from sublayer.config.length import batch_sequences
from sublayer.config.objective import MaskedObjective, TranslationObjective
from sublayer.config.recipe import Recipe
from sublayer.data.batches import Batches, Windows
from sublayer.data.masking import MaskRule, MaskVocabulary
from sublayer.data.pair_batches import PairBatches, PairSettings
from sublayer.data.segments import PairRule
from sublayer.data.split import Split
from sublayer.data.translation_batches import TranslationBatches
from sublayer.data.vocabulary import Tokenizer, check_masking
from sublayer.errors import ConfigError


def make_batches(recipe: Recipe, split: Split) -> Batches:
    """Make the batches that a recipe asks for. Raises ConfigError and DataError where the text cannot give them."""
    objective, data = recipe.objective, recipe.data
    n_sequences, seed = batch_sequences(recipe), recipe.train.seed
    if isinstance(objective, MaskedObjective):
        settings = pair_settings(objective, split.tokenizer, context=data.context)
        return PairBatches(split, settings, context=data.context, batch_sequences=n_sequences, seed=seed)
    if isinstance(objective, TranslationObjective):
        return translation_batches(recipe, split)
    return Windows(
        split,
        context=data.context,
        batch_sequences=n_sequences,
        seed=seed,
        mode=data.windows,
        boundaries=data.boundaries,
        n_ahead=objective.targets,
    )


def translation_batches(recipe: Recipe, split: Split) -> TranslationBatches:
    """Make batches of pairs of texts. Raises DataError where every pair is too long."""
    context = recipe.data.context
    return TranslationBatches(
        split,
        context=context,
        batch_tokens=recipe.train.batch_tokens or batch_sequences(recipe) * context,
        seed=recipe.train.seed,
        starts_with_pad=recipe.model.decoder_start == "pad",
    )


def pair_settings(objective: MaskedObjective, tokenizer: Tokenizer, *, context: int) -> PairSettings:
    """Say how a masked objective makes examples. Raises ConfigError where the tokenizer lacks what it needs."""
    if objective.masking != "token" and not tokenizer.has_words:
        raise ConfigError(
            f"objective.masking = {objective.masking} needs a tokenizer with word boundaries, which data.tokenizer = "
            f"{tokenizer.kind} has not: use token, or data.tokenizer = unigram or wordpiece"
        )
    check_masking(tokenizer, f"the tokenizer, of kind {tokenizer.kind},")
    pairs = PairRule(
        task=objective.sentence,
        max_len=context,
        p_short=objective.p_short,
        target_per=objective.short_per,
        alone=objective.alone,
    )
    masks = MaskRule(
        unit=objective.masking,
        share=objective.mask_share,
        most=objective.mask_most,
        longest=objective.ngram_longest,
        favours=objective.ngram_favours,
        p_mask=objective.p_mask,
        p_random=objective.p_random,
        counts=objective.mask_base,
        predicts_first=objective.predict_first,
    )
    vocabulary = _vocabulary(objective, tokenizer)
    return PairSettings(pairs, masks, vocabulary, unit=objective.pairs, static_copies=objective.static_copies)


def _vocabulary(objective: MaskedObjective, tokenizer: Tokenizer) -> MaskVocabulary:
    is_maskable = np.ones(tokenizer.vocab_size, dtype=np.bool_)
    is_maskable[list(tokenizer.special_ids)] = False
    # Special ids stand at the beginning of a vocabulary, but for those that were added to it later.
    first = int(np.flatnonzero(is_maskable)[0])
    is_maskable[first : first + objective.spared_ids] = False
    assert tokenizer.mask_id is not None, "the vocabulary was checked"
    low = 0 if objective.random_ids == "all" else first
    return MaskVocabulary(tokenizer.mask_id, is_maskable, random_low=low)
