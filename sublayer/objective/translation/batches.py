"""Pairs of texts in two languages, in batches of about equal lengths."""

from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import batch_sequences
from sublayer.data.parallel.batches import TranslationBatches
from sublayer.data.split import Split
from sublayer.objective.targets.synthetic import SyntheticTargets


def translation_batches(recipe: Recipe, split: Split) -> TranslationBatches:
    """Build batches of pairs of texts, of ``train.batch_tokens`` or of as many full sequences.

    Raises DataError where every pair is too long.
    """
    data = recipe.data
    return TranslationBatches(
        split,
        context=data.context,
        batch_tokens=_batch_tokens(recipe),
        seed=recipe.train.seed,
        starts_with_pad=recipe.model.decoder_start == "pad",
        multiple=data.batch_multiple,
        order=data.batch_order,
        parts=data.batch_parts,
    )


def scoring_batches(recipe: Recipe, split: Split) -> TranslationBatches:
    """Build batches to score a split by: as large as a part of training's, with little padding.

    Raises DataError where every pair is too long.
    """
    return TranslationBatches(
        split,
        context=recipe.data.context,
        batch_tokens=_batch_tokens(recipe) // recipe.data.batch_parts,
        seed=recipe.train.seed,
        starts_with_pad=recipe.model.decoder_start == "pad",
    )


def synthetic_translations(recipe: Recipe, vocab_size: int) -> SyntheticTargets:
    """Build pairs of random texts, each as long as the context."""
    lengths = recipe.objective.lengths(recipe.data.context)
    return SyntheticTargets(vocab_size, lengths, batch_sequences(recipe))


def translation_epoch(recipe: Recipe, split: Split) -> int:
    """Count the tokens of an epoch: those of the first epoch's batches as if they were full."""
    n_batches = translation_batches(recipe, split).n_batches(0)
    return n_batches * batch_sequences(recipe) * recipe.data.context


def _batch_tokens(recipe: Recipe) -> int:
    return recipe.train.batch_tokens or batch_sequences(recipe) * recipe.data.context
