"""Pairs of texts in which tokens are hidden, as a masked objective asks for them."""

from dataclasses import replace

import numpy as np

from sublayer.config.fields.data_uses import fills_steps
from sublayer.config.objectives.masked import MaskedObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import batch_sequences
from sublayer.counts import count
from sublayer.data.masked.batches import PairBatches, count_single_sentences
from sublayer.data.masked.examples import PairSettings
from sublayer.data.masked.masking import MaskRule, MaskVocabulary
from sublayer.data.masked.segments import PairRule
from sublayer.data.parallel.batch_plan import BatchRule
from sublayer.data.split import Split
from sublayer.data.tokenizers.base import Tokenizer, check_masking
from sublayer.errors import ConfigError, DataError
from sublayer.objective.masked.synthetic import SyntheticPairs


def masked_batches(recipe: Recipe, split: Split) -> PairBatches:
    """Build the examples that a recipe asks for.

    Raises ConfigError where the tokenizer lacks what they need. Where the split has no example, the
    first batch raises DataError.
    """
    objective = recipe.objective
    context = recipe.data.context
    assert isinstance(objective, MaskedObjective), "the row is of masked objectives"
    settings = pair_settings(objective, split.tokenizer, context=context)
    batch_tokens = recipe.train.batch_tokens
    if batch_tokens is not None and fills_steps(recipe):
        settings = replace(settings, steps=_step_rule(recipe, batch_tokens))
    return PairBatches(
        split,
        settings,
        context=context,
        batch_sequences=batch_sequences(recipe),
        seed=recipe.train.seed,
    )


def check_sentences(recipe: Recipe, split: Split) -> None:
    """Raise DataError where pairs of sentences are to be judged, and no document has two.

    Pairs of single sentences (``objective.pairs``) are of the whole text.
    """
    objective = recipe.objective
    assert isinstance(objective, MaskedObjective), "the row is of masked objectives"
    if objective.sentence == "none" or objective.pairs == "sentences":
        return
    n_single, n_documents = count_single_sentences(split)
    if n_single == n_documents:
        raise DataError(
            f"objective.sentence = {objective.sentence} needs documents of two sentences or more, "
            f"and {'all ' if n_documents > 1 else ''}{count(n_documents, 'document')} of the train "
            f"split have one by data.sentences = {recipe.data.sentences}: divide them otherwise "
            "(data.sentences, data.documents), or train without (objective.sentence=none)"
        )


def _step_rule(recipe: Recipe, batch_tokens: int) -> BatchRule:
    """Return how pairs of single sentences are filled into steps of so many tokens."""
    data = recipe.data
    part_tokens = max(batch_tokens // data.batch_parts, data.context)
    return BatchRule(part_tokens, multiple=data.batch_multiple, parts=data.batch_parts)


def synthetic_pairs(recipe: Recipe, vocab_size: int) -> SyntheticPairs:
    """Build pairs of random texts, with as many predictions as a full row usually has."""
    n_rows = batch_sequences(recipe)
    context = recipe.data.context
    n_predictions = recipe.objective.n_predictions(context)
    return SyntheticPairs(vocab_size, context, n_rows, n_predictions)


def pair_settings(
    objective: MaskedObjective, tokenizer: Tokenizer, *, context: int
) -> PairSettings:
    """Return the settings by which a masked objective makes examples.

    Raises ConfigError where the tokenizer lacks what they need.
    """
    if objective.masking != "token" and not tokenizer.has_words:
        raise ConfigError(
            f"objective.masking = {objective.masking} needs a tokenizer with word boundaries, "
            f"which data.tokenizer = {tokenizer.kind} has not: "
            "use token, or data.tokenizer = unigram or wordpiece"
        )
    check_masking(tokenizer, f"the tokenizer, of kind {tokenizer.kind},")
    pairs = PairRule(
        task=objective.sentence,
        max_len=context,
        p_short=objective.p_short,
        target_per=objective.short_per,
        alone=objective.single_sentence,
    )
    masks = MaskRule(
        unit=objective.masking,
        share=objective.mask_share,
        most=objective.max_predictions,
        longest=objective.max_ngram,
        favours=objective.ngram_favours,
        p_mask=objective.p_mask,
        p_random=objective.p_random,
        counts=objective.mask_base,
        predicts_first=objective.predict_first,
    )
    vocabulary = _vocabulary(objective, tokenizer)
    return PairSettings(
        pairs, masks, vocabulary, unit=objective.pairs, static_copies=objective.static_copies
    )


def _vocabulary(objective: MaskedObjective, tokenizer: Tokenizer) -> MaskVocabulary:
    is_maskable = np.ones(tokenizer.vocab_size, dtype=np.bool_)
    is_maskable[list(tokenizer.special_ids)] = False
    # Special ids stand at the beginning of a vocabulary, but for those that were added to it later.
    first = int(np.flatnonzero(is_maskable)[0])
    is_maskable[first : first + objective.spared_ids] = False
    assert tokenizer.mask_id is not None, "the vocabulary was checked"
    low = 0 if objective.random_ids == "all" else first
    return MaskVocabulary(tokenizer.mask_id, is_maskable, random_low=low)
